"""`slatewise reproduce` from end to end on a small world, as a person runs it."""

import json
import re
from pathlib import Path

import polars as pl
import pytest

from slatewise.data.sources import load
from slatewise.lab.reproduction import TARGETS, find_experiment
from tests.conftest import ROOT
from tests.test_cli import slatewise

COMMAND = ("--data", "synthetic", "--splits", "2")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("results")
    done = slatewise("reproduce", "all", *COMMAND, "--out", out, "--json", "--workers", "2")
    assert done.returncode == 0, done.stderr
    (out / "all.json").write_text(done.stdout)
    return out


def test_json_has_the_agreed_shape(results: Path) -> None:
    document = json.loads((results / "all.json").read_text())["table2"]
    assert document["dataset"] == "synthetic"
    assert document["splits"] == 2
    metrics = {"p@10", "p@30", "p@50", "diversity", "f"}
    policies = [row["policy"] for row in document["rows"]]
    assert policies[:7] == ["logrank", "mmr", "epsilon-greedy", "dpp-map", "c2ucb", "ec-bandit", "dc2b"]
    for row in document["rows"]:
        assert set(row) == {"policy", *metrics, "sd", "paper"}
        assert set(row["sd"]) == metrics
        assert all(0 <= row[metric] <= 1 for metric in metrics)
        assert row["paper"] is None


def test_everything_is_written(results: Path) -> None:
    names = {path.name for path in results.iterdir()}
    expected = {"table1.csv", "table2_synthetic.csv", "table3_synthetic.csv", "tuned.csv", "report.html"}
    assert expected | {f"figure-{name}.{end}" for name in ("alpha", "size") for end in ("png", "svg")} <= names
    page = (results / "report.html").read_text()
    assert not re.search(r"""(?:src|href)=["'](?:https?:)?//""", page)
    for word in ("reproduce all", "Table 2", "numpy", load("synthetic").digest):
        assert word in page


def test_report_again_from_records_without_simulating(results: Path) -> None:
    before = {path.name: path.read_bytes() for path in results.glob("*.csv")}
    for name in before:
        (results / name).unlink()
    done = slatewise("report", "all", "--out", results, *COMMAND, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads((results / "all.json").read_text())
    assert {path.name: path.read_bytes() for path in results.glob("*.csv")} == before


def test_records_are_flat_and_complete(results: Path) -> None:
    records = pl.read_parquet(results / "records" / "table2.parquet")
    assert set(records.columns) == {
        *("dataset", "split", "policy", "user", "round", "position", "item", "clicked"),
        *("log_probability", "diversity_gain"),
    }
    n_arms = len(find_experiment("table2", 2, 0).arms)
    assert len(records) == 2 * n_arms * 160 * 50


def test_another_report_is_not_overwritten_silently(results: Path) -> None:
    done = slatewise("reproduce", "table1", "--data", "synthetic", "--out", results)
    assert done.returncode == 1
    assert "report.html" in done.stderr
    assert slatewise("reproduce", "table1", "--data", "synthetic", "--out", results, "--force").returncode == 0


def test_unknown_targets_are_named() -> None:
    done = slatewise("reproduce", "table9", "--data", "synthetic")
    assert done.returncode == 2
    assert "there is no 'table9'; choose one of table1" in " ".join(done.stderr.replace("│", " ").split())


def test_every_target_has_its_experiments() -> None:
    for names in TARGETS.values():
        for name in names:
            assert (ROOT / "experiments" / f"{name}.toml").is_file()


def test_tune_lists_the_grid_best_first() -> None:
    done = slatewise("tune", "mmr", "--data", "synthetic", "--json")
    rows = json.loads(done.stdout)
    assert [row["f"] for row in rows] == sorted((row["f"] for row in rows), reverse=True)
    assert {row["options"]["trade_off"] for row in rows} >= {0.5, 0.9}


@pytest.mark.parametrize("name", ["logrank", "mmr", "dpp-map", "c2ucb"])
def test_agreement_with_the_paper_on_real_data(name: str, real_data: Path) -> None:
    """One split of ML-100K lies within four standard deviations over splits (0.025 a cell) of the published row."""
    from slatewise.catalog import Catalog
    from slatewise.lab.metrics import per_split, per_user
    from slatewise.lab.simulate import simulate
    from slatewise.policies import make_policy
    from slatewise.report.paper import published

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLATEWISE_DATA", str(real_data))
        train, test = load("ml-100k").split(0.2, seed=1)
    records = simulate(make_policy(name, Catalog.train(train)), test)
    labelled = records.with_columns(dataset=pl.lit("ml-100k"), split=pl.lit(0), policy=pl.lit(name))
    ours = per_split(per_user(labelled, test.categories)).row(0, named=True)
    paper = published("ml-100k", name)
    assert paper is not None
    for metric in ("p@10", "p@30", "p@50", "diversity"):
        assert abs(ours[metric] - paper[metric]) < 0.1, metric
