"""A service that lives: order of arrival, items that appear, and arms that see no more than they may."""

import numpy as np
import polars as pl
import pytest

from slatewise.data.dataset import DataError, Dataset
from slatewise.data.synthetic import WorldSize, make_world
from slatewise.lab import living
from slatewise.lab.living import ARMS, DAY, FROZEN, ORACLE, RETRAINED, History, Service, as_json, run, sections, summary

DATASET: Dataset = make_world(WorldSize(n_users=160, n_items=120, n_categories=5, dim=4), seed=3).dataset


@pytest.fixture(scope="module")
def ratings() -> pl.DataFrame:
    """Everybody comes on a day of their own, in reverse order of their numbers, eight a day."""
    at = (DATASET.n_users - DATASET.users.astype(np.int64)) // 8 * DAY + 100.0 * DAY + DATASET.items
    users, items = DATASET.user_ids[DATASET.users], DATASET.item_ids[DATASET.items]
    return pl.DataFrame({"user_id": users, "item_id": items, "timestamp": at})


def test_people_come_in_order_and_items_appear_with_their_first_like(ratings: pl.DataFrame) -> None:
    history = History.of(DATASET, ratings)
    days = history.days()
    assert sum(len(people) for _, people in days) == DATASET.n_users - round(0.2 * DATASET.n_users)
    assert [now for now, _ in days] == sorted(now for now, _ in days)
    first = history.came_before(-np.inf)
    assert history.arrival[first].max() <= min(history.arrival[people].min() for _, people in days)
    for item in range(0, DATASET.n_items, 17):
        assert history.appearance[item] >= history.arrival[history.likes[:, item]].min()
    assert set(history.train(first).item_ids) == {
        DATASET.item_ids[item] for item in np.flatnonzero(history.likes[first].any(axis=0))
    }


def test_data_without_timestamps_is_refused(ratings: pl.DataFrame) -> None:
    with pytest.raises(DataError, match="no timestamps"):
        History.of(DATASET, ratings.with_columns(timestamp=pl.lit(0)))


def test_a_service_shows_only_what_exists_and_what_it_knows(ratings: pl.DataFrame) -> None:
    history = History.of(DATASET, ratings)
    start, (now, people) = history.train(history.came_before(-np.inf)), history.days()[0]
    service = Service(RETRAINED, history, start)
    service.begin_day(now)
    service.visit(people, now)
    shown = np.searchsorted(DATASET.item_ids, np.array(service.log.log().item_ids))
    assert (history.appearance[shown] < now + DAY).all()
    frozen = Service(FROZEN, history, start)
    frozen.begin_day(1e12)
    assert frozen.serving is start
    service.begin_day(1e12)
    assert service.serving.n_items == DATASET.n_items


@pytest.mark.slow
def test_the_report_says_what_the_loop_regains(ratings: pl.DataFrame) -> None:
    results = run(DATASET, ratings)
    rows = {row["arm"]: row for row in summary(results)}
    assert tuple(rows) == ARMS
    assert (rows[FROZEN]["regained"], rows[ORACLE]["regained"]) == (0.0, 1.0)
    assert as_json(results, DATASET)["people"] == len(results.rows)
    (section,) = sections(results, DATASET)
    assert [table.name for table in section.tables] == ["living"]
    assert "of what freezing loses against the oracle" in section.prose[1]
    assert living.n_weeks(DATASET, ratings) == 3
