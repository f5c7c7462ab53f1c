"""Arrays of one row per item, of which a few rows change or are added at a time: added ones go into spare memory.

An array with room behind it belongs to whoever appends to it first; whoever comes second gets a copy. Nobody who has
the array as it was sees the rows behind its end.
"""

import threading
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

SPARE = 1 / 16
LEAST_SPARE = 64

_lock = threading.Lock()
_used: dict[int, int] = {}
"""How many rows of each array with room, by its id, are in use."""


def with_rows(array: NDArray[Any], n_rows: int, changed: Integers, rows: NDArray[Any]) -> NDArray[Any]:
    """Return an array with some rows replaced, and with more at its end, which are all among them.

    The same array if nothing changes; if rows are only added, mostly the same memory, and else a copy.

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
    copied = with_spare_rows(n_rows, array.shape[1:], kind)
    copied[: len(array)] = array
    copied[changed] = values
    return copied[:n_rows]


def with_spare_rows(n_rows: int, shape: tuple[int, ...], kind: Any, n_used: int | None = None) -> NDArray[Any]:
    """Return an array of more than so many rows; those behind them take no memory before they are used.

    n_used: what is in use, in rows or any other unit that `claim_spare_rows` is then asked in.
    """
    room = np.empty((n_rows + max(LEAST_SPARE, int(SPARE * n_rows)), *shape), dtype=kind)
    _used[id(room)] = n_rows if n_used is None else n_used
    weakref.finalize(room, _used.pop, id(room), None).atexit = False
    return room


def claim_spare_rows(array: NDArray[Any], n_rows: int, use: tuple[int, int]) -> NDArray[Any] | None:
    """Return the array of n_rows or more that an array is the beginning of; None if somebody has claimed what follows.

    use: what is in use of it before and after, in the unit of `with_spare_rows`.
    """
    room = array
    while isinstance(room.base, np.ndarray):
        room = room.base
    with _lock:
        is_free = _used.get(id(room)) == use[0] and n_rows <= len(room)
        if is_free:
            _used[id(room)] = use[1]
    return room if is_free else None
