"""A tutorial as a script: blocks with a title become files, blocks of the shell run one after the other."""

import os
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.test_plugins import install

BLOCK = re.compile(r"```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)```", re.DOTALL)
PATIENCE = 400


def blocks(text: str) -> list[tuple[str, str, str]]:
    """Return language, title and content of every block of code."""
    return BLOCK.findall(text)


def run_tutorial(text: str, folder: Path) -> str:
    """Do in a folder what a page says, line by line; return what was printed. The first line that fails ends it."""
    port = _free_port()
    script = ["set -euo pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for language, title, content in blocks(text.replace("8000", str(port))):
        if title:
            (folder / title).parent.mkdir(parents=True, exist_ok=True)
            (folder / title).write_text(content)
        elif language == "sh":
            script.append(re.sub(r"^pip install \./(\S+)$", ": installed by the test", content, flags=re.MULTILINE))
    done = subprocess.run(  # noqa: S603
        ["bash", "-c", "\n".join(script)],  # noqa: S607
        cwd=folder,
        env=_environment(folder),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment in which `slatewise` and `python` are those of the tests, and plug-ins are installed."""
    paths = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    for project in folder.glob("*/pyproject.toml"):
        module = next(project.parent.glob("*.py"))
        site = install(folder / "site", tomllib.loads(project.read_text())["project"], module.stem, module.read_text())
        paths.append(str(site))
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(paths),
        "OPENBLAS_NUM_THREADS": "1",
        "NO_PROXY": "*",
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
