"""Fixtures that every test may use; what a machine lacks is skipped loudly, and is a failure in CI."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.postgres import Server

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "here")

ROOT = Path(__file__).resolve().parent.parent
REAL_DATA = os.environ.get("SLATEWISE_DATA")


def missing(what: str) -> NoReturn:
    """Skip on a stranger's machine; fail in CI, where nothing may be missing."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is missing, and CI must have it")
    pytest.skip(f"{what} is missing on this machine")


@pytest.fixture(autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep every test away from the person's own cache and data directory."""
    cache = tmp_path_factory.mktemp("cache")
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
    """A throw-away PostgreSQL server, started once."""
    from tests.postgres import throw_away_server

    with throw_away_server() as server:
        yield server
