"""The benchmarks measure what they say: the same work on both sides, every figure, and nothing missing is fatal."""

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

from slatewise.bench import (
    arms,
    data,
    dense,
    diversifiers,
    growth,
    laboratory,
    measure,
    memory,
    running,
    slate,
    update,
)
from slatewise.bench.__main__ import measure as measure_group
from slatewise.bench.figures import FIGURES, QUICK, Figure, at_least, at_most
from slatewise.bench.growth_figure import figure_growth
from slatewise.bench.table import table
from slatewise.bench.worlds import random_catalog
from slatewise.catalog.taste import linearized_taste
from slatewise.cli import app
from slatewise.report import markdown_table
from tests.conftest import ROOT

TINY_AXES = {name: growth.Axis(axis.name, (4, 8), axis.policy) for name, axis in growth.AXES.items()}
TINY: dict[str, Callable[[], dict[str, float]]] = {
    "slate": lambda: slate.run(many=2_000, some=500, repeats=1),
    "update": lambda: update.run(n_items=50, short=1, long=3, repeats=2),
    "diversifiers": lambda: diversifiers.run({"10k": 300, "100k": 400}, repeats=1),
    "dense": lambda: dense.run(n_items=60, repeats=1),
    "arms": lambda: arms.run(n_arms=20, repeats=2, disjoint_repeats=1),
    "memory": lambda: memory.run(n_items=2_000),
    "growth": lambda: growth.run(growth.Size(users=8, items=64, k=3, dim=4), TINY_AXES, repeats=1),
}
ISSUE = {
    *("slate_1m_over_pass", "slate_10k_ms", "pyversity_dpp_100k_speedup", "pyversity_mmr_100k_speedup"),
    *("dense_greedy_2k_speedup", "arms_peer_speedup", "update_us", "memory_over_vectors"),
    *("exponents.items", "exponents.users", "exponents.k"),
}


def slatewise(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command where this directory's modules come first."""
    command = [sys.executable, "-m", "slatewise", "bench", *words]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)  # noqa: S603


@pytest.mark.parametrize("group", TINY)
def test_a_group_measures_exactly_its_figures(group: str) -> None:
    figures = TINY[group]()
    named = {name for name in figures if not name.startswith("growth.")}
    rates = set(growth.RATES) if group == "growth" else set()
    assert named | rates == {name for name, figure in FIGURES.items() if figure.group == group}
    assert all(np.isfinite(value) for value in figures.values())


def test_every_quick_group_is_tested_and_has_what_was_asked_for() -> None:
    assert set(TINY) == set(QUICK)
    assert {name for name, figure in FIGURES.items() if figure.group in QUICK} >= ISSUE


@pytest.mark.parametrize("n_items", [40, 300, 2_000])
def test_the_greedy_on_a_dense_kernel_does_the_same_work(n_items: int) -> None:
    problem = dense.Problem.draw(n_items)
    ours = dense.ours(problem).tolist()
    assert dense.dense_greedy(dense.kernel(problem), 10).tolist() == ours
    without_quality = problem.vectors @ problem.vectors.T
    assert dense.dense_greedy(without_quality, 10).tolist() != ours


@pytest.mark.parametrize("n_items", [40, 300, 10_000])
def test_pyversity_chooses_the_same_slate_by_dpp(n_items: int, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = diversifiers.Inputs.draw(n_items)
    theirs = diversifiers.peer_dpp(inputs).tolist()
    assert diversifiers.dpp(inputs, inputs.prepared).tolist() == theirs
    monkeypatch.setattr(diversifiers, "DIVERSITY", 0.9)
    assert diversifiers.dpp(inputs, inputs.prepared).tolist() != theirs


def test_both_sides_of_mmr_begin_alike() -> None:
    inputs = diversifiers.Inputs.draw(300)
    assert diversifiers.mmr(inputs, inputs.prepared)[0] == diversifiers.peer_mmr(inputs)[0]


def test_a_random_catalogue_has_the_tastes_that_vectors_brought_along_get() -> None:
    made = random_catalog(50, 4)
    expected = linearized_taste(made.vectors.astype(np.float64), made.log_odds, made.population_covariance)
    np.testing.assert_allclose(made.taste_vectors, expected, rtol=1e-6)
    assert random_catalog(50, 4, is_bare=True).taste_vectors.shape == (50, 1)


def test_times_are_medians_of_turns_after_a_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[str] = []
    durations = {"a": iter([1000.0, 1.0, 9.0, 2.0]), "b": iter([1000.0, 30.0, 30.0, 30.0])}
    clock = 0.0

    def work(name: str) -> None:
        nonlocal clock
        turns.append(name)
        clock += next(durations[name])

    monkeypatch.setattr("time.perf_counter", lambda: clock)
    times = measure.seconds({"a": lambda: work("a"), "b": lambda: work("b")}, repeats=3)
    assert times == {"a": 2.0, "b": 30.0}
    assert turns == ["a", "b"] * 4


def test_the_exponent_of_a_power_law() -> None:
    assert growth.exponent({size: 3.0 * size**1.5 for size in (10, 20, 80)}) == pytest.approx(1.5)


def test_bounds_hold_from_their_side() -> None:
    assert [Figure("", "", at_most(2.0)).verdict(value) for value in (2.0, 2.1, None)] == [
        "met",
        "missed",
        "not measured",
    ]
    assert [Figure("", "", at_least(2.0)).verdict(value) for value in (2.0, 1.9)] == ["met", "missed"]
    assert Figure("", "").verdict(1.0) == ""


@pytest.mark.parametrize(("group", "peer"), [("arms", "bayesianbandits"), ("diversifiers", "pyversity")])
def test_a_missing_peer_is_an_answer(group: str, peer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, peer, None)
    answer = measure_group(group)
    assert peer in answer["missing"]
    document = json.loads(json.dumps(running.Results(missing={group: answer["missing"]}).document("slatewise bench")))
    unmeasured = {name for name, figure in FIGURES.items() if figure.group == group}
    assert all(document[name] is None for name in unmeasured)


@pytest.mark.parametrize("run", [data.run, laboratory.run])
def test_without_archives_their_figures_are_missing(run: Callable[[], dict[str, float]]) -> None:
    with pytest.raises(measure.MissingError, match="set SLATEWISE_DATA"):
        run()


def test_the_command_prints_one_document_and_misses_a_peer_gracefully(tmp_path: Path) -> None:
    (tmp_path / "bayesianbandits.py").write_text("raise ModuleNotFoundError('gone', name='bayesianbandits')")
    done = slatewise(tmp_path, "--only", "arms", "--only", "dense", "--json", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["arms_peer_speedup"] is None
    assert "bayesianbandits" in document["missing"]["arms"]
    assert document["dense_greedy_2k_speedup"] > 0.0
    assert {"processor", "cores", "python", "numpy", "blas"} <= document["machine"].keys()
    assert document["command"].startswith("slatewise bench --only arms")
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == document


def test_a_measurement_that_fails_is_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bayesianbandits.py").write_text("raise RuntimeError('a fault of the peer')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ChildProcessError, match="measuring 'arms' failed"):
        running.run(["arms"], lambda: None)
    assert "a fault of the peer" in capfd.readouterr().err


def test_the_table_names_bounds_and_verdicts() -> None:
    lines = markdown_table(table({"slate_1m_over_pass": 2.6, "update_us": 123.4}, missing=["dense"])).splitlines()
    assert any(line.endswith("| 2.60 | ≤ 2.5 | missed |") for line in lines)
    assert any(line.endswith("| 123 |  |  |") for line in lines)
    assert sum("not measured" in line for line in lines) == 2


def test_an_unknown_group_is_refused() -> None:
    done = CliRunner().invoke(app, ["bench", "--only", "speed"])
    assert done.exit_code == 2
    assert "there is no group 'speed'" in done.output


def flat(document: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Names with dots instead of objects within objects."""
    found: dict[str, Any] = {}
    for name, value in document.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def test_the_page_quotes_the_stored_results() -> None:
    """benchmarks/README.md shows the table of results.json, and the figure was drawn from it."""
    document = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))
    figures = {name: value for name, value in flat(document).items() if name.startswith("growth.") or name in FIGURES}
    figures = {name: value for name, value in figures.items() if value is not None}
    assert set(figures) >= ISSUE
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    for line in markdown_table(table(figures)).splitlines():
        assert line in page
    assert f"`{document['command']}`" in page
    drawn = (ROOT / "benchmarks" / "growth.svg").read_text(encoding="utf-8")
    assert figure_growth(figures).description in drawn
