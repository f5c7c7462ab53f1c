"""The full-rank Gaussian rival: likes are jointly normal, and what was seen predicts the rest by conditioning."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slatewise.catalog import Catalog
from slatewise.evidence import Evidence
from slatewise.policies.history import (
    LEAST,
    add_weighted_rows,
    added,
    check_reranking,
    make_reranker,
    training_data,
    with_diversity,
)
from slatewise.policies.protocol import Booleans, Floats, Integers, Slates, State, check_share, pick, sigmoid
from slatewise.randomness import Streams
from slatewise.slates import Available


@dataclass(frozen=True, eq=False)
class Gaussian:
    """score = μ + C[:, S] C[S, S]⁻¹ (y_S − μ_S) for the items S that a user has seen.

    μ are like rates and C is the covariance of likes, shrunk to its diagonal: off the diagonal (1 − `shrinkage`) times
    that of the training users. This is the information that `dc2b-calibrated` has, without a rank. An item looked at
    with probability q and weight w counts as seen by wq: less than 1 is worth as much noise as C_ii (1 / wq − 1). The
    catalog must hold the co-likes of its training users: `catalog.with_co_likes(dataset)`.
    """

    catalog: Catalog
    shrinkage: float = 0.3
    diversity: float = 0.0
    rerank: str = "overlap"
    needs = ("co_likes",)
    scores_are_probabilities = True
    one_at_a_time = False
    additive = ("liked", "seen")
    prepared = "covariance"
    reranker = cached_property(make_reranker)
    with_diversity = with_diversity

    def __post_init__(self) -> None:
        training_data(self.catalog, "co_likes", "gaussian")
        check_share("shrinkage", self.shrinkage)
        check_reranking(self.diversity, self.rerank)

    @cached_property
    def rates(self) -> Floats:
        """The share of users μ_i that likes each item."""
        return sigmoid(self.catalog.log_odds)

    @cached_property
    def covariance(self) -> Floats:
        """Return C (n_items, n_items)."""
        gram = training_data(self.catalog, "co_likes", "gaussian").astype(np.float64)
        n_users = max(self.catalog.n_users or np.diag(gram).sum() / self.rates.sum(), 1.0)
        means = np.diag(gram) / n_users
        covariance = (1.0 - self.shrinkage) * (gram / n_users - np.outer(means, means))
        np.fill_diagonal(covariance, self.rates * (1.0 - self.rates))
        return np.asarray(covariance)

    def start(self, n_users: int) -> State:
        """Nothing has been seen."""
        nothing = np.zeros((n_users, self.catalog.n_items))
        return {"liked": nothing, "seen": nothing.copy(), "rounds": np.zeros(n_users, dtype=np.int64)}

    def scores(self, state: State) -> Floats:
        """Condition on what each user has seen."""
        scores = np.tile(self.rates, (len(state["seen"]), 1))
        amounts = np.zeros_like(state["seen"])
        for user, seen in enumerate(state["seen"]):
            items = np.flatnonzero(seen > LEAST)
            shares = state["liked"][user, items] / seen[items]
            amounts[user, items] = self._conditioned(items, np.minimum(seen[items], 1.0), shares)
        add_weighted_rows(amounts, self.covariance, scores)
        return scores

    def _conditioned(self, items: Integers, seen: Floats, shares: Floats) -> Floats:
        """Return C[S, S]⁻¹ (y_S − μ_S) for the liked shares y of some items, each seen by so much."""
        between = self.covariance[np.ix_(items, items)]
        between[np.diag_indices(len(items))] /= seen
        return np.asarray(np.linalg.solve(between, shares - self.rates[items]))

    def select(self, state: State, available: Booleans | Available, k: int, random: Streams) -> Slates:
        """Choose by the conditional means, re-ranked for variety."""
        del random
        scores = self.scores(state)
        choice = self.reranker.choose(scores, state, available, k)
        probability = np.clip(pick(scores, choice.items), 0.0, 1.0)
        return Slates(choice.items, probability, np.full(choice.items.shape, np.nan), choice.variety)

    def update(self, state: State, evidence: Evidence) -> State:
        """Add up by how much each item was seen, and liked."""
        seen = added(state["seen"], evidence, evidence.weight * evidence.examined)
        liked = added(state["liked"], evidence, evidence.weight * evidence.value)
        return {"liked": liked, "seen": seen, "rounds": evidence.count_rounds(state["rounds"])}
