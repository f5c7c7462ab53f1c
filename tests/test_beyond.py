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
from slatewise.lab.beyond import OURS, People, Verdicts, mixture
from slatewise.lab.beyond_report import (
    belief_figure,
    best_table,
    equal_diversity_table,
    rule_figure,
    sentences,
    verdict_table,
)
from slatewise.lab.metrics import per_split, per_user, summary
from slatewise.lab.significance import holm, paired_significance
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


def verdicts(users: pl.DataFrame, dataset: str = "ml-100k") -> Verdicts:
    return Verdicts.of(People.of(users), dataset)


def test_cells_are_won_lost_or_tied() -> None:
    won = verdicts(people(0.5, 0.4, 0.3)).as_json()
    assert set(won["cells_won"]) == {"p@10", "p@30", "p@50", "diversity", "f"}
    best = won["cells_won"]["p@50"]
    assert (best["rival"], best["verdict"], best["beats_rival"]) == ("ease (tuned)", "won", True)
    assert (best["paper_best"], best["paper_verdict"], best["beats_paper"]) == (0.3146, "won", True)
    assert won["cells_won"]["diversity"]["paper_verdict"] == "lost"
    assert best["p_t"] < 1e-6
    assert {cell["verdict"] for cell in won["cells"]} == {"won"}
    lost = verdicts(people(0.3, 0.4, 0.2))
    assert {row["verdict"] for row in lost.best} == {"lost"}
    assert {(cell.rival, cell.verdict) for cell in lost.by_metric} == {("ease (tuned)", "lost"), ("mmr", "won")}


def test_a_difference_that_chance_can_make_is_a_tie_whatever_its_sign() -> None:
    for level in (0.498, 0.502):
        found = verdicts(people(level, 0.5, 0.5))
        assert {cell.verdict for cell in found.by_metric} == {"tie"}
        assert any((cell.difference > 0) == (level > 0.5) for cell in found.by_metric)


def test_the_same_slates_are_a_tie() -> None:
    users = people(0.5, 0.4, 0.3)
    tied = pl.concat([users, users.filter(pl.col("policy") == OURS).with_columns(policy=pl.lit("popular"))])
    for row in verdicts(tied).best:
        assert (row["verdict"], row["p_t"], row["p_wilcoxon"], row["p_holm"]) == ("tie", 1.0, 1.0, 1.0)


def test_what_people_add_to_f_has_the_f_of_the_means_as_its_mean() -> None:
    users = people(0.5, 0.4, 0.3).with_columns(diversity=pl.col("diversity") * 1.5 + 0.1)
    by_person = People.of(users)
    for policy in (OURS, "mmr"):
        p, d, f = (by_person.values(policy, name) for name in ("p@50", "diversity", "f"))
        assert f.mean() == pytest.approx(2 * p.mean() * d.mean() / (p.mean() + d.mean()))
        nudged = p.copy()
        nudged[3] += 1e-6 * len(p)
        slope = (2 * nudged.mean() * d.mean() / (nudged.mean() + d.mean()) - f.mean()) / 1e-6
        without = by_person.frame.filter((pl.col("policy") == policy) & (pl.col("user") == 3))["f"][0]
        assert without == pytest.approx(slope * p[3] + (f.mean() - slope * p.mean()) / d.mean() * d[3], rel=1e-4)


def test_data_the_paper_does_not_have_are_compared_with_rivals_only() -> None:
    found = verdicts(people(0.5, 0.4, 0.3), "my shop")
    assert found.paper == []
    assert all(row["paper_best"] is None and row["beats_paper"] is None for row in found.best)


def test_paired_significance_by_its_formula() -> None:
    differences = np.random.default_rng(1).normal(0.3, 1, size=50)
    t = differences.mean() / (differences.std(ddof=1) / math.sqrt(50))
    assert paired_significance(differences)[0] == pytest.approx(2 * stats.t.sf(abs(t), 49))
    assert paired_significance(np.random.default_rng(2).normal(size=50))[0] > 0.05


def test_holm_by_its_definition() -> None:
    """Reject the smallest p at α / n, the next at α / (n − 1) and so on, until one is not rejected."""
    random = np.random.default_rng(5)
    for _ in range(50):
        p_values = (random.random(8) ** 4).tolist()
        for level in (0.01, 0.05, 0.2):
            rejected = set()
            for place, index in enumerate(sorted(range(8), key=lambda index: p_values[index])):
                if p_values[index] > level / (8 - place):
                    break
                rejected.add(index)
            assert {index for index, p in enumerate(holm(p_values)) if p <= level} == rejected


def test_where_nothing_differs_few_tables_show_any_verdict() -> None:
    """200 tables of 20 comparisons without a difference: about 5 % show one; uncorrected, most would."""
    p_values = np.random.default_rng(6).random((200, 20))
    assert np.mean([min(holm(row)) < 0.05 for row in p_values.tolist()]) < 0.1
    assert (p_values.min(axis=1) < 0.05).mean() > 0.5


def curves() -> pl.DataFrame:
    """Our curve and a rival's, which lies lower by 0.05 and reaches less far."""
    random = np.random.default_rng(7)
    parts = [people(0.5, 0.4, 0.3)]
    for label, below, knobs in ((OURS, 0.0, (0.0, 0.5, 1.0)), ("ease (tuned)", 0.05, (0.0, 0.25, 0.75))):
        for knob in knobs:
            values = {"diversity": 0.7 + 0.2 * knob, "p@50": 0.4 - 0.1 * knob - below}
            noisy = {name: value + random.normal(size=40) * 0.01 for name, value in values.items()}
            frame = pl.DataFrame({"user": range(40), "p@10": 0.4, "p@30": 0.4, **noisy})
            columns = {
                "policy": pl.lit(f"{label}, diversity {knob:g}"),
                "dataset": pl.lit("ml-100k"),
                "split": pl.lit(0),
            }
            parts.append(frame.with_columns(**columns).select(parts[0].columns))
    return pl.concat(parts)


def test_at_equal_diversity_a_rival_is_the_mixture_of_its_neighboring_points() -> None:
    by_person = People.of(curves())
    low, high = (f"ease (tuned), diversity {knob}" for knob in (0.25, 0.75))
    theirs = mixture(by_person, by_person.curve("ease (tuned)"), 0.8)
    below, above = (by_person.values(name, "diversity").mean() for name in (low, high))
    share = (0.8 - below) / (above - below)
    expected = [
        (1 - share) * one + share * other
        for one, other in zip(by_person.values(low, "p@50"), by_person.values(high, "p@50"), strict=True)
    ]
    assert theirs is not None
    np.testing.assert_allclose(theirs, expected)
    assert mixture(by_person, by_person.curve("ease (tuned)"), 0.95) is None
    cells = {cell.at: cell for cell in verdicts(curves()).at_equal_diversity}
    assert 1.0 not in cells
    assert cells[0.5].verdict == "won"
    assert cells[0.5].difference == pytest.approx(0.05, abs=0.01)


def test_the_report_says_what_was_found() -> None:
    found = verdicts(curves())
    text = " ".join(sentences(found, "ml-100k"))
    for words in ("Of 10 comparisons", "At equal diversity", "the paper's best", "taken as exact", "Holm"):
        assert words in text
    assert [row[0] for row in verdict_table(found, "x").rows] == ["ease (tuned)", "MMR"]
    assert [row[0] for row in equal_diversity_table(found, "x").rows] == ["ease (tuned)"]
    assert best_table(found, "x").rows[2][6] == "won"


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


def test_the_figures_show_curves_points_and_the_paper() -> None:
    means = summary(per_split(curves()))
    figure = belief_figure(means, "ml-100k")
    for word in (f"{OURS} 0.5", "ease 0.25"):
        assert word in figure.description
    rules = rule_figure(means, "ml-100k")
    assert "in the paper" in rules.description
    assert "MMR: P@50" in rules.description
    assert "ease 0.25" not in rules.description


@pytest.mark.parametrize(
    "name", ["synthetic", "ml-100k", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ml-1m", "anime-5k"))]
)
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
    assert {cell["verdict"] for cell in document["cells"]} <= {"won", "tie", "lost"}
    assert document["equal_diversity"]
    assert {"beyond.csv", "cells.csv", "verdicts.csv", "equal-diversity.csv", "pareto.svg"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }
