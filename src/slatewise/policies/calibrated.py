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
from slatewise.frozen import changed
from slatewise.policies.protocol import (
    Booleans,
    Floats,
    Integers,
    Slates,
    State,
    check_not_negative,
    check_share,
    for_all,
    for_one,
    sigmoid,
)
from slatewise.randomness import Streams
from slatewise.slates import Available

MOST_LIKED = 10
LEAST_NOISE = 0.2
PREPARED = ("stored_vectors", "bounds", "rates", "noise", "favourite_rate", "category_sets", "groups")


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
    additive = True

    def __post_init__(self) -> None:
        check_share("diversity", self.diversity)
        check_not_negative("temperature", self.temperature)

    @cached_property
    def vectors(self) -> Floats:
        """The taste vectors t_i (n_items, rank), for batches."""
        return self.catalog.taste_vectors.astype(np.float64)

    @cached_property
    def stored_vectors(self) -> rules.ItemVectors:
        """The same as the catalogue has them, for one user."""
        return rules.ItemVectors(self.catalog.taste_vectors)

    @cached_property
    def bounds(self) -> rules.LinearBounds:
        """What bounds the gain of an item, its probability, as overlap only takes."""
        return rules.LinearBounds.of(self.catalog.taste_vectors, self.rates)

    @cached_property
    def rates(self) -> Floats:
        """The share of the crowd μ_i that likes each item."""
        return sigmoid(self.catalog.log_odds)

    @cached_property
    def noise(self) -> Floats:
        """What taste does not explain of each item's variance, ψ_i = μ_i(1 − μ_i) − |t_i|²; a share is always left."""
        variance = self.rates * (1.0 - self.rates)
        unexplained = variance - rules.squared_lengths(self.catalog.taste_vectors)
        return np.asarray(np.maximum(unexplained, LEAST_NOISE * variance))

    @cached_property
    def favourite_rate(self) -> float:
        """The mean rate of the crowd's ten favourites."""
        return float(np.sort(self.rates)[-MOST_LIKED:].mean())

    @cached_property
    def category_sets(self) -> rules.ItemVectors:
        """The categories of each item as the slate rules want them."""
        return rules.ItemVectors.of_sets(self.catalog.categories)

    @cached_property
    def groups(self) -> rules.SetGroups | None:
        """The items by their categories, for one user; None if there are too many for that to pay."""
        return rules.SetGroups.of(self.catalog.categories, self.catalog.taste_vectors, self.rates)

    def with_diversity(self, diversity: float) -> "Calibrated":
        """Return the same policy with another diversity; everything prepared for serving is shared."""
        check_share("diversity", diversity)
        for name in PREPARED:
            getattr(self, name)
        return changed(self, diversity=diversity)

    def overlap_weight(self, is_first: bool) -> float:
        """What one full overlap of categories costs, in probability.

        The unit is the mean rate of the crowd's ten favourites, so the knob means the same on every catalogue. The
        first slate asks about the crowd's favourites; it gives up relevance only in the upper half of the knob.
        """
        wanted = max(0.0, 2.0 * self.diversity - 1.0) if is_first else self.diversity
        return wanted**2 * self.favourite_rate

    def start(self, n_users: int) -> State:
        """Everyone begins as the crowd: θ ~ N(0, I)."""
        rank = self.catalog.taste_vectors.shape[1]
        return {
            "precision": np.tile(np.eye(rank), (n_users, 1, 1)),
            "shift": np.zeros((n_users, rank)),
            "rounds": np.zeros(n_users, dtype=np.int64),
        }

    def select(self, state: State, available: Booleans | Available, k: int, random: Streams) -> Slates:
        """Choose greedily by probability minus the overlap of categories with the items chosen so far."""
        beliefs = belief.Beliefs(state["precision"], state["shift"])
        if self.temperature > 0.0:
            theta = belief.sample(beliefs, random.normal(beliefs.shift.shape[1]), self.temperature)
        else:
            theta = belief.mean(beliefs)
        is_first = state["rounds"] == 0
        if len(theta) == 1:
            choice = self._choose_alone(theta[0], for_one(available, self.catalog.n_items), k, bool(is_first[0]))
        else:
            choice = self._choose(self._scores(theta), for_all(available, len(theta)), k, is_first)
        shown = np.maximum(choice.items, 0)  # any item stands in for −1
        mean, variance = belief.logit_moments(beliefs, self._at(shown), self.rates.take(shown))
        probability = np.minimum(np.maximum(mean, 0.0), 1.0)
        return Slates(choice.items, probability, np.sqrt(variance), choice.variety)

    def _choose_alone(self, theta: Floats, available: Available, k: int, is_first: bool) -> rules.Choice:
        """Choose for one user."""

        def scores(items: Integers) -> Floats:
            return self.stored_vectors.products_to_rounding(items, theta) + self.rates.take(items)

        weight = self.overlap_weight(is_first)
        if weight > 0.0 and self.groups is not None and available.candidates is None:
            return self.groups.choose(theta, available, scores, k, weight)
        rule = rules.overlap_rule(weight)
        return rules.choose_alone(self.bounds.promise(theta, available, scores), self.category_sets, k, rule)

    def _scores(self, theta: Floats) -> Floats:
        """Return the probability of every item (n_users, n_items)."""
        scores: Floats = theta @ self.vectors.T
        scores += self.rates
        return scores

    def _at(self, items: Integers) -> Floats:
        """Return the t_i of some items (n_users, k)."""
        return self.catalog.taste_vectors[items].astype(np.float64)

    def _choose(self, scores: Floats, available: Booleans, k: int, is_first: Booleans) -> rules.Choice:
        """Choose for those who see their first slate and for the others."""
        choice = rules.nothing(len(scores), k)
        for first in (True, False):
            users = np.flatnonzero(is_first == first)
            if users.size:
                weight = self.overlap_weight(first)
                part = rules.overlap_greedy(scores[users], self.category_sets, available[users], k, weight)
                choice.put(users, part)
        return choice

    def update(self, state: State, slates: Slates, clicks: Booleans) -> State:
        """Add the evidence: Σ⁻¹ += Σ t tᵀ / ψ and Σ⁻¹m += Σ (y − μ) t / ψ, exact and in any order."""
        model = belief.LinearModel(self.catalog.taste_vectors, self.rates, self.noise)
        beliefs = belief.Beliefs(state["precision"], state["shift"])
        learned = belief.add_observations(beliefs, slates.items, clicks, model)
        return {"precision": learned.precision, "shift": learned.shift, "rounds": state["rounds"] + 1}
