"""The store that an older slatewise wrote (tests/fixtures/write_store.py), in either database, and what is in it."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from slatewise.store.migrations import MIGRATIONS
from tests.support.notes import Event, Notes
from tests.support.postgres import Server
from tests.support.store_rows import emptied

FIXTURE = Path(__file__).parent.parent / "fixtures" / "store_of_4c27cee"
EXPECTED: dict[str, Any] = json.loads((FIXTURE / "expected.json").read_text(encoding="utf-8"))
USERS: dict[str, dict[str, Any]] = EXPECTED["users"]


@contextmanager
def copied_store(directory: Path, server: Server | None) -> Iterator[str]:
    """Yield the URL of a copy of the old store, on a PostgreSQL server if one is given."""
    path = directory / "slates.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((FIXTURE / "store.sql").read_text(encoding="utf-8"))
        if server is not None:
            _copy_to_postgres(connection, server)
    yield f"sqlite:///{path}" if server is None else server.url
    if server is not None:
        emptied(server, tables_too=True)


def notes_of_old_clients() -> Notes:
    """What the clients of the older version asked for and were told: everything in its log."""
    notes = Notes()
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript((FIXTURE / "store.sql").read_text(encoding="utf-8"))
        for slate_id, user, items in connection.execute("SELECT slate_id, user_id, items FROM slates"):
            notes.ask(user)
            notes.slates[slate_id] = (user, tuple(json.loads(items)))
        answers = connection.execute("SELECT event_id, user_id, slate_id, clicked, final FROM answers")
        for event_id, user, slate_id, clicked, final in answers:
            event = Event(event_id, user, slate_id, tuple(json.loads(clicked)), bool(final))
            notes.send(event)
            notes.acknowledge(event)
    return notes


def _copy_to_postgres(old: sqlite3.Connection, server: Server) -> None:
    """Write the rows of an old store into tables that version 1 of the schema made."""
    with psycopg.connect(emptied(server, tables_too=True)) as connection:
        connection.execute("CREATE SCHEMA slatewise; SET search_path = slatewise")
        connection.execute(MIGRATIONS[0]["postgresql"])
        connection.execute("CREATE TABLE schema_version (version BIGINT NOT NULL)")
        connection.execute("INSERT INTO schema_version VALUES (1)")
        for table in ("users", "beliefs", "slates", "answers", "counts"):
            cursor = old.execute(f"SELECT * FROM {table}")  # noqa: S608
            names = [column[0] for column in cursor.description if column[0] != "arrival"]
            places = ", ".join("%s" for _ in names)
            rows = old.execute(f"SELECT {', '.join(names)} FROM {table}").fetchall()  # noqa: S608
            connection.cursor().executemany(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({places})", rows)  # noqa: S608
