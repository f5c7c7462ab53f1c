"""Beta beliefs about the share of people that likes each item: what training or content said, and what everyone did.

Evidence is three sums per item: how often it was seen, how much it was clicked, and how much of that is due to
the tastes of those who saw it. Sums can come in any order and be taken back.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from slatewise.catalog import Catalog

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

NORMAL_95 = 1.96
LEVEL_PRIOR = 20.0
"""How many expected clicks it takes to believe in half of the difference between clicks and training likes."""
ALIKE = 10.0
"""How alike items are where nothing else is known: the mean rate of the others is worth so many observations."""
LEAST_RATE = 1e-4


@dataclass(frozen=True, eq=False)
class RateEvidence:
    """Sums per item (n_items,): how often seen, how much clicked, how much of the clicks tastes explain."""

    seen: Floats
    clicked: Floats
    explained: Floats

    @classmethod
    def nothing(cls, n_items: int) -> "RateEvidence":
        """Return the evidence before anybody has seen anything."""
        return cls(np.zeros(n_items), np.zeros(n_items), np.zeros(n_items))

    def added(self, items: Integers, seen: Floats, clicked: Floats, explained: Floats) -> "RateEvidence":
        """Return the evidence with more of it about some items, arrays of one shape; −1 is no item."""
        real = items >= 0
        sums = [np.array(values) for values in (self.seen, self.clicked, self.explained)]
        for total, more in zip(sums, (seen, clicked, explained), strict=True):
            np.add.at(total, items[real], more[real])
        return RateEvidence(*sums)


@dataclass(frozen=True, eq=False)
class Rates:
    """Beta(s·μ, s·(1 − μ)) about each item: mean μ and strength s (n_items,), in observations.

    These are shares of likes, as training counted them, by which slates are chosen. A like is clicked c times as often
    as that, the `level`; shares of clicks, which people are told, are c·μ, known as well as from s / c observations.
    Where few likes are clicked, an item may be clicked more often than c: `beyond` (n_items,), if there is one, is what
    its μ lacks, being kept below 1.
    """

    mean: Floats
    strength: Floats
    level: float = 1.0
    beyond: Floats | None = None

    @classmethod
    def of(cls, catalog: Catalog) -> "Rates":
        """Return what the catalog says: its likes, or what content predicts."""
        return cls(0.5 * (1.0 + np.tanh(0.5 * catalog.log_odds)), catalog.rate_strengths)

    @cached_property
    def deviation(self) -> Floats:
        """The standard deviation √(μ(1 − μ) / (s + 1)) of each rate, read-only, as kernels take it."""
        deviation = np.asarray(np.sqrt(self.mean * (1.0 - self.mean) / (self.strength + 1.0)))
        deviation.flags.writeable = False
        return deviation

    def as_clicks(self, likes: Floats, items: int | slice | Integers) -> Floats:
        """Return the probability of a click on each of some items, by that of a like (or an array of each)."""
        more = 0.0 if self.beyond is None else self.beyond[items]
        return np.asarray(np.minimum(self.level * (likes + more), 1.0))

    @property
    def shares(self) -> Floats:
        """The share of those who see each item that clicks it."""
        return self.as_clicks(self.mean, slice(None))

    def clicks(self, item: int) -> tuple[float, float]:
        """Return the share of those who see an item that clicks it, and how many observations that is worth."""
        return float(self.as_clicks(self.mean[item], item)), float(self.strength[item]) / self.level

    def beyond_of(self, item: int) -> float:
        """Return what the mean of an item lacks."""
        return 0.0 if self.beyond is None else float(self.beyond[item])

    def interval(self, item: int) -> tuple[float, float]:
        """Return where the share of clicks lies with 95 %, by the interval of Wilson, which stays within 0 to 1."""
        (mean, strength), squared = self.clicks(item), NORMAL_95**2
        center = (mean + 0.5 * squared / strength) / (1.0 + squared / strength)
        half = NORMAL_95 * np.sqrt(mean * (1.0 - mean) / strength + 0.25 * squared / strength**2)
        half /= 1.0 + squared / strength
        return max(0.0, float(center - half)), min(1.0, float(center + half))

    def after(self, evidence: RateEvidence) -> "Rates":
        """Return the beliefs after evidence: μ = (s₀μ₀ + clicked − c·explained) / (s₀ + c·seen).

        The level c is how much people click of what was expected, over all items together: where everybody clicks half
        as much as training users liked, no item is worse than thought.
        """
        level = click_level(self, evidence)
        strength = self.strength + level * np.maximum(evidence.seen, 0.0)
        likes = self.strength * self.mean + evidence.clicked - level * evidence.explained
        shares = likes / strength
        mean = np.clip(shares, LEAST_RATE, 1.0 - LEAST_RATE)
        return Rates(mean, strength, level, np.maximum(shares - mean, 0.0))

    def after_unknown(self, evidence: RateEvidence) -> "Rates":
        """Return the beliefs after evidence where nothing was known before: μ₀ is the mean rate of all items seen."""
        if not evidence.seen.any():
            return self
        clicked = float((evidence.clicked - evidence.explained).sum())
        mean = (0.5 + max(clicked, 0.0)) / (1.0 + float(np.maximum(evidence.seen, 0.0).sum()))
        strength = ALIKE + np.maximum(evidence.seen, 0.0)
        likes = ALIKE * mean + evidence.clicked - evidence.explained
        return Rates(np.clip(likes / strength, LEAST_RATE, 1.0 - LEAST_RATE), strength)


def click_level(rates: Rates, evidence: RateEvidence) -> float:
    """Return how much was clicked over how much was expected; items count as far as they were known.

    Both begin at LEVEL_PRIOR, as if so many clicks had been expected and made, so that a few skips say little.
    """
    known = rates.strength / (rates.strength + np.maximum(evidence.seen, 0.0))
    expected = float((known * (evidence.seen * rates.mean + evidence.explained)).sum())
    clicked = float((known * evidence.clicked).sum())
    return max(clicked + LEVEL_PRIOR, 1.0) / max(expected + LEVEL_PRIOR, 1.0)
