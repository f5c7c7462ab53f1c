"""The log of a whole store as lines of JSON, and back into an empty store of any kind."""

import json
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import partial
from operator import methodcaller
from typing import Any

from slatewise.store.export import SECTIONS, export_page
from slatewise.store.protocol import Store, StoreDamagedError, StoreUnavailableError, Transaction
from slatewise.store.records import EventRecord, FeedbackRecord, ItemRecord, PolicyCounts, SlateRecord, UserRecord

Line = dict[str, Any]
ITEMS = "items"
ITEMS_PER_LINE = 500
ITEM_FIELDS = ("item", "title", "categories", "attributes", "vector", "available", "published_at", "updated_at")
"""What is exported about an item."""


def export_line(store: Store, user: str) -> Line | None:
    """Return everything about a user that cannot be rebuilt; None if there is nothing."""
    return store.read(lambda transaction: _line(transaction, user))


def export_lines(store: Store) -> Iterator[Line]:
    """Return the lines of the item table and of all users; each is consistent in itself."""
    yield from _item_lines(store)
    for user in store.users():
        line = export_line(store, user)
        if line is not None:
            yield line


def load_lines(store: Store, lines: Iterable[str]) -> int:
    """Record exported lines in an empty store; return the number of users. Beliefs are rebuilt when they are needed."""
    if next(store.users(), None) is not None or store.read(methodcaller("item_table")).version:
        raise StoreUnavailableError("the store is not empty; an export can only be loaded into a new one")
    n_users = 0
    for number, text in enumerate(lines, 1):
        line = _parsed(number, text)
        store.write(partial(_load_items if ITEMS in line else _load, line)).result()
        n_users += ITEMS not in line
    return n_users


def _item_lines(store: Store) -> Iterator[Line]:
    table, number = store.read(methodcaller("item_table")), 0
    while page := store.read(methodcaller("items_by_number", number, ITEMS_PER_LINE)):
        yield {ITEMS: [{name: getattr(row, name) for name in ITEM_FIELDS} for row in page], "version": table.version}
        number = page[-1].number


def _load_items(line: Line, transaction: Transaction) -> None:
    transaction.put_items(_item_records(line), line["version"])


def _item_records(line: Line) -> list[ItemRecord]:
    return [ItemRecord(**{**_fields(row), "attributes": row["attributes"]}) for row in line[ITEMS]]


def _line(transaction: Transaction, user: str) -> Line | None:
    content, row = export_page(transaction, user), transaction.lock(user)
    del content["next"]
    counts = {policy: asdict(totals) for policy, totals in transaction.counts_of(user).items()}
    line = {**content, "n_slates": row.n_slates, "updated_at": row.updated_at, "counts": counts}
    return line if any(content[name] for name in SECTIONS) else None


def _parsed(number: int, text: str) -> Line:
    try:
        line = json.loads(text)
        _item_records(line) if ITEMS in line else _records(line)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreDamagedError(f"line {number} is nothing that `slatewise store export` writes") from error
    return dict(line)


def _load(line: Line, transaction: Transaction) -> None:
    slates, feedback, events = _records(line)
    user = line["user"]
    transaction.lock(user)
    for slate, choice in slates:
        transaction.add_slate(slate, choice)
    for record in feedback:
        transaction.add_feedback(record)
    for event in events:
        transaction.add_event(event)
    for policy, counts in line["counts"].items():
        transaction.count(user, policy, PolicyCounts(**{"varied": counts["slates"], **counts}))
    transaction.save_user(UserRecord(user, secrets.token_hex(8), line["n_slates"], line["updated_at"]))


def _records(line: Line) -> tuple[list[tuple[SlateRecord, Any]], list[FeedbackRecord], list[EventRecord]]:
    """Return the records of a line; fail if it has other fields than they have."""
    user = line["user"]
    slates = [(SlateRecord(user=user, **_fields(row, "choice")), row["choice"]) for row in line["slates"]]
    feedback = [FeedbackRecord(user=user, **_fields(row)) for row in line["feedback"]]
    return slates, feedback, [EventRecord(user=user, **_fields(row)) for row in line["events"]]


def _fields(row: Line, *without: str) -> Line:
    """Return the fields of a row, with tuples for lists."""
    return {name: _tuples(value) for name, value in row.items() if name not in without}


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
