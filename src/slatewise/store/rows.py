"""Rows of SQL stores: plain values, with a checksum over all columns of the row."""

import json
from hashlib import blake2b
from math import isfinite
from typing import Any

from slatewise.store.protocol import (
    BeliefRecord,
    FeedbackRecord,
    ItemId,
    SlateRecord,
    StoreDamagedError,
    StoreError,
    UserRecord,
)

Values = tuple[Any, ...]

_to_json = json.JSONEncoder(separators=(",", ":")).encode

RESTORE = "restore the store from a backup; `slatewise store verify` says what else is damaged"


def checksum(table: str, values: Values, blob: bytes = b"") -> int:
    """Return 64 bits of BLAKE2b over the values of a row and a blob that belongs to it.

    Values are written as Python literals in ASCII: exact floats, 1 distinct from "1", the same in every version.
    """
    content = ascii((*values, len(blob))).encode() + blob
    return int.from_bytes(blake2b(content, digest_size=8, person=table.encode()).digest(), signed=True)


def slate_values(row: SlateRecord) -> Values:
    """Return the columns of a slate in the order of its fields, and the checksum."""
    closed_at = None if row.closed_at is None else _real(row.closed_at)
    shown = (row.catalog, row.policy, _to_json(row.items), _real(row.variety))
    values = (row.slate_id, row.user, row.number, _real(row.created_at), *shown, row.status, closed_at)
    return (*values, checksum("slates", values))


def slate_record(values: Values) -> SlateRecord:
    """Return the slate in these columns; fail if they do not match their checksum."""
    if not _is_intact("slates", values):
        raise StoreDamagedError(f"slate {values[0]!r} does not match its checksum; {RESTORE}")
    slate_id, user, number, created_at, catalog, policy, items, variety, status, closed_at, _ = values
    return SlateRecord(slate_id, user, number, created_at, catalog, policy, _ids(items), variety, status, closed_at)


def feedback_values(row: FeedbackRecord) -> Values:
    """Return the columns of a feedback event in the order of its fields, and the checksum."""
    lists = (_to_json(row.clicked), _to_json(row.retracted))
    values = (row.event_id, row.slate_id, row.user, *lists, int(row.final), _real(row.received_at))
    return (*values, checksum("answers", values))


def feedback_record(values: Values) -> FeedbackRecord:
    """Return the feedback event in these columns; fail if they do not match their checksum."""
    if not _is_intact("answers", values):
        raise StoreDamagedError(f"feedback {values[0]!r} on slate {values[1]!r} does not match its checksum; {RESTORE}")
    event_id, slate_id, user, clicked, retracted, final, received_at, _ = values
    return FeedbackRecord(event_id, slate_id, user, _ids(clicked), _ids(retracted), bool(final), received_at)


def user_values(row: UserRecord, n_logged: tuple[int, int]) -> Values:
    """Return the columns of a user, the numbers of slates and feedback events in the log, and the checksum."""
    values = (row.user, row.version, row.n_slates, *n_logged)
    return (*values, checksum("users", values))


def user_record(values: Values) -> tuple[UserRecord, tuple[int, int]] | None:
    """Return the user in these columns and the numbers of log rows; None if the checksum does not match."""
    if not _is_intact("users", values):
        return None
    user, version, n_slates, logged_slates, logged_feedback, _ = values
    return UserRecord(user, version, n_slates), (logged_slates, logged_feedback)


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


def _is_intact(table: str, values: Values) -> bool:
    return bool(checksum(table, values[:-1]) == values[-1])


def _real(value: float) -> float:
    """Return a number as every database gives it back: a finite float without the sign of zero."""
    if not isfinite(value):
        raise StoreError(f"{value} cannot be stored; times and variety must be finite numbers")
    return float(value) + 0.0


def _ids(text: str) -> tuple[ItemId, ...]:
    return tuple(json.loads(text))
