"""What the items promise one user: upper bounds of all gains that cost one pass, exact scores of a few.

Bounds come from float32 arithmetic and are widened by what its rounding can do at most, so a choice made among the
most promising items can be proved to be the choice among all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from slatewise.slates.available import Available

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

UNIT = 2.0**-23  # twice the relative rounding error of float32
LARGEST = 1e37  # float32 ends at 3e38; sums that may come near are not trusted
ZERO_VECTOR = -1e38  # the bound of an item without direction
ROWS = 1 << 14  # tables are worked through so many rows at a time
COPIED_ROWS = 1 << 17  # larger tables are not copied, to save memory
GATHERED_SHARE = 4  # rows are gathered when the candidates are fewer than one in so many
BLOCKS_PER_ITEM = 4  # maxima of so many blocks per wanted item tell where the best begin


class Promise(Protocol):
    """The items one user may see, by what they can gain at most."""

    @property
    def n_items(self) -> int:
        """How many items may be chosen, or a few less."""

    def best(self, size: int) -> tuple[Integers, float]:
        """Return about `size` items with the largest bounds, ascending, and what any other can gain at most."""

    def reaching(self, gain: float) -> int:
        """Count the items that may gain so much."""

    def left(self) -> Integers:
        """Return all items that may be chosen, ascending."""

    def scores(self, items: Integers) -> Floats:
        """Return exact scores of some items."""


Scores = Callable[[Integers], Floats]


@dataclass(frozen=True, eq=False)
class Bounds:
    """Bounds of all items or of some, −inf for what may not be chosen; each may be too low by `error`."""

    values: NDArray[np.floating]
    error: float
    available: Available
    scores: Scores
    numbers: Integers | None = None

    @classmethod
    def of_scores(cls, scores: Floats, bound: Floats) -> Bounds:
        """Take known scores (n_items,), −inf for what may not be chosen, and what variety can add to each."""
        available = Available(scores.size, np.flatnonzero(scores == -np.inf))
        return cls(scores + bound, 0.0, available, lambda items: scores[items])

    @classmethod
    def of_available(cls, scores: Floats, available: Available) -> Bounds:
        """Take known scores (n_items,) of everything, whether it may be chosen or not, and no variety."""
        if available.candidates is not None:
            items = available.left(available.candidates)
            return cls(scores[items], 0.0, available, lambda some: scores[some], items)
        values = scores.copy()
        values[available.excluded] = -np.inf
        return cls(values, 0.0, available, lambda some: scores[some])

    @property
    def n_items(self) -> int:
        """How many bounds there are, without those of excluded items."""
        return self.values.size if self.numbers is not None else self.values.size - self.available.excluded.size

    def best(self, size: int) -> tuple[Integers, float]:
        """Find a threshold that enough items reach, then those items."""
        threshold = _reached_by(self.values, size)
        places = (self.values >= threshold).nonzero()[0]
        if places.size > 2 * size:
            threshold = _reached_by(self.values[places], size)
            places = places[self.values[places] >= threshold]
        if threshold == -np.inf:
            return self.left(), -np.inf
        return self._named(places), math.nextafter(threshold, -math.inf) + self.error

    def reaching(self, gain: float) -> int:
        """Count the bounds that are high enough."""
        return int(np.count_nonzero(self.values >= gain - self.error))

    def left(self) -> Integers:
        """Return all items that are not excluded."""
        return self.available.left(self._named(np.arange(self.values.size)))

    def _named(self, places: Integers) -> Integers:
        return places if self.numbers is None else self.numbers[places]


@dataclass(frozen=True, eq=False)
class Ranking:
    """Bounds that are the same for everyone, so that the order is found once."""

    bounds: Floats

    @cached_property
    def order(self) -> Integers:
        """Item numbers, the largest bound first, equal ones by number."""
        return np.argsort(-self.bounds, kind="stable")

    @cached_property
    def negated(self) -> Floats:
        """The bounds in that order with their sign turned, ascending."""
        return -self.bounds[self.order]

    def promise(self, available: Available, scores: Scores) -> Promise:
        """Say what the items promise one user."""
        if available.candidates is None:
            return _Ranked(self, available, scores)
        return replace(Bounds.of_available(self.bounds, available), scores=scores)


@dataclass(frozen=True, eq=False)
class _Ranked:
    ranking: Ranking
    available: Available
    scores: Scores

    @property
    def n_items(self) -> int:
        return self.ranking.bounds.size - self.available.excluded.size

    def best(self, size: int) -> tuple[Integers, float]:
        end = size + self.available.excluded.size
        items = np.sort(self.available.left(self.ranking.order[:end]))
        return items, -float(self.ranking.negated[end]) if end < self.ranking.order.size else -np.inf

    def reaching(self, gain: float) -> int:
        return int(np.searchsorted(self.ranking.negated, -gain, side="right"))

    def left(self) -> Integers:
        return self.available.left(np.arange(self.ranking.order.size))


@dataclass(frozen=True, eq=False)
class LinearBounds:
    """Bounds w·x_i + o_i over a float32 table (n_items, dim) and float32 offsets (n_items,), in one pass."""

    table: NDArray[np.float32]
    offsets: NDArray[np.float32]

    @classmethod
    def of(cls, table: NDArray[np.float32], offsets: Floats) -> LinearBounds:
        """Round the offsets, ZERO_VECTOR for whatever is lower; a small table is copied by columns: a faster pass."""
        passed = np.asfortranarray(table) if len(table) <= COPIED_ROWS else table
        return cls(passed, np.clip(offsets, ZERO_VECTOR, -ZERO_VECTOR).astype(np.float32))

    @cached_property
    def sizes(self) -> tuple[float, float]:
        """The length of the longest row and the largest offset."""
        real = self.offsets[self.offsets > ZERO_VECTOR / 2]
        return float(np.sqrt(squared_lengths(self.table).max())), float(np.abs(real).max(initial=0.0))

    def promise(self, weights: Floats, available: Available, scores: Scores) -> Bounds:
        """Say what the items promise one user; `scores` must not exceed the bounds."""
        longest, highest = self.sizes
        size = longest * math.sqrt(weights.dot(weights)) + highest
        items = None if available.candidates is None else available.left(available.candidates)
        if not size < LARGEST:
            count = len(self.table) if items is None else items.size
            return Bounds(np.zeros(count), np.inf, available, scores, items)
        error = UNIT * (len(weights) + 3) * size + 1.0 / LARGEST
        return Bounds(self._values(weights.astype(np.float32), available, items), error, available, scores, items)

    def _values(
        self, weights: NDArray[np.float32], available: Available, items: Integers | None
    ) -> NDArray[np.float32]:
        if items is not None and items.size * GATHERED_SHARE < len(self.table):
            return self.table[items] @ weights + self.offsets[items]
        values: NDArray[np.float32] = self.table @ weights
        values += self.offsets
        if items is not None:
            return values[items]
        values[available.excluded] = -np.inf
        return values


def squared_lengths(table: NDArray[np.floating]) -> Floats:
    """Return the squared lengths (n_items,) of the rows, without a float64 copy of the whole table."""
    squared = np.empty(len(table))
    for first in range(0, len(table), ROWS):
        part = slice(first, first + ROWS)
        squared[part] = np.square(table[part], dtype=np.float64).sum(axis=1)
    return squared


def _reached_by(values: NDArray[np.floating], size: int) -> float:
    """Return a number that at least `size` of the values reach, and not many more unless they are equal.

    It is the size-th largest maximum of blocks; the places of a block lie far apart, so that neighbours compete little.
    """
    if size >= values.size:
        return -np.inf
    n_blocks = BLOCKS_PER_ITEM * size
    width = values.size // n_blocks
    if width > 1:
        values = np.maximum.reduce(values[: width * n_blocks].reshape(width, n_blocks), axis=0)
    else:
        values = values.copy()
    values.partition(values.size - size)
    return float(values[values.size - size])
