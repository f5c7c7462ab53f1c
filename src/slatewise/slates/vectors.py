"""Item vectors as slate rules want them: rows to gather from, columns to run along."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

NO_DIRECTION = -1e300  # stands for the log length of a zero vector: below every real one, above "not available"
GATHERED = 1 << 14  # rows are gathered so many at a time
SMALL = 1 << 15  # so many products are summed in one call; more would leave the cache


@dataclass(frozen=True, eq=False)
class Candidates:
    """Vectors by coordinate (dim, n_rows or 1, n_candidates), float32 or float64, and squared lengths in float64."""

    columns: NDArray[np.floating]
    squared_lengths: Floats

    @classmethod
    def of(cls, columns: NDArray[np.floating]) -> Candidates:
        """Take columns and work out the lengths."""
        if _is_small(columns.shape):
            return cls(columns, np.add.reduce(np.square(columns, dtype=np.float64), axis=0))
        return cls(columns, sum((np.square(one, dtype=np.float64) for one in columns), np.zeros(columns.shape[1:])))

    def at(self, picks: Integers) -> Floats:
        """Return the vectors (n_rows, dim) of one candidate per row."""
        if len(picks) == 1:
            return self.columns[:, 0, picks[0]].astype(np.float64)[None]
        row = np.arange(len(picks)) if self.columns.shape[1] > 1 else 0
        return self.columns[:, row, picks].T.astype(np.float64)

    def dot(self, directions: Floats) -> Floats:
        """Return the products (n_rows, n_candidates) with one direction (n_rows, dim) per row.

        Coordinates are added one after the other, so equal vectors get equal products wherever they stand.
        """
        shape = (len(directions), self.columns.shape[2])
        if _is_small((len(self.columns), *shape)):
            products: Floats = np.add.reduce(self.columns * directions.T[:, :, None], axis=0)
            return products
        total, term = np.zeros(shape), np.empty(shape)
        for column, weight in zip(self.columns, directions.T, strict=True):
            total += np.multiply(column, weight[:, None], out=term)
        return total

    def count(self, directions: Floats) -> Floats:
        """Return the same products for vectors of small whole numbers, which every order of summation makes exact."""
        wanted = directions.astype(self.columns.dtype, copy=False)
        if self.columns.shape[1] == 1:
            shared: NDArray[np.floating] = wanted @ self.columns[:, 0, :]
        else:
            shared = np.matmul(wanted[:, None, :], np.swapaxes(self.columns, 0, 1))[:, 0, :]
        return shared.astype(np.float64, copy=False)


@dataclass(frozen=True, eq=False)
class ItemVectors:
    """The vectors of a catalogue (n_items, dim), floats or the indicators of sets; other forms are made when needed."""

    table: NDArray[np.floating] | NDArray[np.bool_]

    @classmethod
    def of(cls, vectors: ArrayLike) -> ItemVectors:
        """Check a table (n_items, dim), once per catalogue; it is not copied."""
        table = np.asarray(vectors)
        if table.ndim != 2 or table.dtype not in (np.float32, np.float64) or not np.isfinite(table).all():
            raise ValueError(f"vectors are {table.dtype} {table.shape}; give finite floats shaped (n_items, dim)")
        return cls(table)

    @classmethod
    def of_sets(cls, indicators: NDArray[np.bool_]) -> ItemVectors:
        """Take sets as they are, a row of indicators each (n_items, n_members)."""
        return cls(indicators)

    @cached_property
    def everything(self) -> Candidates:
        """All items as candidates of every user; floats in column order are not copied."""
        kind = np.float32 if self.table.dtype == np.bool_ else self.table.dtype
        return Candidates.of(np.ascontiguousarray(self.table.T, dtype=kind)[:, None, :])

    @cached_property
    def log_lengths(self) -> Floats:
        """Logarithms of the squared lengths (1, n_items); NO_DIRECTION for zero vectors."""
        squared = self.everything.squared_lengths
        return np.log(squared, where=squared > 0.0, out=np.full_like(squared, NO_DIRECTION))

    @cached_property
    def units(self) -> NDArray[np.float32]:
        """The vectors scaled to length one, rounded to float32 (n_items, dim); zero vectors stay zero."""
        lengths = np.sqrt(self.everything.squared_lengths[0])
        scale = 1.0 / np.where(lengths > 0.0, lengths, 1.0)
        return np.asfortranarray(self.table * scale[:, None], dtype=np.float32)

    def rows(self, items: Integers) -> Floats:
        """Return some items as they stand (n, dim), in float64."""
        return _gathered(self.table, items).astype(np.float64)

    def take(self, items: Integers) -> Candidates:
        """Gather candidates (n_rows, n_candidates), different ones for each row, in float64."""
        return Candidates.of(np.ascontiguousarray(np.moveaxis(self.table[items], 2, 0), dtype=np.float64))

    def products(self, items: Integers, direction: Floats) -> Floats:
        """Return the products of some items (n,) with one direction (dim,), summed as `Candidates.dot` does."""
        if _is_small((direction.size, 1, items.size)):
            few: Floats = np.multiply(_gathered(self.table, items).T, direction[:, None], order="C")
            return np.asarray(np.add.reduce(few, axis=0))
        total = np.empty(items.size)
        for first in range(0, items.size, GATHERED):
            part = slice(first, first + GATHERED)
            columns = np.ascontiguousarray(self.table[items[part]].T, dtype=np.float64)[:, None, :]
            total[part] = Candidates(columns, total[None]).dot(direction[None])[0]
        return total

    def products_to_rounding(self, items: Integers, direction: Floats) -> Floats:
        """Return the same products summed in any order, which is faster: for rules that have TIE."""
        total = np.empty(items.size)
        for first in range(0, items.size, GATHERED):
            part = slice(first, first + GATHERED)
            total[part] = self.rows(items[part]).dot(direction)
        return total

    def forms(self, items: Integers, matrix: Floats) -> Floats:
        """Return xᵀMx of some items (n,) for one matrix (dim, dim)."""
        total = np.empty(items.size)
        for first in range(0, items.size, GATHERED):
            part = slice(first, first + GATHERED)
            rows = self.table[items[part]].astype(np.float64)
            total[part] = np.add.reduce((rows @ matrix) * rows, axis=1)
        return total


def _gathered(table: NDArray[Any], items: Integers) -> NDArray[Any]:
    """Return some rows; `take` is faster than an index, but copies a table that is not stored by rows."""
    return table.take(items, axis=0) if table.flags.c_contiguous else table[items]


def _is_small(shape: tuple[int, ...]) -> bool:
    """Whether to add up along the first axis (dim, n_rows, n_candidates) in one call.

    NumPy adds one after the other there, as the loops do, unless there is a single sum, which it would add in pairs.
    """
    n_sums = shape[1] * shape[2]
    return 1 < n_sums <= SMALL // max(shape[0], 1)
