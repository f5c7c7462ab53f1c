"""The words are true: README's code runs, and everything there is, is documented."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from slatewise.cli import app
from slatewise.policies import POLICIES, policy_options
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}


def code_blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def test_the_code_of_the_readme_runs(tmp_path: Path) -> None:
    [block] = code_blocks(README)
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, cwd=tmp_path, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) > 100


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_and_its_options_are_documented(policy: str) -> None:
    assert f"| `{policy}` |" in README
    for option in policy_options(policy):
        assert f"`{option}`" in DOCS["method.md"], option


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
    command = [sys.executable, "-m", "slatewise", *verb.split(), "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603
    assert "Example: " in shown


def links(text: str) -> list[str]:
    return [link for link in re.findall(r"\]\(([^)#]+)\)", text) if not link.startswith("http")]


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", *(f"docs/{name}" for name in DOCS)])
def test_links_lead_somewhere(page: str) -> None:
    for link in links((ROOT / page).read_text(encoding="utf-8")):
        assert ((ROOT / page).parent / link).exists(), link
