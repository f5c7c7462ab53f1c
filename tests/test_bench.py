"""The benchmarks measure what they say: the same task on both sides, every figure, and nothing missing is fatal."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks import (
    arms,
    data,
    dense,
    diversify,
    growth,
    history,
    items,
    laboratory,
    measure,
    memory,
    policies,
    publications,
    report,
    retraining,
    round_trips,
    runner,
    scale_sizes,
    scale_slates,
    scale_workers,
    simulation,
    simulator,
    startup,
    training,
)
from benchmarks.figures import FIGURES, LISTS, Figure, at_least, at_most, names_in
from benchmarks.growth_figure import figure_growth
from benchmarks.inputs import random_catalog
from slatewise.catalog.taste import linearized_taste
from slatewise.cli import app
from slatewise.report import markdown_table
from slatewise.retraining.log_cache import KnownLog
from tests.conftest import ROOT

pytestmark = pytest.mark.process

TINY_SIZE = simulation.Size(users=8, items=64, k=3, dim=4)
TINY_AXES = {name: growth.Axis(axis.name, (4, 8), axis.policy) for name, axis in growth.AXES.items()}
TINY: dict[str, Callable[[], dict[str, Any]]] = {
    "slates": lambda: policies.slates(large=2_000, small=500, repeats=1),
    "updates": lambda: policies.updates(n_items=50, short=1, long=3, repeats=2),
    "diversify": lambda: diversify.run({50: 1, 200: 1}, dimensions=(5, 20)),
    "dense": lambda: dense.run(n_items=60, repeats=1),
    "arms": lambda: arms.run(n_arms=20, repeats=2, disjoint_repeats=1),
    "startup": lambda: startup.run(n_items=100, repeats=1, import_repeats=1),
    "memory": lambda: memory.run(n_items=2_000),
    "simulator": lambda: simulator.run(TINY_SIZE, turns=1, repeats=1),
    "growth": lambda: growth.run(TINY_SIZE, TINY_AXES, repeats=1),
    "history": lambda: history.run(n_users=5, per_user=3, repeats=1),
    "items": lambda: items.run(n_items=2_000),
    "hardest": lambda: scale_slates.hardest(n_items=600_000, repeats=1),
    "trained": lambda: scale_slates.trained(n_items=20_000, n_users=2, repeats=1, data="synthetic"),
    "workers": lambda: scale_workers.run(n_items=20_000, n_workers=2),
    "publications": lambda: publications.run(n_items=3_000),
    "sizes": lambda: scale_sizes.run((1_000, 20_000)),
    "training": lambda: training.run((20_000, 60_000), (20_000, 60_000)),
    "round_trips": round_trips.run,
}
SLOW = ("startup", "memory", "simulator", "items", "hardest", "workers", "sizes", "training", "round_trips")
ISSUE = {
    *("pyversity_grid", "pyversity_grid_min", "pyversity_grid_median"),
    *("slate_1m_over_pass", "slate_1m_calibrated_over_pass", "slate_10k_calibrated_ms", "update_us"),
    *("simulator_speedup", "simulator_speedup_dc2b", "simulator_speedup_calibrated"),
    *("first_slate_cold_s", "first_slate_warm_s", "import_s", "core_install_mb"),
    *("slate_10m_over_pass", "slate_10m_threads2_speedup", "index_p50_ms", "index_same_share"),
    *("workers_share_vectors", "train_exponent", "pg_round_trips_slate", "pg_round_trips_feedback"),
}
BOUNDS = {
    "pyversity_grid_min": "≥ 1",
    "pyversity_grid_median": "≥ 4",
    "slate_1m_over_pass": "≤ 1.5",
    "slate_1m_calibrated_over_pass": "≤ 1.2",
    "slate_10k_calibrated_ms": "≤ 0.1",
    "update_us": "≤ 25",
    "simulator_speedup": "≥ 3",
    "import_s": "≤ 0.2",
    "slate_10m_over_pass": "≤ 0.5",
    "index_p50_ms": "≤ 10",
    "index_same_share": "≥ 0.95",
}


def run_benchmarks(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command where this directory's modules come first."""
    command = [sys.executable, "-m", "benchmarks", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)  # noqa: S603


@pytest.fixture(scope="module")
def tiny() -> Callable[[str], dict[str, Any]]:
    """Measure a group on a tiny scale, once."""
    measured: dict[str, dict[str, Any]] = {}

    def of(group: str) -> dict[str, Any]:
        if group not in measured:
            measured[group] = TINY[group]()
        return measured[group]

    return of


@pytest.mark.parametrize(
    "group", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in TINY]
)
def test_a_group_measures_exactly_its_figures(group: str, tiny: Callable[[str], dict[str, Any]]) -> None:
    figures = tiny(group)
    names = {name for name in figures if not name.startswith("growth.")}
    rates = set(growth.RATES) if group == "growth" else set()
    assert names | rates == set(names_in(group))
    assert all(np.isfinite(value) for name, value in figures.items() if name not in LISTS)


@pytest.mark.slow
def test_the_document_has_every_key_of_the_issue_at_its_top_level(tiny: Callable[[str], dict[str, Any]]) -> None:
    results = runner.Results(figures={name: value for group in TINY for name, value in tiny(group).items()})
    document = json.loads(json.dumps(results.document("python -m benchmarks --json"), allow_nan=False))
    assert document.keys() >= ISSUE
    assert all(document[name] is not None for name in ISSUE)
    for cell in document["pyversity_grid"]:
        assert cell.keys() >= {"rule", "n", "d", "speedup", "same"}
    cells = {(cell["rule"], cell["n"], cell["d"]) for cell in document["pyversity_grid"]}
    assert cells == {(rule, n, d) for rule in ("dpp", "mmr") for n in (50, 200) for d in (5, 20)}
    assert document["simulator_speedup"] == min(
        document["simulator_speedup_dc2b"], document["simulator_speedup_calibrated"]
    )


def test_every_quick_group_is_tested_and_bounds_are_those_of_the_issue() -> None:
    assert set(TINY) == {*runner.QUICK, *runner.SCALE}
    assert {*(figure.group for figure in FIGURES.values()), *LISTS.values()} == set(runner.GROUPS)
    assert {name: str(FIGURES[name].bound) for name in BOUNDS} == BOUNDS


def test_the_grid_is_that_of_the_issue() -> None:
    assert list(diversify.REPEATS) == [50, 200, 1_000, 10_000, 100_000]
    assert diversify.DIMENSIONS == (20, 384)


@pytest.mark.parametrize("rule", diversify.GAINS)
@pytest.mark.parametrize(("n_items", "dim"), [(50, 20), (1_000, 20), (300, 64)])
def test_pyversity_chooses_the_same_slate(rule: diversify.Rule, n_items: int, dim: int) -> None:
    """Other items count as the same only where both sides were greedy up to rounding."""
    inputs = diversify.Inputs.draw(n_items, dim)
    assert diversify.compare(rule, inputs, repeats=1)["same"]
    slate = diversify.slate_of(diversify.their_call(rule, inputs))
    assert diversify.is_greedy(rule, inputs, slate)


@pytest.mark.parametrize("rule", diversify.GAINS)
def test_a_slate_that_is_not_greedy_is_seen(rule: diversify.Rule) -> None:
    inputs = diversify.Inputs.draw(300, 20)
    slate = diversify.slate_of(diversify.their_call(rule, inputs))
    most_relevant = np.argsort(-inputs.relevance)[:10].tolist()
    swapped = [*slate[:8], slate[9], slate[8]]
    repeated = [*slate[:9], slate[0]]
    for wrong in (most_relevant, swapped, repeated, slate[:9]):
        assert not diversify.is_greedy(rule, inputs, wrong)


@pytest.mark.parametrize("rule", diversify.GAINS)
def test_a_difference_is_reported_as_one(rule: diversify.Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = diversify.Inputs.draw(300, 20)
    others = diversify.Inputs(inputs.vectors[::-1], inputs.relevance[::-1])
    monkeypatch.setattr(diversify, "our_call", lambda rule, _: diversify.their_call(rule, others))
    cell = diversify.compare(rule, inputs, repeats=1)
    assert (cell["same"], cell["tied"]) == (False, False)


def test_duplicates_are_ties() -> None:
    inputs = diversify.Inputs.draw(40, 8)
    twice = diversify.Inputs(np.repeat(inputs.vectors, 2, axis=0), np.repeat(inputs.relevance, 2))
    slate = diversify.slate_of(diversify.their_call("mmr", twice))
    others = [item ^ 1 for item in slate]
    assert others != slate
    assert all(diversify.is_greedy("mmr", twice, one) for one in (slate, others))


def test_gains_agree_with_determinants() -> None:
    """log det L_S grows by the gain of each item in turn, by the kernel that the dense greedy builds."""
    inputs, slate = diversify.Inputs.draw(30, 8), [3, 17, 5, 21]
    kernel = dense.build_kernel(inputs)
    gains = [diversify.dpp_gains(inputs, slate[:at])[item] for at, item in enumerate(slate)]
    for size in range(1, len(slate) + 1):
        chosen = np.ix_(slate[:size], slate[:size])
        assert sum(gains[:size]) == pytest.approx(np.linalg.slogdet(kernel[chosen])[1])


@pytest.mark.parametrize("n_items", [40, 300, 2_000])
def test_the_greedy_on_a_dense_kernel_chooses_the_same_slate(n_items: int) -> None:
    inputs = diversify.Inputs.draw(n_items, dense.DIM)
    ours = diversify.slate_of(diversify.our_call("dpp", inputs))
    assert dense.build_and_choose(inputs) == ours
    without_relevance = inputs.units() @ inputs.units().T
    assert dense.dense_greedy(without_relevance, 10) != ours


def test_a_random_catalog_has_the_taste_vectors_of_a_real_one() -> None:
    catalog = random_catalog(50, 4)
    expected = linearized_taste(catalog.vectors.astype(np.float64), catalog.log_odds, catalog.population_covariance)
    np.testing.assert_allclose(catalog.taste_vectors, expected, rtol=1e-6)
    assert random_catalog(50, 4, is_minimal=True).taste_vectors.shape == (50, 1)


def test_times_are_medians_of_turns_after_a_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[str] = []
    durations = {"a": iter([1000.0, 1.0, 9.0, 2.0]), "b": iter([1000.0, 30.0, 30.0, 30.0])}
    clock = 0.0

    def task(name: str) -> None:
        nonlocal clock
        turns.append(name)
        clock += next(durations[name])

    monkeypatch.setattr("time.perf_counter", lambda: clock)
    times = measure.seconds({"a": lambda: task("a"), "b": lambda: task("b")}, repeats=3)
    assert times == {"a": 2.0, "b": 30.0}
    assert turns == ["a", "b"] * 4


def test_the_exponent_of_a_power_law() -> None:
    assert growth.exponent({size: 3.0 * size**1.5 for size in (10, 20, 80)}) == pytest.approx(1.5)


def test_a_new_process_uses_the_source_tree_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "slatewise").mkdir()
    (tmp_path / "slatewise" / "__init__.py").write_text("")
    code = "import slatewise; print(slatewise.__file__)"
    assert Path(measure.python(["-c", code], source=tmp_path)).is_relative_to(tmp_path)
    assert not Path(measure.python(["-c", code])).is_relative_to(tmp_path)


def test_a_commit_that_is_not_in_the_clone_is_reported_as_missing(tmp_path: Path) -> None:
    with pytest.raises(measure.MissingError, match="not in this clone"):
        simulator.extract("0" * 40, tmp_path)


def test_the_core_packages_are_those_that_pyproject_names_and_need_no_extra() -> None:
    packages = startup.core_packages()
    assert {"numpy", "safetensors"} <= packages
    assert packages.isdisjoint({"polars", "uvicorn", "pytest", "torch"})


def test_bounds_hold_from_their_side() -> None:
    assert [Figure("", "", at_most(2.0)).verdict(value) for value in (2.0, 2.1, None)] == [
        "met",
        "missed",
        "not measured",
    ]
    assert [Figure("", "", at_least(2.0)).verdict(value) for value in (2.0, 1.9)] == ["met", "missed"]
    assert Figure("", "").verdict(1.0) == ""


@pytest.mark.parametrize("group", ["arms"])
def test_a_library_that_is_not_installed_is_reported_as_missing(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bayesianbandits", None)
    measured = runner.measure(group)
    assert "bayesianbandits" in measured["missing"]
    document = runner.Results(missing={group: measured["missing"]}).document("python -m benchmarks")
    assert all(document[name] is None for name in names_in(group))


def test_without_pyversity_the_grid_is_null(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyversity", None)
    missing = {"diversify": runner.measure("diversify")["missing"]}
    document = runner.Results(missing=missing).document("python -m benchmarks")
    assert document["pyversity_grid"] is None
    assert document["pyversity_grid_min"] is None


@pytest.mark.parametrize("run", [data.run, laboratory.run])
def test_without_archives_their_figures_are_missing(run: Callable[[], dict[str, float]]) -> None:
    with pytest.raises(measure.MissingError, match="set SLATEWISE_DATA"):
        run()


@pytest.mark.slow
def test_the_command_prints_one_document_without_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "bayesianbandits.py").write_text("raise ModuleNotFoundError('gone', name='bayesianbandits')")
    out = tmp_path / "out"
    done = run_benchmarks(tmp_path, "--only", "arms", "--only", "dense", "--json", "--out", str(out))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["arms_peer_speedup"] is None
    assert "bayesianbandits" in document["missing"]["arms"]
    assert document["dense_greedy_2k_speedup"] > 0.0
    assert {"processor", "cores", "python", "numpy", "blas"} <= document["machine"].keys()
    assert document["command"].startswith("python -m benchmarks --only arms")
    assert json.loads((out / "results.json").read_text()) == document


def test_a_measurement_that_fails_is_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bayesianbandits.py").write_text("raise RuntimeError('a fault of the library')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    with pytest.raises(ChildProcessError, match=r"benchmarks\.runner arms` failed"):
        runner.run(["arms"])
    assert "a fault of the library" in capfd.readouterr().err


def test_an_unknown_group_is_refused(tmp_path: Path) -> None:
    done = run_benchmarks(tmp_path, "--only", "speed")
    assert done.returncode == 2
    assert "invalid choice: 'speed'" in done.stderr


def test_the_package_has_no_benchmarks() -> None:
    assert importlib.util.find_spec("slatewise.bench") is None
    done = CliRunner().invoke(app, ["bench"])
    assert done.exit_code == 2
    assert "No such command" in done.output


def test_the_table_names_bounds_and_verdicts() -> None:
    table = report.table({"slate_1m_over_pass": 2.6, "update_dc2b_us": 123.4}, missing=["dense"])
    lines = markdown_table(table).splitlines()
    assert any(line.endswith("| 2.60 | ≤ 1.5 | missed |") for line in lines)
    assert any(line.endswith("| 123 |  |  |") for line in lines)
    assert sum("not measured" in line for line in lines) == 2


def test_the_table_of_the_grid_marks_differences_and_ties() -> None:
    cell = {"rule": "dpp", "n": 50, "d": 20, "speedup": 4.0, "same": True, "tied": False}
    others = [{**cell, "rule": "mmr", "same": False}, {**cell, "n": 1_000, "tied": True}]
    lines = markdown_table(report.grid_table([cell, *others])).splitlines()
    assert "| items | DPP, d = 20 | MMR, d = 20 |" in lines
    assert "| 50 | 4.00 | 4.00 ≠ |" in lines
    assert "| 1,000 | 4.00 ≈ | – |" in lines


def test_writing_replaces_the_figures_of_the_page_and_nothing_else(tmp_path: Path) -> None:
    page = f"# Title\n\n{report.BEGIN}\nold figures\n\n{report.END}\nHow it is compared.\n"
    (tmp_path / "README.md").write_text(page)
    figures = {"update_us": 20.0, "growth.k.5": 10.0, "growth.k.10": 5.0, "exponents.k": 1.0}
    for axis in set(growth.AXES) - {"k"}:
        figures |= {f"growth.{axis}.5": 10.0, f"growth.{axis}.10": 5.0, f"exponents.{axis}": 1.0}
    report.write(tmp_path, runner.Results(figures=figures).document("python -m benchmarks"))
    written = (tmp_path / "README.md").read_text()
    assert "old figures" not in written
    assert "| 20.00 | ≤ 25 | met |" in written
    assert "| k | 5: 10 · 10: 5 | 1.00 |" in written
    assert written.startswith(f"# Title\n\n{report.BEGIN}")
    assert written.endswith(f"{report.END}\nHow it is compared.\n")
    assert (tmp_path / "growth.svg").exists()


def test_a_page_without_the_headings_is_refused() -> None:
    with pytest.raises(ValueError, match="no headings"):
        report.updated("# Title\n", runner.Results().document("python -m benchmarks"))


def test_the_page_quotes_the_stored_results() -> None:
    """benchmarks/README.md shows the figures of results.json, and growth.svg was drawn from them."""
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    document = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))
    assert document.keys() >= ISSUE
    assert report.updated(page, document) == page
    drawn = (ROOT / "benchmarks" / "growth.svg").read_text(encoding="utf-8")
    assert figure_growth(report.flat(document)).description in drawn


@pytest.mark.slow
def test_training_is_measured_at_every_size() -> None:
    figures = training.run((20_000, 60_000), ())
    assert set(figures) == {"training", "train_exponent", "train_memory_exponent"}
    rows = figures["training"]
    assert [row["likes"] for row in rows] == [pytest.approx(size, rel=0.1) for size in (20_000, 60_000)]
    assert all(row["cpu_s"] > 0 and row["peak_mb"] > 50 for row in rows)
    assert report.training_table(figures).rows[1][0] == f"{rows[1]['likes']:,}"


def test_the_growth_of_training_is_that_of_what_likes_add() -> None:
    rows = [{"likes": 10**power, "cpu_s": 3.0 + 2.0 * 10**power, "peak_mb": 100.0} for power in (3, 4, 5)]
    growth_of = training.growth_of("train", 3.0, rows)
    assert growth_of == {"train_exponent": pytest.approx(1.0), "train_memory_exponent": pytest.approx(0.0)}


@pytest.mark.slow
def test_training_from_a_log_is_measured_for_more_people_and_for_more_slates() -> None:
    figures = retraining.run(((100, 1), (200, 1), (100, 3)), (2, 9))
    assert [(row["people"], row["slates_each"]) for row in figures["training"]] == [(100, 1), (200, 1), (100, 3)]
    assert all(row["fit_cpu_s"] > 0 and row["peak_mb"] > 50 for row in figures["training"])
    assert figures["read_ms_per_slate"] > 0


def test_the_log_that_is_trained_from_has_the_size_that_is_said(tmp_path: Path) -> None:
    assert retraining.collect(tmp_path, 7, 3) == 21
    known = KnownLog.read(tmp_path / "cache", retraining.RULES)
    assert known is not None
    assert (known.log.n_people, len(known.log.items), len(known.keys)) == (7, 21 * retraining.SEEN, 7)
