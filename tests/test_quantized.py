"""The int8 copy of item features: its bounds hold, and it changes no choice."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from slatewise.slates import (
    Available,
    Choice,
    LinearItems,
    Rule,
    Scores,
    choose,
    greedy,
    pack_closed,
    pack_sets,
    rules,
    threads,
)
from slatewise.slates import quantized as module
from slatewise.slates.kernels import BLOCK, read_only
from tests.support import naive

Floats = NDArray[np.float64]
SEEDS = st.integers(0, 2**32 - 1)
FORMS = ["linear", "overlap", "logistic", "confidence", "cosine"]
K, DIM = 8, 5


def make_features(kind: str, random: np.random.Generator, n_items: int) -> NDArray[np.float32]:
    """Vectors that are easy or hard to tell apart by their int8 copies."""
    vectors = random.normal(size=(n_items, DIM))
    if kind == "duplicates":
        vectors = vectors[random.integers(0, min(9, n_items), size=n_items)]
    elif kind == "zeros":
        vectors[random.random(n_items) < 0.6] = 0.0
    elif kind == "lengths":
        vectors *= 10.0 ** random.uniform(-12, 6, size=(n_items, 1))
    elif kind == "one axis":
        vectors[:, 1:] *= 1e-4
    elif kind == "not negative":
        vectors[:, 1:] = np.abs(vectors[:, 1:])
    elif kind == "nearly equal":
        vectors = vectors[:1] + 1e-6 * vectors
    elif kind == "huge":
        vectors *= 1e15
    elif kind == "tiny":
        vectors *= 1e-15
    elif kind == "denormal":
        vectors *= 1e-42
    return vectors.astype(np.float32)


KINDS = st.sampled_from(
    ["normal", "duplicates", "zeros", "lengths", "one axis", "not negative", "nearly equal", "huge", "tiny", "denormal"]
)


class World:
    """Items, one user's weights, and a form of scores with the rule that goes with it."""

    def __init__(self, seed: int, kind: str, form: str, n_items: int) -> None:
        random = np.random.default_rng(seed)
        self.random, self.n_items, self.form = random, n_items, form
        self.features = make_features(kind, random, n_items)
        length = max(float(np.abs(self.features).max()), 1e-30)
        self.weights = random.normal(size=(1, DIM)) / length * random.choice([0.0, 0.1, 1.0, 30.0])
        self.base = random.random(n_items) * random.choice([0.0, 0.1])
        self.sets = pack_sets(random.random((n_items, 4)) < 0.4)
        self.wide = self.features.astype(np.float64)

    def choose(self, available: Available | NDArray[np.bool_], is_quantized: bool) -> Choice:
        scores, rule = self.scores(is_quantized)
        if is_quantized:
            assert scores.items.quantized.codes.size or not 1e-20 < np.abs(self.features).max() < 1e20
        return choose(scores, rule, available, K)

    def scores(self, is_quantized: bool) -> tuple[Scores, Rule]:
        if self.form == "logistic":
            squared = np.square(self.wide).sum(axis=1)
            lengths = np.log(squared, where=squared > 0.0, out=np.full_like(squared, -np.inf))
            items = LinearItems.of(self.features, lengths, is_quantized=is_quantized)
            return items.logistic(self.weights, 6.0), rules.volume(items.features)
        if self.form == "confidence":
            rule = rules.entropy(self.features, 0.3, 1.0)
            roots = 0.1 * np.sqrt(np.square(self.wide).sum(axis=1))
            items = LinearItems.of(self.features, roots + rule.first_gains(), is_quantized=is_quantized)
            return items.upper_confidence(self.weights, np.eye(DIM)[None], 0.1), rule
        items = LinearItems.of(self.features, self.base, base=self.base, is_quantized=is_quantized)
        if self.form == "overlap":
            return items.linear(self.weights), rules.overlap(self.sets, 0.2)
        if self.form == "cosine":
            return items.linear(self.weights), rules.mean_cosine(self.features, 0.3)
        return items.linear(self.weights), rules.relevance()

    def available(self, way: str) -> Available | NDArray[np.bool_]:
        some = np.flatnonzero(self.random.random(self.n_items) < self.random.choice([0.02, 0.5, 0.99]))
        table = np.ones((1, self.n_items), dtype=bool)
        table[0, some] = False
        if way == "table":
            return table
        if way == "closed":
            few = np.sort(self.random.integers(0, self.n_items, size=3))
            return Available(self.n_items, few, closed=pack_closed(table[0]))
        return Available.of(self.n_items, some) if way == "excluded" else Available.of(self.n_items, (), some)


WAYS = st.sampled_from(["table", "closed", "excluded", "candidates"])
SIZES = st.sampled_from([1, 5, BLOCK, BLOCK + 1, 700])


@given(seed=SEEDS, kind=KINDS, form=st.sampled_from(FORMS), way=WAYS, n_items=SIZES)
@settings(max_examples=400, deadline=None)
def test_slates_are_those_without_the_copy(seed: int, kind: str, form: str, way: str, n_items: int) -> None:
    world = World(seed, kind, form, n_items)
    available = world.available(way)
    with_copy, without = world.choose(available, True), world.choose(available, False)
    np.testing.assert_array_equal(with_copy.items, without.items)
    np.testing.assert_array_equal(with_copy.gains, without.gains)
    np.testing.assert_array_equal(with_copy.variety, without.variety)


@given(seed=SEEDS, kind=KINDS, way=WAYS, weight=st.sampled_from([0.0, 0.05, 1.0]))
@settings(max_examples=60, deadline=None)
def test_slates_are_those_of_a_full_search(seed: int, kind: str, way: str, weight: float) -> None:
    world = World(seed, kind, "overlap", 200)
    available = world.available(way)
    table = available.table()[0] if isinstance(available, Available) else available[0]
    categories = np.array(
        [
            [bool(world.sets.words[number, 0] >> np.uint64(bit) & np.uint64(1)) for bit in range(4)]
            for number in world.sets.of_item
        ]
    )
    items = LinearItems.of(world.features, world.base, base=world.base, is_quantized=True)
    chosen = choose(items.linear(world.weights), rules.overlap(world.sets, weight), available, K)
    exact = world.wide @ world.weights[0] + world.base
    expected, _ = naive.overlap_greedy(exact, categories, table, K, weight)
    assert [item for item in chosen.items[0].tolist() if item >= 0] == expected


@given(seed=SEEDS, kind=KINDS)
@settings(max_examples=40, deadline=None)
def test_bounds_hold_in_exact_arithmetic(seed: int, kind: str) -> None:
    world = World(seed, kind, "linear", 130)
    copy = LinearItems.of(world.features, world.base, is_quantized=True).quantized
    if not copy.codes.size:
        return
    bounds, blocks = bounds_of(copy, world.weights)
    error = Fraction(1e-14 * (1.0 + float((np.abs(world.wide) @ np.abs(world.weights[0])).max())))
    weights = [Fraction(float(weight)) for weight in world.weights[0]]
    for place, item in enumerate(copy.items):
        product = sum(weight * Fraction(float(x)) for weight, x in zip(weights, world.features[item], strict=True))
        assert Fraction(bounds[place]) + error >= product + Fraction(float(copy.offsets[place]))
        assert Fraction(blocks[place // BLOCK]) + error >= product + Fraction(float(copy.offsets[place]))
    assert sorted(copy.items.tolist()) == list(range(130))


def bounds_of(copy: module.Quantized, weights: Floats) -> tuple[Floats, Floats]:
    """The bounds of all places and of all blocks, by the kernels as plain Python."""
    plain = {name: getattr(module, name).__wrapped__ for name in ("limit_of_block", "quantized_bounds")}
    whole = module.quantized_weights.__wrapped__  # type: ignore[attr-defined]
    given_copy = (*copy, 1.0)
    given_weights = whole(given_copy, weights, 0, 1.0)
    bounds, blocks = np.empty(len(copy.codes) * BLOCK), np.empty(len(copy.codes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "largest_of", max)
        for block in range(len(copy.codes)):
            part = bounds[block * BLOCK : (block + 1) * BLOCK]
            plain["quantized_bounds"](given_copy, given_weights, block, np.zeros(BLOCK, dtype=np.int32), part)
            blocks[block] = plain["limit_of_block"](given_copy, given_weights, block)
    return bounds, blocks


def cancelling(part: str, seed: int) -> tuple[LinearItems, Floats]:
    """Items whose large products cancel to nearly equal scores; only one of weights and features needs rounding."""
    random = np.random.default_rng(seed)
    features, weights = random.normal(size=(1000, DIM)), random.normal(size=(1, DIM))
    if part == "residual":
        weights = np.array([[127.0, -35.0, 80.0, 3.0, -60.0]])
    else:
        features = np.rint(20.0 * features)
        features[:, 0] = 127.0
    narrow = features.astype(np.float32)
    base = 1e-3 * random.random(1000) - narrow.astype(np.float64) @ weights[0]
    return LinearItems.of(narrow, base, base=base, is_quantized=True), weights


def without(part: str, copy: module.Quantized) -> module.Quantized:
    """The copy with one part of its bounds left out."""
    if part == "limits":
        return copy._replace(limits=copy.limits - 1e3)
    return copy._replace(residual=0.0) if part == "residual" else copy._replace(longest=0.0)


@pytest.mark.parametrize("part", ["residual", "longest", "limits"])
def test_without_a_part_of_the_bound_slates_would_be_wrong(part: str) -> None:
    """Negative control: every term is needed, what features lose, what weights lose, and the limits of blocks."""
    wrong = 0
    for seed in range(20):
        items, weights = cancelling(part, seed)
        lying = replace(items, quantized=without(part, items.quantized))
        slates = [choose(one.linear(weights), rules.relevance(), Available.of(1000), K).items for one in (items, lying)]
        wrong += not np.array_equal(slates[0], slates[1])
    assert wrong >= 10


def test_weights_below_0_count_where_some_item_is_below_0() -> None:
    """With a negative control: a copy that takes no item to be below 0 would lose the best ones."""
    wrong = 0
    for seed in range(20):
        random = np.random.default_rng(seed)
        items = LinearItems.of(random.normal(size=(1000, DIM)), np.zeros(1000), np.zeros(1000), is_quantized=True)
        lying = replace(items, quantized=items.quantized._replace(signed=read_only(np.zeros(DIM), np.bool_)))
        weights = -np.abs(random.normal(size=(1, DIM)))
        slates = [choose(one.linear(weights), rules.relevance(), Available.of(1000), K).items for one in (items, lying)]
        assert slates[0][0].tolist() == np.argsort(-(items.features @ weights[0]))[:K].tolist()
        wrong += not np.array_equal(slates[0], slates[1])
    assert wrong >= 10


def test_weights_below_0_cost_nothing_where_no_item_is_below_0() -> None:
    features = np.abs(np.random.default_rng(0).normal(size=(500, DIM)))
    copy = LinearItems.of(features, np.zeros(500), is_quantized=True).quantized
    _, blocks = bounds_of(copy, -np.ones((1, DIM)))
    assert not copy.signed.any()
    np.testing.assert_array_equal(blocks, -copy.limits[2])


def test_large_catalogs_have_a_copy_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    def has_copy(n_items: int) -> bool:
        return bool(LinearItems.of(np.ones((n_items, 2)), np.zeros(n_items)).quantized.codes.size)

    assert has_copy(module.QUANTIZED_FROM)
    assert not has_copy(module.QUANTIZED_FROM - 1)
    monkeypatch.setenv(module.VARIABLE, "never")
    assert not has_copy(module.QUANTIZED_FROM)
    monkeypatch.setenv(module.VARIABLE, "10")
    assert has_copy(10)
    monkeypatch.setenv(module.VARIABLE, "-1")
    with pytest.raises(ValueError, match=r"SLATEWISE_QUANTIZE_FROM is '-1'; give a number of items, or 'never'"):
        has_copy(10)


def test_the_copy_takes_a_byte_per_feature_and_16_per_item() -> None:
    items = LinearItems.of(np.random.default_rng(0).normal(size=(64 * 100, 50)), np.zeros(6400), is_quantized=True)
    assert items.quantized.nbytes == 6400 * (50 + 16) + 100 * 32 + 50


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_threads", ["2", "3"])
def test_threads_change_no_choice(form: str, n_threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(5, "lengths", form, 20_000)
    ways = [world.available(way) for way in ("table", "closed", "excluded", "candidates")]
    alone = [world.choose(available, True).items for available in ways]
    monkeypatch.setattr(greedy, "FEWEST_BLOCKS", 1)
    monkeypatch.setenv(threads.VARIABLE, n_threads)
    used: list[int] = []
    bound_some = threads.bound_some

    def counted(*given: Any) -> None:
        used.append(given[-1])
        bound_some(*given)

    monkeypatch.setattr(threads, "bound_some", counted)
    for available, expected in zip(ways, alone, strict=True):
        np.testing.assert_array_equal(world.choose(available, True).items, expected)
    assert sorted(used) == sorted(3 * list(range(int(n_threads))))


@pytest.mark.parametrize("given_threads", ["0", "two", "-1"])
def test_a_number_of_threads_that_is_none(given_threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(threads.VARIABLE, given_threads)
    with pytest.raises(ValueError, match="give a number of threads, 1 or more"):
        threads.thread_count()
