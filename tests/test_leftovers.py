"""Whichever way a test fails, nothing of the run is left, nor anything that keeps its output open."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.conftest import ROOT
from tests.support.leftovers import RUN

pytestmark = pytest.mark.process

QUICK = "from tests.support import leftovers\nleftovers.SECONDS_TO_END = 1.0\n"
LEAVING = """
import os, subprocess, threading

def test_leaves_a_process():
    command = ["sh", "-c", "trap '' TERM; echo $$ > left; sleep 600"]
    subprocess.Popen(command, start_new_session=True, stdout=2, stderr=2)
    while not (os.path.exists("left") and open("left").read()):
        pass
    {way}
"""
WAYS = {
    "an error": "raise ValueError('on purpose')",
    "a thread that never ends": "threading.Thread(target=threading.Event().wait).start(); assert False",
    "a worker that dies": "os._exit(1)",
}


def run(folder: Path, way: str, *options: str) -> tuple[subprocess.CompletedProcess[str], bool]:
    """Run a test that leaves a process and ends in some way; also return whether that process is there."""
    (folder / "test_leaving.py").write_text(LEAVING.format(way=WAYS[way]))
    (folder / "conftest.py").write_text(QUICK)
    command = [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", *options]
    environment = {name: value for name, value in os.environ.items() if name != RUN and "PYTEST" not in name}
    environment["PYTHONPATH"] = f"{ROOT}{os.pathsep}{ROOT / 'src'}"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=folder, env=environment, text=True, **pipes)  # type: ignore[call-overload]  # noqa: S603
    code, left = process.wait(timeout=120), int((folder / "left").read_text())
    is_there = psutil.pid_exists(left) and psutil.Process(left).status() != psutil.STATUS_ZOMBIE
    if is_there:
        os.killpg(left, signal.SIGKILL)
    return subprocess.CompletedProcess(command, code, *process.communicate(timeout=30)), is_there


@pytest.mark.parametrize("way", WAYS)
def test_no_process_and_no_thread_outlives_a_run(way: str, tmp_path: Path) -> None:
    workers = ("-n", "1") if way == "a worker that dies" else ()
    done, is_left = run(tmp_path, way, "-p", "tests.support.leftovers", *workers)
    assert done.returncode == 1, done.stderr
    assert "1 failed" in done.stdout
    assert not is_left
    assert ("Timeout" in done.stderr) == (way == "a thread that never ends")


def test_without_a_look_around_a_process_is_left(tmp_path: Path) -> None:
    """The control."""
    done, is_left = run(tmp_path, "an error")
    assert done.returncode == 1
    assert is_left
