"""Everything that a store keeps about a user, ready for JSON, whole or page by page."""

import json
from collections.abc import Callable
from typing import Any

from slatewise.store.protocol import START, Store, Transaction
from slatewise.store.records import EventRecord, FeedbackRecord, SlateRecord

Rows = list[dict[str, Any]]
Section = Callable[[Transaction, str, Any, int | None], tuple[Rows, Any]]
"""Returns rows after a position, at most so many, and the position of the last."""


class WrongPageError(ValueError):
    """What was given as the end of the last page is none."""


def export_user(store: Store, user: str, after: str | None = None, limit: int | None = None) -> dict[str, Any] | None:
    """Return the slates of a user, the feedback on them and the events from elsewhere; None if there is nothing.

    With a limit, `next` is what to pass as `after` for the next page, None on the last one. A wrong `after` is a
    WrongPageError.
    """
    start, position = ("slates", None) if after is None else _position(after)
    content = store.read(lambda transaction: export_page(transaction, user, (start, position), limit))
    is_empty = after is None and not any(content[name] for name in SECTIONS)
    return None if is_empty else content


def export_page(
    transaction: Transaction, user: str, after: tuple[str, Any] = ("slates", None), limit: int | None = None
) -> dict[str, Any]:
    """Return a page of what is kept about a user; everything if there is no limit."""
    page: dict[str, Any] = {"user": user, **{name: [] for name in SECTIONS}, "next": None}
    start, position = after
    names = list(SECTIONS)
    for name in names[names.index(start) :]:
        page[name], last = SECTIONS[name](transaction, user, position, limit)
        if limit is not None and len(page[name]) == limit:
            page["next"] = json.dumps([name, last])
            return page
        limit, position = None if limit is None else limit - len(page[name]), None
    return page


def _slates(transaction: Transaction, user: str, after: Any, limit: int | None) -> tuple[Rows, Any]:
    first = 0 if after is None else after + 1
    slates = transaction.slates_of(user, first, limit)
    choices = transaction.choices_of(user, first, limit)
    rows = [{**_plain(slate), "choice": choices.get(slate.number)} for slate in slates]
    return rows, slates[-1].number if slates else after


def _feedback(transaction: Transaction, user: str, after: Any, limit: int | None) -> tuple[Rows, Any]:
    return _by_arrival(transaction.feedback_of(user, START if after is None else tuple(after), limit))


def _events(transaction: Transaction, user: str, after: Any, limit: int | None) -> tuple[Rows, Any]:
    return _by_arrival(transaction.events_of(user, START if after is None else tuple(after), limit))


def _by_arrival(records: list[FeedbackRecord] | list[EventRecord]) -> tuple[Rows, Any]:
    return [_plain(row) for row in records], [records[-1].received_at, records[-1].event_id] if records else None


SECTIONS: dict[str, Section] = {"slates": _slates, "feedback": _feedback, "events": _events}


def _position(after: str) -> tuple[str, Any]:
    """Read the end of the last page."""
    try:
        section, position = json.loads(after)
        is_known = isinstance(position, int) if section == "slates" else [*map(type, position)] == [float, str]
    except (ValueError, TypeError):
        is_known = False
    if not is_known or section not in SECTIONS:
        raise WrongPageError("`after` is not the `next` of an earlier page")
    return section, position


def _plain(record: SlateRecord | FeedbackRecord | EventRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name != "user"}
