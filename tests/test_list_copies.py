"""int8 copies of lists of items: made when a list is often asked for, kept within bounds, and they change no choice."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from slatewise.recommender import Boost, Item, Pin, Recommender, SlateRules
from slatewise.recommender.item_attributes import FEW
from slatewise.slates import Available, LinearItems, Scores, choose, list_copies, pack_closed, quantized_updates, rules
from slatewise.slates.available import list_key
from slatewise.slates.list_copies import ENOUGH, MOST_COUNTED, MOST_ITEMS, ListCopies, copy_of_list
from slatewise.slates.quantized import NOT_QUANTIZED, VARIABLE, Quantized
from slatewise.slates.quantized_updates import changed_items
from slatewise.slates.scores import LINEAR
from tests.support.recommending import Clock, ids, make_catalog
from tests.test_quantized import DIM, FORMS, KINDS, SEEDS, World
from tests.test_quantized_updates import Change

Integers = NDArray[np.int64]
K = 8


@pytest.fixture(autouse=True)
def always_quantized(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    monkeypatch.setattr(quantized_updates, "MOST_ADDED", 1.0)


def listed(n_items: int, numbers: Integers, excluded: Any = (), is_closed: bool = False) -> Available:
    """A list that is asked for again and again, less a few items, as candidates or by closing the others."""
    is_open, out = np.zeros(n_items, dtype=np.bool_), np.sort(np.array([*excluded], dtype=np.int64))
    is_open[numbers] = True
    if is_closed:
        return Available(n_items, out, closed=pack_closed(is_open), key=list_key(is_open))
    return Available(n_items, out, numbers, key=list_key(is_open))


def with_copy(items: LinearItems, numbers: Integers) -> LinearItems:
    """Items with the copy of a list, which has been asked for often enough."""
    for _ in range(ENOUGH):
        items.lists.get(listed(len(items.features), numbers), items.quantized)
    return items


def kept(copies: ListCopies) -> list[bytes]:
    return [*copies.kept]


def some_of(n_items: int, random: np.random.Generator) -> Integers:
    found = np.flatnonzero(random.random(n_items) < random.choice([0.02, 0.2, 0.9]))
    return found if len(found) else np.array([n_items - 1])


@given(SEEDS, KINDS, st.sampled_from(FORMS), st.sampled_from([1, 65, 700, 3_000]), st.booleans())
@settings(max_examples=200, deadline=None)
def test_slates_from_a_list_are_those_without_the_copy(
    seed: int, kind: str, form: str, n_items: int, is_closed: bool
) -> None:
    world = World(seed, kind, form, n_items)
    numbers = some_of(n_items, world.random)
    available = listed(n_items, numbers, np.unique(world.random.choice(numbers, size=3)), is_closed)
    scores, rule = world.scores(is_quantized=True)
    with_copy(scores.items, numbers)
    exact, exact_rule = world.scores(is_quantized=False)
    found, expected = choose(scores, rule, available, K), choose(exact, exact_rule, available.table(), K)
    np.testing.assert_array_equal(found.items, expected.items)
    np.testing.assert_array_equal(found.gains, expected.gains)
    np.testing.assert_array_equal(found.variety, expected.variety)
    has_copy = scores.items.quantized is not NOT_QUANTIZED
    assert kept(scores.items.lists) == ([available.key] if has_copy else [])


@given(SEEDS, st.sampled_from([1e-40, 1.0, 1e36, 1e40]), st.booleans())
@settings(deadline=None)
def test_weights_that_float32_cannot_hold_leave_the_copy_aside(seed: int, scale: float, is_closed: bool) -> None:
    world = World(seed, "normal", "linear", 700)
    world.weights *= scale
    numbers = some_of(700, world.random)
    available = listed(700, numbers, numbers[::3], is_closed)
    items, exact = (world.scores(is_quantized)[0] for is_quantized in (True, False))
    with_copy(items.items, numbers)
    found = choose(items, rules.relevance(), available, K).items
    assert kept(items.items.lists) == [available.key]
    assert np.array_equal(found, choose(exact, rules.relevance(), available.table(), K).items)


def test_the_copy_of_a_list_is_what_is_chosen_from() -> None:
    """The negative control: with the copy of other items, others are chosen."""
    world = World(1, "normal", "linear", 700)
    scores, rule = world.scores(is_quantized=True)
    numbers, others = np.arange(0, 700, 2), np.arange(1, 700, 2)
    available = listed(700, numbers)
    scores.items.lists.kept[available.key] = others, copy_of_list(scores.items.quantized, others)
    assert (choose(scores, rule, available, K).items % 2 == 1).all()


@given(SEEDS, KINDS)
def test_the_copy_of_a_list_says_the_same_of_each_item_and_its_limits_hold(seed: int, kind: str) -> None:
    world = World(seed, kind, "linear", 700)
    whole, numbers = world.scores(is_quantized=True)[0].items.quantized, some_of(700, world.random)
    if whole is NOT_QUANTIZED:
        return
    copy, place_of = copy_of_list(whole, numbers), {item: place for place, item in enumerate(whole.items.tolist())}
    assert sorted(copy.items.tolist()) == numbers.tolist()
    for place, item in enumerate(copy.items.tolist()):
        before, block = place_of[item], place // 64
        codes = whole.codes[before // 64, :, before % 64]
        assert np.array_equal(copy.codes[block, :, place % 64], codes)
        assert (copy.scales[place], copy.offsets[place]) == (whole.scales[before], whole.offsets[before])
        offset, across, least, most = copy.limits[:, block]
        assert copy.offsets[place] <= offset
        assert np.linalg.norm(np.delete(world.wide[item], copy.axis)) <= across
        assert least <= world.wide[item, copy.axis] <= most
    assert np.isneginf(copy.offsets[len(numbers) :]).all()


@given(SEEDS, KINDS)
def test_a_changed_list_chooses_what_no_copy_would(seed: int, kind: str) -> None:
    change, numbers, items = changed_list(seed, kind)
    exact = LinearItems.of(change.new, change.base, change.base, is_quantized=False)
    available = listed(len(change.new), numbers)
    assert np.array_equal(slate(change, items, available), slate(change, exact, available))


def changed_list(seed: int, kind: str) -> tuple[Change, Integers, LinearItems]:
    """Items after a change, with the copy of a list that was made before it."""
    change = Change(seed, kind)
    before, some = change.before, some_of(len(change.old), np.random.default_rng(seed))
    numbers = np.union1d(some, change.changed[change.changed < len(change.old)])
    with_copy(before, numbers)
    return change, numbers, changed_items(before, (change.new, change.base), change.changed)


def slate(change: Change, items: LinearItems, available: Available) -> Integers:
    rule = rules.overlap(change.sets, 0.02)
    return choose(Scores(LINEAR, change.weights, items), rule, available, K).items


def test_a_list_that_missed_the_change_would_be_noticed() -> None:
    """The negative control, where one item of the list becomes the best one."""
    random = np.random.default_rng(0)
    features, numbers, base = random.normal(size=(300, DIM)), np.arange(0, 300, 3), np.zeros(300)
    items = with_copy(LinearItems.of(features, base, base), numbers)
    better = base.copy()
    better[30] = 100.0
    after = changed_items(items, (items.features, better), np.array([30]))
    missed = replace(after)
    vars(missed)["lists"] = items.lists
    slates = [
        choose(one.linear(np.ones((1, DIM))), rules.relevance(), listed(300, numbers), 1).items[0, 0]
        for one in (after, missed)
    ]
    assert slates[0] == 30 != slates[1]


def test_a_list_without_changed_items_keeps_its_copy() -> None:
    features, numbers = np.random.default_rng(0).normal(size=(300, DIM)), np.arange(100)
    items = with_copy(LinearItems.of(features, np.zeros(300), np.zeros(300)), numbers)
    after, key = changed_items(items, (items.features, np.eye(1, 300, 200)[0]), np.array([200])), kept(items.lists)[0]
    assert after.lists.kept[key][1] is items.lists.kept[key][1]


@pytest.fixture
def whole() -> Quantized:
    return LinearItems.of(np.random.default_rng(0).normal(size=(640, DIM)), np.zeros(640)).quantized


def test_a_list_gets_a_copy_when_it_is_asked_for_often(whole: Quantized) -> None:
    copies, available = ListCopies(), listed(640, np.arange(100))
    assert [copies.get(available, whole) for _ in range(ENOUGH - 1)] == [None] * (ENOUGH - 1)
    first, again = copies.get(available, whole), copies.get(available, whole)
    assert first is not None
    assert first is again
    assert first[0].tolist() == sorted(first[1].items.tolist()) == [*range(100)]


def test_few_items_never_need_a_copy(whole: Quantized, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = ListCopies()
    monkeypatch.setenv(VARIABLE, "101")
    for _ in range(3 * ENOUGH):
        assert copies.get(listed(640, np.arange(100)), whole) is None
        assert copies.get(listed(640, np.arange(0)), whole) is None
        assert copies.get(listed(640, np.arange(200)), NOT_QUANTIZED) is None


def test_the_lists_asked_for_longest_ago_make_room(whole: Quantized) -> None:
    copies, lists = ListCopies(), [listed(640, np.arange(start, start + 160)) for start in range(9)]
    for number in (0, 1, 2, 3, 4, 5, 6, 7, 0, 8):
        for _ in range(ENOUGH):
            copies.get(lists[number], whole)
    assert kept(copies) == [lists[number].key for number in (2, 3, 4, 5, 6, 7, 0, 8)]
    assert MOST_ITEMS * 640 == 8 * 160


def test_lists_that_are_seldom_asked_for_take_no_memory(whole: Quantized) -> None:
    copies = ListCopies()
    for number in range(3 * MOST_COUNTED):
        for _ in range(ENOUGH - 1):
            assert copies.get(listed(640, np.arange(number, 300 + number)), whole) is None
    assert len(copies.counted) == MOST_COUNTED
    assert not kept(copies)


def test_threads_share_the_copies(whole: Quantized) -> None:
    """While items change, too; a list is its own, whoever made the copy."""
    copies, lists = ListCopies(), [listed(640, np.arange(start, 640, 7)) for start in range(7)]

    def ask(turn: int) -> None:
        found = copies.get(lists[turn % 7], whole)
        assert found is None or np.array_equal(np.sort(found[1].items), lists[turn % 7].listed())
        assert {*kept(copies.changed(lambda one: one))} <= {one.key for one in lists}

    with ThreadPoolExecutor(8) as pool:
        assert len([*pool.map(ask, range(700))]) == 700
    assert len(kept(copies)) == 7


def test_slates_from_a_list_are_exact_even_if_others_are_not() -> None:
    random = np.random.default_rng(3)
    features, numbers = random.normal(size=(20_000, 30)), np.flatnonzero(random.random(20_000) < 0.5)
    items = with_copy(LinearItems.of(features, np.zeros(20_000), np.zeros(20_000)), numbers)
    exact = items.linear(random.normal(size=(1, 30)))
    rough = exact._replace(cosine_limit=0.01)
    everything, some = Available.of(20_000), listed(20_000, numbers)
    slates = partial(choose, rule=rules.relevance(), k=K)
    assert not np.array_equal(slates(exact, available=everything).items, slates(rough, available=everything).items)
    assert np.array_equal(slates(exact, available=some).items, slates(rough, available=some).items)


SHOP = [
    ("ann", SlateRules(filter="price < 6")),
    ("ben", SlateRules(filter=("price < 6", "price <> 2"), pin=(Pin(101, 2),))),
    ("ann", SlateRules(filter="price < 6", boost=(Boost("price = 1", 3.0),))),
    ("cem", SlateRules(filter="price < 6", min_probability=0.01)),
    ("ben", SlateRules(filter="price = 3")),
    ("dan", SlateRules(filter="price > 22 AND price < 30")),
]


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many items the lists have whose copies were made."""
    sizes, original = list[int](), list_copies.copy_of_list

    def noted(whole: Quantized, numbers: Integers) -> Quantized:
        sizes.append(len(numbers))
        return original(whole, numbers)

    monkeypatch.setattr(list_copies, "copy_of_list", noted)
    monkeypatch.setattr(list_copies, "ENOUGH", 2)
    return sizes


def test_a_filtered_shop_shows_the_same_with_and_without_copies(
    copied: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through exclusions, learned rates, other prices, withdrawn and new items."""
    fast = shop_day()
    assert len(set(copied)) >= 4
    assert max(copied) > 400**FEW > min(copied)
    monkeypatch.setenv(VARIABLE, "never")
    assert fast == shop_day()


def shop_day() -> list[list[Any]]:
    """Every slate of some days in a shop of 400 items, a quarter of which or less meets any of its conditions."""
    random, slates = np.random.default_rng(0), list[list[Any]]()
    with Recommender(make_catalog(400), clock=Clock()) as recommender:
        prices = {item: number % 30 + 1 for number, item in enumerate(range(100, 500))}
        recommender.put_items([Item(item, attributes={"price": price}) for item, price in prices.items()])
        for day in range(8):
            for user, rules_ in 2 * SHOP:
                exclude = random.choice(400, 5, replace=False) + 100
                shown = recommender.recommend(user, 4, rules=rules_, exclude=exclude.tolist())
                slates.append(ids(shown))
                recommender.feedback(shown.slate_id, ids(shown)[: int(random.integers(3))])
            recommender.learn_rates()
            if day in (2, 4):
                recommender.put_items([Item(600 + day, "new", ["A"], attributes={"price": 3})])
            if day in (3, 5):
                recommender.put_items([Item(100 + day, available=False), Item(120, attributes={"price": day})])
    return slates
