"""What variety means for one user and a few candidates: the rules of `diversity` in fewer, larger steps.

They say the same as the rules for many users up to rounding, which TIE keeps from deciding anything.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from slatewise.slates.diversity import VANISHED, Entropy, Variance
from slatewise.slates.vectors import Candidates

Floats = NDArray[np.float64]


class SoloRule(Protocol):
    """What a greedy rule knows about the items chosen so far, for one user and candidates given as rows."""

    def gains(self, scores: Floats, complete: bool) -> Floats:
        """Return scores plus what variety adds; −inf for what may not be chosen now."""

    def headroom(self) -> float:
        """Return what variety can add now beyond the bound that the rule was announced with."""

    def add(self, place: int) -> None:
        """Take in a chosen candidate."""


class SoloIndifferent:
    """No variety: the score is the gain."""

    def __init__(self, rows: Floats) -> None:
        del rows

    def gains(self, scores: Floats, complete: bool) -> Floats:  # noqa: ARG002
        """Return the scores."""
        return scores

    def headroom(self) -> float:
        """Nothing is added."""
        return 0.0

    def add(self, place: int) -> None:
        """Forget it."""


class SoloMarginal:
    """Mean cosine with the chosen items: one product with the sum of their unit vectors."""

    def __init__(self, rows: Floats, weight: float) -> None:
        lengths = np.sqrt(_squared(rows))
        self.units = rows / np.where(lengths > 0.0, lengths, 1.0)[:, None]
        self.weight, self.n_chosen = weight, 0
        self.direction = np.zeros(rows.shape[1])

    def gains(self, scores: Floats, complete: bool) -> Floats:  # noqa: ARG002
        """Return scores minus the weighted mean cosine."""
        gains = self.units @ (self.direction * (-self.weight / max(self.n_chosen, 1)))
        gains += scores
        return np.asarray(gains)

    def headroom(self) -> float:
        """No mean cosine is below minus the length of the mean of the chosen unit vectors."""
        return float(np.sqrt(self.direction @ self.direction)) * self.weight / max(self.n_chosen, 1)

    def add(self, place: int) -> None:
        """Take in a chosen candidate."""
        self.direction += self.units[place]
        self.n_chosen += 1


class SoloOverlap:
    """Summed Jaccard similarity with the chosen items; the rows are category indicators."""

    def __init__(self, rows: Floats, weight: float) -> None:
        self.rows, self.weight = rows, weight
        self.sizes = np.maximum(np.add.reduce(rows, axis=1), 1.0)  # an empty set shares nothing, so its size is free
        self.penalty = np.zeros(len(rows))

    def gains(self, scores: Floats, complete: bool) -> Floats:  # noqa: ARG002
        """Return scores minus the weighted similarity."""
        return scores - self.penalty

    def headroom(self) -> float:
        """Similarity only grows."""
        return 0.0

    def add(self, place: int) -> None:
        """Take in a chosen candidate."""
        shared = self.rows.dot(self.rows[place])
        united = self.sizes + self.sizes.item(place)
        united -= shared
        shared /= united
        shared *= self.weight
        self.penalty += shared


class SoloVariance:
    """The rule for many users with one row: its residuals may cancel so far that the order of sums must be the same."""

    def __init__(self, rows: Floats, entropy: Entropy) -> None:
        self.rule = Variance(Candidates.of(np.ascontiguousarray(rows.T)[:, None, :]), 1, entropy)

    def gains(self, scores: Floats, complete: bool) -> Floats:
        """Return scores plus the weighted entropy that each candidate would add."""
        gains: Floats = self.rule.gains(scores[None], np.array([complete]))[0]
        return gains

    def headroom(self) -> float:
        """Residuals only shrink."""
        return 0.0

    def add(self, place: int) -> None:
        """Take in a chosen candidate."""
        self.rule.add(np.array([place]))


class SoloVolume:
    """Residuals ρ² outside the span of the chosen items, and an orthonormal basis of that span."""

    def __init__(self, rows: Floats) -> None:
        self.rows = rows
        self.squared = _squared(rows)
        self.least = VANISHED * self.squared
        self.basis = np.empty((rows.shape[1], rows.shape[1]))
        self._begin_new_span()

    def gains(self, scores: Floats, complete: bool) -> Floats:
        """Return scores plus the logarithm of the residual (the caller lets NumPy divide by zero)."""
        gains = np.log(self.residual)
        gains += scores
        if gains[gains.argmax()] > -np.inf or not (complete or self.rank == len(self.basis)):
            return gains
        self._begin_new_span()
        gains = np.log(self.residual)
        gains += scores
        return scores.copy() if complete and gains.max(initial=-np.inf) == -np.inf else gains

    def headroom(self) -> float:
        """Residuals never exceed the squared lengths."""
        return 0.0

    def _begin_new_span(self) -> None:
        self.residual = self.squared.copy()
        self.rank = 0

    def add(self, place: int) -> None:
        """Take in a chosen candidate."""
        if self.rank == len(self.basis):
            self._begin_new_span()
        direction = self.rows[place]
        spanned = self.basis[: self.rank]
        if self.rank:
            direction = direction - (spanned @ direction) @ spanned
            if direction @ direction < 0.5 * self.squared[place]:  # else little cancelled, and once was enough
                direction = direction - (spanned @ direction) @ spanned
        length = np.sqrt(direction @ direction)
        if length > 0.0:
            unit = direction / length
            self.basis[self.rank] = unit
            self.rank += 1
            taken = self.rows @ unit
            taken *= taken
            self.residual -= taken
            self.residual *= self.residual > self.least


def _squared(rows: Floats) -> Floats:
    """Return the squared lengths of rows."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows))
