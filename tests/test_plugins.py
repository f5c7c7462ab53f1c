"""Packages installed next to ours add policies and data sets; the package of docs/plug-ins.md is the first of them."""

import json
import logging
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from inspect import Parameter
from pathlib import Path
from typing import Any

import pytest

from slatewise.plugins import PluginError, Registry
from slatewise.policies import POLICIES, policy_options
from tests.conftest import ROOT
from tests.support.command_line import run_here
from tests.test_cli import slatewise

pytestmark = pytest.mark.process

PAGE = (ROOT / "docs" / "plug-ins.md").read_text(encoding="utf-8")
EXPERIMENT = """
title = "Gems"
splits = 1
[embedding]
dim = 3
epochs = 2
[[arms]]
policy = "dc2b-calibrated"
[[arms]]
policy = "hidden-gems"
options = { popularity = 0.1 }
[[arms]]
policy = "hidden-gems"
label = "hidden-gems (tuned)"
tuned = true
"""


def install(folder: Path, project: dict[str, Any], module: str, code: str = "") -> Path:
    """Write what pip would write: the module, and the metadata with its entry points."""
    name, version = project["name"], project["version"]
    metadata = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    groups = (
        "\n".join([f"[{group}]", *(f"{key} = {value}" for key, value in points.items())])
        for group, points in project["entry-points"].items()
    )
    (metadata / "entry_points.txt").write_text("\n".join(groups) + "\n")
    (folder / f"{module}.py").write_text(code)
    return folder


def project(name: str, version: str = "1.0", **policies: str) -> dict[str, Any]:
    return {"name": name, "version": version, "entry-points": {"slatewise.policies": policies}}


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)
    assert found
    return found.group(1)


@pytest.fixture(scope="module")
def gems(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process that has the package of the page installed."""
    folder = tmp_path_factory.mktemp("site")
    install(folder, tomllib.loads(block("toml"))["project"], "slatewise_gems", block("python"))
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


def printed(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_data_set_of_a_plug_in_is_listed_and_loaded(gems: dict[str, str]) -> None:
    listed = {row["name"]: row["at_hand"] for row in printed(slatewise("data", "list", "--json", **gems))}
    assert listed["tiny-shop"] == "installed by slatewise-gems 1.0"
    described = printed(slatewise("data", "describe", "tiny-shop", "--json", **gems))
    assert (described["name"], described["users"], described["items"]) == ("tiny-shop", 120, 80)


@pytest.mark.slow
def test_tuning_uses_the_grid_of_the_plug_in(gems: dict[str, str]) -> None:
    tried = printed(slatewise("tune", "hidden-gems", "--data", "tiny-shop", "--json", **gems))
    assert sorted(row["options"]["popularity"] for row in tried) == [0.5, 0.7, 1.0]


@pytest.mark.slow
def test_run_knows_a_plug_in_also_in_other_processes(gems: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "gems.toml").write_text(EXPERIMENT)
    command: list[str | Path] = [
        "run",
        tmp_path / "gems.toml",
        "--data",
        "tiny-shop",
        "--out",
        tmp_path,
        "--workers",
        "2",
        "--json",
    ]
    rows = printed(slatewise(*command, **gems))["rows"]
    assert [row["policy"] for row in rows] == ["dc2b-calibrated", "hidden-gems", "hidden-gems (tuned)"]
    assert rows[0]["p@50"] != rows[1]["p@50"], "the plug-in is not just another name for the default"
    [description] = (tmp_path / "records").glob("gems-*.json")
    assert json.loads(description.read_text())["plugins"] == {"hidden-gems": "slatewise-gems 1.0"}


@pytest.mark.slow
def test_reproduce_and_report_compare_a_plug_in(gems: dict[str, str], tmp_path: Path) -> None:
    options: list[str | Path] = [
        "--data",
        "tiny-shop",
        "--splits",
        "1",
        "--policy",
        "hidden-gems",
        "--out",
        tmp_path,
        "--json",
    ]
    reproduced = printed(slatewise("reproduce", "baselines", *options, "--workers", "1", **gems))
    assert [row["policy"] for row in reproduced["rows"]] == ["logrank", "mmr", "epsilon-greedy", "hidden-gems"]
    assert printed(slatewise("report", "baselines", *options, **gems)) == reproduced
    assert "hidden-gems" in (tmp_path / "report.html").read_text()


def test_the_recommender_serves_a_plug_in(gems: dict[str, str]) -> None:
    code = (
        "from slatewise import Catalog, Recommender; from slatewise.data.sources import load\n"
        "from slatewise.catalog.embeddings import BprSettings\n"
        "catalog = Catalog.train(load('tiny-shop'), BprSettings(dim=3, epochs=2))\n"
        "with Recommender(catalog, policy='hidden-gems') as recommender:\n"
        "    slate = recommender.recommend('ann', k=3)\n"
        "    recommender.feedback(slate.slate_id, clicked=[slate.items[0].id])\n"
        "    print(slate.policy, len(recommender.recommend('ann', k=3).items))"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ, **gems}
    )
    assert done.stdout.split() == ["hidden-gems", "3"], done.stderr


@pytest.mark.slow
def test_the_contract_tests_run_on_a_plug_in(gems: dict[str, str]) -> None:
    command = [sys.executable, "-m", "pytest", "tests/test_contract.py", "-p", "no:cacheprovider", "-k"]
    done = subprocess.run(  # noqa: S603
        [*command, "hidden-gems"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, **gems},
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"\d{2} passed", done.stdout)


@pytest.mark.parametrize("command", [["reproduce", "table1"], ["reproduce", "figure-alpha"]])
def test_a_target_that_compares_nothing_takes_no_policy(command: list[str]) -> None:
    done = run_here(*command, "--data", "synthetic", "--policy", "popular")
    assert done.returncode == 2
    assert "does not compare policies" in done.stderr


def test_an_unknown_policy_is_refused_before_anything_runs(tmp_path: Path) -> None:
    done = run_here("reproduce", "baselines", "--data", "synthetic", "--policy", "magic", "--out", tmp_path)
    assert done.returncode == 2
    assert "there is no policy 'magic'" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_broken_plug_in_is_an_error_only_when_it_is_used(tmp_path: Path) -> None:
    install(
        tmp_path, project("slatewise-broken", broken="slatewise_broken:Policy"), "slatewise_broken", "import nowhere"
    )
    environment = {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    done = slatewise("tune", "broken", "--data", "synthetic", **environment)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "error: the policy 'broken' of the package slatewise-broken 1.0 cannot be loaded "
        "(ModuleNotFoundError: No module named 'nowhere'); update or uninstall that package"
    )
    assert "Traceback" not in done.stderr
    assert printed(slatewise("tune", "popular", "--data", "synthetic", "--json", **environment))


def registry(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Registry[Any]:
    """A fresh registry in a process that finds the packages of a folder."""
    monkeypatch.syspath_prepend(str(folder))
    return Registry("slatewise.policies", "policy", {"popular": dict})


def test_a_built_in_entry_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install(tmp_path, project("greedy-package", popular="greedy_package:Policy"), "greedy_package")
    known = registry(tmp_path, monkeypatch)
    with caplog.at_level(logging.WARNING):
        assert list(known) == ["popular"]
    assert known["popular"] is dict
    assert caplog.messages == [
        "the policy 'popular' of the package greedy-package 1.0 is ignored: "
        "slatewise has a built-in policy of that name"
    ]


def test_two_packages_with_one_name_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "second"):
        install(tmp_path, project(name, shared=f"{name}_module:Policy"), f"{name}_module", "Policy = dict")
    known = registry(tmp_path, monkeypatch)
    assert "shared" in known
    with pytest.raises(
        PluginError, match=r"'shared' is provided by (first 1\.0 and second|second 1\.0 and first) 1\.0"
    ):
        known["shared"]


def test_what_is_not_callable_is_no_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, project("number-package", number="number_package:NUMBER"), "number_package", "NUMBER = 7")
    known = registry(tmp_path, monkeypatch)
    with pytest.raises(PluginError, match=r"'number' of the package number-package 1\.0 is a int \(number_package:NUM"):
        known["number"]


def test_nothing_is_imported_until_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, project("lazy-package", lazy="lazy_package:Policy"), "lazy_package", "Policy = dict")
    known = registry(tmp_path, monkeypatch)
    assert list(known) == ["popular", "lazy"]
    assert len(known) == 2
    assert "lazy" in known
    assert known.provider("lazy") == "lazy-package 1.0"
    assert "lazy_package" not in sys.modules
    assert known["lazy"] is dict
    assert "lazy_package" in sys.modules


def test_a_registry_is_a_mapping_that_code_can_change() -> None:
    known: Registry[Any] = Registry("slatewise.nothing", "thing", {"a": dict})
    known["b"] = list
    assert dict(known) == {"a": dict, "b": list}
    assert known.provider("b") is None
    del known["b"]
    with pytest.raises(KeyError):
        known["b"]


@dataclass
class WithFactory:
    catalog: object
    weights: list[float] = field(default_factory=lambda: [1.0])
    depth: int = 3
    cache: int = field(default=0, init=False)


def as_function(_catalog: object, depth: int, *, weight: float = 0.5, **_more: object) -> None:
    """A policy may be made by a function."""


def test_options_are_fields_or_the_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "with-factory", WithFactory)
    monkeypatch.setitem(POLICIES, "as-function", as_function)
    assert policy_options("with-factory") == {"weights": [1.0], "depth": 3}
    assert policy_options("as-function") == {"depth": Parameter.empty, "weight": 0.5}
