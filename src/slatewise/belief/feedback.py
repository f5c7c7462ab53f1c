"""Users' feedback on slates, and the linear model that says what a reaction means."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Feedback:
    """How users reacted: item vectors (n_users, k, dim) and, each (n_users, k), clicks, logit offsets, weights."""

    vectors: Floats
    clicks: Floats
    offsets: Floats
    weights: Floats

    @classmethod
    def of(
        cls,
        vectors: ArrayLike,
        clicks: ArrayLike,
        offsets: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> Feedback:
        """Check and complete feedback: no offsets means 0, no weights means 1.

        Clicks may be soft labels in [0, 1]; a weight of 0 says that there was no item, a fraction counts it in part.
        """
        table = np.asarray(vectors, dtype=np.float64)
        labels = np.asarray(clicks, dtype=np.float64)
        offset = np.zeros_like(labels) if offsets is None else np.asarray(offsets, dtype=np.float64)
        weight = np.ones_like(labels) if weights is None else np.asarray(weights, dtype=np.float64)
        _check_feedback(table, clicks=labels, offsets=offset, weights=weight)
        return cls(table, labels, offset, weight)

    def take(self, users: ArrayLike) -> Feedback:
        """Return the feedback of some of the users."""
        index = np.asarray(users)
        return Feedback(self.vectors[index], self.clicks[index], self.offsets[index], self.weights[index])


@dataclass(frozen=True)
class LinearModel:
    """What a user likes is y_i = μ_i + θ·t_i + noise of variance ψ_i: t (n_items, dim), μ and ψ (n_items,).

    A like shows as a click only if the item is looked at, say with probability q: then the click is q(μ_i + θ·t_i) on
    average, and its variance about that, the total one qμ(1 − qμ) less q²|t|², is ψ_q = q²ψ_i + q(1 − q)μ_i.
    """

    vectors: NDArray[np.float32]
    expected: Floats
    noise: Floats

    def __post_init__(self) -> None:
        if not self.vectors.shape[:1] == self.expected.shape == self.noise.shape or self.vectors.ndim != 2:
            shapes = f"{self.vectors.shape}, {self.expected.shape} and {self.noise.shape}"
            raise ValueError(f"vectors, expected and noise have shapes {shapes}; give (n, dim), (n,) and (n,)")


def _check_feedback(vectors: Floats, **per_item: Floats) -> None:
    """Refuse feedback that would silently spoil a belief."""
    if vectors.ndim != 3 or not np.isfinite(vectors).all():
        raise ValueError(f"vectors have shape {vectors.shape}; give finite numbers shaped (n_users, k, dim)")
    for name, values in per_item.items():
        if values.shape != vectors.shape[:2]:
            raise ValueError(f"{name} have shape {values.shape}; give one per shown item: {vectors.shape[:2]}")
        if not np.isfinite(values).all():
            raise ValueError(f"{name} hold a number that is not finite; give weight 0 where a slate has no item")
    if ((per_item["clicks"] < 0.0) | (per_item["clicks"] > 1.0)).any():
        raise ValueError(f"clicks reach from {per_item['clicks'].min()} to {per_item['clicks'].max()}; give 0 to 1")
    if (per_item["weights"] < 0.0).any():
        raise ValueError(f"the smallest weight is {per_item['weights'].min()}; give 0 or more")
