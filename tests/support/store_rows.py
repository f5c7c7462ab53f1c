"""Rows, works and openers that the tests of stores share."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import psycopg
import psycopg.sql

from slatewise.store import Store
from slatewise.store.protocol import (
    BeliefRecord,
    EventRecord,
    FeedbackRecord,
    ItemRecord,
    SlateRecord,
    Transaction,
    UserRecord,
)
from tests.support.postgres import Server

NASTY = [
    "Robert'); DROP TABLE users; --",
    '"; DELETE FROM slates; --',
    "%s %(name)s ? $1 :1",
    "ü\u2028🦉\u0301\x7f\\",
    " leading and trailing ",
    "a/../b",
    "x" * 256,
    "NULL",
    "1",
]


def slate(user: str, number: int, **changes: Any) -> SlateRecord:
    """A slate with a bit of everything."""
    items = (number, str(number), 2**70, "ü\n", -1)
    given = {"created_at": 1e9 + number / 3, "catalog": "cat", "policy": "dc2b", "items": items, "variety": 0.1 + 0.2}
    return SlateRecord(**{"slate_id": f"slate {number} of {user}", "user": user, "number": number, **given, **changes})


def answer(user: str, number: int, event: str = "", **changes: Any) -> FeedbackRecord:
    """An answer to such a slate."""
    given = {"clicked": (number, "ü\n"), "retracted": (str(number),), "final": True, "received_at": 2e9 + number / 7}
    event_id = f"answer {number} of {user}{event}"
    return FeedbackRecord(
        **{"event_id": event_id, "slate_id": f"slate {number} of {user}", "user": user, **given, **changes}
    )


def event(user: str, number: int, **changes: Any) -> EventRecord:
    """Something that the user of such a slate did elsewhere."""
    given = {"item": (number, "ü\n")[number % 2], "kind": "rating", "value": -0.1 - 0.2, "at": 1e9 + number / 3}
    given |= {"received_at": 2e9 + number / 7, "position": number}
    return EventRecord(**{"event_id": f"event {number} of {user}", "user": user, **given, **changes})


def item(number: int, **changes: Any) -> ItemRecord:
    """An item with a bit of everything; its vector is one of float32."""
    given = {"title": f"ü {number}", "categories": ("A", "B|C"), "vector": (0.5, -0.25), "published_at": 0.1 + 0.2}
    attributes = {"price": 0.1 + 0.2, "tags": ["x", "ü"], "new": True, "since": {"time": 1.5}, "brand": None}
    return ItemRecord(**{"item": number, "attributes": attributes, "updated_at": 1e9, **given, **changes})


def user_row(user: str) -> UserRecord:
    """The row of a user who was given three slates."""
    return UserRecord(user, f"stamp of {user}", 3)


def belief(user: str) -> BeliefRecord:
    """What was learned about such a user."""
    return BeliefRecord(user, "space", 2, user.encode() * 20)


def do(store: Store, work: Callable[[Transaction], Any]) -> Any:
    """Run a work and wait until it is durable."""
    return store.write(work).result(timeout=30)


def fill(store: Store, users: list[str]) -> None:
    """Give users three slates, an answer to each, and a belief."""

    def work(user: str) -> Callable[[Transaction], None]:
        def write(transaction: Transaction) -> None:
            transaction.lock(user)
            for number in range(3):
                transaction.add_slate(slate(user, number))
                transaction.add_feedback(answer(user, number))
            transaction.save_user(user_row(user))
            transaction.save_belief(belief(user))

        return write

    for future in [store.write(work(user)) for user in users]:
        future.result(timeout=30)


def one_more(user: str, content: bytes = b"\x00belief") -> Callable[[Transaction], int]:
    """A work that counts one up in a user's row, and in the belief about them."""

    def work(transaction: Transaction) -> int:
        row = transaction.lock(user)
        transaction.save_user(UserRecord(user, f"stamp {row.n_slates}", row.n_slates + 1))
        transaction.save_belief(BeliefRecord(user, "space", row.n_slates + 1, content))
        return row.n_slates + 1

    return work


def at_once(jobs: list[Callable[[], Any]]) -> None:
    """Run jobs in threads that start together; fail if one fails."""
    ready = threading.Barrier(len(jobs))
    futures: list[Future[Any]] = [Future() for _ in jobs]

    def run(job: Callable[[], Any], future: Future[Any]) -> None:
        ready.wait()
        try:
            future.set_result(job())
        except BaseException as error:  # noqa: BLE001
            future.set_exception(error)

    threads = [threading.Thread(target=run, args=pair) for pair in zip(jobs, futures, strict=True)]
    for thread in threads:
        thread.start()
    for future in futures:
        future.result(timeout=60)
    for thread in threads:
        thread.join()


def emptied(server: Server, *, tables_too: bool = False) -> str:
    """Remove all rows of the store on a server, or its tables too, which is slower; return where it was."""
    return emptied_at(server.url, tables_too=tables_too)


def emptied_at(url: str, *, tables_too: bool = False) -> str:
    """Remove all rows of the store at a URL, or its tables too; return the URL."""
    with psycopg.connect(url) as connection:
        if tables_too or connection.execute("SELECT to_regclass('slatewise.item_rates')").fetchall()[0][0] is None:
            connection.execute("SET client_min_messages = warning; DROP SCHEMA IF EXISTS slatewise CASCADE")
        else:
            connection.execute("UPDATE slatewise.item_table SET version = 0, categories = '[]'")
            for table in ("users", "beliefs", "slates", "feedback", "events", "counts", "fits", "items", "item_rates"):
                connection.execute(psycopg.sql.SQL("DELETE FROM slatewise.{}").format(psycopg.sql.Identifier(table)))
    return url
