"""The log of a whole store as lines of JSON, and back into an empty store of any kind."""

import json
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

from slatewise.store.export import SECTIONS, export_page
from slatewise.store.protocol import Store, StoreDamagedError, StoreUnavailableError, Transaction
from slatewise.store.records import EventRecord, FeedbackRecord, PolicyCounts, SlateRecord, UserRecord

Line = dict[str, Any]


def export_line(store: Store, user: str) -> Line | None:
    """Return everything about a user that cannot be rebuilt; None if there is nothing."""
    return store.read(lambda transaction: _line(transaction, user))


def export_lines(store: Store) -> Iterator[Line]:
    """Return the lines of all users; each is consistent in itself."""
    for user in store.users():
        line = export_line(store, user)
        if line is not None:
            yield line


def load_lines(store: Store, lines: Iterable[str]) -> int:
    """Record exported lines in an empty store; return the number of users. Beliefs are rebuilt when they are needed."""
    if next(store.users(), None) is not None:
        raise StoreUnavailableError("the store is not empty; an export can only be loaded into a new one")
    n_users = 0
    for number, text in enumerate(lines, 1):
        store.write(partial(_load, _parsed(number, text))).result()
        n_users += 1
    return n_users


def _line(transaction: Transaction, user: str) -> Line | None:
    content, row = export_page(transaction, user), transaction.lock(user)
    del content["next"]
    counts = {policy: asdict(one) for policy, one in transaction.counts_of(user).items()}
    line = {**content, "n_slates": row.n_slates, "updated_at": row.updated_at, "counts": counts}
    return line if any(content[name] for name in SECTIONS) else None


def _parsed(number: int, text: str) -> Line:
    try:
        line = json.loads(text)
        _records(line)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreDamagedError(f"line {number} is not a user as `slatewise store export` writes it") from error
    return dict(line)


def _load(line: Line, transaction: Transaction) -> None:
    slates, feedback, events = _records(line)
    user = line["user"]
    transaction.lock(user)
    for slate, choice in slates:
        transaction.add_slate(slate, choice)
    for answer in feedback:
        transaction.add_feedback(answer)
    for event in events:
        transaction.add_event(event)
    for policy, counts in line["counts"].items():
        transaction.count(user, policy, PolicyCounts(**counts))
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
