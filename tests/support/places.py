"""Where tests keep their files: in memory if there is room, because a disk takes milliseconds for every commit."""

import shutil
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108
ROOM = 2 * 2**30


def in_memory() -> Path | None:
    """Return a directory in memory that has room for all that the tests write; a container often has less."""
    try:
        return MEMORY if shutil.disk_usage(MEMORY).free >= ROOM else None
    except OSError:
        return None
