"""Worlds that are drawn without looking at every pair have the likes of those that are drawn pair by pair."""

from pathlib import Path

import numpy as np
import polars as pl
from scipy.stats import chi2

from slatewise.data.sparse_world import USERS_AT_ONCE, SparseWorld, draw_likes
from slatewise.data.synthetic import WorldSize

SIZE = WorldSize(USERS_AT_ONCE, 300, 5, dim=3, top_log_odds=0.0, taste_spread=1.0)


def expected(tastes: np.ndarray[tuple[int, int], np.dtype[np.float64]], world: SparseWorld) -> tuple[object, object]:
    """How often each item should be liked by people of these tastes, and the variance of that."""
    probability = 1.0 / (1.0 + np.exp(-(tastes @ world.items.vectors.T + world.items.popularity)))
    return probability.sum(axis=0), (probability * (1.0 - probability)).sum(axis=0)


def deviation(counts: np.ndarray[tuple[int], np.dtype[np.int64]], odds: float = 1.0) -> float:
    """The p-value of counts of likes; with other odds than those that were drawn by, of a wrong world."""
    world = SparseWorld.draw(SIZE)
    tastes = np.random.default_rng([0, 0]).standard_normal((SIZE.n_users, SIZE.dim))
    mean, variance = (np.asarray(part) for part in expected(tastes * odds, world))
    return float(chi2.sf((np.square(counts - mean) / variance).sum(), len(counts)))


def test_every_item_is_liked_as_often_as_it_should_be() -> None:
    items, starts = SparseWorld.draw(SIZE).likes(0)
    assert len(starts) == SIZE.n_users + 1
    assert (np.diff(starts) > 0).all()
    counts = np.bincount(items, minlength=300)
    assert deviation(counts) > 1e-4
    assert deviation(counts, odds=1.1) < 1e-9


def test_likes_of_a_user_are_distinct_and_ascending_and_the_same_again() -> None:
    world = SparseWorld.draw(SIZE, seed=2)
    items, starts = world.likes(0)
    inside = np.ones(len(items) - 1, dtype=bool)
    inside[starts[1:-1] - 1] = False
    assert (np.diff(items)[inside] > 0).all()
    assert np.array_equal(world.likes(0)[0], items)
    assert not np.array_equal(SparseWorld.draw(SIZE, seed=3).likes(0)[0][:100], items[:100])


def test_no_room_for_all_likes_is_noticed() -> None:
    tastes, truth = np.zeros((3, 2)), (np.zeros((4, 2)), np.full(4, 1e6))
    starts = np.zeros(4, dtype=np.int64)
    assert draw_likes(tastes, truth, 0, np.zeros(11, dtype=np.int32), starts) == -1
    assert draw_likes(tastes, truth, 0, np.zeros(12, dtype=np.int32), starts) == 12
    assert draw_likes(tastes, (truth[0], np.full(4, 1e-9)), 0, np.zeros(3, dtype=np.int32), starts) == 3


def test_chunks_become_files_of_distinct_users(tmp_path: Path) -> None:
    world = SparseWorld.draw(WorldSize(USERS_AT_ONCE + 10, 20, 3, dim=2, top_log_odds=-3.0))
    counts = list(world.write(tmp_path))
    frame = pl.read_parquet(tmp_path / "*.parquet")
    assert (len(counts), sum(counts)) == (2, len(frame))
    assert frame["user_id"].n_unique() == USERS_AT_ONCE + 10
    assert not frame.is_duplicated().any()
