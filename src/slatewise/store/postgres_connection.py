"""Connections to PostgreSQL: where to, how they are set up, and what their errors mean."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from slatewise.store.migrations import MIGRATIONS, steps_from
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
MIGRATION_LOCK = 0x736C6174


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
        place = f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}"
        return cls(f"the PostgreSQL store {parts.get('dbname', '')} at {place}", conninfo)


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


def migrate(address: Address, read_only: bool) -> None:
    """Bring the tables up to date, one process at a time; a reader expects them to be up to date."""
    with translated(address.where), connect_for_maintenance(address) as connection, connection.transaction():
        lock_migrations(connection)
        version = _version(connection)
        steps = steps_from(version, "postgresql", address.where)
        if steps and read_only:
            raise StoreError(
                f"{address.where} is empty or was written by an older slatewise; let a server open it once"
            )
        for step in steps if version else ["CREATE SCHEMA IF NOT EXISTS slatewise", *steps]:
            connection.execute(step)
        if steps:
            connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)")
            connection.execute("INSERT INTO schema_version VALUES (%s)", (len(MIGRATIONS),))


def lock_migrations(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Make others who change the tables wait until the transaction ends."""
    connection.execute("SET LOCAL search_path = slatewise")
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Turn errors of PostgreSQL into those of a store."""
    try:
        yield
    except psycopg.Error as error:
        raise explained(error, where) from error
    except UnicodeEncodeError as error:
        raise StoreError("text with a lone surrogate cannot be stored") from error


def _version(connection: psycopg.Connection[tuple[Any, ...]]) -> int:
    if connection.execute("SELECT to_regclass('slatewise.schema_version')").fetchall()[0][0] is None:
        return 0
    return int(connection.execute("SELECT max(version) FROM slatewise.schema_version").fetchall()[0][0])
