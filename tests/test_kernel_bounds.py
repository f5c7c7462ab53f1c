"""Compiled kernels stay within their arrays: their own tests pass while numba checks every index."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = [pytest.mark.process, pytest.mark.slow]

KERNEL_TESTS = [
    "test_slates.py",
    "test_quantized.py",
    "test_diversify.py",
    "test_belief.py",
    "test_policies.py",
    "test_randomness.py",
    "test_evidence.py",
    "test_learning_kernels.py",
]

WRONG = """
import numpy as np
from slatewise.compiled import compiled

@compiled
def beyond(values):
    return values[len(values)]

beyond(np.zeros(3))
"""


def run(arguments: list[str], cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)  # noqa: S603


def test_kernels_stay_within_their_arrays(tmp_path: Path) -> None:
    done = run(["-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"tests/{name}" for name in KERNEL_TESTS)], tmp_path)
    assert done.returncode == 0, done.stdout[-3000:]


def test_an_index_that_is_out_of_bounds_is_noticed(tmp_path: Path) -> None:
    script = tmp_path / "wrong.py"
    script.write_text(WRONG)
    done = run([str(script)], tmp_path)
    assert "IndexError" in done.stderr
