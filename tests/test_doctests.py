"""Examples in docstrings run, and every public name has one."""

import doctest
import inspect
import pkgutil
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

import slatewise
from slatewise import Catalog, Dataset, Recommender

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(slatewise.__path__, "slatewise.")
    if not module.name.endswith("__main__")
)
NAMES = sorted(set(slatewise.__all__) - {"__version__"})


def failures(module: ModuleType, directory: Path, monkeypatch: pytest.MonkeyPatch) -> doctest.TestResults:
    """Run the examples of a module in an empty directory, where they may write files.

    As `doctest.testmod` does, which also prepares for running every docstring that has none.
    """
    monkeypatch.chdir(directory)
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    for documented in doctest.DocTestFinder().find(module):
        if documented.examples:
            runner.run(documented)
    return doctest.TestResults(runner.failures, runner.tries)


def source(name: str) -> str:
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")


WITH_EXAMPLES = [name for name in MODULES if ">>> " in source(name)]


def test_every_module_can_be_imported() -> None:
    for name in MODULES:
        assert import_module(name).__name__ == name


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of_a_module_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = failures(import_module(name), tmp_path, monkeypatch)
    assert results.attempted > 0
    assert results.failed == 0, f"{results.failed} of {results.attempted} examples failed; see above"


def test_an_example_that_is_wrong_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("wrong", "\n>>> 1 + 1\n3\n")
    assert failures(module, tmp_path, monkeypatch).failed == 1


def has_example(documented: object) -> bool:
    return ">>> " in (inspect.getdoc(documented) or "")


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example(name: str) -> None:
    assert has_example(getattr(slatewise, name))


def methods(cls: type) -> list[str]:
    functions = inspect.getmembers(cls, lambda member: inspect.isfunction(member) or inspect.ismethod(member))
    return [name for name, _ in functions if not name.startswith("_")]


@pytest.mark.parametrize(
    ("cls", "method"), [(cls, method) for cls in (Catalog, Dataset, Recommender) for method in methods(cls)], ids=str
)
def test_every_public_method_has_an_example(cls: type, method: str) -> None:
    assert has_example(getattr(cls, method))
    if set(inspect.signature(getattr(cls, method)).parameters) - {"self"}:
        assert "Parameters\n---" in (inspect.getdoc(getattr(cls, method)) or "")


def test_public_names_are_listed_and_loaded_lazily() -> None:
    assert dir(slatewise) == sorted(slatewise.__all__)
    assert set(slatewise.__all__) == {"__version__", *slatewise._MODULES}
    for name in NAMES:
        assert getattr(slatewise, name).__module__.startswith("slatewise.")


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'slatewise' has no attribute 'recommend'"):
        slatewise.recommend  # noqa: B018
