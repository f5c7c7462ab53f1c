"""Rules for slates: each of them, all together by a slow search, what is not met, and that they are logged."""

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slatewise import Catalog, Recommender
from slatewise.policies import Available, Slates
from slatewise.recommender import AtLeast, AtMost, Boost, Event, Item, Pin, RequestError, SlateRules
from slatewise.recommender.constrained import Question, choose_by_rules
from slatewise.recommender.item_attributes import ItemAttributes
from slatewise.slates import choose, pack_sets, rules, table
from tests.support import naive

N = 40


class World:
    """A catalog of items with a price, a brand and perhaps nothing, and a greedy choice among them."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.scores, self.categories = random.random((1, N)), random.random((N, 4)) < 0.4
        self.prices, self.brands = random.integers(1, 9, N), random.integers(0, 4, N)
        self.is_free = random.random(N) < 0.9
        brands = [None if number == 3 else f"brand {number}" for number in self.brands]
        names = [[f"c{column}" for column in np.flatnonzero(row)] for row in self.categories]
        catalog = Catalog.from_vectors(range(N), random.normal(size=(N, 2)), categories=names)
        self.categories = catalog.categories
        self.attributes = ItemAttributes(catalog, pl.DataFrame({"price": self.prices, "brand": brands}))
        self.rule = rules.overlap(pack_sets(self.categories), 0.3)

    def select(self, available: Available, k: int) -> Slates:
        choice = choose(table(self.scores), self.rule, available, k)
        chance = self.scores[0][np.maximum(choice.items, 0)]
        return Slates(choice.items, chance, np.zeros(choice.items.shape), choice.variety)

    def search(self, k: int, allowed: Callable[[list[int], int], bool]) -> list[int]:
        """A full search in every step, of what is allowed after the items chosen so far."""
        slate: list[int] = []
        while len(slate) < k:
            left = [item for item in range(N) if item not in slate and self.is_free[item] and allowed(slate, item)]
            if not left:
                break
            gains = {}
            for item in left:
                similar = sum(naive.similarity(self.categories, np.zeros((N, 1)), item, other) or 0 for other in slate)
                gains[item] = self.scores[0, item] - 0.3 * similar
            slate.append(naive.first_best(gains))
        return slate

    def chosen(self, k: int, given: SlateRules, pinned: tuple[int, ...] = ()) -> tuple[list[int], list[str]]:
        available = Available.of(N, excluded=np.flatnonzero(~self.is_free))
        slates, unmet = choose_by_rules(self.select, Question(available, k, given, pinned), self.attributes)
        return slates.items[0].tolist(), [rule.rule for rule in unmet]


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 3), st.booleans())
@settings(max_examples=60, deadline=None)
def test_at_most_is_a_greedy_choice_of_what_it_allows(seed: int, k: int, n: int, per_category: bool) -> None:
    world = World(seed)

    def allowed(slate: list[int], item: int) -> bool:
        if per_category:
            return all(world.categories[slate, c].sum() < n for c in np.flatnonzero(world.categories[item]))
        return bool(world.brands[item] == 3 or (world.brands[slate] == world.brands[item]).sum() < n)

    found, unmet = world.chosen(k, SlateRules(at_most=(AtMost(n, "category" if per_category else "brand"),)))
    assert (found, unmet) == (world.search(k, allowed), [])


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_at_least_takes_the_last_places_that_it_needs(seed: int, k: int, n: int) -> None:
    world = World(seed)
    cheap = world.prices < 3
    n_possible = int((cheap & world.is_free).sum())
    needed = min(n, k, n_possible)

    def allowed(slate: list[int], item: int) -> bool:
        missing = needed - int(cheap[slate].sum())
        return bool(cheap[item]) or missing < k - len(slate)

    found, unmet = world.chosen(k, SlateRules(at_least=(AtLeast(n, "price < 3"),)))
    assert found == world.search(k, allowed)
    assert unmet == (["at_least"] if needed < n else [])


def test_at_least_gives_way_to_at_most_and_never_shortens_a_slate() -> None:
    world = World(1)
    given = SlateRules(at_least=(AtLeast(4, "brand = 'brand 0'"),), at_most=(AtMost(2, "brand"),))
    found, unmet = world.chosen(8, given)
    assert len(found) == 8
    assert sum(world.brands[found] == 0) <= 2
    assert unmet == ["at_least"]


def test_pins_are_at_their_places_and_count_for_the_limits() -> None:
    world = World(2)
    first, second = (int(item) for item in np.flatnonzero((world.brands == 1) & world.is_free)[:2])
    pins = (Pin(first, 3), Pin(second, 1), Pin(99, 2))
    found, unmet = world.chosen(6, SlateRules(pin=pins, at_most=(AtMost(2, "brand"),)), (first, second, -1))
    assert (found[2], found[0], len(found), len(set(found))) == (first, second, 6, 6)
    assert sum(world.brands[found] == 1) == 2
    assert unmet == ["pin"]


CONDITIONS = {
    "price < 4": lambda world: world.prices < 4,
    "brand = 'brand 1'": lambda world: world.brands == 1,
    "price > 2": lambda world: world.prices > 2,
}


def most_that_can_be_met(is_met: list[Any], is_free: Any, wanted: list[int], k: int) -> tuple[int, ...]:
    """Try every way to divide k places among items that differ by what they meet; the first rule counts first."""
    kinds = Counter(tuple(bool(met[item]) for met in is_met) for item in np.flatnonzero(is_free))
    ways = itertools.product(*(range(min(k, number) + 1) for number in kinds.values()))
    return max(
        tuple(
            min(n, sum(number for kind, number in zip(kinds, way, strict=True) if kind[rule]))
            for rule, n in enumerate(wanted)
        )
        for way in ways
        if sum(way) == min(k, kinds.total())
    )


@given(
    st.integers(0, 10_000), st.integers(1, 6), st.permutations([*CONDITIONS]), st.lists(st.integers(1, 6), max_size=3)
)
@settings(max_examples=100, deadline=None)
def test_several_at_least_are_met_in_their_order(seed: int, k: int, conditions: list[str], ns: list[int]) -> None:
    world = World(seed)
    asked = [*zip(ns, conditions, strict=False)]
    found, unmet = world.chosen(k, SlateRules(at_least=tuple(AtLeast(n, where) for n, where in asked)))
    is_met = [CONDITIONS[where](world) for _, where in asked]
    counts = tuple(min(n, int(met[found].sum())) for n, met in zip(ns, is_met, strict=True))
    assert len(found) == k
    assert counts[:2] == most_that_can_be_met(is_met, world.is_free, ns, k)[:2], "a third rule may get less"
    assert len(unmet) == sum(count < n for count, n in zip(counts, ns, strict=True))


def test_an_at_least_that_cannot_be_met_spoils_no_other() -> None:
    """At most two of a brand: four of one brand cannot be had, and two of the dearest items can."""
    world = World(15)
    four, two = AtLeast(4, "brand = 'brand 0'"), AtLeast(2, "price = 8 AND brand <> 'brand 0'")
    for at_least in ((four, two), (two, four)):
        found, unmet = world.chosen(4, SlateRules(at_least=at_least, at_most=(AtMost(2, "brand"),)))
        assert (len(found), unmet) == (4, ["at_least"])
        assert sum(world.prices[found] == 8) >= 2
        assert sum(world.brands[found] == 0) == 2


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 3), st.integers(0, 5), st.booleans())
@settings(max_examples=60, deadline=None)
def test_unmet_lists_at_most_exactly_where_pins_break_it(
    seed: int, k: int, n: int, n_pins: int, per_category: bool
) -> None:
    world = World(seed)
    pinned = tuple(np.random.default_rng(seed).permutation(np.flatnonzero(world.is_free))[:n_pins].tolist())
    pins = tuple(Pin(item, place + 1) for place, item in enumerate(pinned))
    found, unmet = world.chosen(
        k, SlateRules(pin=pins, at_most=(AtMost(n, ["brand", "category"][per_category]),)), pinned
    )
    brands = np.array([(world.brands == number) for number in range(3)]).T
    largest = (world.categories if per_category else brands)[found].sum(axis=0).max()
    assert ("at_most" in unmet) == (largest > n)


@pytest.fixture
def recommender() -> Recommender:
    """Thirty items with titles, in three categories."""
    random = np.random.default_rng(0)
    catalog = Catalog.from_vectors(
        range(30),
        random.normal(size=(30, 4)),
        titles=[f"item {number % 10}" for number in range(30)],
        categories=[["ABC"[number % 3]] for number in range(30)],
    )
    return Recommender(catalog, scenarios={"home": {"filter": "id < 20", "at_most": [{"n": 2, "per": "title"}]}})


def ids(slate: Any) -> list[Any]:
    return [item.id for item in slate.items]


def test_a_filter_and_a_scenario_are_met_together_and_logged(recommender: Recommender) -> None:
    slate = recommender.recommend("ann", 6, scenario="home", rules=SlateRules(filter="array_contains(categories, 'A')"))
    assert all(item < 20 and item % 3 == 0 for item in ids(slate))
    assert len(ids(slate)) == 6
    wide = recommender.recommend("ben", 20, rules=SlateRules(filter="id <> 4", exclude_owned=True))
    assert 4 not in ids(wide)
    assert [replayed.is_same for replayed in recommender.replay()] == [True, True]


def test_boosts_pins_and_what_is_owned(recommender: Recommender) -> None:
    recommender.record_event(Event("ann", 7, "purchase"))
    rules_ = SlateRules(boost=(Boost("id = 23", 50.0),), pin=(Pin(5, 2), Pin(7, 1)), exclude_owned=True)
    slate = recommender.recommend("ann", 29, request_id="one", rules=rules_)
    assert ids(slate)[:2] == [23, 5]
    assert 7 not in ids(slate)
    assert [(one.rule, one.number) for one in slate.unmet] == [("pin", 1)]
    assert recommender.recommend("ann", 29, request_id="one", rules=rules_) == slate
    everything = recommender.recommend("ann", 30, rules=SlateRules(min_probability=0.0))
    assert 7 in ids(everything), "without the rule, it returns when nothing else is left"
    assert all(replayed.is_same for replayed in recommender.replay())


def test_a_pin_that_is_unmet_tells_unknown_from_not_available(recommender: Recommender) -> None:
    recommender.withdraw_items([5])
    items: list[int | str] = [99, 5, 6, 7, 8, "x"]
    pins = tuple(Pin(item, place + 1) for place, item in enumerate(items))
    slate = recommender.preview("ann", 4, exclude=[6], rules=SlateRules(pin=pins))
    assert {(one.number, one.reason.partition(";")[0]) for one in slate.unmet} == {
        (0, "there is no such item"),
        (1, "the item is not available"),
        (2, "the item may not be shown"),
        (5, "there is no such item"),
    }
    assert {7, 8} <= set(ids(slate))


@pytest.mark.parametrize("lowest", [0.2, 0.48, 0.5, 0.9])
def test_rather_fewer_than_poor(recommender: Recommender, lowest: float) -> None:
    slate = recommender.recommend("ann", 10)
    recommender.feedback(slate.slate_id, ids(slate)[:5])
    known = {item.id: item.probability or 0.0 for item in recommender.preview("ann", 30).items}
    good = {item for item, probability in known.items() if probability >= lowest}
    rules_ = SlateRules(min_probability=lowest, filter="id >= 0")
    if not good:
        with pytest.raises(RequestError, match="nothing is left"):
            recommender.preview("ann", 30, rules=rules_)
        return
    for k in (6, 30):
        found = set(ids(recommender.preview("ann", k, diversity=1.0, rules=rules_)))
        assert found <= good
        assert k < 30 or found == good


def test_a_policy_without_probabilities_says_what_it_cannot_do(recommender: Recommender) -> None:
    rules_ = SlateRules(boost=(Boost("id >= 0", 2.0),))
    slate = recommender.preview("ann", 3, policy="random", rules=rules_)
    assert [one.rule for one in slate.unmet] == ["boost"]
    assert {item.reason for item in slate.items} <= {"popular", "exploring"}
    assert {item.reason for item in recommender.preview("ann", 3, rules=rules_).items} == {"boosted"}


def test_rules_follow_the_item_table(recommender: Recommender) -> None:
    """Attributes, availability and limits are those of the table's version; a slate is chosen again by the same."""
    recommender.put_items(
        Item(n, attributes={"brand": "Acme" if n % 2 else "Bolt", "price": n, "since": {"time": n}}) for n in range(20)
    )
    rules_ = SlateRules(filter="price < 12 AND since > TIMESTAMP '1970-01-01 00:00:01'", at_most=(AtMost(2, "brand"),))
    slate = recommender.recommend("ann", 10, rules=rules_)
    assert sorted(item % 2 for item in ids(slate)) == [0, 0, 1, 1]
    assert all(1 < item < 12 for item in ids(slate))
    assert [replayed.is_same for replayed in recommender.replay()] == [True]
    recommender.patch_item(3, {"attributes": {"price": 99}})
    recommender.withdraw_items([5])
    again = recommender.recommend("ben", 10, rules=SlateRules(filter="price < 12", pin=(Pin(5, 1), Pin(7, 2))))
    assert not {3, 5} & set(ids(again))
    assert (ids(again)[1], [one.number for one in again.unmet]) == (7, [0])
    recommender.put_items([Item(100, categories=["A"], attributes={"brand": "Acme", "price": 1})])
    assert set(ids(recommender.recommend("cem", 10, rules=SlateRules(filter="price = 1")))) == {1, 100}


@pytest.mark.parametrize("policy", ["random", "epsilon-greedy", "dc2b", "popular"])
def test_every_policy_keeps_to_the_rules(recommender: Recommender, policy: str) -> None:
    rules_ = SlateRules(filter="id < 25", at_most=(AtMost(2, "category"),), at_least=(AtLeast(1, "id IN (1, 2, 3)"),))
    for user in ("ann", "ben", "cem"):
        slate = recommender.recommend(user, 6, policy=policy, rules=rules_)
        assert sorted(item % 3 for item in ids(slate)) == [0, 0, 1, 1, 2, 2]
        assert {1, 2, 3} & set(ids(slate))
        assert slate.unmet == ()


WRONG: dict[str, dict[str, Any]] = {
    "filter": {"filter": "colour = 'red'"},
    "boost/0/where": {"boost": [{"where": "id >", "factor": 2.0}]},
    "at_least/1/where": {"at_least": [{"n": 1, "where": "id = 1"}, {"n": 1, "where": "title > 2"}]},
    "at_most/0/per": {"at_most": [{"n": 1, "per": "colour"}]},
}


@pytest.mark.parametrize("where", WRONG)
def test_a_wrong_rule_is_pointed_at(recommender: Recommender, where: str) -> None:
    with pytest.raises(RequestError, match=f"^{where}: "):
        recommender.recommend("ann", rules=SlateRules.of(WRONG[where]))


@pytest.mark.parametrize(
    "wrong",
    [
        {"filters": "id = 1"},
        {"pin": [{"item": 1, "place": 0}]},
        {"pin": [{"item": 1, "place": 1}, {"item": 2, "place": 1}]},
        {"boost": [{"where": "id = 1", "factor": 0.0}]},
        {"at_most": [{"n": 2, "per": "category", "more": 1}]},
        {"min_probability": 1.5},
    ],
)
def test_rules_that_are_none(wrong: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        SlateRules.of(wrong)
