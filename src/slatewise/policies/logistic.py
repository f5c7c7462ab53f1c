"""Logistic regression on the taste vectors, with Thompson sampling or upper confidence bounds."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slatewise import belief
from slatewise.catalog import Catalog
from slatewise.evidence import Evidence
from slatewise.policies.history import added, check_reranking, make_reranker, with_diversity
from slatewise.policies.protocol import (
    Booleans,
    Floats,
    Slates,
    State,
    at_items,
    check_choice,
    check_no_retraction,
    check_not_negative,
    check_positive,
    sigmoid,
)
from slatewise.randomness import Streams
from slatewise.slates import Available


def _thompson(beliefs: belief.Factored, vectors: Floats, exploration: float, random: Streams) -> Floats:
    """Draw θ̂ ~ N(m, a²Σ): the logits θ̂·x (n_users, n_items)."""
    theta = beliefs.mean
    if exploration > 0.0:
        theta = beliefs.sample(random.normal(vectors.shape[1]), exploration)
    return np.asarray(np.array([vectors @ drawn for drawn in theta]))


def _upper_bound(beliefs: belief.Factored, vectors: Floats, exploration: float, random: Streams) -> Floats:
    """Return m·x + a √(xᵀΣx) (n_users, n_items)."""
    del random
    logits = np.array([vectors @ mean for mean in beliefs.mean])
    if exploration > 0.0:
        spreads = [np.einsum("ij,ij->i", vectors @ covariance, vectors) for covariance in beliefs.covariance()]
        logits += exploration * np.sqrt(np.maximum(spreads, 0.0))
    return logits


EXPLORING: dict[str, Callable[[belief.Factored, Floats, float, Streams], Floats]] = {
    "thompson": _thompson,
    "ucb": _upper_bound,
}
"""How uncertainty enters the scores."""


@dataclass(frozen=True, eq=False)
class Logistic:
    """A click has log-odds o_i + θ·x_i, θ ~ N(0, vI), updated by equations (7) to (9) without the exposure term.

    o_i are the log-odds of the rates and x_i = t_i / μ_i(1 − μ_i), the taste vectors of `dc2b-calibrated` as slopes of
    a logit. v is `prior_variance`; `exploring` is `thompson` or `ucb`, and `exploration` how much of it.
    """

    catalog: Catalog
    exploring: str = "thompson"
    exploration: float = 0.2
    prior_variance: float = 0.3
    diversity: float = 0.0
    rerank: str = "overlap"
    scores_are_probabilities = True
    one_at_a_time = False
    additive = ()
    prepared = "vectors"
    reranker = cached_property(make_reranker)
    with_diversity = with_diversity

    def __post_init__(self) -> None:
        check_choice("exploring", self.exploring, EXPLORING)
        check_not_negative("exploration", self.exploration)
        check_positive("prior_variance", self.prior_variance)
        check_reranking(self.diversity, self.rerank)

    @cached_property
    def vectors(self) -> Floats:
        """The x_i (n_items, rank)."""
        rates = sigmoid(self.catalog.log_odds)
        slopes = self.catalog.taste_vectors / (rates * (1.0 - rates))[:, None]
        return np.ascontiguousarray(slopes, dtype=np.float64)

    def start(self, n_users: int) -> State:
        """Everyone begins with the average taste; likes are counted for rules that look at their categories."""
        rank = self.vectors.shape[1]
        beliefs = belief.start(n_users, np.zeros(rank), self.prior_variance * np.eye(rank))
        liked = np.zeros((n_users, self.catalog.n_items))
        return {**_state(beliefs), "liked": liked, "rounds": np.zeros(n_users, dtype=np.int64)}

    def select(self, state: State, available: Booleans | Available, k: int, random: Streams) -> Slates:
        """Choose by click probability, as drawn or at its upper bound, re-ranked for variety."""
        beliefs = belief.factor(belief.Beliefs(state["precision"], state["shift"]))
        logits = EXPLORING[self.exploring](beliefs, self.vectors, self.exploration, random)
        choice = self.reranker.choose(sigmoid(self.catalog.log_odds + logits), state, available, k)
        moments = beliefs.logit_moments(
            at_items(self.vectors, choice.items), at_items(self.catalog.log_odds, choice.items)
        )
        return Slates(choice.items, *belief.click_probability(*moments), choice.variety)

    def update(self, state: State, evidence: Evidence) -> State:
        """Learn from clicks and refusals; a refusal counts as far as the item was looked at."""
        check_no_retraction("logistic", evidence)
        weights = evidence.counted * np.where(evidence.liked, 1.0, evidence.examined)
        vectors, offsets = at_items(self.vectors, evidence.items), at_items(self.catalog.log_odds, evidence.items)
        feedback = belief.Feedback(vectors, evidence.value, offsets, weights)
        learned = belief.update(belief.Beliefs(state["precision"], state["shift"]), feedback)
        liked = added(state["liked"], evidence, evidence.weight * evidence.liked)
        return {**_state(learned), "liked": liked, "rounds": evidence.count_rounds(state["rounds"])}


def _state(beliefs: belief.Beliefs) -> State:
    return {"precision": beliefs.precision, "shift": beliefs.shift}
