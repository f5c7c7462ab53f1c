"""The study of items that come after training: what is known of them ranks as it should, and the command works."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from slatewise.data.dataset import DataError
from slatewise.data.synthetic import WorldSize, make_world
from slatewise.lab.newcomers import EXPLORE, KNOWN, as_json, hide, run, sections, summary, take_items, with_newcomers
from tests.test_cli import slatewise

WORLD = make_world(WorldSize(n_users=500, n_items=260, n_categories=8, dim=4), seed=2).dataset


@pytest.fixture(scope="module")
def results() -> pl.DataFrame:
    return run(WORLD, range(1))


def test_hidden_items_are_hidden_from_training() -> None:
    order, n_warm = hide(WORLD.n_items, 0.2, seed=3)
    assert sorted(order.tolist()) == list(range(260))
    catalog = with_newcomers(WORLD, order, n_warm)
    assert list(catalog.item_ids) == WORLD.item_ids[order].tolist()
    kept = take_items(WORLD, order[:n_warm])
    assert kept.n_interactions == np.isin(WORLD.items, order[:n_warm]).sum()
    others = take_items(WORLD, order[:n_warm][::-1])
    assert {(u, order[:n_warm][::-1][i]) for u, i in zip(others.users, others.items, strict=True)} == {
        (u, order[i]) for u, i in zip(kept.users, kept.items, strict=True)
    }


def test_more_knowledge_is_worth_more(results: pl.DataFrame) -> None:
    rows = summary(results)
    known = [row["p@10"] for row in rows if "known" in row]
    assert [row["known"] for row in rows if "known" in row] == list(KNOWN)
    assert known[0] < known[2] <= known[4] + 0.02
    assert [row["explore"] for row in rows if "explore" in row] == list(EXPLORE)
    assert as_json(results, WORLD)["splits"] == 1
    (section,) = sections(results, WORLD)
    assert [table.name for table in section.tables] == ["newcomers", "exploring"]


def test_too_few_items_are_refused() -> None:
    small = make_world(WorldSize(n_users=30, n_items=40, n_categories=3, dim=2)).dataset
    with pytest.raises(DataError, match="40 items; newcomers needs 250"):
        run(small, range(1))


@pytest.mark.slow
def test_the_command_prints_json_and_writes_a_report(tmp_path: Path) -> None:
    done = slatewise("reproduce", "newcomers", "--data", "synthetic", "--splits", "1", "--out", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    assert [row["known"] for row in json.loads(done.stdout)["rows"] if "known" in row] == list(KNOWN)
    assert {"newcomers.csv", "exploring.csv", "report.html"} <= {path.name for path in tmp_path.iterdir()}
