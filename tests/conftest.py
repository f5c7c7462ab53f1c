"""Fixtures that every test may use, and markers of what a test needs.

What a machine lacks is skipped loudly, and is a failure in CI. A test without a marker is a unit test: it must not
start a process, and `make unit` runs all of these.
"""

import gc
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from hypothesis import settings

from tests.support.leftovers import pytest_configure, pytest_unconfigure
from tests.support.places import in_memory

if TYPE_CHECKING:
    from tests.support.postgres import Server

__all__ = ["pytest_configure", "pytest_unconfigure"]

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "here")

if in_memory() is not None:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(in_memory()))

ROOT = Path(__file__).resolve().parent.parent
REAL_DATA = os.environ.get("SLATEWISE_DATA")


NEEDS = ("process", "postgres", "browser", "slow")
WITHOUT_UNITS = ("browser", "durability")
"""Folders in which no test is a unit test."""
STARTING_A_PROCESS = {"subprocess.Popen", "os.fork", "os.posix_spawn"}

_running: list[pytest.Item] = []


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import nothing of folders that have no unit tests if only these are to run."""
    return True if config.getoption("markexpr") == "unit" and collection_path.name in WITHOUT_UNITS else None


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what was imported, which stays until the end, and look less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what a test needs where that is plain: by its directory and its fixtures; what needs nothing is `unit`."""
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {}).values()
        names = [value for value in parameters if isinstance(value, str)]
        fixtures, folder = getattr(item, "fixturenames", ()), item.path.parent.name
        if "postgres_server" in fixtures or any(name.startswith("postgresql") for name in names):
            item.add_marker("postgres")
        if "browser" in fixtures or folder == "browser":
            item.add_marker("browser")
        if folder == "durability":
            item.add_marker("process")
        if not any(item.get_closest_marker(name) for name in NEEDS):
            item.add_marker("unit")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Remember which test is running, for the check below."""
    _running.append(item)
    try:
        return (yield)
    finally:
        _running.pop()


def _refuse_processes(event: str, arguments: tuple[object, ...]) -> None:
    """Fail a unit test that starts a process: mark it, so that `make unit` stays quick.

    matplotlib, which cornac imports, may: it lists the machine's fonts once, when it is first imported there. And the
    PostgreSQL of a whole session is stopped after its last test, whatever that one is.
    """
    if not _running or event not in STARTING_A_PROCESS:
        return
    if any(name in str(arguments) for name in ("fc-list", "pg_ctl")):
        return
    if _running[-1].get_closest_marker("unit"):
        pytest.fail(f"{_running[-1].nodeid} starts a process; mark it with @pytest.mark.process")


sys.addaudithook(_refuse_processes)


def missing(what: str) -> NoReturn:
    """Skip on a stranger's machine; fail in CI, where nothing may be missing."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is missing, and CI must have it")
    pytest.skip(f"{what} is missing on this machine")


@pytest.fixture(scope="session")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Paths for caches; `mktemp` would list all that there are for each, which took longer than most tests."""
    directory = tmp_path_factory.mktemp("caches")
    return (directory / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def private_cache(caches: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep every test away from the person's own cache and data directory."""
    cache = next(caches)
    cache.mkdir()
    monkeypatch.setenv("SLATEWISE_CACHE", str(cache))
    monkeypatch.delenv("SLATEWISE_DATA", raising=False)
    return cache


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The directory with the real archives (ml-100k.zip, ml-1m.zip, anime-5k.zip)."""
    if REAL_DATA is None or not (Path(REAL_DATA) / "ml-100k.zip").is_file():
        missing(f"the directory with real data (SLATEWISE_DATA={REAL_DATA or ''})")
    return Path(REAL_DATA)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator["Server"]:
    """A throw-away PostgreSQL server, started once; its files are in memory if there is room."""
    from tests.support.postgres import throw_away_server

    with throw_away_server(in_memory()) as server:
        yield server


@pytest.fixture(scope="session")
def pgbouncer(postgres_server: "Server") -> Iterator[str]:
    """The URL of that server through PgBouncer in transaction mode, started once."""
    from tests.support.postgres_kinds import pgbouncer_to

    with pgbouncer_to(postgres_server) as url:
        yield url
