"""Atomic writes: a file is complete or it does not exist."""

import os
import secrets
from collections.abc import Iterable
from pathlib import Path


def write_whole(target: Path, chunks: Iterable[bytes], mode: int = 0o666) -> None:
    """Write a file atomically: under a temporary name in the same directory, flushed to disk, then renamed."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(chunks)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
