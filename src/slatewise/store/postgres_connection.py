"""Connections to PostgreSQL: where to, how they are set up, and what their errors mean."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from slatewise.store.postgres_errors import explained
from slatewise.store.postgres_session import Session
from slatewise.store.protocol import StoreError

NETWORK = {
    "connect_timeout": 2,
    "keepalives_idle": 3,
    "keepalives_interval": 1,
    "keepalives_count": 2,
    "tcp_user_timeout": 5000,
}
"""Limits of libpq, in seconds and milliseconds, unless the URL has its own: a network that swallows packets."""


@dataclass(frozen=True)
class Address:
    """Where a database is; only `where` may be shown, the rest may hold a password."""

    where: str
    conninfo: str = field(repr=False)

    @classmethod
    def of(cls, url: str) -> "Address":
        """Parse a URL; an error does not repeat it."""
        try:
            parts: dict[str, Any] = {**NETWORK, **conninfo_to_dict(url)}
            conninfo = make_conninfo(**parts)
        except psycopg.ProgrammingError:
            raise ValueError(
                "the postgresql:// URL cannot be read; give postgresql://user@host:port/database"
            ) from None
        address = f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}"
        return cls(f"the PostgreSQL store {parts.get('dbname', '')} at {address}", conninfo)


def connect(address: Address) -> Session:
    """Open one connection.

    A pooler such as PgBouncer gives itself away by the number of the server's process, which it cannot know yet. It may
    give every transaction another connection to the server, so that nothing can be prepared for the next.
    """
    connection = psycopg.connect(address.conninfo, autocommit=True)
    session = Session(connection)
    try:
        process = session.send("SELECT pg_backend_pid()")
        session.sync()
        session.prepares = session.rows(process) == [(connection.info.backend_pid,)]
    except psycopg.Error:
        session.close()
        raise
    return session


def connect_for_maintenance(address: Address) -> psycopg.Connection[tuple[Any, ...]]:
    """Open one connection on which statements may take as long as they need."""
    connection = psycopg.connect(address.conninfo, autocommit=True, prepare_threshold=None)
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # what others did meanwhile must be seen
    return connection


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Turn errors of PostgreSQL into those of a store."""
    try:
        yield
    except psycopg.Error as error:
        raise explained(error, where) from error
    except UnicodeEncodeError as error:
        raise StoreError("text with a lone surrogate cannot be stored") from error
