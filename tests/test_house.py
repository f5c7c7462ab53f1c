"""Rules of the house that no linter knows."""

import ast
import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT

SOURCES = sorted((ROOT / "src").rglob("*.py"))
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}
FORBIDDEN_CALLS = {"eval", "exec"}


def offences(code: str) -> list[str]:
    """Everything in a module that could run code hidden in data."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module if isinstance(node, ast.ImportFrom) else None
            names = [module or "", *(alias.name for alias in node.names)]
            found += [name for name in names if name.split(".")[0] in FORBIDDEN_MODULES]
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            found.append("allow_pickle")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
            found.append(node.func.id)
    return found


def test_no_pickle_anywhere() -> None:
    found = {str(path.relative_to(ROOT)): offences(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert len(found) > 200
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "bad", ["import pickle", "from dill import load", "np.load(f, allow_pickle=True)", "eval('1')"]
)
def test_the_check_for_pickle_can_fail(bad: str) -> None:
    assert offences(bad)


@pytest.mark.process
def test_the_core_needs_only_numpy_and_safetensors() -> None:
    """A service that loads a catalog must not need the trainer's libraries."""
    code = (
        "import sys, slatewise.catalog, slatewise.belief, slatewise.slates, slatewise.policies, slatewise.randomness\n"
        "third = {m.split('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)\n"
        "print(sorted(m for m in third if not m.startswith('_')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    loaded = set(ast.literal_eval(done.stdout)) - {"slatewise", "sitecustomize", "distutils"}
    assert loaded <= {"numpy", "safetensors", "packaging"}


OUTSIDE = re.compile(r"\.\./shared|(?:index-url|registry)[ =]+.?https?://")


@pytest.mark.process
def test_files_speak_of_the_project_only() -> None:
    """No path outside the repository except in CI's script, and no address of a package registry."""
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()  # noqa: S607
    read = [name for name in files if not name.endswith((".png", ".safetensors")) and name != ".ci/run"]
    read.remove("tests/test_house.py")
    assert [name for name in read if OUTSIDE.search((ROOT / name).read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("bad", ["/".join(["..", "shared"]), " ".join(["--index-url", "https://here.example"])])
def test_the_check_for_places_outside_can_fail(bad: str) -> None:
    assert OUTSIDE.search(bad)
