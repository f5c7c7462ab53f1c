"""Rows of SQL stores: plain values, with a checksum over all columns of the row.

The columns that a table had in version 1 of the schema always count; later ones are at the end of the row and count up
to the last that is not null, so that rows written before there were any keep their checksums. The row of a user also
counts the rows of its log, so that a lost one is noticed; `SqlUsers` keeps these counts during a transaction.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from math import isfinite
from typing import Any

from slatewise.store import statements
from slatewise.store.protocol import StoreDamagedError, StoreError
from slatewise.store.records import (
    BeliefRecord,
    Choice,
    EventRecord,
    FeedbackRecord,
    FitRecord,
    ItemId,
    SlateRecord,
    UserRecord,
)

Values = tuple[Any, ...]
Execute = Callable[[str, Values], list[Values]]
SelectUser = Callable[[Execute, str], list[Values]]
Logged = tuple[int, int, int]
"""The numbers of slates, feedback events and events from elsewhere in the log of a user."""

to_json = json.JSONEncoder(separators=(",", ":")).encode
"""Writes a value as JSON without spaces."""

RESTORE = "restore the store from a backup; `slatewise store verify` says what else is damaged"
FEEDBACK = "answers"
"""What feedback was called in version 1; part of its checksums."""
FIRST_COLUMNS = {"users": 5, "slates": 10, FEEDBACK: 7}
"""How many columns a row had in version 1 of the schema."""
CHECKSUM_DIGITS = 16
UNKNOWN = -1.0
"""What is written for a variety that is not known: the column takes no null."""


def checksum(table: str, values: Values, blob: bytes = b"") -> int:
    """Return 64 bits of BLAKE2b over the values of a row and a blob that belongs to it.

    Values are written as Python literals in ASCII: exact floats, 1 distinct from "1", the same in every version.
    """
    n_values = len(values)
    while n_values > FIRST_COLUMNS.get(table, n_values) and values[n_values - 1] is None:
        n_values -= 1
    digest = _begun(table).copy()
    digest.update(ascii((*values[:n_values], len(blob))).encode() + blob)
    return int.from_bytes(digest.digest(), signed=True)


@cache
def _begun(table: str) -> blake2b:
    """Return the hash of nothing in a table; copying it is faster than making another."""
    return blake2b(digest_size=8, person=table.encode())


def slate_values(row: SlateRecord) -> Values:
    """Return the columns of a slate in the order of its fields, and the checksum."""
    closed_at = None if row.closed_at is None else finite(row.closed_at)
    variety = UNKNOWN if row.variety is None else finite(row.variety)
    shown = (row.catalog, row.policy, to_json(row.items), variety)
    head = (row.slate_id, row.user, row.number, finite(row.created_at), *shown)
    values = (*head, row.status, closed_at, row.request_id)
    return (*values, checksum("slates", values))


def slate_record(values: Values) -> SlateRecord:
    """Return the slate in these columns; fail if they do not match their checksum."""
    if not is_intact("slates", values):
        raise StoreDamagedError(f"slate {values[0]!r} does not match its checksum; {RESTORE}")
    slate_id, user, number, created_at, catalog, policy, items, variety, status, closed_at, request_id, _ = values
    shown = (catalog, policy, _ids(items), None if variety == UNKNOWN else variety)
    return SlateRecord(slate_id, user, number, created_at, *shown, status, closed_at, request_id)


def choice_text(choice: Choice | None, user: str, number: int) -> str | None:
    """Return how a slate was chosen as JSON after a checksum of its own; it is read apart from the slate."""
    if choice is None:
        return None
    content = to_json(choice)
    return _digits(checksum("choices", (user, number, content))) + content


def choice_of(text: str, user: str, number: int) -> Choice:
    """Return the choice in such a text; fail if it does not match its checksum."""
    content = text[CHECKSUM_DIGITS:]
    if text[:CHECKSUM_DIGITS] != _digits(checksum("choices", (user, number, content))):
        raise StoreDamagedError(f"the choice of slate {number} of a user does not match its checksum; {RESTORE}")
    choice: Choice = json.loads(content)
    return choice


def feedback_values(row: FeedbackRecord) -> Values:
    """Return the columns of a feedback event in the order of its fields, and the checksum."""
    lists = (to_json(row.clicked), to_json(row.retracted))
    head = (row.event_id, row.slate_id, row.user, *lists, int(row.final), finite(row.received_at))
    seen = None if row.seen is None else to_json(row.seen)
    values = (
        *head,
        seen,
        to_json(row.values) if row.values else None,
        to_json(row.disliked) if row.disliked else None,
    )
    return (*values, checksum(FEEDBACK, values))


def feedback_record(values: Values) -> FeedbackRecord:
    """Return the feedback event in these columns; fail if they do not match their checksum."""
    if not is_intact(FEEDBACK, values):
        raise StoreDamagedError(f"feedback {values[0]!r} on slate {values[1]!r} does not match its checksum; {RESTORE}")
    event_id, slate_id, user, clicked, retracted, final, received_at, seen, graded, disliked, _ = values
    content = (_ids(clicked), _ids(retracted), bool(final), received_at, None if seen is None else _ids(seen))
    pairs = tuple((item, value) for item, value in json.loads(graded)) if graded else ()
    return FeedbackRecord(event_id, slate_id, user, *content, pairs, _ids(disliked) if disliked else ())


def event_values(row: EventRecord) -> Values:
    """Return the columns of an event from elsewhere in the order of its fields, and the checksum."""
    value = None if row.value is None else finite(row.value)
    head = (row.event_id, row.user, to_json(row.item), row.kind, value)
    values = (*head, finite(row.at), finite(row.received_at), row.position)
    return (*values, checksum("events", values))


def event_record(values: Values) -> EventRecord:
    """Return the event from elsewhere in these columns; fail if they do not match their checksum."""
    if not is_intact("events", values):
        raise StoreDamagedError(f"event {values[0]!r} does not match its checksum; {RESTORE}")
    event_id, user, item, kind, value, at, received_at, position, _ = values
    return EventRecord(event_id, user, json.loads(item), kind, value, at, received_at, position)


def user_values(row: UserRecord, logged: Logged) -> Values:
    """Return the columns of a user, with the numbers of rows in the log, and the checksum."""
    n_slates, n_feedback, n_events = logged
    later = (finite(row.updated_at) or None, n_events or None)
    values = (row.user, row.version, row.n_slates, n_slates, n_feedback, *later)
    return (*values, checksum("users", values))


def user_record(values: Values) -> tuple[UserRecord, Logged] | None:
    """Return the user in these columns and the numbers of log rows; None if the checksum does not match."""
    if not is_intact("users", values):
        return None
    user, version, n_slates, logged_slates, logged_feedback, updated_at, logged_events, _ = values
    return UserRecord(user, version, n_slates, updated_at or 0.0), (logged_slates, logged_feedback, logged_events or 0)


def belief_values(row: BeliefRecord) -> Values:
    """Return the columns of a belief, and the checksum."""
    if row.content is None:
        raise StoreError("a belief without content cannot be stored")
    head = (row.user, row.key, row.covers)
    return (*head, row.content, checksum("beliefs", head, row.content))


def belief_record(values: Values) -> BeliefRecord | None:
    """Return the belief in these columns; None if the checksum does not match."""
    user, key, covers, content, kept = values
    is_intact = isinstance(content, bytes) and checksum("beliefs", (user, key, covers), content) == kept
    return BeliefRecord(user, key, covers, content) if is_intact else None


def fit_values(row: FitRecord) -> Values:
    """Return the columns of a fit, and the checksum."""
    values = (row.name, finite(row.fitted_at), to_json(row.content))
    return (*values, checksum("fits", values))


def fit_record(values: Values) -> FitRecord | None:
    """Return the fit in these columns; None if the checksum does not match."""
    name, fitted_at, content, _ = values
    return FitRecord(name, fitted_at, json.loads(content)) if is_intact("fits", values) else None


@dataclass
class LoadedUser:
    """A user as a transaction sees it, with the number of its rows in the log, so that a lost one is noticed."""

    record: UserRecord
    n_slates: int = 0
    n_feedback: int = 0
    n_events: int = 0
    is_changed: bool = False


class SqlUsers:
    """Users by id; `select_user` returns the row of a user and makes other writers of that user wait."""

    def __init__(self, execute: Execute, select_user: SelectUser | None) -> None:
        self._execute = execute
        self._select_user = select_user or _select_user
        self._locked: set[str] = set()
        self._users: dict[str, LoadedUser] = {}

    def load(self, user: str) -> LoadedUser:
        """Return a user."""
        if user not in self._users:
            self._users[user] = self._read(user, _select_user)
        return self._users[user]

    def lock(self, user: str) -> LoadedUser:
        """Return a user; make other writers of the user wait."""
        if user not in self._locked:
            self._users[user] = self._read(user, self._select_user)
            self._locked.add(user)
        return self._users[user]

    def forget(self, user: str) -> None:
        """Note that everything about a user was deleted."""
        self._users[user] = LoadedUser(UserRecord(user))

    def changes(self) -> Iterator[tuple[str, Values]]:
        """Yield the statements that write the users that changed and leave no row of one who is still unknown."""
        for user, loaded in self._users.items():
            if loaded.is_changed and not loaded.record.damaged:
                logged = (loaded.n_slates, loaded.n_feedback, loaded.n_events)
                yield statements.SAVE_USER, user_values(loaded.record, logged)
            elif user in self._locked and loaded.record == UserRecord(user):
                yield statements.RELEASE_USER, (user,)

    def _read(self, user: str, select: SelectUser) -> LoadedUser:
        """Read a user's row; if there is none, or it is damaged, count its rows in the log."""
        try:
            rows = select(self._execute, user)
            intact = user_record(rows[0]) if rows else None
        except UnicodeDecodeError:
            rows, intact = [()], None
        if intact is not None and intact[0].user == user and (intact[0].version or any(intact[1])):
            return LoadedUser(intact[0], *intact[1])
        logged = self._execute(statements.N_LOGGED, (user, user, user))[0]
        is_damaged = any(logged) or (bool(rows) and intact is None)
        return LoadedUser(UserRecord(user, n_slates=logged[0], damaged=is_damaged), *logged)


def _select_user(execute: Execute, user: str) -> list[Values]:
    return execute(statements.FIND_USER, (user,))


def is_intact(table: str, values: Values) -> bool:
    """Return whether the columns of a row match the checksum at their end."""
    return bool(checksum(table, values[:-1]) == values[-1])


def _digits(number: int) -> str:
    return f"{number % 2**64:0{CHECKSUM_DIGITS}x}"


def finite(value: float) -> float:
    """Return a number as every database gives it back: a finite float without the sign of zero."""
    if not isfinite(value):
        raise StoreError(f"{value} cannot be stored; times, values and variety must be finite numbers")
    return float(value) + 0.0


def _ids(text: str) -> tuple[ItemId, ...]:
    return tuple(json.loads(text)) if text != "[]" else ()
