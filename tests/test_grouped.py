"""The greedy choice among groups of equal sets is the choice among all items, whatever float32 makes of the scores."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from slatewise.slates import Available, Bounds, Choice, grouped
from slatewise.slates.grouped import SetGroups
from slatewise.slates.promise import LinearBounds
from tests import naive

Floats = NDArray[np.float64]


class World:
    """Items with few distinct sets, and, if so wished, many equal ones."""

    def __init__(self, seed: int, n_items: int = 60, n_members: int = 3, n_kinds: int = 60, scale: float = 1.0) -> None:
        random = np.random.default_rng(seed)
        kinds = random.integers(0, n_kinds, n_items)
        self.sets = random.random((n_items, n_members)) < 0.4
        self.table = (scale * random.normal(size=(n_kinds, 5)))[kinds].astype(np.float32)
        self.offsets = random.choice([0.1, 0.2, 0.2 + 1e-12, 0.3], n_kinds)[kinds]
        self.direction = random.normal(size=5)
        self.excluded = np.flatnonzero(random.random(n_items) < random.choice([0.0, 0.2, 0.9]))

    def scores(self, items: NDArray[np.int64]) -> Floats:
        """Exact scores, equal for equal items."""
        products = self.table[items].astype(np.float64) * self.direction
        return np.asarray([sum(row) for row in products.tolist()] + self.offsets[items])

    def choose(self, k: int, weight: float) -> Choice:
        groups = SetGroups.of(self.sets, self.table, self.offsets)
        assert groups is not None
        available = Available.of(len(self.sets), self.excluded)
        return groups.choose(self.direction, available, self.scores, k, weight)

    def expected(self, k: int, weight: float) -> tuple[list[int], list[float]]:
        may_be_shown = np.ones(len(self.sets), dtype=np.bool_)
        may_be_shown[self.excluded] = False
        scores = self.scores(np.arange(len(self.sets)))
        return naive.overlap_greedy(scores, self.sets, may_be_shown, k, weight)


@given(
    seed=st.integers(0, 2**32),
    k=st.integers(1, 12),
    weight=st.sampled_from([0.0, 0.01, 0.3, 2.0, 100.0]),
    n_kinds=st.sampled_from([1, 2, 5, 60]),
    scale=st.sampled_from([0.0, 1e-7, 1.0, 1e5]),
)
def test_the_choice_is_that_of_a_loop(seed: int, k: int, weight: float, n_kinds: int, scale: float) -> None:
    world = World(seed, n_kinds=n_kinds, scale=scale)
    choice = world.choose(k, weight)
    items, gains = world.expected(k, weight)
    found = choice.items[0][choice.items[0] >= 0]
    assert found.tolist() == items
    np.testing.assert_allclose(choice.gains[0, : len(items)], gains, rtol=1e-9, atol=1e-9 * max(scale, 1.0))
    own = world.scores(found)
    np.testing.assert_allclose(choice.gains[0, : len(items)] - own, choice.variety[0, : len(items)], atol=1e-6 * scale)


def test_sums_that_float32_cannot_hold_are_decided_by_exact_scores() -> None:
    world = World(3, scale=1e36)
    world.excluded = np.arange(0, 60, 2)
    assert world.choose(5, 0.3).items[0].tolist() == world.expected(5, 0.3)[0]


def test_rounding_alone_would_choose_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = 0
    for seed in range(40):
        world = World(seed, scale=1e-7)
        right = world.choose(5, 0.3).items[0].tolist()
        with monkeypatch.context() as patch:
            patch.setattr(grouped, "TIE", 0.0)
            patch.setattr(LinearBounds, "promise", _without_error(LinearBounds.promise))
            wrong += world.choose(5, 0.3).items[0].tolist() != right
    assert wrong


def _without_error(promise: Callable[..., Bounds]) -> Callable[..., Bounds]:
    return lambda *given: replace(promise(*given), error=0.0)


def test_where_grouping_does_not_pay_there_are_no_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(1)
    monkeypatch.setattr(grouped, "MOST_GROUPS", 7)
    assert SetGroups.of(world.sets, world.table, world.offsets) is None
    monkeypatch.setattr(grouped, "MOST_GROUPS", 8)
    assert SetGroups.of(world.sets, world.table, world.offsets) is not None
    monkeypatch.setattr(grouped, "COPIED_ROWS", len(world.sets) - 1)
    assert SetGroups.of(world.sets, world.table, world.offsets) is None
