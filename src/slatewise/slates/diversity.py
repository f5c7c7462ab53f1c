"""What variety means to a slate rule: cosine, variance or volume left over by the items chosen so far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slatewise.slates.greedy import ItemVectors

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

VANISHED = 1e-10  # a residual below this part of the squared length is rounding


@dataclass(frozen=True)
class Entropy:
    """C²UCB's regulariser weight·½ log det(noise²·I + X_S X_Sᵀ): λ and σ in the paper."""

    weight: float
    noise: float


class Marginal:
    """Mean cosine with the chosen items."""

    def __init__(self, vectors: ItemVectors, n_rows: int, weight: float) -> None:
        self.vectors, self.weight, self.n_chosen = vectors, weight, 0
        self.lengths = np.sqrt(np.where(vectors.squared_lengths > 0.0, vectors.squared_lengths, 1.0))
        self.similarity = np.zeros((n_rows, vectors.columns.shape[2]))

    def gains(self, scores: Floats, complete: Booleans) -> Floats:  # noqa: ARG002
        """Return scores plus what variety adds; −inf for what may not be chosen now."""
        gains: Floats = scores - self.similarity * (self.weight / max(self.n_chosen, 1))
        return gains

    def add(self, picks: Integers) -> None:
        """Take in one chosen candidate per row."""
        chosen = self.vectors.at(picks)
        length = np.sqrt(np.square(chosen).sum(axis=1, keepdims=True))
        self.similarity += self.vectors.dot(chosen / np.where(length > 0.0, length, 1.0)) / self.lengths
        self.n_chosen += 1


class Overlap:
    """Summed Jaccard similarity with the chosen items; the vectors are category indicators."""

    def __init__(self, vectors: ItemVectors, n_rows: int, weight: float) -> None:
        self.vectors, self.weight = vectors, weight
        self.similarity = np.zeros((n_rows, vectors.columns.shape[2]))

    def gains(self, scores: Floats, complete: Booleans) -> Floats:  # noqa: ARG002
        """Return scores plus what variety adds; −inf for what may not be chosen now."""
        gains: Floats = scores - self.weight * self.similarity
        return gains

    def add(self, picks: Integers) -> None:
        """Take in one chosen candidate per row."""
        chosen = self.vectors.at(picks)
        shared = self.vectors.dot(chosen)
        united = self.vectors.squared_lengths + np.square(chosen).sum(axis=1, keepdims=True) - shared
        self.similarity += shared / np.maximum(united, 1.0)


class Variance:
    """Residual variances xᵀ(I + X_SᵀX_S/σ²)⁻¹x; the inverse is kept up to date by rank one (Sherman-Morrison)."""

    def __init__(self, vectors: ItemVectors, n_rows: int, entropy: Entropy) -> None:
        self.vectors, self.entropy = vectors, entropy
        self.residual = _one_per_row(vectors.squared_lengths, n_rows)
        self.inverse = np.tile(np.eye(len(vectors.columns)), (n_rows, 1, 1))

    def gains(self, scores: Floats, complete: Booleans) -> Floats:  # noqa: ARG002
        """Return scores plus what variety adds; −inf for what may not be chosen now."""
        gains: Floats = scores + 0.5 * self.entropy.weight * np.log(self.entropy.noise**2 + self.residual)
        return gains

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

    def __init__(self, vectors: ItemVectors, n_rows: int) -> None:
        dim = len(vectors.columns)
        self.vectors = vectors
        self.residual = _one_per_row(vectors.squared_lengths, n_rows)
        self.basis = np.zeros((n_rows, dim, dim))
        self.rank = np.zeros(n_rows, dtype=np.int64)

    def gains(self, scores: Floats, complete: Booleans) -> Floats:
        """Return scores plus what variety adds; −inf for what may not be chosen now."""
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
        """Take in one chosen candidate per row."""
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


def _one_per_row(values: Floats, n_rows: int) -> Floats:
    """Return a fresh (n_rows, n_items) array from (n_rows or 1, n_items)."""
    return np.array(np.broadcast_to(values, (n_rows, values.shape[1])))


def _plus_log(scores: Floats, residual: Floats) -> Floats:
    """Return scores + log residual, −inf where the residual has vanished."""
    with np.errstate(divide="ignore"):
        gains: Floats = np.log(residual)
    gains += scores
    return gains
