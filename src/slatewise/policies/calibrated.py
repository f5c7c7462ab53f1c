"""The calibrated policy: an exact Gaussian belief about how a user's likes differ from those of all users.

Where DC²B stands on logistic regression and the volume of item vectors, this policy stands on what was found to work
better (docs/method.md): likes are y_i = μ_i + θ·t_i + noise of variance ψ_i, θ ~ N(0, I), so the belief is updated in
closed form, and slates give up a little probability for categories that differ.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from slatewise import belief
from slatewise.catalog import Catalog
from slatewise.evidence import Evidence
from slatewise.policies.protocol import (
    Booleans,
    Floats,
    Integers,
    Slates,
    State,
    check_not_negative,
    check_share,
    sigmoid,
)
from slatewise.randomness import Streams
from slatewise.slates import (
    Available,
    CategorySets,
    Choice,
    LinearItems,
    Rule,
    Scores,
    choose,
    pack_sets,
    squared_lengths,
)
from slatewise.slates.rules import OVERLAP
from slatewise.slates.scores import LINEAR

MOST_LIKED = 10
LEAST_NOISE = 0.2
PREPARED = ("items", "rates", "noise", "favorite_rate", "category_sets", "model")


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
    additive = ("precision", "shift")

    def __post_init__(self) -> None:
        check_share("diversity", self.diversity)
        check_not_negative("temperature", self.temperature)

    @cached_property
    def items(self) -> LinearItems:
        """The taste vectors and rates as the slate rules take them; overlap only takes from a probability."""
        return LinearItems.of(self.catalog.taste_vectors, self.rates, base=self.rates)

    @cached_property
    def rates(self) -> Floats:
        """The share of users μ_i that likes each item."""
        return sigmoid(self.catalog.log_odds)

    @cached_property
    def noise(self) -> Floats:
        """What taste does not explain of each item's variance, ψ_i = μ_i(1 − μ_i) − |t_i|²; a share is always left."""
        variance = self.rates * (1.0 - self.rates)
        unexplained = variance - squared_lengths(self.catalog.taste_vectors)
        return np.asarray(np.maximum(unexplained, LEAST_NOISE * variance))

    @cached_property
    def model(self) -> belief.LinearModel:
        """How likes depend on taste."""
        return belief.LinearModel(self.catalog.taste_vectors, self.rates, self.noise)

    @cached_property
    def favorite_rate(self) -> float:
        """The mean rate of the ten items that most users like."""
        return float(np.sort(self.rates)[-MOST_LIKED:].mean())

    @cached_property
    def category_sets(self) -> CategorySets:
        """The categories of each item as the slate rules take them."""
        return pack_sets(self.catalog.categories)

    def with_diversity(self, diversity: float) -> "Calibrated":
        """Return the same policy with another diversity; everything prepared is shared."""
        other = replace(self, diversity=diversity)
        vars(other).update({name: getattr(self, name) for name in PREPARED})
        return other

    def overlap_weight(self, is_first: bool) -> float:
        """What one full overlap of categories costs, in probability.

        The unit is the mean rate of the ten most liked items, so the knob means the same on every catalog. The first
        slate asks about items that most users like; it gives up relevance only in the upper half of the knob.
        """
        wanted = max(0.0, 2.0 * self.diversity - 1.0) if is_first else self.diversity
        return wanted**2 * self.favorite_rate

    def start(self, n_users: int) -> State:
        """Everyone begins with the average taste: θ ~ N(0, I)."""
        rank = self.catalog.taste_vectors.shape[1]
        return {
            "precision": np.tile(np.eye(rank), (n_users, 1, 1)),
            "shift": np.zeros((n_users, rank)),
            "rounds": np.zeros(n_users, dtype=np.int64),
        }

    def select(self, state: State, available: Booleans | Available, k: int, random: Streams) -> Slates:
        """Choose greedily by probability minus the overlap of categories with the items chosen so far."""
        beliefs = belief.factor(belief.Beliefs(state["precision"], state["shift"]))
        theta = beliefs.mean
        if self.temperature > 0.0:
            theta = beliefs.sample(random.normal(theta.shape[1]), self.temperature)
        choice = self._choose(theta, available, k, state["rounds"] == 0)
        shown = np.maximum(choice.items, 0)  # any item stands in for −1
        mean, variance = beliefs.logit_moments(self._at(shown), self.rates.take(shown))
        probability = np.minimum(np.maximum(mean, 0.0), 1.0)
        return Slates(choice.items, probability, np.sqrt(variance), choice.variety)

    def _choose(self, theta: Floats, available: Booleans | Available, k: int, is_first: Booleans) -> Choice:
        """Choose by sampled tastes (n_users, rank); is_first says who sees a first slate."""
        weights = np.where(is_first, self.overlap_weight(True), self.overlap_weight(False))
        return choose(Scores(LINEAR, theta, self.items), Rule(OVERLAP, weights, sets=self.category_sets), available, k)

    def _at(self, items: Integers) -> Floats:
        """Return the t_i of some items (n_users, k)."""
        return self.catalog.taste_vectors[items].astype(np.float64)

    def update(self, state: State, evidence: Evidence) -> State:
        """Add the evidence: Σ⁻¹ += Σ w q² t tᵀ / ψ_q and Σ⁻¹m += Σ w q (y − qμ) t / ψ_q, exact and in any order."""
        beliefs = belief.Beliefs(state["precision"], state["shift"])
        learned = belief.add_observations(beliefs, evidence, self.model)
        rounds = evidence.count_rounds(state["rounds"])
        return {"precision": learned.precision, "shift": learned.shift, "rounds": rounds}
