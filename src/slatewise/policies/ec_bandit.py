"""EC-Bandit (Qi et al. 2018): a click needs examination and relevance, P(click) = σ(x·θ_C) σ(x·θ_E)."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slatewise import belief
from slatewise import slates as rules
from slatewise.catalog import Catalog
from slatewise.policies.dc2b import PRIORS, check_prior
from slatewise.policies.protocol import (
    Booleans,
    Floats,
    Integers,
    Slates,
    State,
    at_items,
    for_all,
    for_one,
    scaled_vectors,
    sigmoid,
)
from slatewise.randomness import Streams
from slatewise.slates import Available

LEAST_LOGIT = -40.0  # products of two exponentials stay finite in float32
ROUNDING = 1e-5  # far above what float32 can lose in a few operations


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
    additive = False

    def __post_init__(self) -> None:
        check_prior(self.prior, self.prior_variance, self.vector_length)

    @cached_property
    def vectors(self) -> Floats:
        """The item vectors x_i (n_items, dim), for batches."""
        return scaled_vectors(self.catalog, self.vector_length)

    @cached_property
    def stored_vectors(self) -> rules.ItemVectors:
        """The catalogue's vectors, for one user: the x_i before they are scaled."""
        return rules.ItemVectors(self.catalog.vectors)

    @cached_property
    def bounds(self) -> rules.LinearBounds:
        """The products of one parameter with all stored vectors."""
        return rules.LinearBounds.of(self.catalog.vectors, np.zeros(self.catalog.n_items))

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
        choice = self._choose(sampled, available, k)
        relevant, examined = self._probabilities(self._at(choice.items), relevance, examination)
        unknown = np.full(choice.items.shape, np.nan)
        return Slates(choice.items, relevant * examined, unknown, np.zeros(choice.items.shape))

    def _choose(self, sampled: tuple[Floats, Floats], available: Booleans | Available, k: int) -> rules.Choice:
        """Choose the items whose −1/p is largest, p the probability of a click."""
        if len(sampled[0]) == 1:
            return self._choose_alone(sampled, for_one(available, self.catalog.n_items), k)
        unlikely = _inverse_sigmoid(sampled[0] @ self.vectors.T)
        unlikely *= _inverse_sigmoid(sampled[1] @ self.vectors.T)
        return rules.top_k(np.negative(unlikely, out=unlikely), for_all(available, len(unlikely)), k)

    def _choose_alone(self, sampled: tuple[Floats, Floats], available: Available, k: int) -> rules.Choice:
        """Choose for one user; an error of a logit changes 1/σ by at most that part of it."""
        weights = [self.vector_length * one[0] for one in sampled]

        def scores(items: Integers) -> Floats:
            logits = [self.stored_vectors.products(items, one) for one in weights]
            unlikely: Floats = _inverse_sigmoid(logits[0]) * _inverse_sigmoid(logits[1])
            return -unlikely

        parts = [self.bounds.promise(one, available, scores) for one in weights]
        unlikely = [_inverse_sigmoid(np.maximum(part.values, LEAST_LOGIT)) for part in parts]
        error = float(np.expm1(parts[0].error + parts[1].error)) + ROUNDING
        values = unlikely[0] * unlikely[1] / (-1.0 - error)
        values[parts[0].values == -np.inf] = -np.inf
        return rules.top_k_alone(replace(parts[0], values=values, error=0.0 if error < np.inf else np.inf), k)

    def _at(self, items: Integers) -> Floats:
        """Return the x_i of chosen items (n_users, k)."""
        scaled: Floats = at_items(self.catalog.vectors, items).astype(np.float64) * self.vector_length
        return scaled

    def _probabilities(
        self, shown: Floats, relevance: belief.Beliefs, examination: belief.Beliefs
    ) -> tuple[Floats, Floats]:
        """Return σ(x·m) of both parameters for shown items (n_users, k, dim)."""
        relevant, examined = (np.matmul(shown, belief.mean(one)[:, :, None]) for one in (relevance, examination))
        return sigmoid(relevant[:, :, 0]), sigmoid(examined[:, :, 0])

    def update(self, state: State, slates: Slates, clicks: Booleans) -> State:
        """One variational step for each parameter, with the expected examination."""
        relevance, examination = _beliefs(state)
        shown = self._at(slates.items)
        here = (slates.items >= 0).astype(np.float64)
        relevant, examined = self._probabilities(shown, relevance, examination)
        latent = examined * (1.0 - relevant) / np.maximum(1.0 - relevant * examined, 1e-12)
        expected, offsets = np.where(clicks, 1.0, latent), np.zeros(here.shape)
        weight = expected * here if self.soft_negatives else here
        return _state(
            belief.update(relevance, belief.Feedback(shown, clicks.astype(np.float64), offsets, weight)),
            belief.update(examination, belief.Feedback(shown, expected, offsets, here)),
        )


def _inverse_sigmoid(logits: NDArray[Any]) -> NDArray[Any]:
    """Overwrite logits z with 1 / σ(z) = 1 + exp(−z), bounded so that products of two stay finite."""
    np.negative(logits, out=logits)
    np.minimum(logits, 300.0, out=logits)
    np.exp(logits, out=logits)
    logits += 1.0
    return logits


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
