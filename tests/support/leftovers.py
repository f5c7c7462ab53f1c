"""Nothing outlives a run of the tests, whichever way it ends: what it left is killed, and no thread is waited for.

Every process that a test starts inherits the name of the run, also where a worker of the run died before it could stop
a server. Only the outermost run looks for them.
"""

import faulthandler
import os
import threading
from contextlib import suppress
from uuid import uuid4

import psutil
import pytest

RUN = "TEST_RUN_OF_SLATEWISE"
SECONDS_TO_END = 60.0
"""Threads that take longer to end are not waited for; it is said where they are."""

_ours: list[str] = []


def pytest_configure() -> None:
    """Name the run, unless another one has started this one."""
    if RUN not in os.environ:
        os.environ[RUN] = uuid4().hex
        _ours.append(os.environ[RUN])


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Kill what is left of the run."""
    while _ours:
        run = _ours.pop()
        os.environ.pop(RUN)
        left = [process for process in psutil.process_iter() if _run_of(process) == run]
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=5.0)
        if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
            faulthandler.dump_traceback_later(SECONDS_TO_END, exit=True, file=2)


def _run_of(process: psutil.Process) -> str | None:
    with suppress(psutil.Error, OSError):
        run: str | None = process.environ().get(RUN)
        return run
    return None
