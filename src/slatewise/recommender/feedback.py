"""One feedback event in one transaction: find the slate, recognize repeats, record, count.

Nothing is learned here. The log is extended, and a cached profile is brought up to date or dropped; the belief follows
when the user's next slate is chosen.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from slatewise.recommender.profile import clicked_items, tally, tally_by_slate
from slatewise.recommender.recommend import Serving, check_id
from slatewise.recommender.types import ConflictError, Receipt, RequestError, UnknownSlateError
from slatewise.store.protocol import (
    CLOSED,
    OPEN,
    WITHDRAWN,
    FeedbackRecord,
    ItemId,
    PolicyCounts,
    SlateRecord,
    Transaction,
    UserRecord,
)


@dataclass(frozen=True)
class FeedbackEvent:
    """What a client says about a slate."""

    event_id: str
    slate_id: str
    clicked: tuple[ItemId, ...]
    retracted: tuple[ItemId, ...]
    final: bool

    @classmethod
    def of(
        cls,
        slate_id: str,
        clicked: Iterable[ItemId],
        retracted: Iterable[ItemId],
        event_id: str | None,
        final: bool,
    ) -> "FeedbackEvent":
        """Check an event; without an id it gets one made from its content, so that it is recognized when resent."""
        check_id("slate_id", slate_id)
        yes, no = (tuple(dict.fromkeys(map(_plain_id, items))) for items in (clicked, retracted))
        if set(yes) & set(no):
            raise RequestError("an item is both clicked and retracted; send one of the two")
        if event_id is None:
            content = json.dumps([slate_id, sorted(yes, key=repr), sorted(no, key=repr), final])
            event_id = "content-" + hashlib.blake2b(content.encode(), digest_size=16).hexdigest()
        check_id("event_id", event_id)
        return cls(event_id, slate_id, yes, no, final)


def record_feedback(serving: Serving, transaction: Transaction, event: FeedbackEvent) -> Receipt:
    """Record an event, once however often it is sent."""
    slate, user = _locked_slate(transaction, event)
    is_late = slate.status != OPEN
    now = serving.next_time(user)
    record = FeedbackRecord(
        event.event_id, slate.slate_id, slate.user, event.clicked, event.retracted, event.final, now
    )
    known = transaction.feedback_on(slate, event.event_id)
    earlier = next((one for one in known if one.event_id == event.event_id), None)
    if earlier is not None:
        return _duplicate(slate, record, earlier)
    _check_items(event, slate)
    if is_late:
        slate = _record_late(serving, transaction, slate, record, known)
    elif event.final:
        clicks = tally_by_slate([*known, record])[slate.slate_id]
        slate = slate.with_status(CLOSED, now)
        serving.close(transaction, slate, len(clicked_items(clicks)))
    transaction.add_feedback(record)
    version = secrets.token_hex(8)
    transaction.save_user(replace(user, version=version, updated_at=now))
    _update_cache(serving, user, version, slate, record)
    return Receipt(slate.slate_id, event.event_id, duplicate=False, closed=slate.status != OPEN, late=is_late)


def close_expired_slate(serving: Serving, transaction: Transaction, slate: SlateRecord) -> bool:
    """Close a slate that waited too long for feedback; return False if it is no longer open."""
    user, current = transaction.lock(slate.user), transaction.slate(slate.slate_id)
    if current is None or current.status != OPEN:
        return False
    clicks = tally_by_slate(transaction.feedback_on(current)).get(slate.slate_id, {})
    now = serving.next_time(user)
    serving.close(transaction, current.with_status(CLOSED, now), len(clicked_items(clicks)))
    transaction.save_user(replace(user, version=secrets.token_hex(8), updated_at=now))
    serving.profiles.drop(slate.user)
    return True


def _locked_slate(transaction: Transaction, event: FeedbackEvent) -> tuple[SlateRecord, UserRecord]:
    """Return the slate of an event and its user, locked; the slate is read once no other writer can change it."""
    slate = transaction.slate(event.slate_id)
    if slate is not None:
        user = transaction.lock(slate.user)
        slate = transaction.slate(event.slate_id)
    if slate is None:
        raise UnknownSlateError("there is no such slate; feedback names the slate_id that came with the slate")
    return slate, user


def _duplicate(slate: SlateRecord, event: FeedbackRecord, earlier: FeedbackRecord) -> Receipt:
    if not earlier.has_same_content(event):
        raise ConflictError("this event_id was used before with different content; resend an event unchanged")
    was_late = slate.closed_at is not None and earlier.received_at > slate.closed_at
    return Receipt(slate.slate_id, event.event_id, duplicate=True, closed=slate.status != OPEN, late=was_late)


def _check_items(event: FeedbackEvent, slate: SlateRecord) -> None:
    """Refuse items that were not on the slate; 1 and True, or 1 and "1", are not the same item."""
    items = {(type(item), item) for item in slate.items}
    if any((type(item), item) not in items for item in (*event.clicked, *event.retracted)):
        raise RequestError("an item of the feedback was not on this slate")


def _record_late(
    serving: Serving,
    transaction: Transaction,
    slate: SlateRecord,
    record: FeedbackRecord,
    known: list[FeedbackRecord],
) -> SlateRecord:
    """Count late clicks; a withdrawn slate with a click on it was shown after all, and is closed."""
    clicks = tally_by_slate(known).get(slate.slate_id, {})
    before, after = clicked_items(clicks), clicked_items(tally(clicks, record))
    if before == after:
        return slate
    if slate.status == WITHDRAWN:
        slate = slate.with_status(CLOSED, record.received_at)
        serving.close(transaction, slate, len(after))
    else:
        serving.count(transaction, slate, PolicyCounts(clicks=len(after) - len(before)))
    transaction.discard_belief(slate.user, slate.number)
    return slate


def _update_cache(serving: Serving, user: UserRecord, version: str, slate: SlateRecord, record: FeedbackRecord) -> None:
    """Bring a cached profile up to date; if it was not current, or has learned the slate, it is loaded again later."""
    profile = serving.profiles.get(user.user)
    if profile is None or profile.version != user.version or record.retracted:
        serving.profiles.drop(user.user)
    elif profile.pending_slate(slate.slate_id) is not None:
        clicked = profile.with_clicks(record, serving.served.numbers(record.clicked)).with_pending([slate])
        serving.profiles.put(user.user, replace(clicked, version=version))
    elif record.clicked:
        serving.profiles.drop(user.user)
    else:
        serving.profiles.put(user.user, replace(profile, version=version))


def _plain_id(item: object) -> ItemId:
    """Return an item id as slates hold it: integers of numpy as integers, everything else but integers as text."""
    if isinstance(item, np.integer):
        return int(item)
    return item if isinstance(item, int | str) else str(item)
