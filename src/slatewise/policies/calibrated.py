"""The calibrated policy: an exact Gaussian belief about how a person's likes differ from the crowd's.

Where DC²B stands on logistic regression and the volume of item vectors, this policy stands on what was found to work
better (docs/method.md): likes are y_i = μ_i + θ·t_i + noise of variance ψ_i, θ ~ N(0, I), so the belief is updated in
closed form, and slates give up a little probability for categories that differ.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slatewise import belief
from slatewise import slates as rules
from slatewise.catalog import Catalog
from slatewise.policies.protocol import (
    Booleans,
    Floats,
    Integers,
    Slates,
    State,
    at_items,
    check_not_negative,
    check_share,
    pick,
    sigmoid,
)
from slatewise.randomness import Streams

MOST_LIKED = 10
LEAST_NOISE = 0.2


@dataclass(frozen=True, eq=False)
class Calibrated:
    """Belief over taste vectors; slate by probability minus the overlap of categories.

    diversity: the one knob, 0 = most relevant to 1 = most varied; temperature τ of the sample θ̂ ~ N(m, τ²Σ), 0 means
    the mean.
    """

    catalog: Catalog
    diversity: float = 0.5
    temperature: float = 0.0
    one_at_a_time = False

    def __post_init__(self) -> None:
        check_share("diversity", self.diversity)
        check_not_negative("temperature", self.temperature)

    @cached_property
    def vectors(self) -> Floats:
        """The taste vectors t_i (n_items, rank)."""
        return self.catalog.taste_vectors.astype(np.float64)

    @cached_property
    def rates(self) -> Floats:
        """The share of the crowd μ_i that likes each item."""
        return sigmoid(self.catalog.log_odds)

    @cached_property
    def noise(self) -> Floats:
        """What taste does not explain of each item's variance, ψ_i = μ_i(1 − μ_i) − |t_i|²; a share is always left."""
        variance = self.rates * (1.0 - self.rates)
        unexplained = variance - np.square(self.vectors).sum(axis=1)
        return np.asarray(np.maximum(unexplained, LEAST_NOISE * variance))

    @cached_property
    def favourite_rate(self) -> float:
        """The mean rate of the crowd's ten favourites."""
        return float(np.sort(self.rates)[-MOST_LIKED:].mean())

    @cached_property
    def category_sets(self) -> rules.ItemVectors:
        """The categories of each item as the slate rules want them."""
        return rules.ItemVectors.of(self.catalog.categories.astype(np.float32))

    def overlap_weight(self, is_first: bool) -> float:
        """What one full overlap of categories costs, in probability.

        The unit is the mean rate of the crowd's ten favourites, so the knob means the same on every catalogue. The
        first slate asks about the crowd's favourites; it gives up relevance only in the upper half of the knob.
        """
        wanted = max(0.0, 2.0 * self.diversity - 1.0) if is_first else self.diversity
        return wanted**2 * self.favourite_rate

    def start(self, n_users: int) -> State:
        """Everyone begins as the crowd: θ ~ N(0, I)."""
        rank = self.vectors.shape[1]
        return {
            "precision": np.tile(np.eye(rank), (n_users, 1, 1)),
            "shift": np.zeros((n_users, rank)),
            "rounds": np.zeros(n_users, dtype=np.int64),
        }

    def select(self, state: State, available: Booleans, k: int, random: Streams) -> Slates:
        """Choose greedily by probability minus the overlap of categories with the items chosen so far."""
        beliefs = belief.Beliefs(state["precision"], state["shift"])
        if self.temperature > 0.0:
            theta = belief.sample(beliefs, random.normal(self.vectors.shape[1]), self.temperature)
        else:
            theta = belief.mean(beliefs)
        scores = theta @ self.vectors.T
        scores += self.rates
        choice = self._choose(scores, available, k, state["rounds"] == 0)
        shown = at_items(self.vectors, choice.items)
        mean, variance = belief.logit_moments(beliefs, shown, at_items(self.rates, choice.items))
        gain = np.where(choice.items >= 0, choice.gains - pick(scores, choice.items), 0.0)
        return Slates(choice.items, np.clip(mean, 0.0, 1.0), np.sqrt(variance), gain)

    def _choose(self, scores: Floats, available: Booleans, k: int, is_first: Booleans) -> rules.Choice:
        """Choose for those who see their first slate and for the others."""
        items: Integers = np.full((len(scores), k), -1, dtype=np.int64)
        gains = np.zeros((len(scores), k))
        for first in (True, False):
            users = np.flatnonzero(is_first == first)
            if users.size:
                weight = self.overlap_weight(first)
                part = rules.overlap_greedy(scores[users], self.category_sets, available[users], k, weight)
                items[users], gains[users] = part.items, part.gains
        return rules.Choice(items, gains)

    def update(self, state: State, slates: Slates, clicks: Booleans) -> State:
        """Add the evidence: Σ⁻¹ += Σ t tᵀ / ψ and Σ⁻¹m += Σ (y − μ) t / ψ, exact and in any order."""
        shown = at_items(self.vectors, slates.items)
        weights = (slates.items >= 0) / at_items(self.noise, slates.items)
        surprise = weights * (clicks - at_items(self.rates, slates.items))
        rows = np.swapaxes(shown, 1, 2)
        return {
            "precision": state["precision"] + np.matmul(rows * weights[:, None, :], shown),
            "shift": state["shift"] + np.matmul(rows, surprise[:, :, None])[:, :, 0],
            "rounds": state["rounds"] + 1,
        }
