"""What variety means to a slate rule: cosine, overlap, variance or volume left over by the items chosen so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from slatewise.slates.vectors import Candidates

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

VANISHED = 1e-10  # a residual below this part of the squared length is rounding


class Rule(Protocol):
    """What a greedy rule knows about the items chosen so far, for a block of users (rows) and their candidates."""

    def gains(self, scores: Floats, complete: Booleans) -> Floats:
        """Return scores plus what variety adds; −inf for what may not be chosen now.

        `complete` says for which rows the candidates are all there is.
        """

    def headroom(self) -> Floats | float:
        """Return what variety can add now, for each row, beyond the bound that the rule was announced with."""

    def add(self, picks: Integers) -> None:
        """Take in one chosen candidate per row."""


@dataclass(frozen=True)
class Entropy:
    """C²UCB's regulariser weight·½ log det(noise²·I + X_S X_Sᵀ): λ and σ in the paper."""

    weight: float
    noise: float

    def largest_gain(self, squared_lengths: Floats) -> Floats:
        """Return what an item adds to an empty slate, which is the most it ever adds."""
        gain: Floats = 0.5 * self.weight * np.log(self.noise**2 + squared_lengths)
        return gain


class Indifferent:
    """No variety: the score is the gain."""

    def __init__(self, vectors: Candidates, n_rows: int) -> None:
        del vectors, n_rows

    def gains(self, scores: Floats, complete: Booleans) -> Floats:  # noqa: ARG002
        """Return the scores."""
        return scores

    def headroom(self) -> float:
        """Nothing is added."""
        return 0.0

    def add(self, picks: Integers) -> None:
        """Forget it."""


class Marginal:
    """Mean cosine with the chosen items."""

    def __init__(self, vectors: Candidates, n_rows: int, weight: float) -> None:
        self.vectors, self.weight, self.n_chosen = vectors, weight, 0
        self.lengths = np.sqrt(np.where(vectors.squared_lengths > 0.0, vectors.squared_lengths, 1.0))
        self.similarity = np.zeros((n_rows, vectors.columns.shape[2]))
        self.direction = np.zeros((n_rows, len(vectors.columns)))

    def gains(self, scores: Floats, complete: Booleans) -> Floats:  # noqa: ARG002
        """Return scores minus the weighted mean cosine."""
        gains: Floats = scores - self.similarity * (self.weight / max(self.n_chosen, 1))
        return gains

    def headroom(self) -> Floats:
        """No mean cosine is below minus the length of the mean of the chosen unit vectors."""
        length: Floats = np.sqrt(np.square(self.direction).sum(axis=1))
        return length * (self.weight / max(self.n_chosen, 1))

    def add(self, picks: Integers) -> None:
        """Take in one chosen candidate per row."""
        chosen = self.vectors.at(picks)
        length = np.sqrt(np.square(chosen).sum(axis=1, keepdims=True))
        unit = chosen / np.where(length > 0.0, length, 1.0)
        self.similarity += self.vectors.dot(unit) / self.lengths
        self.direction += unit
        self.n_chosen += 1


class Overlap:
    """Summed Jaccard similarity with the chosen items; the vectors are category indicators."""

    def __init__(self, vectors: Candidates, n_rows: int, weight: float) -> None:
        self.vectors, self.weight = vectors, weight
        self.sizes = np.maximum(vectors.squared_lengths, 1.0)  # an empty set shares nothing, so its size is free
        self.similarity = np.zeros((n_rows, vectors.columns.shape[2]))

    def gains(self, scores: Floats, complete: Booleans) -> Floats:  # noqa: ARG002
        """Return scores minus the weighted similarity."""
        gains: Floats = self.similarity * -self.weight
        gains += scores
        return gains

    def headroom(self) -> float:
        """Similarity only grows."""
        return 0.0

    def add(self, picks: Integers) -> None:
        """Take in one chosen candidate per row."""
        chosen = self.vectors.at(picks)
        shared = self.vectors.count(chosen)
        united = self.sizes + np.add.reduce(chosen, axis=1, keepdims=True)
        united -= shared
        shared /= united
        self.similarity += shared


class Variance:
    """Residual variances xᵀ(I + X_SᵀX_S/σ²)⁻¹x; the inverse is kept up to date by rank one (Sherman-Morrison)."""

    def __init__(self, vectors: Candidates, n_rows: int, entropy: Entropy) -> None:
        self.vectors, self.entropy = vectors, entropy
        self.residual = _one_per_row(vectors.squared_lengths, n_rows)
        self.inverse = np.tile(np.eye(len(vectors.columns)), (n_rows, 1, 1))

    def gains(self, scores: Floats, complete: Booleans) -> Floats:  # noqa: ARG002
        """Return scores plus the weighted entropy that each candidate would add."""
        gains: Floats = scores + self.entropy.largest_gain(self.residual)
        return gains

    def headroom(self) -> float:
        """Residuals only shrink."""
        return 0.0

    def add(self, picks: Integers) -> None:
        """Take in one chosen candidate per row."""
        chosen = self.vectors.at(picks)[:, :, None]
        image = np.matmul(self.inverse, chosen)
        scale = np.sqrt(self.entropy.noise**2 + np.matmul(np.swapaxes(chosen, 1, 2), image))
        direction = image / scale
        self.inverse -= direction * np.swapaxes(direction, 1, 2)
        self.residual -= np.square(self.vectors.dot(direction[:, :, 0]))
        np.maximum(self.residual, 0.0, out=self.residual)


class Volume:
    """Residuals ρ² outside the span of the chosen items, and an orthonormal basis of that span."""

    def __init__(self, vectors: Candidates, n_rows: int) -> None:
        dim = len(vectors.columns)
        self.vectors = vectors
        self.least = VANISHED * vectors.squared_lengths
        self.residual = _one_per_row(vectors.squared_lengths, n_rows)
        self.basis = np.zeros((n_rows, dim, dim))
        self.rank = np.zeros(n_rows, dtype=np.int64)

    def gains(self, scores: Floats, complete: Booleans) -> Floats:
        """Return scores plus the logarithm of the residual."""
        gains = _plus_log(scores, self.residual)
        stuck = np.maximum.reduce(gains, axis=1) == -np.inf
        if stuck.any():
            rows = np.flatnonzero(stuck & (complete | (self.rank == self.basis.shape[1])))
            self._begin_new_span(rows)
            gains[rows] = _plus_log(scores[rows], self.residual[rows])
            bare = rows[(gains[rows].max(axis=1, initial=-np.inf) == -np.inf) & complete[rows]]
            gains[bare] = scores[bare]
        return gains

    def headroom(self) -> float:
        """Residuals never exceed the squared lengths."""
        return 0.0

    def _begin_new_span(self, rows: Integers) -> None:
        self.residual[rows] = np.broadcast_to(self.vectors.squared_lengths, self.residual.shape)[rows]
        self.basis[rows] = 0.0
        self.rank[rows] = 0

    def add(self, picks: Integers) -> None:
        """Take in one chosen candidate per row."""
        spanned = self.rank == self.basis.shape[1]
        if spanned.any():
            self._begin_new_span(np.flatnonzero(spanned))
        direction = self.vectors.at(picks)[:, :, None]
        across = np.swapaxes(self.basis, 1, 2)
        for _ in range(2):  # Gram-Schmidt twice is orthogonal to rounding
            direction = direction - np.matmul(across, np.matmul(self.basis, direction))
        length = np.sqrt(np.add.reduce(np.square(direction[:, :, 0]), axis=1))
        sticks_out = length > 0.0
        length[~sticks_out] = np.inf  # without a direction nothing is taken off
        unit = direction[:, :, 0] / length[:, None]
        self.basis[np.arange(len(picks)), self.rank] = unit
        self.rank += sticks_out
        self.residual -= np.square(self.vectors.dot(unit))
        self.residual *= self.residual > self.least


def _one_per_row(values: Floats, n_rows: int) -> Floats:
    """Return a fresh (n_rows, n_items) array from (n_rows or 1, n_items)."""
    return np.array(np.broadcast_to(values, (n_rows, values.shape[1])))


def _plus_log(scores: Floats, residual: Floats) -> Floats:
    """Return scores + log residual, −inf where the residual has vanished (the caller lets NumPy divide by zero)."""
    gains: Floats = np.log(residual)
    gains += scores
    return gains
