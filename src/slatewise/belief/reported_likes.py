"""Likes that are reported from elsewhere, such as purchases: they say which items somebody likes, not how many.

Nobody reports what they passed over. Taken for items that were looked at and liked, reports would make the belief that
the person likes nearly everything. So a report tells something else: given that it is a like, which item it is
about. It is item i with probability p_i / Σ p_j, p_i = μ_i + θ·t_i. Around θ = 0 the logarithm of that has the
gradient g_i and, on average over reports, the information H,

    g_i = t_i / μ_i − c,   c = Σ t_j / Σ μ_j,   H = Σ t_j t_jᵀ / μ_j / Σ μ_j − c cᵀ,

so w reports of item i add w H to Σ⁻¹ and w g_i to Σ⁻¹m: in any order, and they can be taken back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slatewise.belief.gaussian import Beliefs, Floats
from slatewise.evidence import Evidence

MOST_ITEMS = 200_000
"""Of more items, so many evenly chosen ones stand for all."""


@dataclass(frozen=True, eq=False)
class ReportedLikes:
    """The c (dim,) and H (dim, dim) of all items."""

    center: Floats
    information: Floats

    @classmethod
    def of(cls, vectors: NDArray[np.float32], rates: Floats) -> ReportedLikes:
        """Sum up the t (n_items, dim) and μ (n_items,) of all items; of very many, of some evenly chosen ones."""
        rows = np.unique(np.linspace(0, len(rates) - 1, MOST_ITEMS).astype(np.int64))
        chosen, total = vectors[rows].astype(np.float64), rates[rows].sum()
        center = chosen.sum(axis=0) / total
        information = chosen.T @ (chosen / rates[rows, None]) / total - np.outer(center, center)
        return cls(center, 0.5 * (information + information.T))

    def shifts(self, vectors: Floats, rates: Floats) -> Floats:
        """Return the g (..., dim) of items with these t (..., dim) and μ (...)."""
        return np.asarray(vectors / rates[..., None] - self.center)

    def add(self, beliefs: Beliefs, evidence: Evidence, vectors: NDArray[np.float32], rates: Floats) -> Beliefs:
        """Add what is reported in the evidence."""
        weight, items = evidence.counted * evidence.is_reported, np.maximum(evidence.items, 0)
        shifts = self.shifts(vectors[items].astype(np.float64), rates[items])
        precision = beliefs.precision + weight.sum(axis=1)[:, None, None] * self.information
        return Beliefs(precision, beliefs.shift + (weight[..., None] * shifts).sum(axis=1))
