"""DC²B as published: Thompson sampling, variational Bayes, greedy MAP of a DPP (Algorithms 1 and 2)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from slatewise import belief
from slatewise.catalog import Catalog
from slatewise.evidence import Evidence
from slatewise.policies.protocol import (
    Booleans,
    Floats,
    Integers,
    ScoreTerms,
    Slates,
    State,
    at_items,
    check_choice,
    check_count,
    check_no_retraction,
    check_not_negative,
    check_positive,
    sigmoid,
)
from slatewise.randomness import Streams
from slatewise.slates import Available, Choice, LinearItems, choose, rules, squared_lengths

PRIORS: dict[str, Callable[[Catalog, float], Floats]] = {
    "zero": lambda catalog, _length: np.zeros(catalog.dim),
    "population": lambda catalog, length: catalog.population_mean / length,
}
"""Where the mean of a belief starts, for item vectors of a given length."""


def check_prior(prior: str, prior_variance: float, vector_length: float) -> None:
    """Refuse a prior that does not exist or has no width."""
    check_choice("prior", prior, PRIORS)
    check_positive("prior_variance", prior_variance)
    check_positive("vector_length", vector_length)


@dataclass(frozen=True, eq=False)
class Dc2b:
    """The paper's method; what it leaves open is a named option.

    alpha: how much quality counts against variety (2); prior: where m starts, `zero` as Algorithm 1 says or the
    `population` mean; prior_variance: λ of Σ = λI; vector_length: the root mean square length of the x_i, which the
    paper normalizes without saying how; exposure_push: the 2α of (8), or another number; iterations of (7) to (9),
    None to convergence; temperature τ of the sample θ̂ ~ N(m, τ²Σ).
    """

    catalog: Catalog
    alpha: float = 3.0
    prior: str = "population"
    prior_variance: float = 1.0
    vector_length: float = 0.2
    exposure_push: float | None = None
    iterations: int | None = None
    temperature: float = 1.0
    one_at_a_time = False
    additive = ()
    belief_arrays = ("precision", "shift")

    def __post_init__(self) -> None:
        check_prior(self.prior, self.prior_variance, self.vector_length)
        check_positive("alpha", self.alpha)
        check_not_negative("temperature", self.temperature)
        if self.exposure_push is not None:
            check_not_negative("exposure_push", self.exposure_push)
        if self.iterations is not None:
            check_count("iterations", self.iterations)

    @cached_property
    def items(self) -> LinearItems:
        """What bounds the gain of a stored vector, 2α·θ·x + log|x|², as log p is never positive."""
        squared = squared_lengths(self.catalog.vectors)
        lengths = np.log(squared, where=squared > 0.0, out=np.full_like(squared, -np.inf))
        return LinearItems.of(self.catalog.vectors, lengths)

    def start(self, n_users: int) -> State:
        """Every user begins with N(m, λI)."""
        mean = PRIORS[self.prior](self.catalog, self.vector_length)
        return _state(belief.start(n_users, mean, self.prior_variance * np.eye(self.catalog.dim)))

    def select(self, state: State, available: Booleans | Available, k: int, random: Streams) -> Slates:
        """Sample θ̂ and maximize f(S) = ∏ p_i det(L_S) greedily, in the log domain."""
        beliefs = belief.factor(self.belief_in(state))
        theta = beliefs.sample(random.normal(self.catalog.dim), self.temperature)
        choice = self._choose(theta, available, k)
        shown = self.at(choice.items)
        probability = belief.click_probability(*beliefs.logit_moments(shown))
        return Slates(choice.items, *probability, choice.variety + _first_gains(shown) * (choice.items >= 0))

    def _choose(self, theta: Floats, available: Booleans | Available, k: int) -> Choice:
        """Choose by the catalog's vectors, the x_i before they are scaled, which moves all gains alike."""
        scores = self.items.logistic(self.vector_length * theta, 2.0 * self.alpha)
        return choose(scores, rules.volume(self.items.features), available, k)

    def at(self, items: Integers) -> Floats:
        """Return the x_i of chosen items (n_users, k)."""
        scaled: Floats = at_items(self.catalog.vectors, items).astype(np.float64) * self.vector_length
        return scaled

    def update(self, state: State, evidence: Evidence) -> State:
        """Equations (7) to (9); a refusal counts as far as the item was looked at."""
        check_no_retraction("dc2b", evidence)
        weights = _weights(evidence)
        feedback = belief.Feedback(self.at(evidence.items), evidence.value, np.zeros(weights.shape), weights)
        beliefs = self.belief_in(state)
        return _state(belief.update(beliefs, feedback, exposure_push=self._push, iterations=self.iterations))

    @property
    def _push(self) -> float:
        """The 2α of equation (8), unless another number was given."""
        return 2.0 * self.alpha if self.exposure_push is None else self.exposure_push

    @property
    def belief_vectors(self) -> NDArray[np.float32]:
        """The x_i, up to scale."""
        return self.catalog.vectors

    def belief_in(self, state: State) -> belief.Beliefs:
        """Return the belief inside a state."""
        return belief.Beliefs(**state)

    def chosen_at(self, items: Integers) -> Floats:
        """Return the x_i of some items."""
        return self.at(items)

    def shifts(self, evidence: Evidence) -> Floats:
        """Return what each observation adds to Σ⁻¹m: its pull times x."""
        return np.asarray(self._pulls(evidence)[0][:, None] * self.at(evidence.items)[0])

    def _pulls(self, evidence: Evidence) -> Floats:
        """Return the y + 2α − ½ of equation (8), times the weight."""
        return np.asarray(_weights(evidence) * (evidence.value + self._push - 0.5))

    def score_terms(self, beliefs: belief.Factored, items: Integers, random: Streams) -> ScoreTerms:
        """Return the probabilities before and after anything was learned, and what the draw of θ adds."""
        shown = self.at(items[None])
        first = belief.factor(self.belief_in(self.start(1))).logit_moments(shown)
        prior, now = (belief.click_probability(*moments)[0][0] for moments in (first, beliefs.logit_moments(shown)))
        drawn = beliefs.sample(random.normal(self.catalog.dim), self.temperature)
        return ScoreTerms(prior, now - prior, sigmoid(shown[0] @ drawn[0]) - now)


def _weights(evidence: Evidence) -> Floats:
    """Return what each item counts: a refusal as far as it was looked at."""
    return np.asarray(evidence.counted * np.where(evidence.liked, 1.0, evidence.examined))


def _first_gains(shown: Floats) -> Floats:
    """Return the log|x|² that vectors (n_users, k, dim) add to log f on an empty slate; zero vectors add nothing."""
    squared = np.square(shown).sum(axis=2)
    return np.asarray(np.log(squared, where=squared > 0.0, out=np.zeros_like(squared)))


def _state(beliefs: belief.Beliefs) -> State:
    return {"precision": beliefs.precision, "shift": beliefs.shift}
