"""Rows as SQL stores keep them: plain values, each row with a checksum over all of them."""

import json
from hashlib import blake2b
from math import isfinite
from typing import Any

from slatewise.store.protocol import AnswerRow, BeliefRow, ItemId, SlateRow, StoreDamagedError, StoreError, UserRow

Values = tuple[Any, ...]

_to_json = json.JSONEncoder(separators=(",", ":")).encode

WAY_OUT = "restore the store from a backup; `slatewise store verify` says what else is damaged"


def checksum(table: str, values: Values, blob: bytes = b"") -> int:
    """Return 64 bits of BLAKE2b over the values of a row and a blob that belongs to it.

    Values are spelt as Python literals in ASCII: floats to the last bit, 1 and "1" apart, the same in every version.
    """
    content = ascii((*values, len(blob))).encode() + blob
    return int.from_bytes(blake2b(content, digest_size=8, person=table.encode()).digest(), signed=True)


def slate_values(row: SlateRow) -> Values:
    """Return the columns of a slate in the order of its fields, and the checksum."""
    closed_at = None if row.closed_at is None else _real(row.closed_at)
    shown = (row.catalog, row.policy, _to_json(row.items), _real(row.variety))
    values = (row.slate_id, row.user, row.number, _real(row.created_at), *shown, row.status, closed_at)
    return (*values, checksum("slates", values))


def slate_row(values: Values) -> SlateRow:
    """Return the slate of such columns, or fail if they do not match their checksum."""
    if not _is_whole("slates", values):
        raise StoreDamagedError(f"slate {values[0]!r} does not match its checksum; {WAY_OUT}")
    slate_id, user, number, created_at, catalog, policy, items, variety, status, closed_at, _ = values
    return SlateRow(slate_id, user, number, created_at, catalog, policy, _ids(items), variety, status, closed_at)


def answer_values(row: AnswerRow) -> Values:
    """Return the columns of a feedback event in the order of its fields, and the checksum."""
    lists = (_to_json(row.clicked), _to_json(row.retracted))
    values = (row.event_id, row.slate_id, row.user, *lists, int(row.final), _real(row.received_at))
    return (*values, checksum("answers", values))


def answer_row(values: Values) -> AnswerRow:
    """Return the feedback event of such columns, or fail if they do not match their checksum."""
    if not _is_whole("answers", values):
        raise StoreDamagedError(f"answer {values[0]!r} on slate {values[1]!r} does not match its checksum; {WAY_OUT}")
    event_id, slate_id, user, clicked, retracted, final, received_at, _ = values
    return AnswerRow(event_id, slate_id, user, _ids(clicked), _ids(retracted), bool(final), received_at)


def user_values(row: UserRow, n_logged: tuple[int, int]) -> Values:
    """Return the columns of a user, with how many slates and answers the log holds of them, and the checksum."""
    values = (row.user, row.stamp, row.n_slates, *n_logged)
    return (*values, checksum("users", values))


def user_row(values: Values) -> tuple[UserRow, tuple[int, int]] | None:
    """Return the user of such columns and how much the log holds of them; None if the checksum does not match."""
    if not _is_whole("users", values):
        return None
    user, stamp, n_slates, logged_slates, logged_answers, _ = values
    return UserRow(user, stamp, n_slates), (logged_slates, logged_answers)


def belief_values(row: BeliefRow) -> Values:
    """Return the columns of a belief, and the checksum."""
    if row.content is None:
        raise StoreError("a belief without content cannot be stored")
    head = (row.user, row.space, row.covers)
    return (*head, row.content, checksum("beliefs", head, row.content))


def belief_row(values: Values) -> BeliefRow | None:
    """Return the belief of such columns; None if the checksum does not match."""
    user, space, covers, content, kept = values
    is_whole = isinstance(content, bytes) and checksum("beliefs", (user, space, covers), content) == kept
    return BeliefRow(user, space, covers, content) if is_whole else None


def _is_whole(table: str, values: Values) -> bool:
    return bool(checksum(table, values[:-1]) == values[-1])


def _real(value: float) -> float:
    """A number as every database gives it back: a float, finite, and without the sign of zero."""
    if not isfinite(value):
        raise StoreError(f"{value} cannot be stored; times and variety must be finite numbers")
    return float(value) + 0.0


def _ids(text: str) -> tuple[ItemId, ...]:
    return tuple(json.loads(text))
