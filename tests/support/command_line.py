"""The command line in this process: a process of its own takes a second only to import what it needs."""

import io
import os
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import CompletedProcess
from unittest.mock import patch

from slatewise.__main__ import main


def run_here(*arguments: str | Path, **environment: str) -> CompletedProcess[str]:
    """Run `slatewise` with its two streams and its exit code, as a process would; an error it does not expect rises."""
    words = ["slatewise", *map(str, arguments)]
    out, err, on_interrupt = io.StringIO(), io.StringIO(), signal.getsignal(signal.SIGINT)
    try:
        with (
            patch.object(sys, "argv", words),
            patch.dict(os.environ, environment),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            code = _exit_code()
    finally:
        signal.signal(signal.SIGINT, on_interrupt)
    return CompletedProcess(words, code, out.getvalue(), err.getvalue())


def _exit_code() -> int:
    try:
        main()
    except SystemExit as stop:
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
            return 1
        return stop.code or 0
    return 0
