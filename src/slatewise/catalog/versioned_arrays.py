"""Arrays of one row per item, of which a few rows change or are added at a time, in versions that share memory.

Added rows go into spare memory. An array with room behind it belongs to whoever appends to it first; whoever comes
second gets a version of its own. Nobody who has the array as it was sees the rows behind its end.

Where rows change, the next version of a small array is a copy. The rows of a large one are in a file: one in memory, or
one that processes share (`mapped_arrays`). Each version maps that file for itself, and the system copies only the pages
that are written. When that would be most of them, the next version begins a new file.
"""

from __future__ import annotations

import math
import mmap
import os
import sys
import threading
import weakref
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

SPARE = 1 / 16
LEAST_SPARE = 64
LEAST_MAPPED = 1 << 25
"""Arrays of fewer bytes are copied, which takes less time than the pages of a mapping, unless they are shared."""
MOST_WRITTEN = 1 / 2
"""When the pages that a version would write make a larger share of the array, it costs less to write all of it."""

NO_ROWS = np.zeros(0, dtype=np.int64)


class RowsFile:
    """A file that begins with the rows of an array as they were; nobody ever changes it.

    The last row counts as different in every version: where rows are blocks of items, it may have room for more items.
    """

    def __init__(self, descriptor: int, shape: tuple[int, ...], n_fixed: int) -> None:
        self.descriptor, self.shape, self.n_fixed = descriptor, shape, n_fixed
        weakref.finalize(self, os.close, descriptor).atexit = False

    @classmethod
    def of(cls, array: NDArray[Any], n_room: int) -> RowsFile | None:
        """Write the rows to a file in memory, with room for more; None where that cannot be done."""
        if sys.platform != "linux" or array.nbytes < LEAST_MAPPED:
            return None
        shape = (n_room, *array.shape[1:])
        try:
            rows = cls(os.memfd_create("slatewise"), shape, len(array) - 1)
            with os.fdopen(rows.descriptor, "wb", closefd=False) as file:
                file.write(np.ascontiguousarray(array).data)
                file.truncate(math.prod(shape) * array.itemsize)
        except OSError:
            return None
        return rows

    def version(self, array: NDArray[Any], differing: Integers) -> NDArray[Any] | None:
        """Map the file for a version with the rows of an array, of which some differ; None if there is no memory."""
        n_bytes = math.prod(self.shape) * array.itemsize
        try:
            content = mmap.mmap(self.descriptor, n_bytes, access=mmap.ACCESS_COPY)
        except OSError:
            return None
        rows: NDArray[Any] = np.ndarray(self.shape, array.dtype, buffer=content)
        rows[differing] = array[differing]
        rows[self.n_fixed : len(array)] = array[self.n_fixed :]
        return rows


@dataclass(frozen=True)
class Room:
    """What is known of an array with room behind its rows.

    n_used: how much is in use, in rows or any other unit; file: what it is a version of, or nothing; differing: the
    fixed rows of the file that it has otherwise, ascending.
    """

    n_used: int
    file: RowsFile | None = None
    differing: Integers = field(default_factory=lambda: NO_ROWS)


_lock = threading.Lock()
_rooms: dict[int, Room] = {}
"""The arrays with room, by id."""


def with_rows(array: NDArray[Any], n_rows: int, changed: Integers, rows: NDArray[Any]) -> NDArray[Any]:
    """Return an array with some rows replaced, and with more at its end, which are all among them.

    The same array if nothing changes; if rows are only added, mostly the same memory, and else the next version.

    >>> with_rows(np.array([1, 2]), 3, np.array([0, 2]), np.array([5, 7])).tolist()
    [5, 2, 7]
    """
    is_new, kind = changed >= len(array), array.dtype
    values = np.asarray(rows).astype(kind, copy=False)
    if np.array_equal(array[changed[~is_new]], values[~is_new], equal_nan=kind.kind == "f"):
        if n_rows == len(array):
            return array
        room = claim_spare_rows(array, n_rows, (len(array), n_rows))
        if room is not None:
            room[changed[is_new]] = values[is_new]
            return room[:n_rows]
    version = next_version(array, n_rows, changed)
    version[changed] = values
    return version[:n_rows]


def next_version(array: NDArray[Any], n_rows: int, changed: Integers, n_used: int | None = None) -> NDArray[Any]:
    """Return a version of n_rows rows or more, of which only those changed or behind the array's may be written.

    Rows that nobody uses yet take no memory. n_used: what is in use of the version, in rows or any other unit that
    `claim_spare_rows` is then asked in.
    """
    file, differing = _file_of(array, n_rows, changed)
    if file is None and _is_worth_a_mapping(array, len(changed)):
        file = RowsFile.of(array, _with_spare(n_rows))
        differing = np.unique(changed[changed < len(array) - 1])
    rows = None if file is None else file.version(array, differing)
    if rows is None:
        file, differing = None, NO_ROWS
        rows = np.empty((_with_spare(n_rows), *array.shape[1:]), dtype=array.dtype)
        rows[: len(array)] = array
    return _remember(rows, Room(n_rows if n_used is None else n_used, file, differing))


def _file_of(array: NDArray[Any], n_rows: int, changed: Integers) -> tuple[RowsFile | None, Integers]:
    """Return the file that an array is a version of, if the next one can be, too, and the rows that will differ."""
    whole = _whole(array)
    room = _rooms.get(id(whole))
    if room is None or room.file is None or n_rows > room.file.shape[0] or array.shape[1:] != room.file.shape[1:]:
        return None, NO_ROWS
    differing = np.union1d(room.differing, changed[changed < room.file.n_fixed])
    n_written = len(differing) + len(array) - room.file.n_fixed
    return (room.file, differing) if _is_worth_a_mapping(array, n_written) else (None, NO_ROWS)


def _is_worth_a_mapping(array: NDArray[Any], n_written: int) -> bool:
    """Return whether writing so many rows of an array takes few enough pages, one each or more."""
    row_bytes = array.itemsize * math.prod(array.shape[1:])
    return n_written * max(mmap.PAGESIZE, row_bytes) <= MOST_WRITTEN * array.nbytes


def _with_spare(n_rows: int) -> int:
    return n_rows + max(LEAST_SPARE, int(SPARE * n_rows))


def add_file(rows: NDArray[Any], descriptor: int) -> RowsFile:
    """Say that a file holds the rows of an array, so that its next versions map that file; the descriptor is ours."""
    file = RowsFile(descriptor, rows.shape, len(rows) - 1)
    _remember(rows, Room(-1, file))
    return file


def _remember(rows: NDArray[Any], room: Room) -> NDArray[Any]:
    _rooms[id(rows)] = room
    weakref.finalize(rows, _rooms.pop, id(rows), None).atexit = False
    return rows


def claim_spare_rows(array: NDArray[Any], n_rows: int, use: tuple[int, int]) -> NDArray[Any] | None:
    """Return the array of n_rows or more that an array is the beginning of; None if somebody has claimed what follows.

    use: what is in use of it before and after, in the unit of `next_version`.
    """
    whole = _whole(array)
    with _lock:
        room = _rooms.get(id(whole))
        is_free = room is not None and room.n_used == use[0] and n_rows <= len(whole)
        if room is not None and is_free:
            _rooms[id(whole)] = Room(use[1], room.file, room.differing)
    return whole if is_free else None


def _whole(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array that another one is a part of."""
    whole = array
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    return whole
