"""What is prepared for slates after a change of some items is what would be prepared from scratch."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from slatewise.catalog import versioned_arrays
from slatewise.catalog.versioned_arrays import with_rows
from slatewise.slates import Available, LinearItems, Scores, choose, pack_sets, quantized_updates, rules
from slatewise.slates import quantized as quantized_module
from slatewise.slates.quantized_updates import changed_items, changed_sets
from slatewise.slates.scores import LINEAR
from tests.test_quantized import DIM, KINDS, SEEDS, make_features

K = 8


@pytest.fixture(autouse=True, params=[versioned_arrays.LEAST_MAPPED, 1], ids=["copied", "mapped"])
def always_quantized(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Small copies, whose versions are copies or, as those of large ones, mappings of a file."""
    monkeypatch.setattr(versioned_arrays, "LEAST_MAPPED", request.param)
    monkeypatch.setattr(versioned_arrays, "MOST_WRITTEN", math.inf)
    monkeypatch.setenv(quantized_module.VARIABLE, "1")
    monkeypatch.setattr(quantized_updates, "MOST_ADDED", 1.0)


class Change:
    """Items before a change, and after it: some have other features and rates, and some are new at the end."""

    def __init__(self, seed: int, kind: str) -> None:
        random = np.random.default_rng(seed)
        n_before, n_new = int(random.integers(1, 400)), int(random.integers(0, 70))
        n_items = n_before + n_new
        everything = make_features(kind, random, 2 * n_items)
        changed = random.choice(n_before, size=min(n_before, int(random.integers(0, 5))), replace=False)
        self.changed = np.concatenate([changed, np.arange(n_before, n_items)]).astype(np.int64)
        self.old, self.old_base = everything[:n_before], 0.1 * random.random(n_before)
        self.new = with_rows(self.old, n_items, self.changed, everything[n_items:][: len(self.changed)])
        self.base = with_rows(self.old_base, n_items, self.changed, 0.1 * random.random(len(self.changed)))
        length = max(float(np.abs(self.new).max()), 1e-30)
        self.weights = random.normal(size=(1, DIM)) / length * random.choice([0.0, 0.1, 1.0, 30.0])
        self.sets = pack_sets(random.random((n_items, 4)) < 0.4)

    @property
    def before(self) -> LinearItems:
        return LinearItems.of(self.old, self.old_base, self.old_base)

    def slate(self, items: LinearItems) -> NDArray[np.int64]:
        rule = rules.overlap(self.sets, 0.02)
        return choose(Scores(LINEAR, self.weights, items), rule, Available.of(len(self.new)), K).items


@given(SEEDS, KINDS)
def test_a_changed_copy_chooses_what_no_copy_would(seed: int, kind: str) -> None:
    change = Change(seed, kind)
    items = changed_items(change.before, (change.new, change.base), change.changed)
    exact = LinearItems.of(change.new, change.base, change.base, is_quantized=False)
    assert np.array_equal(change.slate(items), change.slate(exact))
    assert items.extent[0] >= exact.extent[0]
    assert items.extent[1] >= exact.extent[1]


@given(SEEDS)
def test_every_limit_of_a_changed_copy_holds(seed: int) -> None:
    change = Change(seed, "normal")
    copy = changed_items(change.before, (change.new, change.base), change.changed).quantized
    assert sorted(copy.items.tolist()) == [*range(len(change.new))]
    wide, scales = change.new.astype(np.float64), copy.scales.astype(np.float64)
    for place, item in enumerate(copy.items.tolist()):
        codes = copy.codes[place // 64, :DIM, place % 64].astype(np.float64)
        assert np.linalg.norm(wide[item] / scales[place] - codes) <= copy.residual
        assert np.linalg.norm(codes) <= copy.longest
        offset, across, least, most = copy.limits[:, place // 64]
        assert copy.offsets[place] == np.float32(change.base[item]) <= offset
        assert np.linalg.norm(np.delete(wide[item], copy.axis)) <= across
        assert least <= wide[item, copy.axis] <= most
        assert (copy.signed | (wide[item] >= 0.0)).all()


@given(SEEDS)
def test_items_that_fall_below_0_are_noticed(seed: int) -> None:
    change = Change(seed, "not negative")
    change.new[change.changed] *= -1.0
    items = changed_items(change.before, (change.new, change.base), change.changed)
    exact = LinearItems.of(change.new, change.base, change.base, is_quantized=False)
    assert np.array_equal(change.slate(items), change.slate(exact))
    assert (items.quantized.signed | (change.new >= 0.0).all(axis=0)).all()


def test_a_copy_that_missed_the_change_would_be_noticed() -> None:
    """The negative control."""
    changes = [Change(seed, "normal") for seed in range(30)]
    copies = [changed_items(one.before, (one.new, one.base), one.changed) for one in changes]
    slates = [(one.slate(items), one.slate(_without(items, one))) for one, items in zip(changes, copies, strict=True)]
    assert any(not np.array_equal(right, wrong) for right, wrong in slates)


def _without(items: LinearItems, change: Change) -> LinearItems:
    """Items whose copy says of those that changed that nobody likes them."""
    copy = items.quantized
    places = np.flatnonzero(np.isin(copy.items, change.changed))
    scales, offsets = copy.scales.copy(), copy.offsets.copy()
    scales[places], offsets[places] = 0.0, -1e30
    for table in (scales, offsets):
        table.flags.writeable = False
    return replace(items, quantized=copy._replace(scales=scales, offsets=offsets))


def test_a_copy_is_put_in_order_when_much_was_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantized_updates, "MOST_ADDED", 1 / 8)
    features = make_features("normal", np.random.default_rng(0), 1_200)
    items = LinearItems.of(features[:1_000], np.zeros(1_000), np.zeros(1_000))
    n_in_order = 0
    for n_items in range(1_001, 1_201):
        grown = features[:n_items]
        items = changed_items(items, (grown, np.zeros(n_items)), np.array([n_items - 1]))
        n_in_order += np.array_equal(items.quantized.items, LinearItems.of(grown, np.zeros(n_items)).quantized.items)
    assert 1 <= n_in_order <= 5


@given(SEEDS, st.integers(1, 130), st.integers(0, 70))
def test_changed_sets_are_the_sets_from_scratch(seed: int, n_members: int, n_more: int) -> None:
    random = np.random.default_rng(seed)
    before = random.random((20, n_members)) < 0.3
    changed = np.array([3, 5, 20, 21])
    rows = random.random((4, n_members + n_more)) < 0.3
    rows[0, n_members:], rows[0, :n_members] = False, before[7]
    sets = changed_sets(pack_sets(before), rows, 22, changed)
    after = with_rows(np.pad(before, ((0, 0), (0, n_more))), 22, changed, rows)
    bits = np.unpackbits(sets.words[sets.of_item].view(np.uint8), axis=1, bitorder="little")
    assert np.array_equal(bits[:, : after.shape[1]], after)
    assert not bits[:, after.shape[1] :].any()
    assert len(np.unique(sets.words, axis=0)) == len(sets.words)


def test_a_copy_stays_what_it_was_when_others_grow_from_it() -> None:
    """Added items go into memory behind the copy: whoever has it as it was must not notice."""
    features = make_features("normal", np.random.default_rng(1), 300)
    first = LinearItems.of(features[:200], np.zeros(200), np.zeros(200))
    second = changed_items(first, (features[:210], np.zeros(210)), np.arange(200, 210))
    scores, everything = Scores(LINEAR, features[:1].astype(np.float64), second), Available.of(210)
    scales, slate = second.quantized.scales.copy(), choose(scores, rules.relevance(), everything, K).items
    one, other = (
        changed_items(second, (np.concatenate([features[:210], rows]), np.zeros(250)), np.arange(210, 250))
        for rows in (features[210:250], features[260:])
    )
    assert np.shares_memory(one.quantized.codes, second.quantized.codes)
    assert not np.shares_memory(other.quantized.codes, second.quantized.codes), "the second to grow gets a copy"
    assert np.array_equal(second.quantized.scales, scales)
    assert np.array_equal(choose(scores, rules.relevance(), everything, K).items, slate)
