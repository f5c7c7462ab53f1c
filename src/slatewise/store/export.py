"""Everything that a store keeps about a user, ready for JSON."""

from dataclasses import asdict
from typing import Any

from slatewise.store.protocol import AnswerRow, SlateRow, Store


def exported(store: Store, user: str) -> dict[str, Any] | None:
    """Return the slates of a user and the answers to them; None if there are none."""
    slates, answers = store.read(lambda transaction: (transaction.slates_of(user), transaction.answers_of(user)))
    if not slates and not answers:
        return None
    return {"user": user, "slates": [_plain(row) for row in slates], "answers": [_plain(row) for row in answers]}


def _plain(row: SlateRow | AnswerRow) -> dict[str, Any]:
    return {name: value for name, value in asdict(row).items() if name != "user"}
