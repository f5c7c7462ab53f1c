"""Slate rules on arrays: which k items to show, for a batch of users at once.

Every rule returns exactly min(k, available) distinct available items per user, best first, and never lets one user's
slate depend on the batch. Sums over coordinates run in one fixed order, so equal items get equal gains wherever they
stand. Ties go to the lowest index: for the greedy rules a tie is a gain within TIE of the best, so that rounding
decides nothing.
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
VANISHED = 1e-10  # a residual below this part of the squared length is rounding
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


@dataclass(frozen=True)
class Entropy:
    """C²UCB's regulariser weight·½ log det(noise²·I + X_S X_Sᵀ): λ and σ in the paper."""

    weight: float
    noise: float


def top_k(scores: ArrayLike, available: ArrayLike, k: int) -> Choice:
    """Choose the k best scores (n_users, n_items) of the available items (n_users or 1, n_items)."""
    left = _masked(scores, available)
    return _repeat(left, k, lambda _: left.argmax(axis=1))


def epsilon_greedy(scores: ArrayLike, available: ArrayLike, k: int, epsilon: float, random_draws: ArrayLike) -> Choice:
    """Fill each position with a uniformly drawn item with probability epsilon, else with the best score left.

    Draws are uniform on [0, 1), shaped (n_users, k, 2): one for whether to explore, one for which item.
    """
    left = _masked(scores, available)
    draws = np.asarray(random_draws, dtype=np.float64)
    if draws.shape != (len(left), k, 2) or not ((draws >= 0.0) & (draws < 1.0)).all():
        raise ValueError(f"random_draws have shape {draws.shape}; give two in [0, 1) a position: {(len(left), k, 2)}")

    def pick(position: int) -> Integers:
        picks: Integers = left.argmax(axis=1)
        explorers = np.flatnonzero(draws[:, position, 0] < epsilon)
        counts = np.cumsum(left[explorers] > -np.inf, axis=1)
        picks[explorers] = (counts > draws[explorers, position, 1:] * counts[:, -1:]).argmax(axis=1)
        return picks

    return _repeat(left, k, pick)


def mmr(quality: ArrayLike, vectors: ItemVectors, available: ArrayLike, k: int, trade_off: float) -> Choice:
    """Maximal marginal relevance: trade_off·quality − (1 − trade_off)·mean cosine with the items chosen so far."""
    if not 0.0 <= trade_off <= 1.0:
        raise ValueError(f"trade_off is {trade_off}; give 0 (only varied) to 1 (only relevant)")
    scores = _masked(trade_off * np.asarray(quality, dtype=np.float64), available)
    bound = np.full_like(vectors.squared_lengths, 1.0 - trade_off)
    return _in_blocks(scores, bound, vectors, k, lambda part, n_rows: _Marginal(part, n_rows, 1.0 - trade_off))


def dpp_greedy(scores: ArrayLike, vectors: ItemVectors, available: ArrayLike, k: int) -> Choice:
    """Algorithm 2 in the log domain: gain_i = score_i + log ρ_i², with score_i = 2α·logit_i + log p_i from the caller.

    ρ_i² is the squared length of what is left of vector i outside the span of the chosen ones, because
    V_i = r_i^α x_i of equation (2) only scales x_i. When the chosen vectors span the space, or nothing available sticks
    out of their span by more than VANISHED, a new span is begun for the rest of the slate. Zero vectors come last, by
    score, and their score is their gain.
    """
    return _in_blocks(_masked(scores, available), vectors.log_lengths, vectors, k, _Volume)


def entropy_greedy(scores: ArrayLike, vectors: ItemVectors, available: ArrayLike, k: int, entropy: Entropy) -> Choice:
    """C²UCB's greedy: gain_i = score_i + weight·½ log(noise² + ρ_i²), ρ_i² the variance of i left after the chosen."""
    if not (entropy.weight >= 0.0 and entropy.noise > 0.0):
        raise ValueError(f"entropy is {entropy}; give a weight of 0 or more and a noise above 0")
    bound = 0.5 * entropy.weight * np.log(entropy.noise**2 + vectors.squared_lengths)
    masked = _masked(scores, available)
    return _in_blocks(masked, bound, vectors, k, lambda part, n_rows: _Variance(part, n_rows, entropy))


class _Rule(Protocol):
    """What a greedy rule knows about the items chosen so far, for a block of users (rows) and their candidates."""

    def gains(self, scores: Floats, complete: Booleans) -> Floats:
        """Return scores plus what diversity adds; −inf for what may not be chosen now."""

    def add(self, picks: Integers) -> None:
        """Take in one chosen candidate per row."""


class _Marginal:
    """Mean cosine with the chosen items."""

    def __init__(self, vectors: ItemVectors, n_rows: int, weight: float) -> None:
        self.vectors, self.weight, self.n_chosen = vectors, weight, 0
        self.lengths = np.sqrt(np.where(vectors.squared_lengths > 0.0, vectors.squared_lengths, 1.0))
        self.similarity = np.zeros((n_rows, vectors.columns.shape[2]))

    def gains(self, scores: Floats, complete: Booleans) -> Floats:  # noqa: ARG002
        gains: Floats = scores - self.similarity * (self.weight / max(self.n_chosen, 1))
        return gains

    def add(self, picks: Integers) -> None:
        chosen = self.vectors.at(picks)
        length = np.sqrt(np.square(chosen).sum(axis=1, keepdims=True))
        self.similarity += self.vectors.dot(chosen / np.where(length > 0.0, length, 1.0)) / self.lengths
        self.n_chosen += 1


class _Variance:
    """Residual variances xᵀ(I + X_SᵀX_S/σ²)⁻¹x; the inverse is kept up to date by rank one (Sherman-Morrison)."""

    def __init__(self, vectors: ItemVectors, n_rows: int, entropy: Entropy) -> None:
        self.vectors, self.entropy = vectors, entropy
        self.residual = _one_per_row(vectors.squared_lengths, n_rows)
        self.inverse = np.tile(np.eye(len(vectors.columns)), (n_rows, 1, 1))

    def gains(self, scores: Floats, complete: Booleans) -> Floats:  # noqa: ARG002
        gains: Floats = scores + 0.5 * self.entropy.weight * np.log(self.entropy.noise**2 + self.residual)
        return gains

    def add(self, picks: Integers) -> None:
        chosen = self.vectors.at(picks)[:, :, None]
        image = np.matmul(self.inverse, chosen)
        scale = np.sqrt(self.entropy.noise**2 + np.matmul(np.swapaxes(chosen, 1, 2), image))
        direction = image / scale
        self.inverse -= direction * np.swapaxes(direction, 1, 2)
        self.residual -= np.square(self.vectors.dot(direction[:, :, 0]))
        np.maximum(self.residual, 0.0, out=self.residual)


class _Volume:
    """Residuals ρ² outside the span of the chosen items, and an orthonormal basis of that span."""

    def __init__(self, vectors: ItemVectors, n_rows: int) -> None:
        dim = len(vectors.columns)
        self.vectors = vectors
        self.residual = _one_per_row(vectors.squared_lengths, n_rows)
        self.basis = np.zeros((n_rows, dim, dim))
        self.rank = np.zeros(n_rows, dtype=np.int64)

    def gains(self, scores: Floats, complete: Booleans) -> Floats:
        gains = _plus_log(scores, self.residual)
        stuck = gains.max(axis=1) == -np.inf
        if stuck.any():
            rows = np.flatnonzero(stuck & (complete | (self.rank == self.basis.shape[1])))
            self._begin_new_span(rows)
            gains[rows] = _plus_log(scores[rows], self.residual[rows])
            bare = rows[(gains[rows].max(axis=1, initial=-np.inf) == -np.inf) & complete[rows]]
            gains[bare] = scores[bare]
        return gains

    def _begin_new_span(self, rows: Integers) -> None:
        self.residual[rows] = np.broadcast_to(self.vectors.squared_lengths, self.residual.shape)[rows]
        self.basis[rows] = 0.0
        self.rank[rows] = 0

    def add(self, picks: Integers) -> None:
        rows = np.arange(len(picks))
        direction = self.vectors.at(picks)[:, :, None]
        for _ in range(2):  # Gram-Schmidt twice is orthogonal to rounding
            direction = direction - np.matmul(np.swapaxes(self.basis, 1, 2), np.matmul(self.basis, direction))
        length = np.sqrt(np.square(direction).sum(axis=1))
        sticks_out = (length[:, 0] > 0.0) & (self.rank < self.basis.shape[1])
        unit = np.where(sticks_out[:, None], direction[:, :, 0] / np.where(length > 0.0, length, 1.0), 0.0)
        self.basis[rows[sticks_out], self.rank[sticks_out]] = unit[sticks_out]
        self.rank += sticks_out
        self.residual -= np.square(self.vectors.dot(unit))
        self.residual *= self.residual > VANISHED * self.vectors.squared_lengths


def _in_blocks(
    scores: Floats, bound: Floats, vectors: ItemVectors, k: int, rule: Callable[[ItemVectors, int], _Rule]
) -> Choice:
    """Run a greedy rule block of users by block of users; `bound` (1, n_items) is the most that diversity can add."""
    n_vectors = vectors.columns.shape[2]
    if n_vectors != scores.shape[1]:
        raise ValueError(f"there are {n_vectors} vectors for {scores.shape[1]} scores; give one per item")
    chosen = _nothing(len(scores), k)
    rows = max(1, BLOCK_NUMBERS // scores.shape[1])
    for first in range(0, len(scores), rows):
        block = slice(first, first + rows)
        part = _pruned(scores[block], bound, vectors, k, rule)
        chosen.items[block], chosen.gains[block] = part.items, part.gains
    return chosen


def _pruned(
    scores: Floats, bound: Floats, vectors: ItemVectors, k: int, rule: Callable[[ItemVectors, int], _Rule]
) -> Choice:
    """Greedy on the most promising candidates, on more of them for the users where that may differ from all items."""
    chosen = _nothing(len(scores), k)
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


def _greedy(scores: Floats, rule: _Rule, k: int, outside: Floats) -> tuple[Choice, Booleans]:
    """Choose k candidates one by one; also say for which rows no item outside, whose gains end at `outside`, could win.

    Overwrites scores.
    """
    chosen, rows = _nothing(len(scores), k), np.arange(len(scores))
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
        _record(chosen, position, picks, gains[rows, picks])
        scores[rows, picks] = -np.inf
        if position + 1 < k:
            rule.add(picks)
    return chosen, exact


def _repeat(left: Floats, k: int, pick: Callable[[int], Integers]) -> Choice:
    """Choose k times by `pick`, which sees what is left; overwrites it."""
    chosen, rows = _nothing(len(left), k), np.arange(len(left))
    for position in range(k):
        picks = pick(position)
        _record(chosen, position, picks, left[rows, picks])
        left[rows, picks] = -np.inf
    return chosen


def _nothing(n_users: int, k: int) -> Choice:
    if k < 1:
        raise ValueError(f"k is {k}; a slate has at least one position")
    return Choice(np.full((n_users, k), -1, dtype=np.int64), np.zeros((n_users, k)))


def _record(chosen: Choice, position: int, picks: Integers, gains: Floats) -> None:
    found = gains > -np.inf
    chosen.items[found, position] = picks[found]
    chosen.gains[found, position] = gains[found]


def _masked(scores: ArrayLike, available: ArrayLike) -> Floats:
    """Return a fresh float64 copy of scores (n_users, n_items) with −inf where not available."""
    allowed = np.asarray(available, dtype=np.bool_)
    masked = np.where(allowed, np.asarray(scores, dtype=np.float64), -np.inf)
    if masked.ndim != 2 or masked.shape[1] == 0 or masked.shape != np.shape(scores):
        raise ValueError(f"scores are {np.shape(scores)}, available {allowed.shape}; give (n_users, n_items) for both")
    if np.count_nonzero(np.isfinite(masked)) != np.count_nonzero(np.broadcast_to(allowed, masked.shape)):
        raise ValueError("the score of an available item is not finite; mark it not available, or repair its vector")
    return masked


def _one_per_row(values: Floats, n_rows: int) -> Floats:
    """Return a fresh (n_rows, n_items) array from (n_rows or 1, n_items)."""
    return np.array(np.broadcast_to(values, (n_rows, values.shape[1])))


def _plus_log(scores: Floats, residual: Floats) -> Floats:
    """Return scores + log residual, −inf where the residual has vanished."""
    with np.errstate(divide="ignore"):
        gains: Floats = np.log(residual)
    gains += scores
    return gains
