"""Linear submodular bandits: LSB (Yue and Guestrin 2011) and CascadeLSB (Hiranandani et al. 2019).

A slate is worth Σ_c θ_c (1 − Π_i (1 − w_ic)), where item i covers category c by w_ic = μ_i g_ic / |g_i|: its like rate,
divided among its categories (an item without any has one of its own kind). What an item adds to those above it is θ·Δ,
Δ_c = w_ic Π (1 − w_jc), and clicks on it are regressed on Δ.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slatewise.catalog import Catalog
from slatewise.evidence import Evidence
from slatewise.policies.coverage import Covered, Gains, Members, choose_by_coverage, sum_of_pairs
from slatewise.policies.protocol import (
    Booleans,
    Floats,
    Slates,
    State,
    at_items,
    check_not_negative,
    check_positive,
    sigmoid,
    symmetric,
)
from slatewise.randomness import Streams
from slatewise.slates import Available, pack_sets


@dataclass(frozen=True, eq=False)
class Topics:
    """The categories of items as topics: distinct sets as shares (n_sets, n_topics), the set of each item, its rate."""

    shares: Floats
    of_item: np.ndarray[tuple[int], np.dtype[np.int64]]
    rates: Floats

    @classmethod
    def of(cls, catalog: Catalog) -> "Topics":
        """Divide each item among its categories; the last topic is for items without any."""
        categories = np.hstack([catalog.categories, ~catalog.categories.any(axis=1, keepdims=True)])
        of_item = pack_sets(categories).of_item
        members = categories[np.unique(of_item, return_index=True)[1]].astype(np.float64)
        return cls(members / members.sum(axis=1, keepdims=True), of_item, sigmoid(catalog.log_odds))

    @cached_property
    def members(self) -> Members:
        """The topics of each set."""
        return Members.of(self.shares)

    @cached_property
    def coverage(self) -> Floats:
        """Return w (n_items, n_topics)."""
        return np.asarray(self.rates[:, None] * self.shares[self.of_item])


def start_regression(policy: "Lsb | CascadeLsb", n_users: int) -> State:
    """Ridge regression around θ = 1, with which the first slate covers what is popular."""
    n_topics = policy.topics.shares.shape[1]
    return {
        "gram": np.tile(policy.ridge * np.eye(n_topics), (n_users, 1, 1)),
        "reward": np.full((n_users, n_topics), policy.ridge),
    }


def select_covering(
    policy: "Lsb | CascadeLsb", state: State, available: Booleans | Available, k: int, random: Streams
) -> Slates:
    """Choose greedily by θ̂·Δ + a √(Δᵀ M⁻¹ Δ); both are the rate of an item times what its set of categories says."""
    del random
    topics, inverse = policy.topics, np.linalg.inv(state["gram"])
    theta = np.matmul(inverse, state["reward"][:, :, None])[:, :, 0]

    def variety(covered: Covered) -> Floats:
        bound = (covered.left * theta) @ topics.shares.T
        if policy.exploration > 0.0:
            spread = sum_of_pairs(topics.members, covered.left, inverse) * np.square(topics.shares.max(axis=1))
            bound += policy.exploration * np.sqrt(np.maximum(spread, 0.0))
        return np.asarray(bound)

    gains = Gains(np.zeros((1, len(topics.rates))), topics.rates, topics.of_item, topics.coverage, variety)
    choice = choose_by_coverage(gains, available, len(theta), k)
    unknown = np.full(choice.items.shape, np.nan)
    return Slates(choice.items, unknown, unknown, choice.gains)


def regress(policy: "Lsb | CascadeLsb", state: State, evidence: Evidence, weights: Floats) -> State:
    """Add what each item added to those above it, with its reward, to the regression."""
    coverage = at_items(policy.topics.coverage, evidence.items) * (evidence.counted != 0.0)[:, :, None]
    above = np.cumprod(1.0 - coverage, axis=1)
    steps = coverage * np.concatenate([np.ones_like(above[:, :1]), above[:, :-1]], axis=1)
    scaled = steps * (weights * evidence.examined)[:, :, None]
    gram = np.matmul(np.swapaxes(scaled * evidence.examined[:, :, None], 1, 2), steps)
    reward = (scaled * evidence.value[:, :, None]).sum(axis=1)
    return {"gram": state["gram"] + symmetric(gram), "reward": state["reward"] + reward}


@dataclass(frozen=True, eq=False)
class Lsb:
    """LSBGreedy: ridge regression of clicks on what items add to the coverage, upper confidence bounds."""

    catalog: Catalog
    ridge: float = 1.0
    exploration: float = 0.0
    one_at_a_time = False
    additive = ("gram", "reward")
    start = start_regression
    select = select_covering

    def __post_init__(self) -> None:
        check_positive("ridge", self.ridge)
        check_not_negative("exploration", self.exploration)

    @cached_property
    def topics(self) -> Topics:
        """The categories of the items."""
        return Topics.of(self.catalog)

    def update(self, state: State, evidence: Evidence) -> State:
        """Learn from every item that was looked at."""
        return regress(self, state, evidence, evidence.counted)


@dataclass(frozen=True, eq=False)
class CascadeLsb:
    """The same, for people who look from the top and stop at the first click: what is below it teaches nothing."""

    catalog: Catalog
    ridge: float = 1.0
    exploration: float = 0.0
    one_at_a_time = False
    additive = ("gram", "reward")
    start = start_regression
    select = select_covering

    def __post_init__(self) -> None:
        check_positive("ridge", self.ridge)
        check_not_negative("exploration", self.exploration)

    @cached_property
    def topics(self) -> Topics:
        """The categories of the items."""
        return Topics.of(self.catalog)

    def update(self, state: State, evidence: Evidence) -> State:
        """Learn from the items down to the first click."""
        clicked = evidence.liked & (evidence.weight != 0.0)
        above = np.cumsum(clicked, axis=1) - clicked
        return regress(self, state, evidence, evidence.counted * (above == 0))
