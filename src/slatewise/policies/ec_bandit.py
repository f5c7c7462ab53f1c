"""EC-Bandit (Qi et al. 2018): a click needs examination and relevance, P(click) = σ(x·θ_C) σ(x·θ_E)."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slatewise import belief
from slatewise.catalog import Catalog
from slatewise.compiled import compiled
from slatewise.evidence import Evidence
from slatewise.policies.dc2b import PRIORS, check_prior
from slatewise.policies.protocol import (
    Booleans,
    Floats,
    Integers,
    Slates,
    State,
    at_items,
    check_no_retraction,
    check_truth,
    sigmoid,
)
from slatewise.randomness import Streams
from slatewise.slates import Available, item_vectors, top_k
from slatewise.slates.kernels import Vectors, product


@dataclass(frozen=True, eq=False)
class EcBandit:
    """Thompson sampling of relevance θ_C and examination θ_E, one item at a time.

    On a click both get label 1. Without one, examination is latent with q = σ_E(1 − σ_C) / (1 − σ_Cσ_E):
    examination gets the soft label q, and relevance gets label 0, with weight q (`soft_negatives`) or in full.
    Both start from the same prior; prior_variance is the paper's λ = 1. Which of these readings comes closest to the
    published figures, and at which vector_length, docs/method.md shows.
    """

    catalog: Catalog
    prior: str = "population"
    prior_variance: float = 1.0
    vector_length: float = 1.25
    soft_negatives: bool = False
    one_at_a_time = True
    additive = ()

    def __post_init__(self) -> None:
        check_prior(self.prior, self.prior_variance, self.vector_length)
        check_truth("soft_negatives", self.soft_negatives)

    @cached_property
    def vectors(self) -> Vectors:
        """The catalog's vectors, the x_i before they are scaled, as the slate rules take them."""
        return item_vectors(self.catalog.vectors)

    def start(self, n_users: int) -> State:
        """Both parameters begin with N(m, λI)."""
        mean = PRIORS[self.prior](self.catalog, self.vector_length)
        start = belief.start(n_users, mean, self.prior_variance * np.eye(self.catalog.dim))
        return _state(start, start)

    def select(self, state: State, available: Booleans | Available, k: int, random: Streams) -> Slates:
        """Sample both parameters and choose the items most likely to be clicked."""
        relevance, examination = _beliefs(state)
        normals = random.normal(2 * self.catalog.dim)
        sampled = (
            belief.sample(relevance, normals[:, : self.catalog.dim]),
            belief.sample(examination, normals[:, self.catalog.dim :]),
        )
        items = top_k(self._scores(sampled), available, k).items
        relevant, examined = self._probabilities(self._at(items), relevance, examination)
        unknown = np.full(items.shape, np.nan)
        return Slates(items, relevant * examined, unknown, np.zeros(items.shape))

    def _scores(self, sampled: tuple[Floats, Floats]) -> Floats:
        """Return −1/p (n_users, n_items), p the probability of a click."""
        scores = np.empty((len(sampled[0]), self.catalog.n_items))
        fill_scores(self.vectors, self.vector_length * sampled[0], self.vector_length * sampled[1], scores)
        return scores

    def _at(self, items: Integers) -> Floats:
        """Return the x_i of chosen items (n_users, k)."""
        scaled: Floats = at_items(self.catalog.vectors, items).astype(np.float64) * self.vector_length
        return scaled

    def _probabilities(
        self, shown: Floats, relevance: belief.Beliefs, examination: belief.Beliefs
    ) -> tuple[Floats, Floats]:
        """Return σ(x·m) of both parameters for shown items (n_users, k, dim)."""
        relevant, examined = (
            np.matmul(shown, belief.mean(parameter)[:, :, None]) for parameter in (relevance, examination)
        )
        return sigmoid(relevant[:, :, 0]), sigmoid(examined[:, :, 0])

    def update(self, state: State, evidence: Evidence) -> State:
        """One variational step for each parameter, with the examination that this policy expects itself."""
        check_no_retraction("ec-bandit", evidence)
        relevance, examination = _beliefs(state)
        shown, here = self._at(evidence.items), evidence.counted
        relevant, examined = self._probabilities(shown, relevance, examination)
        latent = examined * (1.0 - relevant) / np.maximum(1.0 - relevant * examined, 1e-12)
        expected, offsets = np.where(evidence.liked, 1.0, latent), np.zeros(here.shape)
        weight = expected * here if self.soft_negatives else here
        return _state(
            belief.update(relevance, belief.Feedback(shown, evidence.value, offsets, weight)),
            belief.update(examination, belief.Feedback(shown, expected, offsets, here)),
        )


@compiled
def fill_scores(vectors: Vectors, relevance: Floats, examination: Floats, scores: Floats) -> None:
    """Fill in −1/p = −(1 + exp(−x·θ_C))(1 + exp(−x·θ_E)) of all users and items, bounded so that it stays finite."""
    for user in range(scores.shape[0]):
        for item in range(scores.shape[1]):
            relevant, examined = product(vectors, item, relevance, user), product(vectors, item, examination, user)
            scores[user, item] = -(1.0 + np.exp(min(-relevant, 300.0))) * (1.0 + np.exp(min(-examined, 300.0)))


def _beliefs(state: State) -> tuple[belief.Beliefs, belief.Beliefs]:
    return (
        belief.Beliefs(state["relevance_precision"], state["relevance_shift"]),
        belief.Beliefs(state["examination_precision"], state["examination_shift"]),
    )


def _state(relevance: belief.Beliefs, examination: belief.Beliefs) -> State:
    return {
        "relevance_precision": relevance.precision,
        "relevance_shift": relevance.shift,
        "examination_precision": examination.precision,
        "examination_shift": examination.shift,
    }
