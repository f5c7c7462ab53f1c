"""`slatewise reproduce` from end to end on a small world, as a person runs it."""

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from slatewise.data.sources import load
from slatewise.lab.experiment import Arm, Experiment, run
from slatewise.lab.metrics import per_split, per_user, summary
from slatewise.lab.reproduction import TARGETS, find_experiment
from slatewise.report.paper import published
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_everything_is_written(results: Path) -> None:
    names = {path.name for path in results.iterdir()}
    expected = {
        "table1.csv",
        "table2.csv",
        "table3.csv",
        "alpha.csv",
        "size.csv",
        "tuned.csv",
        "report.html",
    }
    assert expected | {f"figure-{name}.{end}" for name in ("alpha", "size") for end in ("png", "svg")} <= names
    page = (results / "report.html").read_text()
    assert not re.search(r"""(?:src|href)=["'](?:https?:)?//""", page)
    for word in ("reproduce all", "Table 2", "numpy", load("synthetic").digest):
        assert word in page


@pytest.mark.slow
def test_report_again_from_records_without_simulating(results: Path) -> None:
    before = {path.name: path.read_bytes() for path in results.glob("*.csv")}
    for name in before:
        (results / name).unlink()
    done = slatewise("report", "all", "--out", results, *COMMAND, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads((results / "all.json").read_text())
    assert {path.name: path.read_bytes() for path in results.glob("*.csv")} == before


@pytest.mark.slow
def test_records_are_flat_and_complete(results: Path) -> None:
    paths = sorted((results / "records").glob("table2-????????????.parquet"))
    assert len(paths) == 2  # one per split
    records = pl.concat(map(pl.read_parquet, paths))
    assert set(records.columns) == {
        *("dataset", "split", "policy", "user", "round", "position", "item", "clicked"),
        *("log_probability", "diversity_gain"),
    }
    n_arms = len(find_experiment("table2", 2, 0).arms)
    assert len(records) == 2 * n_arms * 160 * 50


@pytest.mark.slow
def test_another_report_is_not_overwritten_silently(results: Path) -> None:
    done = slatewise("reproduce", "table1", "--data", "synthetic", "--out", results)
    assert done.returncode == 1
    assert "report.html" in done.stderr
    assert slatewise("reproduce", "table1", "--data", "synthetic", "--out", results, "--force").returncode == 0


@pytest.mark.slow
def test_other_seeds_do_not_overwrite_records(tmp_path: Path) -> None:
    for seed in ("1", "2"):
        done = slatewise(
            "reproduce",
            "baselines",
            "--data",
            "synthetic",
            "--splits",
            "1",
            "--seed",
            seed,
            "--out",
            tmp_path,
            "--force",
        )
        assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "records").glob("baselines-*.json"))) == 2


@pytest.mark.slow
def test_own_data_with_a_name_of_the_papers_is_not_taken_for_it(tmp_path: Path) -> None:
    rows = "".join(f"u{user},i{item}\n" for user in range(20) for item in range(60) if (user * item) % 3)
    path = tmp_path / "ml-100k.csv"
    path.write_text("user_id,item_id\n" + rows)
    done = slatewise("reproduce", "table1", "--interactions", path, "--out", tmp_path / "größe", "--json")
    assert done.returncode == 0, done.stderr
    assert "942" not in done.stdout
    (tmp_path / "items.csv").write_text("item_id,categories\n" + "".join(f"i{item},A\n" for item in range(60)))
    tables: list[str | Path] = ["--interactions", path, "--items", tmp_path / "items.csv"]
    few = slatewise("reproduce", "rounds", *tables, "--out", tmp_path / "x", "--workers", "1")
    assert "shows 200 to each user" in few.stderr


@pytest.mark.slow
def test_tuning_ease_tries_different_settings() -> None:
    rows = json.loads(slatewise("tune", "ease", "--data", "synthetic", "--json").stdout)
    assert len({row["precision"] for row in rows}) > 1


@pytest.mark.process
def test_unknown_targets_are_named() -> None:
    done = slatewise("reproduce", "table9", "--data", "synthetic")
    assert done.returncode == 2
    assert "there is no 'table9'; choose one of table1" in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.process
def test_every_target_has_its_experiments() -> None:
    for names in TARGETS.values():
        for name in names:
            assert (ROOT / "experiments" / f"{name}.toml").is_file()


@pytest.mark.slow
def test_tune_lists_the_grid_best_first() -> None:
    done = slatewise("tune", "mmr", "--data", "synthetic", "--json")
    rows = json.loads(done.stdout)
    assert [row["f"] for row in rows] == sorted((row["f"] for row in rows), reverse=True)
    assert {row["options"]["trade_off"] for row in rows} >= {0.5, 0.9}


AGREEING = ["logrank", "mmr", "epsilon-greedy", "dpp-map", "c2ucb", "dc2b"]
TOLERANCE = 0.045  # 0.03 is the claim for five splits; the mean of three has a standard error of about 0.012


@pytest.fixture(scope="module")
def three_splits(real_data: Path) -> dict[str, dict[str, float]]:
    """Means over three splits of ML-100K, for the paper's methods and for two that must not agree."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLATEWISE_DATA", str(real_data))
        dataset = load("ml-100k")
    arms = (*map(Arm, AGREEING), Arm("random"), Arm("dc2b", label="zero", options={"prior": "zero"}))
    results = run(Experiment("agreement", "Agreement", arms, splits=3), dataset)
    return {row["policy"]: row for row in summary(per_split(per_user(results.records, dataset.categories))).to_dicts()}


def largest_difference(ours: dict[str, float], policy: str) -> float:
    paper = published("ml-100k", policy)
    assert paper is not None
    return max(abs(ours[metric] - paper[metric]) for metric in ("p@10", "p@30", "p@50", "diversity"))


@pytest.mark.slow
@pytest.mark.parametrize("name", AGREEING)
def test_agreement_with_the_paper_on_real_data(name: str, three_splits: dict[str, dict[str, float]]) -> None:
    assert largest_difference(three_splits[name], name) < TOLERANCE


@pytest.mark.slow
def test_what_does_not_agree_is_seen(three_splits: dict[str, dict[str, float]]) -> None:
    assert largest_difference(three_splits["random"], "logrank") > TOLERANCE
    assert largest_difference(three_splits["zero"], "dc2b") > TOLERANCE


@pytest.mark.slow
def test_twenty_rounds_from_end_to_end(tmp_path: Path) -> None:
    """People with many likes, 220 items; both the curve and the table are written."""
    random = np.random.default_rng(0)
    likes = random.random((40, 220)) < np.where(np.arange(220) % 2, 0.8, 0.4)
    users, items = np.nonzero(likes)
    rows = "".join(f"{user},{item}\n" for user, item in zip(users, items, strict=True))
    (tmp_path / "likes.csv").write_text("user_id,item_id\n" + rows)
    categories = "".join(f"{item},{'AB'[item % 2]}\n" for item in range(220))
    (tmp_path / "items.csv").write_text("item_id,categories\n" + categories)
    tables = ["--interactions", str(tmp_path / "likes.csv"), "--items", str(tmp_path / "items.csv")]
    command = [*tables, "--splits", "1", "--workers", "1"]
    done = slatewise("reproduce", "rounds", *command, "--out", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    rows_by_policy = {row["policy"]: row for row in json.loads(done.stdout)["rows"]}
    assert rows_by_policy["popular"]["p@200"] == pytest.approx(0.6, abs=0.05)
    assert {"rounds.csv", "course.svg"} <= {path.name for path in (tmp_path / "out").iterdir()}
