"""Visitors who like one category only: how they are made, what is counted, and the command."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from slatewise.catalog import Catalog
from slatewise.catalog.embeddings import BprSettings
from slatewise.data.dataset import DataError
from slatewise.data.sources import load
from slatewise.data.synthetic import WorldSize, make_world
from slatewise.lab import fans
from tests.support.naive import slate_distance
from tests.test_cli import slatewise

WORLD = make_world(WorldSize(n_users=200, n_items=240, n_categories=6), seed=3).dataset
OURS, WITHOUT_CATEGORIES, HIDDEN, POPULAR = fans.POLICIES


@pytest.fixture(scope="module")
def results() -> pl.DataFrame:
    return fans.run(WORLD, range(2))


def test_fans_like_all_of_one_category_and_nothing_else() -> None:
    people = fans.fans_of(WORLD)
    sizes = dict(zip(WORLD.category_names, WORLD.categories.sum(axis=0).tolist(), strict=True))
    assert people.user_ids.tolist() == [name for name, size in sizes.items() if size >= 20]
    for user, name in enumerate(people.user_ids):
        liked = people.items[people.users == user]
        assert liked.tolist() == np.flatnonzero(WORLD.categories[:, WORLD.category_names.index(name)]).tolist()


def test_shares_and_diversity_by_hand(results: pl.DataFrame) -> None:
    """Popular shows the same slates to everybody."""
    rows = {row["category"]: row for row in fans.summary(results, WORLD) if row["policy"] == POPULAR}
    expected = dict.fromkeys(rows, 0.0) | {"diversity": 0.0}
    for seed in range(2):
        catalog = Catalog.train(WORLD.split(0.2, seed)[0], BprSettings(epochs=1, seed=seed))
        fifth = np.argsort(-catalog.log_odds, kind="stable")[40:50]
        for category in rows:
            expected[category] += WORLD.categories[fifth, WORLD.category_names.index(category)].mean() / 2
        expected["diversity"] += (
            slate_distance(fifth.tolist(), WORLD.categories, np.zeros((WORLD.n_items, 1))) or 0.0
        ) / 2
    for category, row in rows.items():
        assert row["share"][4] == pytest.approx(expected[category])
        assert row["diversity"][4] == pytest.approx(expected["diversity"])


def test_there_is_a_row_for_each_category_and_policy_largest_first(results: pl.DataFrame) -> None:
    document = fans.as_json(results, WORLD)
    assert json.loads(json.dumps(document)) == document
    assert (document["dataset"], document["splits"]) == (WORLD.name, 2)
    sizes = [row["items"] for row in document["rows"]]
    assert sizes == sorted(sizes, reverse=True)
    assert [row["policy"] for row in document["rows"]] == list(fans.POLICIES) * (
        len(document["rows"]) // len(fans.POLICIES)
    )
    assert all(len(row["share"]) == len(row["diversity"]) == 10 for row in document["rows"])


def test_fans_of_films_are_recognized_with_categories_in_the_taste(
    real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The share doubles while slates stay varied, and nobody is worse served than by what everybody likes."""
    monkeypatch.setenv("SLATEWISE_DATA", str(real_data))
    films = load("ml-100k")
    rows = fans.summary(fans.run_split(films, 0), films)
    share, diversity = (
        {policy: np.mean([row[name] for row in rows if row["policy"] == policy], axis=0) for policy in fans.POLICIES}
        for name in ("share", "diversity")
    )
    assert share[OURS][4] >= 2 * share[OURS][0]
    assert diversity[OURS][4] >= 0.8
    assert share[OURS][4] > 1.5 * share[WITHOUT_CATEGORIES][4] > 1.5 * share[POPULAR][4]
    seen = {(row["category"], row["policy"]): sum(row["share"]) for row in rows if row["items"] >= 40}
    assert all(seen[category, OURS] >= seen[category, POPULAR] for category, _ in seen)


def test_fans_are_recognized_in_a_catalog_without_categories() -> None:
    """By likes in common alone; popular, which does not learn, is the control."""
    rows = fans.summary(fans.run(load("synthetic"), range(2)), load("synthetic"))
    share = {
        policy: np.mean([row["share"] for row in rows if row["policy"] == policy], axis=0) for policy in fans.POLICIES
    }
    later = {policy: shares[2:5].mean() / shares[0] for policy, shares in share.items()}
    assert later[HIDDEN] > 1.6
    assert later[POPULAR] < 1.2
    assert fans.without_categories(WORLD).category_names == ()


def test_the_report_has_the_table_and_the_figure(results: pl.DataFrame) -> None:
    [section] = fans.sections(results, WORLD)
    assert section.tables[0].columns[-1] == "slate 10"
    assert [row[0] for row in section.tables[0].rows[-4:]] == ["mean of all"] * 4
    assert all(name in section.figures[0].description for name in fans.fans_of(WORLD).user_ids)


def test_data_without_large_categories_and_small_catalogs_are_refused() -> None:
    few = make_world(WorldSize(n_users=30, n_items=110, n_categories=110), seed=0).dataset
    with pytest.raises(DataError, match="no category with at least 20 items"):
        fans.run(few, range(1))
    with pytest.raises(DataError, match="40 items, but fans are shown 100"):
        fans.run(make_world(WorldSize(n_users=30, n_items=40), seed=0).dataset, range(1))


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    done = slatewise("reproduce", "fans", "--data", "synthetic", "--splits", "1", "--out", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["rows"]) % 4 == 0
    assert {"fans.csv", "figure-fans.svg", "report.html"} <= {path.name for path in tmp_path.iterdir()}
    done = slatewise("report", "fans", "--data", "synthetic", "--out", tmp_path)
    assert done.returncode == 2
    assert "fans keeps no records" in " ".join(done.stderr.replace("│", " ").split())
