"""A reason says what decided: recomputed here from everything that was shown and clicked, one number at a time."""

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from slatewise.catalog import Catalog
from slatewise.evidence import Attention
from slatewise.policies import Policy
from slatewise.policies.calibrated import Calibrated
from slatewise.recommender import Boost, Event, Pin, Recommender, Slate, SlateRules
from slatewise.recommender.types import ASKED, BOOSTED, EXPLORING, LEARNED, PINNED, POPULAR, RANKED, VARIETY
from tests.support.recommending import ids, make_catalog, served_policy
from tests.support.wishes import direction, said

CATALOG = replace(make_catalog(), log_odds=np.random.default_rng(1).normal(-1.0, 0.5, 60))
LEARNING = ("dc2b-calibrated", "dc2b")
NOT_LEARNING = ("popular", "random", "logrank", "mmr", "epsilon-greedy", "dpp-map")
Shares = dict[int | str, float]
Seen = list[tuple[Slate, list[Any]]]


class Twin:
    """The belief of the calibrated policy as sums over observations, and each like's part of it."""

    def __init__(self, policy: Any, seen: Seen, wishes: tuple[str, ...] = ()) -> None:
        self.policy = policy
        lines = {name: direction(policy, name) for name in wishes}
        self.wishes = {f"more {name}": line / np.linalg.norm(line) for name, line in lines.items()}
        self.said = {f"more {name}": said(policy, name, "more") for name in wishes}
        self.seen = [(int(item.id) - 100, item.id in clicked) for slate, clicked in seen for item in slate.items]

    def pull(self, number: int, is_liked: bool) -> float:
        return float((is_liked - self.policy.rates[number]) / self.policy.noise[number])

    @cached_property
    def covariance(self) -> NDArray[np.float64]:
        precision = np.eye(self.policy.vectors.shape[1])
        for number, _ in self.seen:
            vector = self.policy.vectors[number].astype(float)
            precision += np.outer(vector, vector) / self.policy.noise[number]
        for words, unit in self.wishes.items():
            precision += self.said[words][1] * np.outer(unit, unit)
        return np.asarray(np.linalg.inv(precision))

    def share(self, item: int, number: int, is_liked: bool) -> float:
        """What one observation adds to θ·t of an item, as the item is chosen by now."""
        chosen, met = self.policy.tastes_now[item].astype(float), self.policy.vectors[number].astype(float)
        return float(chosen @ self.covariance @ met) * self.pull(number, is_liked)

    def wish_shares(self, item: int) -> Shares:
        """What each wish adds."""
        chosen = self.policy.tastes_now[item].astype(float)
        pulls = {words: lift * weight for words, (lift, weight) in self.said.items()}
        return {words: pulls[words] * float(chosen @ self.covariance @ unit) for words, unit in self.wishes.items()}

    def learned(self, item: int) -> float:
        said = sum(self.share(item, number, is_liked) for number, is_liked in self.seen)
        return said + sum(self.wish_shares(item).values())

    def shares(self, item: int) -> Shares:
        likes: Shares = {n + 100: self.share(item, n, True) for n, is_liked in self.seen if is_liked and n != item}
        return {**likes, **self.wish_shares(item)}

    def would_be_here(self, items: list[int], place: int) -> bool:
        """Whether what most people like is enough to be on the slate."""
        scores = [float(self.policy.current.mean[item]) + self.learned(item) for item in items]
        return float(self.policy.current.mean[items[place]]) >= min(scores)

    def reason(self, items: list[int], place: int, is_popular: bool) -> str:
        learned = self.learned(items[place])
        score = [float(self.policy.current.mean[other]) + self.learned(other) for other in items]
        if learned > 0.0 and learned >= 0.1 * abs(score[place]):
            return LEARNED
        if any(later > score[place] + 1e-9 for later in score[place + 1 :]):
            return VARIETY
        return POPULAR if is_popular else RANKED


def visit(recommender: Recommender, seed: int, rounds: int = 3, wishes: tuple[str, ...] = ()) -> tuple[Twin, Slate]:
    """Somebody who clicks at random and asks for more of some categories; what they saw, and the slate after it."""
    draw = np.random.default_rng(seed)
    seen: Seen = []
    for _ in range(rounds):
        slate = recommender.recommend("ann", 6)
        clicked: list[Any] = [item for item in ids(slate) if draw.random() < 0.4]
        recommender.feedback(slate.slate_id, clicked)
        seen.append((slate, clicked))
    recommender.record_events([Event("ann", name, "more") for name in wishes])
    after = recommender.recommend("ann", 6)
    return Twin(served_policy(recommender).policy, seen, wishes), after


@given(st.integers(0, 2**32 - 1), st.sampled_from([(), ("A",), ("A", "F")]))
def test_reasons_are_recomputed_from_the_belief(seed: int, wishes: tuple[str, ...]) -> None:
    with Recommender(CATALOG, attention=Attention()) as recommender:
        twin, slate = visit(recommender, seed, wishes=wishes)
    threshold = np.quantile(CATALOG.log_odds, 0.9)
    items = [int(item) - 100 for item in ids(slate)]
    for place, item in enumerate(slate.items):
        is_popular = bool(CATALOG.log_odds[items[place]] >= threshold)
        decided = twin.reason(items, place, is_popular)
        if decided == LEARNED and item.because is None and is_popular and twin.would_be_here(items, place):
            decided = POPULAR
        assert item.reason == (ASKED if item.because in twin.wishes else decided)
        if item.because is None:
            continue
        assert decided == LEARNED
        shares = twin.shares(items[place])
        assert shares[item.because] > 0.0
        assert shares[item.because] >= 0.5 * max(shares.values()) - 1e-9
        assert item.because != item.id
    cited = Counter(item.because for item in slate.items if item.because is not None)
    assert max(cited.values(), default=0) <= 2
    _nothing_left_to_cite(twin, slate, items, cited)


def _nothing_left_to_cite(twin: Twin, slate: Slate, items: list[int], cited: Counter[Any]) -> None:
    """Where no like is cited, every like that moved the item enough is cited twice elsewhere."""
    for place, item in enumerate(slate.items):
        if item.reason == LEARNED and item.because is None:
            shares = twin.shares(items[place])
            largest = max(shares.values(), default=0.0)
            enough = [source for source, share in shares.items() if share > 0.0 and share >= 0.5 * largest + 1e-9]
            assert all(cited[source] == 2 for source in enough)


def test_the_like_that_moved_an_item_most_need_not_be_the_most_similar_one() -> None:
    """The control: cosines, which reasons were read off before, cite other likes."""
    unit = CATALOG.taste_vectors / np.linalg.norm(CATALOG.taste_vectors, axis=1)[:, None]
    differing = 0
    for seed in range(20):
        with Recommender(CATALOG, attention=Attention()) as recommender:
            twin, slate = visit(recommender, seed)
        liked = [number for number, is_liked in twin.seen if is_liked]
        for item in slate.items:
            if item.because is not None:
                closest = max(liked, key=lambda number: float(unit[number] @ unit[int(item.id) - 100]))
                differing += closest + 100 != item.because
    assert differing > 5


@pytest.mark.parametrize("name", [*LEARNING, *NOT_LEARNING])
def test_only_a_policy_with_a_belief_cites_likes(name: str) -> None:
    with Recommender(CATALOG, name) as recommender:
        cited = [item.because for seed in range(4) for item in visit(recommender, seed)[1].items]
    assert any(one is not None for one in cited) == (name in LEARNING)


class Plugged(Calibrated):
    """A policy from elsewhere with the methods of `ExplainablePolicy`."""


@dataclass(frozen=True, eq=False)
class Silent:
    """A policy from elsewhere that learns and chooses like the default one, and has no other methods."""

    catalog: Catalog
    one_at_a_time = False
    additive = ("precision", "shift")

    def __post_init__(self) -> None:
        policy = Calibrated(self.catalog)
        vars(self).update(start=policy.start, select=policy.select, update=policy.update)


def test_a_policy_from_elsewhere_cites_likes_if_it_can_say_why() -> None:
    reasons = {}
    for policy in (Plugged(CATALOG), Silent(CATALOG)):
        with Recommender(CATALOG, cast(Policy, policy), attention=Attention()) as recommender:
            reasons[type(policy)] = [item.reason for seed in range(4) for item in visit(recommender, seed)[1].items]
    assert LEARNED in reasons[Plugged]
    assert set(reasons[Silent]) <= {POPULAR, RANKED}


def test_a_policy_that_draws_at_random_says_so() -> None:
    with Recommender(CATALOG, "random") as recommender:
        assert {item.reason for item in recommender.recommend("ann", 30).items} <= {EXPLORING, POPULAR}


def test_what_a_shop_pins_or_boosts_is_called_that() -> None:
    with Recommender(CATALOG, attention=Attention()) as recommender:
        first = ids(recommender.recommend("ann", 10))
        hidden = next(item for item in range(100, 160) if item not in first)
        rules = SlateRules(pin=(Pin(hidden, 2),), boost=(Boost("array_contains(categories, 'A')", 3.0),))
        slate = recommender.recommend("ben", 10, rules=rules)
    assert slate.items[1].reason == PINNED
    others = [item for place, item in enumerate(slate.items) if place != 1]
    assert all((item.reason == BOOSTED) == ("A" in item.categories) for item in others)


def test_old_likes_are_cited_as_much_as_they_still_count() -> None:
    """Evidence fades by half every day: a like of today moves more than an equal one of ten days ago."""
    now = [1_000_000.0]
    with Recommender(CATALOG, clock=lambda: now[0], half_life=1.0, seed=3) as recommender:
        first = recommender.recommend("ann", 10)
        recommender.feedback(first.slate_id, ids(first)[:5])
        now[0] += 20 * 86_400.0
        second = recommender.recommend("ann", 10)
        recommender.feedback(second.slate_id, ids(second)[:3])
        third = recommender.recommend("ann", 10)
    cited = {item.because for item in third.items if item.because is not None}
    assert cited
    assert cited <= set(ids(second)[:3])


def test_where_nothing_is_known_nothing_is_called_popular() -> None:
    catalog = Catalog.from_vectors([*range(20)], np.random.default_rng(0).normal(size=(20, 4)))
    with Recommender(catalog) as recommender:
        assert {item.reason for item in recommender.recommend("ann", 5, diversity=0.0).items} == {RANKED}
