"""Events from anywhere in one transaction: something a user did with an item that is not feedback on a slate.

Like feedback, an event only extends the log. It belongs to the time at which it happened, however late it arrives. An
event that takes another one back discards the saved belief, which is then learned again from the log.
"""

import hashlib
import json
import math
import secrets
from dataclasses import dataclass, replace

from slatewise.recommender.event_kinds import CATEGORY, EVENT, ITEM, RETRACT
from slatewise.recommender.loading import with_numbers
from slatewise.recommender.recommend import Serving, check_id, new_version, plain_id
from slatewise.recommender.types import ConflictError, EventReceipt, RequestError, UnknownEventError
from slatewise.store.protocol import Transaction
from slatewise.store.records import EventRecord, ItemId, UserRecord

MAX_AHEAD = 86_400.0
"""Seconds for which the clock of a client may be ahead of that of the service."""


@dataclass(frozen=True)
class Event:
    """What a user did with an item; it is checked when it is created, and against the table of kinds when recorded.

    kind: one of `EVENT_KINDS`; item: for `more` and `less` the name of a category, for `retract` the id of an event;
    value: for kinds that have one; at: when it happened, in seconds since 1970, now if it is not given, and at most a
    day ahead of the clock, which then counts. The same `event_id` with the same content counts once; without one, an id
    is made from the content.

    Examples
    --------
    >>> Event("ann", "tea", "rating", -0.5).kind
    'rating'
    >>> wish = Event("ann", "Sci-Fi", "more", event_id="wish-1")
    >>> undo = Event("ann", "wish-1", "retract")
    """

    user: str
    item: ItemId
    kind: str
    value: float | None = None
    at: float | None = None
    event_id: str | None = None

    def __post_init__(self) -> None:
        check_id("user", self.user)
        if self.event_id is not None:
            check_id("event_id", self.event_id)
        object.__setattr__(self, "item", plain_id(self.item))
        if isinstance(self.item, str):
            check_id("item", self.item)
        if self.at is not None and not (math.isfinite(self.at) and self.at >= 0.0):
            raise RequestError("at must be a time in seconds since 1970")

    def content_id(self) -> str:
        """Return an id for what the event says."""
        content = json.dumps([self.item, self.kind, self.value, self.at])
        return "content-" + hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def record_event(serving: Serving, transaction: Transaction, event: Event) -> EventReceipt:
    """Record an event, once however often it is sent; an item that the catalog does not have is kept all the same."""
    check_kind(serving, event)
    _check_time(event, serving.clock())
    user = transaction.lock(event.user)
    now, event_id = serving.next_time(user), event.event_id or event.content_id()
    record = EventRecord(event_id, event.user, event.item, event.kind, event.value, now, now, user.n_slates)
    if event.at is not None and event.at < now:
        position = transaction.position_at(event.user, event.at) if user.n_slates else 0
        record = replace(record, at=event.at, position=position)
    earlier = transaction.event(event.user, event_id)
    if earlier is not None:
        if _is_same(event, record, earlier) and (event.event_id is not None or _is_latest(transaction, earlier)):
            return EventReceipt(event.user, earlier.event_id, duplicate=True, known=_is_known(serving, event))
        if event.event_id is not None:
            raise ConflictError("this event_id was used before with different content; resend an event unchanged")
        record = replace(record, event_id=f"{event_id}-{secrets.token_hex(4)}")
    if record.kind == RETRACT:
        _check_retracted(transaction, record)
        transaction.discard_belief(event.user)
    transaction.add_event(record)
    version = new_version()
    transaction.save_user(replace(user, version=version, updated_at=now))
    _update_cache(serving, user, version, record)
    return EventReceipt(event.user, record.event_id, duplicate=False, known=_is_known(serving, event))


def check_kind(serving: Serving, event: Event) -> None:
    """Refuse an event whose kind is unknown, or whose value does not suit its kind."""
    kinds = serving.served.rules.kinds
    if event.kind not in kinds:
        raise RequestError(f"there is no such kind of event; choose one of {', '.join(kinds)}")
    kind = kinds[event.kind]
    if kind.about != ITEM and not isinstance(event.item, str):
        raise RequestError(f"an event of the kind {event.kind} names a {kind.about} as text")
    if not kind.accepts(event.value):
        wanted = "no value" if kind.lowest is None else f"a value from {kind.lowest:g} to {kind.highest:g}"
        raise RequestError(f"an event of the kind {event.kind} has {wanted}")


def _check_time(event: Event, now: float) -> None:
    """Refuse an event from the future; a clock may be ahead of this one by a day."""
    if event.at is not None and event.at > now + MAX_AHEAD:
        raise RequestError("at is more than a day ahead of the clock here; give seconds since 1970, not milliseconds")


def _check_retracted(transaction: Transaction, record: EventRecord) -> None:
    """Refuse to take back what was never sent, and what itself takes something back."""
    earlier = transaction.event(record.user, str(record.item))
    if earlier is None:
        raise UnknownEventError("there is no such event of this user to retract")
    if earlier.kind == RETRACT:
        raise RequestError("a retraction cannot be retracted; send the event again")


def _is_same(event: Event, record: EventRecord, earlier: EventRecord) -> bool:
    """Return whether an event says the same as one before; the time counts only if it was sent."""
    is_same_time = event.at is None or earlier.at == min(event.at, earlier.received_at)
    return earlier.has_same_content(record) and is_same_time


def _is_latest(transaction: Transaction, earlier: EventRecord) -> bool:
    """Return whether nothing else was said about the item since; like, dislike, like are three events.

    So are like, a retraction of it, like.
    """
    events = transaction.events_of(earlier.user, (earlier.received_at, earlier.event_id))
    if any(event.kind == RETRACT and event.item == earlier.event_id for event in events):
        return False
    later = [event for event in events if event.item == earlier.item]
    return not later or later[-1].has_same_content(earlier)


def _is_known(serving: Serving, event: Event) -> bool:
    """Return whether the catalog has the item or the category; an event that is taken back is always known."""
    about = serving.served.rules.kinds[event.kind].about
    if about == CATEGORY:
        return event.item in serving.served.catalog.trained.category_names
    return about == EVENT or bool(serving.served.numbers([event.item])[0] >= 0)


def _update_cache(serving: Serving, user: UserRecord, version: str, event: EventRecord) -> None:
    """Bring a cached profile up to date; one that has learned later slates, or what is taken back, is loaded again."""
    profile, is_undone = serving.profiles.get(user.user), event.kind == RETRACT
    if profile is None or profile.version != user.version or event.position < profile.covers or is_undone:
        serving.profiles.drop(user.user)
    else:
        events = (*profile.events, *with_numbers(serving.served, [event]))
        serving.profiles.put(user.user, replace(profile, version=version, events=events))
