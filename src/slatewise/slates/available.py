"""What users may see: a table of booleans, or for one user a few item numbers instead of a row of the catalog."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Words = NDArray[np.uint64]

BITS = 64

NO_NUMBERS = np.zeros(0, dtype=np.int64)
NO_TABLE = np.zeros((0, 0), dtype=np.bool_)
NO_WORDS = np.zeros(0, dtype=np.uint64)
NO_WORDS.flags.writeable = False
NO_KEY = b""
KEY_BYTES = 16

AvailableArguments = tuple[bool, Booleans, Integers, Integers, Words]
"""Whether there are candidates, the table or none, excluded items, candidates, and closed items as bits or none: what
the compiled greedy takes."""


@dataclass(frozen=True, eq=False)
class Available:
    """What one user may see: of `candidates` (ascending and distinct; None: all items) whatever is not `excluded`.

    Where most items are candidates, they are better given as what is `closed`, in the bits of `pack_closed`, without
    candidates. `Available.of` checks and sorts; the plain constructor takes arrays that are in order already, such as
    the items of a category that were looked up once.

    key: names items that will be asked for again, by `list_key`, so that what is prepared for them is remembered: the
    candidates, or else those that are not closed.
    """

    n_items: int
    excluded: Integers
    candidates: Integers | None = None
    closed: Words = field(default_factory=lambda: NO_WORDS)
    key: bytes = NO_KEY

    def __post_init__(self) -> None:
        if self.closed.size and (self.candidates is not None or self.closed.size != -(-self.n_items // BITS)):
            raise ValueError(f"{self.closed.size} words are closed; give one for every {BITS} items, and no candidates")

    @classmethod
    def of(
        cls,
        n_items: int,
        excluded: Iterable[int] | Integers = (),
        candidates: Iterable[int] | Integers | None = None,
    ) -> Available:
        """Check item numbers and put them in order.

        >>> Available.of(6, excluded=[4, 1], candidates=[5, 4]).table().tolist()
        [[False, False, False, False, False, True]]
        """
        chosen = None if candidates is None else _numbers("candidates", candidates, n_items)
        return cls(n_items, _numbers("excluded", excluded, n_items), chosen)

    def listed(self) -> Integers:
        """Return the candidates, or else the items that are not closed, excluded or not, ascending."""
        if self.candidates is not None:
            return self.candidates
        return np.flatnonzero(replace(self, excluded=NO_NUMBERS).table()[0])

    def table(self) -> Booleans:
        """Return the table (1, n_items) that says the same."""
        row = np.full((1, self.n_items), self.candidates is None)
        if self.closed.size:
            row[0] = np.unpackbits(self.closed.view(np.uint8), count=self.n_items, bitorder="little") == 0
        if self.candidates is not None:
            row[0, self.candidates] = True
        row[0, self.excluded] = False
        return row


def as_table(available: Available | ArrayLike, n_users: int, n_items: int) -> Booleans:
    """Return what each of n_users may see as a boolean array (n_users, n_items), whichever way it was given.

    >>> as_table(Available.of(3, excluded=[1]), n_users=1, n_items=3).tolist()
    [[True, False, True]]
    """
    _, table, _, _, _ = available_arguments(available, n_users, n_items)
    return available.table() if isinstance(available, Available) else np.broadcast_to(table, (n_users, n_items))


def available_arguments(available: Available | ArrayLike, n_users: int, n_items: int) -> AvailableArguments:
    """Check what users may see, and return it as the compiled greedy takes it."""
    if isinstance(available, Available):
        if n_users != 1:
            raise ValueError(f"Available is for one user, and there are {n_users}; pass a boolean table instead")
        if available.n_items != n_items:
            raise ValueError(f"available is for a catalog of {available.n_items} items; this one has {n_items}")
        candidates = NO_NUMBERS if available.candidates is None else available.candidates
        return available.candidates is not None, NO_TABLE, available.excluded, candidates, available.closed
    table = np.ascontiguousarray(available, dtype=np.bool_)
    if table.ndim != 2 or table.shape[0] not in (1, n_users) or table.shape[1] != n_items:
        raise ValueError(f"available is shaped {table.shape}; pass a boolean array shaped {(n_users, n_items)}")
    return False, table, NO_NUMBERS, NO_NUMBERS, NO_WORDS


def pack_closed(is_open: Booleans) -> Words:
    """Return the bits of items that are not open (n_items,), as `Available` takes them.

    >>> pack_closed(np.array([True, False, True])).tolist()
    [2]
    """
    packed = np.packbits(~np.asarray(is_open, dtype=np.bool_), bitorder="little")
    padded = np.zeros(8 * -(-packed.size // 8), dtype=np.uint8)
    padded[: packed.size] = packed
    words: Words = padded.view("<u8").astype(np.uint64)
    words.flags.writeable = False
    return words


def list_key(is_open: Booleans) -> bytes:
    """Return what identifies some items (n_items,) of a catalog, a digest.

    >>> list_key(np.array([True, False])) == list_key(np.array([False, True]))
    False
    """
    return hashlib.blake2b(np.packbits(is_open).data, digest_size=KEY_BYTES).digest()


def _numbers(name: str, given: Iterable[int] | Integers, n_items: int) -> Integers:
    """Return distinct item numbers, ascending; refuse one that is no item."""
    array = np.asarray(given if isinstance(given, np.ndarray) else list(given))
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{name} are {array.dtype}; give item numbers (whole, from 0 to {n_items - 1})")
    numbers = np.unique(array.astype(np.int64))
    if numbers.size and not (numbers[0] >= 0 and numbers[-1] < n_items):
        outside = numbers[0] if numbers[0] < 0 else numbers[-1]
        raise ValueError(f"{name} hold {outside}; the catalog has items 0 to {n_items - 1}")
    return numbers
