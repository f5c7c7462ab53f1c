"""Connections to PostgreSQL: where to, how they are set up, and how statements run on them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from slatewise.store import statements
from slatewise.store.migrations import MIGRATIONS, steps_from
from slatewise.store.postgres_errors import explained
from slatewise.store.protocol import StoreError, StoreUncertainError, UserRecord
from slatewise.store.rows import Execute, Values, user_values

Connection = psycopg.Connection[tuple[Any, ...]]

BEGIN_WRITING = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
SETTINGS = (
    "SET search_path = slatewise; SET statement_timeout = '10s'; SET lock_timeout = '5s';"
    "SET idle_in_transaction_session_timeout = '60s';"
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)
MIGRATION_LOCK = 0x736C6174
SECONDS_TO_CONNECT = 5


@dataclass(frozen=True)
class Address:
    """Where a database is; only `where` may be shown, the rest may hold a password."""

    where: str
    conninfo: str = field(repr=False)

    @classmethod
    def of(cls, url: str) -> "Address":
        """Parse a URL; an error does not repeat it."""
        try:
            conninfo = make_conninfo(url, connect_timeout=SECONDS_TO_CONNECT)
            parts = conninfo_to_dict(conninfo)
        except psycopg.ProgrammingError:
            raise ValueError(
                "the postgresql:// URL cannot be read; give postgresql://user@host:port/database"
            ) from None
        place = f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}"
        return cls(f"the PostgreSQL store {parts.get('dbname', '')} at {place}", conninfo)


def connect(address: Address) -> Connection:
    """Open one connection without time limits, for maintenance."""
    connection = psycopg.connect(address.conninfo, autocommit=True)
    connection.execute("SET search_path = slatewise")
    return connection


def prepare(read_only: bool) -> Callable[[Connection], None]:
    """Return the function that sets up every connection of the pool; asynchronous commit is switched off."""

    def configure(connection: Connection) -> None:
        connection.execute(SETTINGS)
        connection.execute(f"SET default_transaction_read_only = {'on' if read_only else 'off'}")

    return configure


def migrate(address: Address, read_only: bool) -> None:
    """Bring the tables up to date, one process at a time; a reader expects them to be up to date."""
    with translated(address), connect(address) as connection, connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
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


def execute_on(connection: Connection, address: Address) -> Execute:
    """Return the function that executes statements; in a pipeline only those that return rows wait."""

    def execute(sql: str, parameters: Values) -> list[Values]:
        query, has_rows = _translated(sql)
        with translated(address):
            cursor = connection.execute(query, parameters, binary=True)
            return cursor.fetchall() if has_rows else []

    return execute


def lock_user(execute: Execute, user: str) -> list[Values]:
    """Lock the row of a user, inserted if there is none, and return it."""
    rows = execute(statements.LOCK_USER, (user,))
    return rows or execute(statements.CLAIM_USER, user_values(UserRecord(user), (0, 0, 0)))


def commit(connection: Connection, address: Address) -> None:
    """Commit, and make sure of it; if the connection breaks here, the outcome is unknown."""
    try:
        done = connection.execute("COMMIT").statusmessage
    except psycopg.OperationalError as error:
        raise StoreUncertainError(f"{address.where} was lost while committing; send the same event again") from error
    if done != "COMMIT":
        raise StoreError(f"{address.where} rolled the transaction back")


@contextmanager
def translated(address: Address) -> Iterator[None]:
    """Turn errors of PostgreSQL into those of a store."""
    try:
        yield
    except psycopg.Error as error:
        raise explained(error, address.where) from error
    except UnicodeEncodeError as error:
        raise StoreError("text with a lone surrogate cannot be stored") from error


@cache
def _translated(sql: str) -> tuple[Any, bool]:
    """Return a statement with PostgreSQL's placeholders, and whether it returns rows."""
    return sql.replace("?", "%s"), sql.startswith("SELECT") or "RETURNING" in sql


def _version(connection: Connection) -> int:
    if connection.execute("SELECT to_regclass('slatewise.schema_version')").fetchall()[0][0] is None:
        return 0
    return int(connection.execute("SELECT max(version) FROM slatewise.schema_version").fetchall()[0][0])
