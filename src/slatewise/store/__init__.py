"""Stores: where slates, feedback and beliefs are kept, behind one small protocol.

memory://                          nothing survives the process; for tests and first steps
sqlite:///slates.db                one process on one machine (relative path; four slashes for an absolute one)
postgresql://user@host/database    several processes or machines
"""

from collections.abc import Callable

from slatewise.store.memory import MemoryStore
from slatewise.store.protocol import Store, StoreDamagedError, StoreError, StoreFullError, StoreUnavailableError

__all__ = [
    "STORES",
    "Store",
    "StoreDamagedError",
    "StoreError",
    "StoreFullError",
    "StoreUnavailableError",
    "open_store",
]


def _sqlite(url: str, read_only: bool) -> Store:
    try:
        from slatewise.store.sqlite import SqliteStore
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("a SQLite store needs apsw: pip install '.[serve]' in the checkout") from error
    return SqliteStore.open(url.removeprefix("sqlite:///"), read_only)


def _postgres(url: str, read_only: bool) -> Store:
    try:
        from slatewise.store.postgres import PostgresStore
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "a PostgreSQL store needs psycopg: pip install '.[postgres]' in the checkout"
        ) from error
    return PostgresStore.open(url, read_only)


STORES: dict[str, Callable[[str, bool], Store]] = {
    "memory": lambda _url, _read_only: MemoryStore(),
    "sqlite": _sqlite,
    "postgresql": _postgres,
}


def open_store(url: str, *, read_only: bool = False) -> Store:
    """Open the store that a URL names, created if it does not exist; read_only works next to the one that writes."""
    scheme = url.partition("://")[0]
    if "://" not in url or scheme not in STORES:
        raise ValueError(
            f"store URL of kind {scheme[:20]!r} is not known; give memory://, sqlite:///FILE or postgresql://…"
        )
    return STORES[scheme](url, read_only)
