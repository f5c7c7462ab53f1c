"""The notebook runs from top to bottom, and shows what it promises."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

NOTEBOOK = json.loads((ROOT / "examples" / "own_table.ipynb").read_text(encoding="utf-8"))
CELLS = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_is_kept_without_results() -> None:
    assert NOTEBOOK["nbformat"] == 4
    assert all(not cell["outputs"] for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code")


@pytest.mark.slow
@pytest.mark.process
def test_the_notebook_runs(tmp_path: Path) -> None:
    (tmp_path / "notebook.py").write_text("\n\n".join([*CELLS, "print(table.rows())"]))
    environment = {**os.environ, "MPLBACKEND": "agg", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "notebook.py"]
    done = subprocess.run(  # noqa: S603
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=400
    )
    assert done.returncode == 0, done.stderr[-3000:]
    variety = [float(found) for found in re.findall(r"variety (0\.\d+)", done.stdout)]
    assert len(variety) == 5
    assert variety[-1] > variety[0], "the knob works"
    assert "('random', " in done.stdout
    assert "'yes')" in done.stdout.splitlines()[-1], "better than chance than random slates"
    assert (tmp_path / "knob.svg").stat().st_size > 1000
