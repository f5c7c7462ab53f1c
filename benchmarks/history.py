"""Importing history into a SQLite store, and bare inserts of the same rows, ready-made, by turns."""

import tempfile
from contextlib import closing

import apsw

from benchmarks.measure import seconds
from slatewise.recommender.events import Event
from slatewise.recommender.history import add_history
from slatewise.store import open_store, statements
from slatewise.store.records import EventRecord
from slatewise.store.rows import Values, event_values
from slatewise.store.sqlite_connection import execute

BARE_ROWS_PER_COMMIT = 5_000


def run(n_users: int = 2_000, per_user: int = 50, repeats: int = 3) -> dict[str, float]:
    """Measure; bare inserts have the same tables, indexes and durability, but no users, checksums or repeats."""
    events = [Event(f"user {user}", 211 * at, "like", at=1e9 + at) for user in range(n_users) for at in range(per_user)]
    rows = [_row(event) for event in events]
    with tempfile.TemporaryDirectory() as folder:
        names = iter(f"{folder}/{number}.db" for number in range(1_000))
        times = seconds(
            {"import": lambda: _import(next(names), events), "bare": lambda: _insert(next(names), rows)}, repeats
        )
    return {
        "history_events_per_second": len(events) / times["import"],
        "history_over_bare": times["import"] / times["bare"],
    }


def _import(path: str, events: list[Event]) -> None:
    with closing(open_store(f"sqlite:///{path}")) as store:
        new = sum(new for _, new in add_history(store, events))
    if new != len(events):
        raise AssertionError(f"{new} of {len(events)} events were recorded")


def _insert(path: str, rows: list[Values]) -> None:
    open_store(f"sqlite:///{path}").close()
    with closing(apsw.Connection(path)) as connection:
        execute(connection, "PRAGMA synchronous = FULL")
        for start in range(0, len(rows), BARE_ROWS_PER_COMMIT):
            with connection:
                connection.executemany(statements.ADD_EVENT, rows[start : start + BARE_ROWS_PER_COMMIT])


def _row(event: Event) -> Values:
    said = (event.item, event.kind, event.value)
    return event_values(EventRecord(event.content_id(), event.user, *said, event.at or 0.0, 2e9, 0))
