"""`slatewise about`, and the files that ask for it or name the version."""

import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from release.new_version import PLACES, new_version
from slatewise import __version__
from slatewise.cli import app
from tests.conftest import ROOT


def about(*words: str) -> str:
    result = CliRunner().invoke(app, ["about", *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_about_has_versions_and_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = json.loads(about("--json"))
    assert found["slatewise"] == __version__
    assert found["packages"]["numpy"]
    assert found["store"] == "sqlite"
    assert found["settings"] == {}
    assert "numba" in about()


def test_about_shows_settings_and_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLATEWISE_STORE", "postgresql://shop:hunter2@db.internal/shop")
    monkeypatch.setenv("SLATEWISE_LOG_SALT", "hunter2")
    (tmp_path / "slatewise.toml").write_text('catalog = "/home/ann/shop"\nport = 9000\n')
    told = about()
    assert "hunter2" not in told
    assert "db.internal" not in told
    assert "/home/ann" not in told
    assert "port 9000" in told
    assert re.search(r"^store +postgresql$", told, re.MULTILINE)


def test_about_survives_settings_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slatewise.toml").write_text("prot = 9000\n")
    assert "'prot', which is not a setting" in about()


def test_the_citation_names_this_version_and_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__
    assert citation["license"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"]
    assert citation["references"][0]["doi"] == "10.1609/aaai.v34i04.5931"


def test_reports_of_problems_ask_for_about() -> None:
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/problem.yml").read_text(encoding="utf-8"))
    asked = {part["id"]: part for part in form["body"]}
    assert "slatewise about" in asked["about"]["attributes"]["label"]
    assert asked["about"]["validations"]["required"]


def test_a_new_version_is_written_everywhere(tmp_path: Path) -> None:
    for name in PLACES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    new_version("7.8.9", tmp_path)
    assert all("7.8.9" in (tmp_path / name).read_text(encoding="utf-8") for name in PLACES)
    with pytest.raises(SystemExit, match="is not a version"):
        new_version("next", tmp_path)


def test_a_version_that_cannot_be_written_everywhere_is_written_nowhere(tmp_path: Path) -> None:
    for name in PLACES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text("nothing here")
    with pytest.raises(SystemExit, match="nothing was changed"):
        new_version("7.8.9", tmp_path)
    assert "7.8.9" not in (tmp_path / "src/slatewise/version.py").read_text()


def test_the_release_workflow_runs_what_exists() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
    runs = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    modules = re.findall(r"-m (release\.\w+)", " ".join(runs))
    assert modules
    assert all((ROOT / module.replace(".", "/")).with_suffix(".py").is_file() for module in modules)
    assert any(run.startswith("make release") for run in runs)
