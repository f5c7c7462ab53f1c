import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from slatewise.data.tables import DataError
from slatewise.lab import metrics
from tests.support import naive

SEEDS = st.integers(0, 2**32 - 1)
CUT_OFFS = (1, 4, 9)


def random_records(rng: np.random.Generator, n_items: int, most: int) -> pl.DataFrame:
    """Two policies on two splits, slates of 1 to `most` items, not equally many rounds for everybody."""
    rows = [
        {"split": split, "policy": policy, "user": user, "round": number, "position": position, "item": item}
        for split in (0, 3)
        for policy in ("mmr", "dc2b")
        for user in (7, 2, 4)
        for number in range(rng.integers(1, 4))
        for position, item in enumerate(rng.permutation(n_items)[: rng.integers(1, most + 1)].tolist())
    ]
    frame = pl.DataFrame(rows).with_columns(dataset=pl.lit("tiny"))
    return frame.with_columns(clicked=pl.Series(rng.random(len(frame)) < 0.4)).sample(fraction=1, shuffle=True, seed=1)


def random_categories(rng: np.random.Generator, n_items: int) -> NDArray[np.bool_]:
    return rng.random((n_items, int(rng.integers(1, 5)))) < 0.4


def random_vectors(rng: np.random.Generator, n_items: int) -> NDArray[np.float64]:
    return rng.normal(size=(n_items, 2)) * (rng.random((n_items, 1)) < 0.7)


@given(seed=SEEDS, most=st.integers(1, 6))
@settings(max_examples=25, deadline=None)
def test_per_user_is_what_loops_find(seed: int, most: int) -> None:
    rng = np.random.default_rng(seed)
    records, categories, vectors = random_records(rng, 8, most), random_categories(rng, 8), random_vectors(rng, 8)
    found = metrics.per_user(records, categories, CUT_OFFS, vectors)
    assert len(found) == 12
    for row in found.iter_rows(named=True):
        key = {name: row[name] for name in ("split", "policy", "user")}
        expected = naive.user_metrics(records.filter(**key).to_dicts(), categories, CUT_OFFS, vectors)
        assert {name: row.get(name) for name in expected} == pytest.approx(expected, abs=1e-12)


def test_diversity_by_hand() -> None:
    categories = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]], dtype=bool)
    slates = np.array([[0, 1, 2], [3, 4, -1], [0, -1, -1]])
    found = metrics.slate_diversity(slates, categories)
    np.testing.assert_allclose(found, [1 - 0.5 / 3, np.nan, np.nan])
    vectors = np.array([[9.0, 0.0], [3.0, 4.0], [0.0, 1.0], [3.0, -4.0], [1.0, 0.0]])
    found = metrics.slate_diversity(np.array([[0, 1, 3], [3, 4, -1], [1, 3, 2]]), categories, vectors)
    np.testing.assert_allclose(found, [1 - (0.5 + 0.6 + 0.0) / 3, 0.4, 1.0])


def shown(clicked: list[bool], size: int, **changes: object) -> pl.DataFrame:
    places = np.arange(len(clicked))
    columns = {"dataset": "tiny", "split": 0, "policy": "mmr", "user": 5, **changes}
    numbers = {"round": places // size, "position": places % size, "item": places % 3, "clicked": clicked}
    return pl.DataFrame(numbers).with_columns(pl.lit(value).alias(name) for name, value in columns.items())


CATEGORIES = np.eye(3, dtype=bool)


def test_a_cut_off_nobody_reached_has_no_column() -> None:
    records = pl.concat([shown([True] * 30, 10), shown([True, False] * 10, 10, user=6)])
    found = metrics.per_user(records, CATEGORIES)
    assert found.columns == ["dataset", "split", "policy", "user", "p@10", "p@30", "diversity"]
    assert found["p@30"].to_list() == [1.0, None]
    assert found["p@10"].to_list() == [1.0, 0.5]


def test_f_is_computed_from_averages_and_the_last_precision() -> None:
    users = pl.DataFrame(
        {"dataset": "d", "split": [0, 0, 1], "policy": "p", "user": [1, 2, 3], "p@5": 1.0, "p@10": [0.2, 0.4, 0.0]}
    ).with_columns(diversity=pl.Series([0.9, 0.7, 0.0]))
    splits = metrics.per_split(users)
    assert splits["p@10"].to_list() == pytest.approx([0.3, 0.0])
    assert splits["f"].to_list() == pytest.approx([2 * 0.3 * 0.8 / 1.1, 0.0])


def test_summary_is_mean_and_sample_deviation_and_keeps_the_order_of_policies() -> None:
    splits = pl.DataFrame(
        {"dataset": "d", "split": [0, 1, 0], "policy": ["z", "z", "a"], "diversity": [0.6, 0.8, 0.5], "f": 0.5}
    )
    found = metrics.summary(splits)
    assert found["policy"].to_list() == ["z", "a"]
    assert found["splits"].to_list() == [2, 1]
    assert found["diversity"].to_list() == pytest.approx([0.7, 0.5])
    assert found["diversity sd"][0] == pytest.approx(np.std([0.6, 0.8], ddof=1))
    assert found["diversity sd"][1] is None


def test_the_course_of_a_run_adds_up() -> None:
    records = pl.concat([shown([True, True, False, False], 2), shown([True, False, False, True], 2, user=6)])
    found = metrics.precision_by_interaction(records)
    assert found.select("interactions", "shown", "precision").rows() == [(1, 2.0, 0.75), (2, 4.0, 0.5)]


@given(seed=SEEDS)
@settings(max_examples=10, deadline=None)
def test_the_last_point_of_the_course_is_the_precision_of_everything_shown(seed: int) -> None:
    rng = np.random.default_rng(seed)
    records = pl.concat([shown((rng.random(12) < 0.5).tolist(), 4, user=user) for user in range(3)])
    course, users = metrics.precision_by_interaction(records), metrics.per_user(records, CATEGORIES, (12,))
    assert course["precision"][-1] == pytest.approx(users["p@12"].mean())


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (shown([True], 1).clear(), "nothing was simulated"),
        (shown([True], 1).drop("item"), "no column 'item'"),
        (pl.concat([shown([True], 1), shown([True], 1, dataset="other")]), "data sets other, tiny"),
        (pl.concat([shown([True], 1), shown([False], 1)]), "two runs under one label"),
        (shown([True] * 3, 3).with_columns(item=pl.lit(3)), "items 3 to 3, but the categories are those of 3 items"),
    ],
)
def test_records_that_cannot_be_measured_are_refused(records: pl.DataFrame, message: str) -> None:
    with pytest.raises(DataError, match=message):
        metrics.per_user(records, CATEGORIES)
