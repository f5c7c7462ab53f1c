"""Greedy choice for a batch of users, exact and pruned: what every slate rule with variety runs on.

Every greedy rule returns exactly min(k, available) distinct available items per user, best first, and never lets one
user's slate depend on the batch. Sums over coordinates run in one fixed order, so equal items get equal gains wherever
they stand. A tie is a gain within TIE of the best, so that rounding decides nothing, and goes to the lowest index.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

TIE = 1e-9  # relative to 1 + |gain|
NO_DIRECTION = -1e300  # stands for the log length of a zero vector: below every real one, above "not available"
BLOCK_NUMBERS = 1 << 17  # users are worked on in blocks of about so many (user, item) pairs, to stay in the cache
CANDIDATES_PER_PICK = 20
CANDIDATE_GROWTH = 8


@dataclass(frozen=True)
class Choice:
    """Chosen items (n_users, k), −1 where nothing was left, and what each added to the objective (0 for −1)."""

    items: Integers
    gains: Floats


@dataclass(frozen=True)
class ItemVectors:
    """Vectors by coordinate (dim, n_rows or 1, n_items), float32 or float64, and their squared lengths in float64."""

    columns: NDArray[np.floating]
    squared_lengths: Floats

    @classmethod
    def of(cls, vectors: ArrayLike) -> ItemVectors:
        """Prepare a table (n_items, dim), once per catalogue; a table in column order is not copied."""
        table = np.asarray(vectors)
        if table.ndim != 2 or table.dtype not in (np.float32, np.float64) or not np.isfinite(table).all():
            raise ValueError(f"vectors are {table.dtype} {table.shape}; give finite floats shaped (n_items, dim)")
        columns = np.ascontiguousarray(table.T)[:, None, :]
        return cls(columns, sum((np.square(column, dtype=np.float64) for column in columns), np.zeros((1, len(table)))))

    @cached_property
    def log_lengths(self) -> Floats:
        """Logarithms of the squared lengths; NO_DIRECTION for zero vectors."""
        long = self.squared_lengths > 0.0
        return np.log(self.squared_lengths, where=long, out=np.full_like(self.squared_lengths, NO_DIRECTION))

    def take(self, items: Integers) -> ItemVectors:
        """Gather candidates (n_rows, n_candidates), different ones for each row, in float64."""
        return ItemVectors(self.columns[:, 0, :][:, items].astype(np.float64), self.squared_lengths[0][items])

    def at(self, picks: Integers) -> Floats:
        """Return the vectors (n_rows, dim) of one candidate per row."""
        row = np.arange(len(picks)) if self.columns.shape[1] > 1 else 0
        return self.columns[:, row, picks].T.astype(np.float64)

    def dot(self, directions: Floats) -> Floats:
        """Return the products (n_rows, n_items) with one direction (n_rows, dim) per row."""
        total = np.zeros((len(directions), self.columns.shape[2]))
        term = np.empty_like(total)
        for column, weight in zip(self.columns, directions.T, strict=True):
            total += np.multiply(column, weight[:, None], out=term)
        return total


class Rule(Protocol):
    """What a greedy rule knows about the items chosen so far, for a block of users (rows) and their candidates."""

    def gains(self, scores: Floats, complete: Booleans) -> Floats:
        """Return scores plus what diversity adds; −inf for what may not be chosen now."""

    def add(self, picks: Integers) -> None:
        """Take in one chosen candidate per row."""


def choose(
    scores: Floats, bound: Floats, vectors: ItemVectors, k: int, rule: Callable[[ItemVectors, int], Rule]
) -> Choice:
    """Run a greedy rule block of users by block of users; `bound` (1, n_items) is the most that diversity can add."""
    n_vectors = vectors.columns.shape[2]
    if n_vectors != scores.shape[1]:
        raise ValueError(f"there are {n_vectors} vectors for {scores.shape[1]} scores; give one per item")
    chosen = nothing(len(scores), k)
    rows = max(1, BLOCK_NUMBERS // scores.shape[1])
    for first in range(0, len(scores), rows):
        block = slice(first, first + rows)
        part = _pruned(scores[block], bound, vectors, k, rule)
        chosen.items[block], chosen.gains[block] = part.items, part.gains
    return chosen


def _pruned(
    scores: Floats, bound: Floats, vectors: ItemVectors, k: int, rule: Callable[[ItemVectors, int], Rule]
) -> Choice:
    """Greedy on the most promising candidates, on more of them for the users where that may differ from all items."""
    chosen = nothing(len(scores), k)
    todo = np.arange(len(scores))
    size = CANDIDATES_PER_PICK * k
    while todo.size and size * CANDIDATE_GROWTH <= scores.shape[1]:
        items, outside = _most_promising(scores[todo] + bound, size)
        some = scores[todo[:, None], items]
        part, exact = _greedy(some, rule(vectors.take(items), len(todo)), k, outside)
        named = np.where(part.items >= 0, np.take_along_axis(items, np.maximum(part.items, 0), axis=1), -1)
        chosen.items[todo[exact]], chosen.gains[todo[exact]] = named[exact], part.gains[exact]
        todo = todo[~exact]
        size *= CANDIDATE_GROWTH
    if todo.size:
        part, _ = _greedy(scores[todo], rule(vectors, len(todo)), k, np.full(len(todo), -np.inf))
        chosen.items[todo], chosen.gains[todo] = part.items, part.gains
    return chosen


def _most_promising(bounds: Floats, size: int) -> tuple[Integers, Floats]:
    """Return the `size` items with the largest bounds, in ascending order, and the largest bound among the others."""
    last_outside = bounds.shape[1] - size - 1
    order = np.argpartition(bounds, last_outside, axis=1)
    outside = np.take_along_axis(bounds, order[:, last_outside : last_outside + 1], axis=1)[:, 0]
    return np.sort(order[:, last_outside + 1 :], axis=1), outside


def _greedy(scores: Floats, rule: Rule, k: int, outside: Floats) -> tuple[Choice, Booleans]:
    """Choose k candidates one by one; also say for which rows no item outside, whose gains end at `outside`, could win.

    Overwrites scores.
    """
    chosen, rows = nothing(len(scores), k), np.arange(len(scores))
    complete = outside == -np.inf
    exact = np.ones(len(scores), dtype=np.bool_)
    for position in range(k):
        gains = rule.gains(scores, complete)
        best = gains.max(axis=1)
        tie = TIE * (1.0 + np.abs(best))
        exact &= complete | (best - 2.0 * tie > outside)
        if not exact.any():
            break
        picks = (gains >= (best - tie)[:, None]).argmax(axis=1)
        record(chosen, position, picks, gains[rows, picks])
        scores[rows, picks] = -np.inf
        if position + 1 < k:
            rule.add(picks)
    return chosen, exact


def nothing(n_users: int, k: int) -> Choice:
    """Return a choice with every place empty."""
    if k < 1:
        raise ValueError(f"k is {k}; a slate has at least one position")
    return Choice(np.full((n_users, k), -1, dtype=np.int64), np.zeros((n_users, k)))


def record(chosen: Choice, position: int, picks: Integers, gains: Floats) -> None:
    """Note what was picked for one position; a gain of −inf means that nothing was left."""
    found = gains > -np.inf
    chosen.items[found, position] = picks[found]
    chosen.gains[found, position] = gains[found]


def masked(scores: ArrayLike, available: ArrayLike) -> Floats:
    """Return a fresh float64 copy of scores (n_users, n_items) with −inf where not available."""
    allowed = np.asarray(available, dtype=np.bool_)
    kept = np.where(allowed, np.asarray(scores, dtype=np.float64), -np.inf)
    if kept.ndim != 2 or kept.shape[1] == 0 or kept.shape != np.shape(scores):
        raise ValueError(f"scores are {np.shape(scores)}, available {allowed.shape}; give (n_users, n_items) for both")
    if np.count_nonzero(np.isfinite(kept)) != np.count_nonzero(np.broadcast_to(allowed, kept.shape)):
        raise ValueError("the score of an available item is not finite; mark it not available, or repair its vector")
    return kept
