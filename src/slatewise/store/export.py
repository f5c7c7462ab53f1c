"""Everything that a store keeps about a user, ready for JSON."""

from dataclasses import asdict
from typing import Any

from slatewise.store.protocol import FeedbackRecord, SlateRecord, Store


def export_user(store: Store, user: str) -> dict[str, Any] | None:
    """Return the slates of a user and the feedback on them; None if there is nothing."""
    slates, events = store.read(lambda transaction: (transaction.slates_of(user), transaction.feedback_of(user)))
    if not slates and not events:
        return None
    return {"user": user, "slates": [*map(_plain, slates)], "answers": [*map(_plain, events)]}


def _plain(record: SlateRecord | FeedbackRecord) -> dict[str, Any]:
    return {name: value for name, value in asdict(record).items() if name != "user"}
