"""The words are true: README's code runs, and everything there is, is documented."""

import re
import runpy
from dataclasses import fields
from pathlib import Path

import pytest
import typer

from slatewise.catalog.embeddings import BprSettings
from slatewise.cli import app
from slatewise.lab.experiment import Arm, Experiment
from slatewise.lab.tuning import GRIDS
from slatewise.policies import POLICIES, policy_options
from slatewise.policies.ials import Ials
from tests.conftest import ROOT
from tests.support.command_line import run_here

README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}


def code_blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def example_files(directory: Path) -> None:
    """The two tables that the examples read."""
    rows = "".join(f"u{user},i{item},{1 + (user * item) % 5}\n" for user in range(20) for item in range(15))
    (directory / "likes.csv").write_text("user_id,item_id,rating\n" + rows)
    (directory / "items.csv").write_text("item_id,title\n" + "".join(f"i{item},Item {item}\n" for item in range(15)))


@pytest.mark.parametrize("page", ["README.md", "docs/your-data.md"])
def test_the_code_of_the_pages_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    blocks = code_blocks((ROOT / page).read_text(encoding="utf-8"))
    assert blocks
    for block in blocks:
        runpy.run_path(str(written(block, tmp_path / "block.py")), run_name="__main__")


def test_the_example_of_variety_prints_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And the items are not simply those with the best scores."""
    [block] = [block for block in code_blocks(README) if "diversify" in block]
    found = runpy.run_path(str(written(block, tmp_path / "block.py")))
    [printed] = capsys.readouterr().out.splitlines()
    assert f"print(indices)  # {printed}" in block
    by_score = sorted(range(len(found["scores"])), key=lambda item: -found["scores"][item])
    assert set(found["indices"].tolist()) != set(by_score[: len(found["indices"])])


def test_the_results_are_their_template_filled() -> None:
    """What stands between the tables is the same in both files, so that neither is changed without the other."""
    folder = ROOT / "experiments" / "results"
    made = (folder / "RESULTS.md").read_text(encoding="utf-8")
    for part in re.split(r"\{\{\S+\}\}", (folder / "RESULTS.template.md").read_text(encoding="utf-8")):
        assert part in made
    assert not re.search(r"catalogue|favourite|linearis", made)


def test_what_no_grid_holds_is_said_beside_the_results() -> None:
    """iALS is the rival whose size was never tuned."""
    made = (ROOT / "experiments" / "results" / "RESULTS.md").read_text(encoding="utf-8")
    assert "dim" not in GRIDS["ials"]
    assert f"The number of factors of iALS (`dim`) is in no grid; it is {Ials.dim}." in made


def written(text: str, path: Path) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("policy", POLICIES.built_in)
def test_every_policy_and_its_options_are_documented(policy: str) -> None:
    assert f"| `{policy}` |" in README
    for option in policy_options(policy):
        assert f"`{option}`" in DOCS["method.md"], option


def test_every_key_of_an_experiment_is_documented() -> None:
    """Negative control: something that is no key is not."""
    page = (ROOT / "docs" / "tutorials" / "compare.md").read_text(encoding="utf-8")
    rows = "".join(line for line in page.splitlines() if line.startswith("| `"))
    keys = {field.name for kind in (Experiment, Arm, BprSettings) for field in fields(kind)} - {"name"}
    written = {"embedding": "`[embedding]`", "arms": "`[[arms]]`"}
    assert [key for key in sorted(keys) if written.get(key, f"`{key}`") not in rows] == []
    assert "`colour`" not in rows


def verbs() -> list[str]:
    group = typer.main.get_command(app)
    found = []
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        found += [f"{name} {part}" for part in inner] if inner else [name]
    return found


@pytest.mark.parametrize("verb", verbs())
def test_every_verb_is_documented_and_has_an_example(verb: str) -> None:
    words = README + "".join(DOCS.values())
    assert f"slatewise {verb}" in words
    shown = run_here(*verb.split(), "--help")
    assert shown.returncode == 0
    assert "Example: " in shown.stdout


def test_nothing_is_left_to_be_filled_in() -> None:
    assert "PLACEHOLDER" not in README + "".join(DOCS.values())


def links(text: str) -> list[str]:
    return [link for link in re.findall(r"\]\(([^)#]+)\)", text) if not link.startswith("http")]


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", *(f"docs/{name}" for name in DOCS)])
def test_links_lead_somewhere(page: str) -> None:
    for link in links((ROOT / page).read_text(encoding="utf-8")):
        assert ((ROOT / page).parent / link).exists(), link
