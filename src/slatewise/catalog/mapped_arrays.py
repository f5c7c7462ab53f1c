"""Arrays that are part of a file: read-only, in memory when they are needed, and once for all processes of a machine.

Catalogs are mapped from their own files. What processes work out from them, such as tables for choosing slates, they
can share through a directory: each file there is named after the sha256 of its content, so whoever comes to the same
array finds it there. A process that dies harms nobody: files appear whole, are never changed, and go with the
directory. Where a few rows of such an array change, the rest stays shared (`versioned_arrays`).
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import secrets
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from slatewise.catalog.versioned_arrays import add_file

Arrays = dict[str, NDArray[Any]]

DTYPES = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "U16": "<u2",
    "I16": "<i2",
    "U32": "<u4",
    "I32": "<i4",
    "U64": "<u8",
    "I64": "<i8",
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
}
LEAST_SHARED = 1 << 20
"""Arrays of fewer bytes stay where they are."""

_shared: list[Path] = []
"""The directory to share through, if there is one."""


def map_arrays(path: Path) -> Arrays:
    """Return the arrays of a safetensors file; its header is checked by safetensors itself."""
    with safe_open(path, framework="numpy"):
        content = _map(path)
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    described = {name: description for name, description in header.items() if name != "__metadata__"}
    return {name: _array(content, start, description) for name, description in described.items()}


def _array(content: mmap.mmap, start: int, described: dict[str, Any]) -> NDArray[Any]:
    kind, (first, last) = np.dtype(DTYPES[described["dtype"]]), described["data_offsets"]
    if first == last:
        return np.zeros(described["shape"], dtype=kind)
    flat = np.frombuffer(content, dtype=kind, count=(last - first) // kind.itemsize, offset=start + first)
    return flat.reshape(described["shape"])


def share_through(directory: Path | None) -> None:
    """From now on, share arrays with other processes that name the same directory; None: with nobody."""
    _shared[:] = [] if directory is None else [directory]


def shared(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array by rows, from memory that all processes share if there is a directory for it; read-only."""
    rows = np.ascontiguousarray(array)
    if not _shared or rows.nbytes < LEAST_SHARED or is_mapped(rows):
        return _read_only(rows)
    path = _shared[0] / f"array-{hashlib.sha256(rows.data).hexdigest()}"
    try:
        with (path if path.exists() else write_array(path, rows)).open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            mapped: NDArray[Any] = np.ndarray(rows.shape, rows.dtype, buffer=content)
            kept = add_file(mapped, os.dup(file.fileno()))
    except OSError:  # the disk is full, or the file has just been removed
        return _read_only(rows)
    weakref.finalize(kept, path.unlink, missing_ok=True).atexit = False
    return mapped


def is_mapped(array: NDArray[Any]) -> bool:
    """Whether the memory of an array is that of a file."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(getattr(base, "obj", base), mmap.mmap)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def write_array(path: Path, array: NDArray[Any]) -> Path:
    """Write a file that appears whole; unlike a catalog, it need not survive the machine."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        temporary.write_bytes(array.data)
        return temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)


def _map(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
