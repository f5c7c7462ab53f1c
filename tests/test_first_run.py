"""What goes wrong on a first run, really tried: each mishap is answered in one clear sentence, never a traceback."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from slatewise import Catalog
from tests.conftest import ROOT

pytestmark = pytest.mark.process

WITHOUT = "import sys; sys.modules[{module!r}] = None; sys.argv = ['slatewise', *{arguments!r}]; "
MAIN = "from slatewise.__main__ import main; main()"


def stop_overriding() -> None:
    """Let permissions of files hold for root too (prctl: drop CAP_DAC_OVERRIDE before the program starts)."""
    if os.geteuid() == 0:
        ctypes.CDLL(None).prctl(24, 1)


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
        timeout=120,
        preexec_fn=stop_overriding,
    )


def assert_one_sentence(said: str, sentence: str) -> None:
    assert sentence in said
    assert "Traceback" not in said
    assert len(said.strip().splitlines()) == 1


LACKING: dict[str, tuple[str, list[str], str]] = {
    "command line": ("typer", ["--version"], "error: the command line needs typer: pip install '.[train]'"),
    "trainer": ("cornac", ["demo", "--out", "{out}"], "pip install '.["),
    "service": ("uvicorn", ["serve", "--catalog", "{out}"], "uvicorn is not installed: pip install '.["),
    "tables": ("polars", ["data", "describe", "synthetic"], "polars is not installed: pip install '.["),
}


@pytest.mark.parametrize(("module", "arguments", "sentence"), LACKING.values(), ids=LACKING.keys())
def test_an_extra_that_is_missing_is_named(module: str, arguments: list[str], sentence: str, tmp_path: Path) -> None:
    filled = [argument.format(out=tmp_path / "out") for argument in arguments]
    environment = {"SLATEWISE_DATA": str(tmp_path), "OPENBLAS_NUM_THREADS": "1"}
    done = python(WITHOUT.format(module=module, arguments=filled) + MAIN, **environment)
    assert done.returncode == 1
    assert sentence in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_machine_that_only_serves_needs_nothing_of_the_trainer(tmp_path: Path) -> None:
    Catalog.from_vectors(["a", "b", "c"], np.eye(3)).save(tmp_path / "shop")
    lacking = "import sys; sys.modules |= dict.fromkeys(['cornac', 'matplotlib', 'platformdirs', 'polars', 'scipy']); "
    options = ["--catalog", str(tmp_path / "shop"), "--store", f"sqlite:///{tmp_path}/slates.db", "--port", "0"]
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", f"{lacking}sys.argv = ['slatewise', 'serve', *{options!r}]; {MAIN}"],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    serving = process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert "serving 3 items at http://127.0.0.1:" in serving, said
    absent = python(WITHOUT.format(module="polars", arguments=["catalog", "show", str(tmp_path)]) + MAIN)
    assert_one_sentence(absent.stderr, "contains no catalog")


def test_an_old_python_is_told_so() -> None:
    """As `python -m slatewise` on a checkout; pip itself refuses by requires-python."""
    old = "import sys; sys.version_info = (3, 10, 4, 'final', 0); sys.version = '3.10.4 (main)'; "
    done = python(old + "import runpy; runpy._run_module_as_main('slatewise')", PYTHONPATH=str(ROOT / "src"))
    assert done.returncode == 1
    assert_one_sentence(done.stderr, "slatewise needs Python 3.11 or newer, and this is 3.10.4")
    assert 'requires-python = ">=3.11"' in (ROOT / "pyproject.toml").read_text()


def make(folder: Path, python3: str, target: str = "demo") -> subprocess.CompletedProcess[str]:
    """Run make in a copy of the checkout's outside, on a machine whose only Python is this shell script."""
    tools = folder / "tools"
    tools.mkdir()
    for name in ("sh", "rm", "mkdir", "touch", "test", "grep", "sed", "expand"):
        (tools / name).symlink_to(str(shutil.which(name)))
    (tools / "python3").write_text(f"#!/bin/sh\n{python3}\n")
    (tools / "python3").chmod(0o755)
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    command = [str(shutil.which("make")), "--no-print-directory", target]
    environment = {"PATH": str(tools)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)  # noqa: S603


OLD = "exit 1"
WITHOUT_VENV = 'test "$1" = -c && exit 0; mkdir -p .venv/bin; touch .venv/bin/python; echo ensurepip is missing; exit 1'
WITHOUT_INDEX = """test "$1" = -c && exit 0
mkdir -p .venv/bin; printf '#!/bin/sh\\nexit 1\\n' > .venv/bin/python; chmod +x .venv/bin/python"""
MACHINES = {
    "an old Python": (OLD, "error: slatewise needs Python 3.11 or newer; none was found on PATH"),
    "no venv": (WITHOUT_VENV, "error: python3 cannot make a virtual environment"),
    "no package index": (WITHOUT_INDEX, "error: the installation failed; is a package index reachable?"),
}


@pytest.mark.parametrize(("python3", "sentence"), MACHINES.values(), ids=MACHINES.keys())
def test_make_says_what_a_machine_lacks(python3: str, sentence: str, tmp_path: Path) -> None:
    done = make(tmp_path, python3.replace("chmod", str(shutil.which("chmod"))))
    assert done.returncode == 2
    assert [line for line in done.stdout.splitlines() if line.startswith("error")] != []
    assert sentence in done.stdout
    assert (tmp_path / ".venv").exists() == (python3 == WITHOUT_INDEX)


def test_make_serve_before_make_demo_says_what_to_do(tmp_path: Path) -> None:
    working = WITHOUT_INDEX.replace("exit 1", "exit 0").replace("chmod", str(shutil.which("chmod")))
    assert "error: there is no catalog in demo/ yet; make demo trains one" in make(tmp_path, working, "serve").stdout


@pytest.mark.parametrize("place", ["locked/demo", "locked"])
def test_a_directory_that_cannot_be_written_is_named_before_anything_is_fetched(tmp_path: Path, place: str) -> None:
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0o555)
    code = f"import sys; sys.argv = ['slatewise', 'demo', '--out', {str(tmp_path / place)!r}]; " + MAIN
    done = python(code)
    assert done.returncode == 1, done.stderr
    assert_one_sentence(done.stderr, f"{tmp_path / place} cannot be")
    assert "choose another directory with --out" in done.stderr


class Stalled(BaseHTTPRequestHandler):
    """Sends the beginning of a file and then nothing."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        self.wfile.write(bytes(300_000))
        self.wfile.flush()
        time.sleep(20)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def stalled() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stalled)
    server.daemon_threads = True
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/ml-100k.zip"
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_interrupted_download_leaves_nothing_behind(stalled: str, private_cache: Path) -> None:
    code = (
        "import sys; from dataclasses import replace; from slatewise.data.sources import SOURCES; "
        f"SOURCES['ml-100k'] = replace(SOURCES['ml-100k'], home={stalled!r}, wheel=None); "
        "sys.argv = ['slatewise', 'data', 'fetch', 'ml-100k']; " + MAIN
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)  # noqa: S603
    started = time.monotonic()
    while not any(path.is_file() and path.stat().st_size for path in private_cache.rglob("*")):
        assert time.monotonic() < started + 60, "the download never began"
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said.rstrip().endswith("interrupted; no partial files were left behind")
    assert "Traceback" not in said
    assert not [path for path in private_cache.rglob("*") if path.is_file()]


def test_without_make_the_readme_shows_how() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "pip install" in readme
    assert "slatewise demo" in readme
