"""Policies that do not learn: the same crowd's taste for everyone, chosen by different slate rules."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slatewise import slates as rules
from slatewise.catalog import Catalog
from slatewise.policies.protocol import (
    Booleans,
    Floats,
    Slates,
    State,
    at_items,
    check_share,
    for_all,
    for_one,
    sigmoid,
)
from slatewise.randomness import Streams
from slatewise.slates import Available


@dataclass(frozen=True, eq=False)
class Crowd:
    """What these policies share: the quality r_i = σ(ū·x_i) of the paper, and nothing to learn."""

    catalog: Catalog
    one_at_a_time = False
    additive = True

    @cached_property
    def logits(self) -> Floats:
        """Return ū·x_i for each item, ū the mean of the training users' vectors."""
        return self.catalog.vectors.astype(np.float64) @ self.catalog.population_mean

    @cached_property
    def quality(self) -> Floats:
        """Return r_i = σ(ū·x_i)."""
        return sigmoid(self.logits)

    @cached_property
    def vectors(self) -> rules.ItemVectors:
        """The item vectors as the slate rules want them."""
        return rules.ItemVectors.of(self.catalog.vectors)

    def start(self, n_users: int) -> State:
        """Nothing is known, and nothing will be."""
        return {"rounds": np.zeros(n_users, dtype=np.int64)}

    def update(self, state: State, slates: Slates, clicks: Booleans) -> State:
        """Count the round; clicks change nothing."""
        del slates, clicks
        return {"rounds": state["rounds"] + 1}

    def show(self, choose: "Choose", available: Booleans | Available, n_users: int) -> Slates:
        """Apply a way to choose; once, if all users may see the same items."""
        if isinstance(available, Available) or (available == available[:1]).all():
            mine = for_all(available, n_users)[:1] if n_users > 1 else available
            choice = choose.alone(for_one(mine, self.catalog.n_items))
        else:
            choice = choose.together(available)
        repeats = (n_users // len(choice.items), 1)
        items, variety = np.tile(choice.items, repeats), np.tile(choice.variety, repeats)
        return Slates(items, at_items(self.quality, items), np.zeros(items.shape), variety)


@dataclass(frozen=True)
class Choose:
    """How to choose for several users (a table of what each may see) and for one."""

    together: Callable[[Booleans], rules.Choice]
    alone: Callable[[Available], rules.Choice]

    @classmethod
    def best(cls, ranking: rules.Ranking, k: int) -> "Choose":
        """Choose the k best."""
        return cls(
            lambda allowed: rules.top_k(np.broadcast_to(ranking.bounds, allowed.shape), allowed, k),
            lambda allowed: rules.top_ranked(ranking, allowed, k),
        )


@dataclass(frozen=True, eq=False)
class LogRank(Crowd):
    """The k available items with the highest quality."""

    @cached_property
    def ranking(self) -> rules.Ranking:
        """The items by ū·x; the ranking by σ is the same, without its rounding to 1."""
        return rules.Ranking(self.logits)

    def select(self, state: State, available: Booleans | Available, k: int, random: Streams) -> Slates:
        """Choose the top k."""
        del random
        return self.show(Choose.best(self.ranking, k), available, len(state["rounds"]))


@dataclass(frozen=True, eq=False)
class Mmr(Crowd):
    """Maximal marginal relevance: α r_i − (1 − α) · mean cosine with the items chosen so far."""

    trade_off: float = 0.9

    def __post_init__(self) -> None:
        check_share("trade_off", self.trade_off)

    @cached_property
    def ranking(self) -> rules.Ranking:
        """The items by α r_i."""
        return rules.Ranking(self.trade_off * self.quality)

    def select(self, state: State, available: Booleans | Available, k: int, random: Streams) -> Slates:
        """Choose greedily by marginal relevance."""
        del random

        def together(allowed: Booleans) -> rules.Choice:
            quality = np.broadcast_to(self.quality, allowed.shape)
            return rules.mmr(quality, self.vectors, allowed, k, self.trade_off)

        def alone(allowed: Available) -> rules.Choice:
            promise = self.ranking.promise(allowed, self.ranking.bounds.__getitem__)
            return rules.choose_alone(promise, self.vectors, k, rules.cosine_rule(self.trade_off))

        return self.show(Choose(together, alone), available, len(state["rounds"]))


@dataclass(frozen=True, eq=False)
class EpsilonGreedy(Crowd):
    """Each place is filled at random with probability ε, else with the best item left."""

    epsilon: float = 0.1

    def __post_init__(self) -> None:
        check_share("epsilon", self.epsilon)

    def select(self, state: State, available: Booleans | Available, k: int, random: Streams) -> Slates:
        """Choose place by place."""
        draws = random.uniform(2 * k).reshape(-1, k, 2)
        allowed = for_all(available, len(state["rounds"]))
        scores = np.broadcast_to(self.logits, allowed.shape)
        items = rules.epsilon_greedy(scores, allowed, k, self.epsilon, draws).items
        return Slates(items, at_items(self.quality, items), np.zeros(items.shape), np.zeros(items.shape))


QUALITIES: dict[str, Callable[[Floats], Floats]] = {
    "exp": lambda logits: np.exp(np.minimum(logits, 700.0)),
    "sigmoid": sigmoid,
    "logit": lambda logits: logits,
}
"""What can stand for r_i in DPP^map; the exponent is bounded so that it stays finite."""


@dataclass(frozen=True, eq=False)
class DppMap(Crowd):
    """Greedy MAP of a DPP that does not learn (Chen et al. 2018): θ Σ r_i + (1 − θ) log det S, on unit vectors.

    The quality is equation (1) of the paper, r_i = exp(ū·x_i). With the `sigmoid` that the paper's text names, bounded
    by 1, variety swamps relevance and the published figures cannot be reached; docs/method.md shows the readings.
    """

    trade_off: float = 0.6
    quality_rule: str = "exp"

    def __post_init__(self) -> None:
        check_share("trade_off", self.trade_off, below=1.0)
        if self.quality_rule not in QUALITIES:
            raise ValueError(f"quality_rule is {self.quality_rule!r}; choose one of {', '.join(QUALITIES)}")

    @cached_property
    def scores(self) -> Floats:
        """Return θ / (1 − θ) · r_i."""
        return self.trade_off / (1.0 - self.trade_off) * QUALITIES[self.quality_rule](self.logits)

    @cached_property
    def unit_vectors(self) -> rules.ItemVectors:
        """Item vectors of length one (a zero vector stays zero)."""
        vectors = self.catalog.vectors.astype(np.float64)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return rules.ItemVectors.of(vectors / np.where(lengths > 0, lengths, 1.0))

    @cached_property
    def ranking(self) -> rules.Ranking:
        """The items by what they can gain at most."""
        return rules.Ranking(self.scores + self.unit_vectors.log_lengths[0])

    def select(self, state: State, available: Booleans | Available, k: int, random: Streams) -> Slates:
        """Choose greedily."""
        del random

        def together(allowed: Booleans) -> rules.Choice:
            return rules.dpp_greedy(np.broadcast_to(self.scores, allowed.shape), self.unit_vectors, allowed, k)

        def alone(allowed: Available) -> rules.Choice:
            promise = self.ranking.promise(allowed, self.scores.__getitem__)
            return rules.choose_alone(promise, self.unit_vectors, k, rules.volume_rule)

        return self.show(Choose(together, alone), available, len(state["rounds"]))


@dataclass(frozen=True, eq=False)
class Popular(Crowd):
    """The items most liked by the training users: the floor that costs nothing."""

    @cached_property
    def quality(self) -> Floats:
        """Return the share of training users who liked each item."""
        return sigmoid(self.catalog.log_odds)

    @cached_property
    def ranking(self) -> rules.Ranking:
        """The items by log-odds."""
        return rules.Ranking(self.catalog.log_odds)

    def select(self, state: State, available: Booleans | Available, k: int, random: Streams) -> Slates:
        """Choose the k most liked."""
        del random
        return self.show(Choose.best(self.ranking, k), available, len(state["rounds"]))


@dataclass(frozen=True, eq=False)
class Random(Crowd):
    """Any k items: the floor of floors."""

    def select(self, state: State, available: Booleans | Available, k: int, random: Streams) -> Slates:
        """Choose the k items with the largest random numbers."""
        allowed = for_all(available, len(state["rounds"]))
        choice = rules.top_k(random.uniform(self.catalog.n_items), allowed, k)
        unknown = np.full(choice.items.shape, np.nan)
        return Slates(choice.items, unknown, unknown, np.zeros(choice.items.shape))
