"""What one user may see, said in a few numbers instead of a table over the catalogue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Available:
    """What one user may see: of `candidates` (ascending and distinct; None: all items) whatever is not `excluded`.

    `Available.of` checks and sorts; the plain constructor takes arrays that are in order already, such as the items of
    a category that were looked up once.
    """

    n_items: int
    excluded: Integers
    candidates: Integers | None = None

    @classmethod
    def of(
        cls,
        n_items: int,
        excluded: Iterable[int] | Integers = (),
        candidates: Iterable[int] | Integers | None = None,
    ) -> Available:
        """Check item numbers and put them in order."""
        chosen = None if candidates is None else _numbers("candidates", candidates, n_items)
        return cls(n_items, _numbers("excluded", excluded, n_items), chosen)

    @classmethod
    def one_row(cls, available: Available | Booleans) -> Available:
        """Say the same as a table with one row (1, n_items), by whichever list is shorter."""
        if isinstance(available, Available):
            return available
        row = np.asarray(available, dtype=np.bool_)[0]
        if 2 * np.count_nonzero(row) >= row.size:
            return cls(row.size, np.flatnonzero(~row))
        return cls(row.size, np.zeros(0, dtype=np.int64), np.flatnonzero(row))

    def table(self) -> Booleans:
        """Return the table (1, n_items) that says the same."""
        row = np.full((1, self.n_items), self.candidates is None)
        if self.candidates is not None:
            row[0, self.candidates] = True
        row[0, self.excluded] = False
        return row

    def left(self, items: Integers) -> Integers:
        """Return those of some items that are not excluded, in the same order."""
        if not self.excluded.size:
            return items
        gone = np.zeros(self.n_items, dtype=np.bool_)
        gone[self.excluded] = True
        return items[~gone[items]]


def _numbers(name: str, given: Iterable[int] | Integers, n_items: int) -> Integers:
    """Return distinct item numbers, ascending; refuse one that is no item."""
    array = np.asarray(given if isinstance(given, np.ndarray) else list(given))
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{name} are {array.dtype}; give item numbers (whole, from 0 to {n_items - 1})")
    numbers = np.unique(array.astype(np.int64))
    if numbers.size and not (numbers[0] >= 0 and numbers[-1] < n_items):
        outside = numbers[0] if numbers[0] < 0 else numbers[-1]
        raise ValueError(f"{name} hold {outside}; the catalogue has items 0 to {n_items - 1}")
    return numbers
