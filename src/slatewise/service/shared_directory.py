"""The directory in which the workers of a server share counters; what a killed server left is removed at a later start.

Whoever uses a directory holds a lock on it, which the system releases when the process ends, however it ends.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "slatewise-workers-"


@contextmanager
def shared_directory() -> Iterator[Path]:
    """Make a directory for the workers of this process, and remove it at the end; remove those that nobody uses."""
    remove_abandoned()
    new = Path(tempfile.mkdtemp(prefix=f".{PREFIX}"))
    lock = use(new)
    directory = new.rename(new.with_name(new.name[1:]))  # under this name only once it is locked
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def use(directory: Path) -> int:
    """Keep a directory from being removed by others, until the descriptor that is returned is closed."""
    lock = _open(directory)
    fcntl.flock(lock, fcntl.LOCK_SH)
    return lock


def remove_abandoned() -> None:
    """Remove directories of this user that no process uses any more."""
    for directory in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            lock = _open(directory)
            try:
                if os.fstat(lock).st_uid == os.geteuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(directory)
            finally:
                os.close(lock)


def _open(directory: Path) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
