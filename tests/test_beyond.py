import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from slatewise.catalog import Catalog
from slatewise.catalog.embeddings import BprSettings
from slatewise.data.sources import load
from slatewise.lab.ablation import ablation_table, paired_differences
from slatewise.lab.beyond import OURS, cells, cells_table, paired_significance, pareto_figure
from slatewise.lab.metrics import per_split, per_user, summary
from slatewise.lab.simulate import Session, simulate
from slatewise.policies import make_policy
from tests.test_cli import slatewise


def people(ours: float, rival: float, other: float) -> pl.DataFrame:
    """Metrics of 40 people for three policies that differ by a constant and a little noise."""
    random = np.random.default_rng(0)
    parts = []
    for policy, level in ((OURS, ours), ("ease (tuned)", rival), ("mmr", other)):
        noise = random.normal(size=40) * 0.01
        columns = dict.fromkeys(("p@10", "p@30", "p@50", "diversity"), level + noise)
        parts.append(pl.DataFrame({"user": range(40), **columns}).with_columns(policy=pl.lit(policy)))
    return pl.concat(parts).with_columns(dataset=pl.lit("ml-100k"), split=pl.lit(0))


def test_cells_are_won_lost_or_tied() -> None:
    users = people(0.5, 0.4, 0.3)
    won = {cell.metric: cell for cell in cells(summary(per_split(users)), users, "ml-100k")}
    assert set(won) == {"p@10", "p@30", "p@50", "diversity", "f"}
    assert won["p@50"].rival == "ease (tuned)"
    assert won["p@50"].paper == 0.3146
    assert won["p@50"].as_dict()["beats_paper"] is True
    assert won["diversity"].as_dict()["beats_paper"] is False
    assert won["p@50"].as_dict()["beats_rival"] is True
    assert won["p@50"].p_t < 1e-6
    lost = people(0.3, 0.4, 0.2)
    assert not any(cell.as_dict()["beats_rival"] for cell in cells(summary(per_split(lost)), lost, "ml-100k"))
    assert "no" in {row[6] for row in cells_table(cells(summary(per_split(lost)), lost, "ml-100k"), "x").rows}


def test_a_tie_is_not_a_win() -> None:
    users = people(0.5, 0.4, 0.3)
    tied = pl.concat([users, users.filter(pl.col("policy") == OURS).with_columns(policy=pl.lit("popular"))])
    for cell in cells(summary(per_split(tied)), tied, "ml-100k"):
        assert cell.as_dict()["beats_rival"] is False
        assert (cell.p_t, cell.p_wilcoxon) == (1.0, 1.0)


def test_data_the_paper_does_not_have_are_compared_with_rivals_only() -> None:
    users = people(0.5, 0.4, 0.3)
    for cell in cells(summary(per_split(users)), users, "my shop"):
        assert cell.paper is None
        assert cell.as_dict()["beats_paper"] is None


def test_paired_significance_by_its_formula() -> None:
    differences = np.random.default_rng(1).normal(0.3, 1, size=50)
    t = differences.mean() / (differences.std(ddof=1) / math.sqrt(50))
    assert paired_significance(differences)[0] == pytest.approx(2 * stats.t.sf(abs(t), 49))
    assert paired_significance(np.random.default_rng(2).normal(size=50))[0] > 0.05


def test_paired_differences_by_a_loop() -> None:
    random = np.random.default_rng(3)
    rows: list[dict[str, Any]] = [
        {
            "policy": policy,
            "split": split,
            **{m: float(random.random()) for m in ("p@10", "p@30", "p@50", "diversity", "f")},
        }
        for policy in ("base", "variant")
        for split in range(5)
    ]
    [base, variant] = paired_differences(pl.DataFrame(rows), "base")
    assert base["f"] == {"mean": pytest.approx(np.mean([row["f"] for row in rows[:5]])), "difference": 0.0, "half": 0.0}
    gaps = [after["p@50"] - before["p@50"] for before, after in zip(rows[:5], rows[5:], strict=True)]
    low, high = stats.t.interval(0.95, 4, loc=np.mean(gaps), scale=stats.sem(gaps))
    assert variant["p@50"]["difference"] == pytest.approx((low + high) / 2)
    assert variant["p@50"]["half"] == pytest.approx((high - low) / 2)
    table = ablation_table({"dataset": "x", "splits": 5, "rows": [base, variant]})
    assert len(table.rows) == 2


def test_the_front_shows_our_curve_the_rivals_and_the_paper() -> None:
    curve = [people(0.4, 0.3, 0.2).with_columns(policy=pl.lit(f"{OURS}, diversity {knob}")) for knob in (0, 1)]
    only = [frame.unique(["user"], keep="first", maintain_order=True) for frame in curve]
    users = pl.concat([people(0.5, 0.4, 0.3), *only])
    figure = pareto_figure(summary(per_split(users)), "ml-100k")
    for word in ("ours, by diversity", "in the paper", "ease (tuned)"):
        assert word in figure.standalone_svg or word in str(figure)


@pytest.mark.parametrize("name", ["synthetic", "ml-100k", "ml-1m", "anime-5k"])
def test_the_knob_is_monotone_in_the_measured_diversity(name: str, request: pytest.FixtureRequest) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if name != "synthetic":
            patch.setenv("SLATEWISE_DATA", str(request.getfixturevalue("real_data")))
        train, test = load(name).split(0.2, seed=5)
    asked = test.take(range(100))
    catalog = Catalog.train(train, BprSettings(dim=1, epochs=1))
    measured = []
    for knob in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        records = simulate(make_policy("dc2b-calibrated", catalog, diversity=knob), asked, Session(rounds=3))
        labelled = records.with_columns(dataset=pl.lit(name), split=pl.lit(0), policy=pl.lit("x"))
        measured.append(float(per_split(per_user(labelled, test.categories))["diversity"][0]))
    assert measured == sorted(measured)
    assert measured[-1] > measured[0] + 0.05


@pytest.mark.slow
def test_reproduce_beyond_from_end_to_end(tmp_path: Path) -> None:
    """On a small world of one's own: table, cells and front; the records of table2 are used again the second time."""
    random = np.random.default_rng(4)
    likes = {
        (int(u), int(i)) for u, i in zip(random.integers(60, size=3000), random.zipf(1.5, size=3000) % 70, strict=True)
    }
    rows = "".join(f"u{user},i{item}\n" for user, item in sorted(likes))
    (tmp_path / "likes.csv").write_text("user_id,item_id\n" + rows)
    categories = "".join(f"i{item},{'ABC'[item % 3]}|{'XY'[item % 2]}\n" for item in range(70))
    (tmp_path / "items.csv").write_text("item_id,categories\n" + categories)
    command: list[str | Path] = [
        "--interactions",
        tmp_path / "likes.csv",
        "--items",
        tmp_path / "items.csv",
        "--splits",
        "1",
    ]
    first = slatewise("reproduce", "beyond", *command, "--out", tmp_path / "out", "--json", "--workers", "1")
    assert first.returncode == 0, first.stderr
    document = json.loads(first.stdout)
    assert set(document["cells_won"]) == {"p@10", "p@30", "p@50", "diversity", "f"}
    assert document["rows"][0]["policy"] == "dc2b-calibrated"
    again = slatewise("reproduce", "beyond", *command, "--out", tmp_path / "out", "--json", "--workers", "1")
    assert "nothing is simulated again" in again.stderr
    assert json.loads(again.stdout) == document
    assert {"beyond.csv", "cells.csv", "pareto.svg"} <= {path.name for path in (tmp_path / "out").iterdir()}
