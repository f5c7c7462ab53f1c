"""One feedback event in one transaction: find the slate, recognize repeats, record, count.

Nothing is learned here. The log is extended, and a cached profile is brought up to date or dropped; the belief follows
when the user's next slate is chosen.
"""

import hashlib
import json
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from slatewise.recommender.learning import LoggedSlate, SlateChange, Tally
from slatewise.recommender.profile import MAX_CORRECTIONS, UserProfile
from slatewise.recommender.recommend import MAX_ITEMS, Serving, check_id, listed, new_version, plain_id
from slatewise.recommender.types import ConflictError, Receipt, RequestError, UnknownSlateError
from slatewise.store.protocol import Transaction
from slatewise.store.records import (
    CLOSED,
    OPEN,
    WITHDRAWN,
    FeedbackRecord,
    ItemId,
    PolicyCounts,
    SlateRecord,
    UserRecord,
)

Values = Mapping[ItemId, float] | Iterable[tuple[ItemId, float]]


@dataclass(frozen=True)
class FeedbackEvent:
    """What a client says about a slate; see `Recommender.feedback` for the fields. It is checked when it is created."""

    slate_id: str
    clicked: Iterable[ItemId] = ()
    retracted: Iterable[ItemId] = ()
    seen: Iterable[ItemId] | int | None = None
    values: Values = ()
    disliked: Iterable[ItemId] = ()
    event_id: str | None = None
    final: bool = True
    user: str | None = None

    def __post_init__(self) -> None:
        check_id("slate_id", self.slate_id)
        if self.event_id is not None:
            check_id("event_id", self.event_id)
        lists = {name: _ids(name, getattr(self, name)) for name in ("clicked", "retracted", "disliked")}
        values = _graded(self.values)
        seen = self.seen if self.seen is None or isinstance(self.seen, int) else _ids("seen", self.seen)
        for name, value in {**lists, "values": values, "seen": seen}.items():
            object.__setattr__(self, name, value)
        if not all(0.0 <= value <= 1.0 for _, value in values):
            raise RequestError("a value is not between 0 (refused) and 1 (liked)")
        if isinstance(seen, int) and (isinstance(seen, bool) or not 0 <= seen <= MAX_ITEMS):
            raise RequestError(f"seen must be a list of items, or how many from the top, 0 to {MAX_ITEMS}")
        self._check_contradictions({item for item, _ in values}, **{name: set(ids) for name, ids in lists.items()})

    def _check_contradictions(
        self, graded: set[ItemId], clicked: set[ItemId], retracted: set[ItemId], disliked: set[ItemId]
    ) -> None:
        if clicked & retracted:
            raise RequestError("an item is both clicked and retracted; send one of the two")
        if clicked & disliked or retracted & (graded | disliked) or graded & disliked:
            raise RequestError("an item is named twice with different meanings; send one of them")

    def record(self, slate: SlateRecord, at: float) -> FeedbackRecord:
        """Return the event as the log keeps it; without an id it gets one that is made from its content."""
        seen = slate.items[: self.seen] if isinstance(self.seen, int) else self.seen
        reactions = {name: getattr(self, name) for name in ("clicked", "retracted", "final", "values", "disliked")}
        record = FeedbackRecord(self.event_id or "", slate.slate_id, slate.user, received_at=at, seen=seen, **reactions)  # type: ignore[arg-type]
        return record if self.event_id else replace(record, event_id=content_id(record))


def content_id(record: FeedbackRecord) -> str:
    """Return an id for what an event says, whatever the order of its items."""
    lists = (record.clicked, record.retracted, record.seen, record.values, record.disliked)
    ordered = [None if items is None else sorted(items, key=repr) for items in lists]
    content = json.dumps([record.slate_id, record.final, *ordered])
    return "content-" + hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def record_feedback(
    serving: Serving, transaction: Transaction, event: FeedbackEvent, changes: deque[SlateChange]
) -> Receipt:
    """Record an event, once however often it is sent; `changes` then holds what it changed, if it was new."""
    changes.clear()
    slate, user = _locked_slate(transaction, event)
    is_late = slate.status != OPEN
    record = event.record(slate, serving.next_time(user))
    known = transaction.feedback_on(slate, record.event_id)
    earlier = _same_event(record, known) if event.event_id is None else _event_with_id(record, known)
    if earlier is not None:
        return _duplicate(slate, earlier)
    _check_items(record, slate)
    if any(other.event_id == record.event_id for other in known):
        record = replace(record, event_id=f"{record.event_id}-{len(known)}")
    profile = serving.current_profile(user)
    before = _logged(serving, profile, slate, known)
    tally = before.tally.after(record)
    after = before.with_feedback(_closed(serving, transaction, before, tally, record), tally)
    transaction.add_feedback(record)
    version = new_version()
    transaction.save_user(UserRecord(user.user, version, user.n_slates, record.received_at))
    _update_cache(serving, user.user, profile, version, SlateChange(before, after))
    changes.append(SlateChange(before, after))
    return Receipt(slate.slate_id, record.event_id, duplicate=False, closed=after.record.status != OPEN, late=is_late)


def close_expired_slate(serving: Serving, transaction: Transaction, slate: SlateRecord) -> bool:
    """Close a slate that waited too long for feedback; return False if it is no longer open.

    What is cached about its user is known to be current, so that nothing else has to be read.
    """
    user = transaction.lock(slate.user)
    profile = serving.current_profile(user)
    logged = None if profile is None else profile.pending_slate(slate.slate_id)
    current = transaction.slate(slate.slate_id) if logged is None else logged.record
    if current is None or current.status != OPEN or current.user != user.user:
        return False
    tally = Tally.of(transaction.feedback_on(current)) if logged is None else logged.tally
    now, version = serving.next_time(user), new_version()
    closed = current.with_status(CLOSED, now)
    serving.close(transaction, closed, len(tally.liked(current.items)))
    transaction.save_user(UserRecord(user.user, version, user.n_slates, now))
    if profile is None or logged is None:
        serving.profiles.drop(user.user)
    else:
        serving.profiles.replace(user.user, profile.with_pending(logged.with_feedback(closed, tally), version))
    return True


def _logged(
    serving: Serving, profile: UserProfile | None, slate: SlateRecord, known: Sequence[FeedbackRecord]
) -> LoggedSlate:
    """Return a slate with what was said about it, from the profile if it is pending there."""
    pending = None if profile is None else profile.pending_slate(slate.slate_id)
    if pending is not None:
        return pending
    tally = Tally.of(event for event in known if event.slate_id == slate.slate_id)
    return LoggedSlate(slate, serving.served.numbers(slate.items), tally)


def _locked_slate(transaction: Transaction, event: FeedbackEvent) -> tuple[SlateRecord, UserRecord]:
    """Return the slate of an event and its user, locked; the slate is read again once no other writer can change it.

    The user that an event names only says where the slate will be found. If it was merged into another one, the named
    user is not locked: who holds one user while waiting for another may wait for somebody who waits for the first.
    """
    transaction.expect_feedback(event.slate_id, event.user, event.event_id)
    locked: tuple[str, UserRecord] | None = None
    for _ in range(3):
        slate = transaction.slate(event.slate_id)
        if slate is None:
            raise UnknownSlateError("there is no such slate; feedback names the slate_id that came with the slate")
        if locked is not None and locked[0] == slate.user:
            return slate, locked[1]
        locked = slate.user, transaction.lock(slate.user)
    raise UnknownSlateError("the slate is being merged into another user; send the event again")


def _event_with_id(record: FeedbackRecord, known: Sequence[FeedbackRecord]) -> FeedbackRecord | None:
    """Return the event that has the same id; if it says something else, that is an error."""
    earlier = next((event for event in known if event.event_id == record.event_id), None)
    if earlier is not None and not earlier.has_same_content(record):
        raise ConflictError("this event_id was used before with different content; resend an event unchanged")
    return earlier


def _same_event(record: FeedbackRecord, known: Sequence[FeedbackRecord]) -> FeedbackRecord | None:
    """Return the latest event about any of the same items if it says the same: then this one was sent again.

    An event without reactions is compared with others without any.
    """
    for earlier in reversed(known):
        if earlier.reacted & record.reacted or not (earlier.reacted or record.reacted):
            return earlier if earlier.has_same_content(record) else None
    return None


def _duplicate(slate: SlateRecord, earlier: FeedbackRecord) -> Receipt:
    was_late = slate.closed_at is not None and earlier.received_at > slate.closed_at
    return Receipt(slate.slate_id, earlier.event_id, duplicate=True, closed=slate.status != OPEN, late=was_late)


def _check_items(record: FeedbackRecord, slate: SlateRecord) -> None:
    """Refuse items that were not on the slate; 1 and True, or 1 and "1", are not the same item."""
    items = {(type(item), item) for item in slate.items}
    if any((type(item), item) not in items for item in (*record.reacted, *(record.seen or ()))):
        raise RequestError("an item of the feedback was not on this slate")


def _closed(
    serving: Serving, transaction: Transaction, before: LoggedSlate, after: Tally, record: FeedbackRecord
) -> SlateRecord:
    """Close and count a slate if the event is final; count what late feedback changes.

    A withdrawn slate that somebody reacts to was shown after all, and is closed.
    """
    slate, n_liked = before.record, len(after.liked(before.record.items))
    if slate.status == CLOSED:
        more = n_liked - before.n_liked
        if more:
            serving.count(transaction, slate, PolicyCounts(clicks=more))
        return slate
    was_shown = slate.status == OPEN or any(not math.isnan(after.value(item)) for item in slate.items)
    if was_shown and (record.final or slate.status == WITHDRAWN):
        slate = slate.with_status(CLOSED, record.received_at)
        serving.close(transaction, slate, n_liked)
    return slate


def _update_cache(serving: Serving, user: str, profile: UserProfile | None, version: str, change: SlateChange) -> None:
    """Bring a cached profile up to date, or drop it if it was not current or does not know the slate."""
    before, after = change.before, change.after
    if profile is None:
        serving.profiles.drop(user)
    elif profile.pending_slate(after.record.slate_id) is not None:
        serving.profiles.put(user, profile.with_pending(after, version))
    elif after.record.status == WITHDRAWN or before.tally.says_as_much_as(after.tally, after.record.items):
        serving.profiles.put(user, replace(profile, version=version))
    elif before.record.status == CLOSED and len(profile.late) < MAX_CORRECTIONS:
        serving.profiles.put(user, replace(profile, version=version, late=(*profile.late, change)))
    else:
        serving.profiles.drop(user)


def _ids(name: str, items: Iterable[ItemId]) -> tuple[ItemId, ...]:
    return tuple(dict.fromkeys(map(plain_id, listed(name, items))))


def _graded(values: Values) -> tuple[tuple[ItemId, float], ...]:
    """Return graded items as pairs, the last value of each."""
    try:
        pairs = values.items() if isinstance(values, Mapping) else values
        return tuple({plain_id(item): float(value) for item, value in pairs}.items())
    except (TypeError, ValueError):
        raise RequestError("values must be a number for each item, as a mapping or as pairs") from None
