"""Policies that do not learn: the same scores for every user, chosen by different slate rules."""

from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import cached_property

import numpy as np

from slatewise.catalog import Catalog
from slatewise.evidence import Evidence
from slatewise.policies.protocol import Booleans, Floats, Slates, State, at_items, check_choice, check_share, sigmoid
from slatewise.randomness import Streams
from slatewise.slates import (
    Available,
    Choice,
    Rule,
    as_table,
    choose,
    epsilon_greedy,
    item_vectors,
    rules,
    table,
    top_k,
)
from slatewise.slates.stochastic import SoftmaxGreedy


def population_logits(catalog: Catalog) -> Floats:
    """Return ū·x_i for each item, ū the mean of the training users' vectors; the paper's quality is σ of it."""
    return catalog.vectors.astype(np.float64) @ catalog.population_mean


def start_counting(policy: object, n_users: int) -> State:
    """Nothing is known, and nothing will be."""
    del policy
    return {"rounds": np.zeros(n_users, dtype=np.int64)}


def count_round(policy: object, state: State, evidence: Evidence) -> State:
    """Count the round; evidence changes nothing else."""
    del policy
    return {"rounds": evidence.count_rounds(state["rounds"])}


@dataclass(frozen=True, eq=False)
class SharedScores:
    """The same scores (n_items,), rule and click probabilities (n_items,) for every user."""

    scores: Floats
    rule: Rule
    probability: Floats

    def select(self, state: State, available: Booleans | Available, k: int) -> Slates:
        """Choose for every user; once, if all may see the same items."""
        n_users = len(state["rounds"])
        if not isinstance(available, Available) and (available == available[:1]).all():
            single = choose(table(self.scores[None]), self.rule, available[:1], k)
            items, gains, variety = (np.repeat(part, n_users, axis=0) for part in astuple(single))
            choice = Choice(items, gains, variety)
        else:
            choice = choose(table(self.scores[None]), self.rule, available, k, n_users)
        probability = at_items(self.probability, choice.items)
        return Slates(choice.items, probability, np.zeros(choice.items.shape), choice.variety)


@dataclass(frozen=True, eq=False)
class LogRank:
    """The k available items with the highest quality r_i = σ(ū·x_i)."""

    catalog: Catalog
    one_at_a_time = False
    additive = ()
    start = start_counting
    update = count_round

    @cached_property
    def shared(self) -> SharedScores:
        """Rank by ū·x; the ranking by σ is the same, without its rounding to 1."""
        logits = population_logits(self.catalog)
        return SharedScores(logits, rules.relevance(), sigmoid(logits))

    def select(self, state: State, available: Booleans | Available, k: int, random: Streams) -> Slates:
        """Choose the top k."""
        del random
        return self.shared.select(state, available, k)


@dataclass(frozen=True, eq=False)
class Mmr:
    """Maximal marginal relevance: α r_i − (1 − α) · mean cosine with the items chosen so far."""

    catalog: Catalog
    trade_off: float = 0.9
    one_at_a_time = False
    additive = ()
    start = start_counting
    update = count_round

    def __post_init__(self) -> None:
        check_share("trade_off", self.trade_off)

    @cached_property
    def shared(self) -> SharedScores:
        """Score by α r_i, r_i = σ(ū·x_i)."""
        quality = sigmoid(population_logits(self.catalog))
        rule = rules.mean_cosine(item_vectors(self.catalog.vectors), 1.0 - self.trade_off)
        return SharedScores(self.trade_off * quality, rule, quality)

    def select(self, state: State, available: Booleans | Available, k: int, random: Streams) -> Slates:
        """Choose greedily by marginal relevance."""
        del random
        return self.shared.select(state, available, k)


@dataclass(frozen=True, eq=False)
class EpsilonGreedy:
    """Each position is filled at random with probability ε, else with the best item left."""

    catalog: Catalog
    epsilon: float = 0.1
    one_at_a_time = False
    additive = ()
    start = start_counting
    update = count_round

    def __post_init__(self) -> None:
        check_share("epsilon", self.epsilon)

    @cached_property
    def logits(self) -> Floats:
        """The scores ū·x_i."""
        return population_logits(self.catalog)

    def select(self, state: State, available: Booleans | Available, k: int, random: Streams) -> Slates:
        """Choose position by position."""
        draws = random.uniform(2 * k).reshape(-1, k, 2)
        scores = np.broadcast_to(self.logits, (len(state["rounds"]), self.catalog.n_items))
        items = epsilon_greedy(scores, available, k, self.epsilon, draws).items
        return Slates(items, sigmoid(at_items(self.logits, items)), np.zeros(items.shape), np.zeros(items.shape))


QUALITIES: dict[str, Callable[[Floats], Floats]] = {
    "exp": lambda logits: np.exp(np.minimum(logits, 700.0)),
    "sigmoid": sigmoid,
    "logit": lambda logits: logits,
}
"""What can stand for r_i in DPP^map; the exponent is bounded so that it stays finite."""


@dataclass(frozen=True, eq=False)
class DppMap:
    """Greedy MAP of a DPP that does not learn (Chen et al. 2018): θ Σ r_i + (1 − θ) log det S, on unit vectors.

    The quality is equation (1) of the paper, r_i = exp(ū·x_i). With the `sigmoid` that the paper's text names, bounded
    by 1, variety swamps relevance and the published figures cannot be reached; docs/method.md shows the readings.
    """

    catalog: Catalog
    trade_off: float = 0.6
    quality_rule: str = "exp"
    one_at_a_time = False
    additive = ()
    start = start_counting
    update = count_round

    def __post_init__(self) -> None:
        check_share("trade_off", self.trade_off, below=1.0)
        check_choice("quality_rule", self.quality_rule, QUALITIES)

    @cached_property
    def shared(self) -> SharedScores:
        """Score by θ / (1 − θ) · r_i; unit vectors gain nothing on an empty slate, log 1 = 0."""
        logits = population_logits(self.catalog)
        scores = self.trade_off / (1.0 - self.trade_off) * QUALITIES[self.quality_rule](logits)
        return SharedScores(scores, rules.volume(item_vectors(self.catalog.vectors)), sigmoid(logits))

    def select(self, state: State, available: Booleans | Available, k: int, random: Streams) -> Slates:
        """Choose greedily."""
        del random
        return self.shared.select(state, available, k)


@dataclass(frozen=True, eq=False)
class Popular:
    """The items most liked by the training users: the floor that costs nothing."""

    catalog: Catalog
    one_at_a_time = False
    additive = ()
    start = start_counting
    update = count_round

    @cached_property
    def shared(self) -> SharedScores:
        """Rank by log-odds."""
        return SharedScores(self.catalog.log_odds, rules.relevance(), sigmoid(self.catalog.log_odds))

    def select(self, state: State, available: Booleans | Available, k: int, random: Streams) -> Slates:
        """Choose the k most liked."""
        del random
        return self.shared.select(state, available, k)


@dataclass(frozen=True, eq=False)
class Random:
    """Any k items: the floor of floors."""

    catalog: Catalog
    one_at_a_time = False
    additive = ()
    start = start_counting
    update = count_round

    def select(self, state: State, available: Booleans | Available, k: int, random: Streams) -> Slates:
        """Choose the k items with the largest random numbers."""
        del state
        items = top_k(random.uniform(self.catalog.n_items), available, k).items
        unknown = np.full(items.shape, np.nan)
        left = as_table(available, len(items), self.catalog.n_items).sum(axis=1)[:, None] - np.arange(k)
        return Slates(
            items, unknown, unknown, np.zeros(items.shape), np.where(left > 0, 1.0 / np.maximum(left, 1), 0.0)
        )

    def softmax(self, state: State, random: Streams, scored: object = None) -> SoftmaxGreedy:
        """Return the same as a draw by softmax, of scores that are all equal."""
        del state, random, scored
        return SoftmaxGreedy.of(table(np.zeros((1, self.catalog.n_items))), rules.relevance(), 1.0)
