"""The profile of a user from the store: a saved belief and the log since then, or the whole log."""

import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import numpy as np

from slatewise.randomness import user_keys
from slatewise.recommender.event_kinds import ITEM, standing
from slatewise.recommender.learning import (
    Learned,
    LoggedEvent,
    LoggedSlate,
    Tally,
    learn_again,
    learn_late_event,
)
from slatewise.recommender.profile import MAX_CORRECTIONS, SavedBelief, UserProfile, learn_closed
from slatewise.recommender.served_catalog import Integers, ServedCatalog, ServedPolicy
from slatewise.store.protocol import START, Arrival, Transaction
from slatewise.store.records import WITHDRAWN, EventRecord, FeedbackRecord, ItemId, SlateRecord, UserRecord

LONG_LOG = 256
"""Slates from which on learning a log takes long enough for others to notice."""
SHORT_TURN = 0.0005
"""Seconds after which a thread lets others run while a long log is learned; usually they wait ten times as long."""


@dataclass(frozen=True)
class LogTail:
    """The slates of a user from a number on, and the feedback and events from a time of arrival on."""

    slates: Sequence[SlateRecord]
    feedback: Sequence[FeedbackRecord]
    events: Sequence[EventRecord]

    @classmethod
    def read(cls, transaction: Transaction, user: str, first: int = 0, since: Arrival = START) -> "LogTail":
        """Read the end of a log, or all of it."""
        slates = transaction.slates_of(user, first)
        return cls(slates, transaction.feedback_of(user, since), transaction.events_of(user, since))

    def logged_slates(self, served: ServedCatalog) -> tuple[LoggedSlate, ...]:
        """Return the slates that were shown, with what was said about them."""
        return self.numbered_slates(served.numbers)

    def numbered_slates(self, numbers: Callable[[Sequence[ItemId]], Integers]) -> tuple[LoggedSlate, ...]:
        """Return the slates that were shown, with items numbered by a function, and what was said about them."""
        by_slate = defaultdict[str, list[FeedbackRecord]](list)
        for event in self.feedback:
            by_slate[event.slate_id].append(event)
        shown = [slate for slate in self.slates if slate.status != WITHDRAWN]
        every = numbers([item for slate in shown for item in slate.items])
        ends = np.cumsum([len(slate.items) for slate in shown])
        tallies = [Tally.of(by_slate[slate.slate_id]) for slate in shown]
        return tuple(map(LoggedSlate, shown, np.split(every, ends[:-1]), tallies)) if shown else ()

    def logged_events(self, served: ServedCatalog, first: int = 0) -> tuple[LoggedEvent, ...]:
        """Return the events from a position on that were not taken back."""
        return with_numbers(served, [event for event in standing(self.events) if event.position >= first])


class ShortTurns:
    """Makes the threads of this process take shorter turns while any of them asks for it."""

    def __init__(self) -> None:
        self._n_asking = 0
        self._usual = sys.getswitchinterval()
        self._lock = threading.Lock()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Take short turns until the end of the block."""
        self._ask(1)
        try:
            yield
        finally:
            self._ask(-1)

    def _ask(self, more: int) -> None:
        with self._lock:
            self._usual = self._usual if self._n_asking else sys.getswitchinterval()
            self._n_asking += more
            sys.setswitchinterval(min(SHORT_TURN, self._usual) if self._n_asking else self._usual)


SHORT_TURNS = ShortTurns()


def load_profile(
    transaction: Transaction, user: UserRecord, served: ServedCatalog, policy: ServedPolicy, *, use_saved: bool = True
) -> UserProfile:
    """Read a user's profile; a saved belief is used if it belongs to this policy, unless use_saved is False.

    Without one, a long log is learned in short turns, so that nobody else waits for it.
    """
    saved = SavedBelief.of(transaction.belief(user.user), policy) if use_saved else None
    if saved is not None:
        tail = LogTail.read(transaction, user.user, saved.learned.covers, (saved.since, ""))
        learned = _corrected(transaction, served, policy, saved, tail)
        if learned is not None:
            profile = profile_of(user, served, policy, learned, tail)
            return replace(profile, saved=saved.learned.covers, is_corrected=learned is not saved.learned)
    with SHORT_TURNS.taken() if user.n_slates >= LONG_LOG else nullcontext():
        return profile_of(user, served, policy, Learned.nothing(served, policy), LogTail.read(transaction, user.user))


def profile_of(
    user: UserRecord, served: ServedCatalog, policy: ServedPolicy, learned: Learned, tail: LogTail
) -> UserProfile:
    """Return the profile of a user from what was learned and the part of the log that was not."""
    n_slates = tail.slates[-1].number + 1 if tail.slates else learned.covers
    waiting = tail.logged_events(served, learned.covers)
    key, pending = user_keys([user.user]), tail.logged_slates(served)
    return learn_closed(UserProfile(user.version, key, policy, n_slates, learned, pending, waiting))


def with_numbers(served: ServedCatalog, events: Sequence[EventRecord]) -> tuple[LoggedEvent, ...]:
    """Return events with the numbers of their items; one that is about something else has none."""
    numbers = served.numbers([event.item for event in events]).tolist()
    return tuple(
        LoggedEvent(event, number if served.rules.about(event.kind) == ITEM else -1)
        for event, number in zip(events, numbers, strict=True)
    )


def _corrected(
    transaction: Transaction, served: ServedCatalog, policy: ServedPolicy, saved: SavedBelief, tail: LogTail
) -> Learned | None:
    """Return what was learned with late feedback and events worked in; None if all has to be learned again."""
    learned, known = saved.learned, {slate.slate_id for slate in tail.slates}
    arrived = [event for event in standing(tail.events) if event.received_at > saved.saved_at]
    late = [event for event in arrived if event.position < learned.covers]
    slate_ids = {event.slate_id for event in tail.feedback if event.received_at > saved.saved_at} - known
    if len(slate_ids) > MAX_CORRECTIONS or (late and not policy.policy.additive):
        return None
    for event in with_numbers(served, late):
        learned = learn_late_event(learned, policy, event)
    for slate_id in sorted(slate_ids):
        slate = transaction.slate(slate_id)
        again = None if slate is None else _with_late_feedback(transaction, served, policy, (learned, saved), slate)
        if again is None:
            return None
        learned = again
    return learned


def _with_late_feedback(
    transaction: Transaction,
    served: ServedCatalog,
    policy: ServedPolicy,
    known: tuple[Learned, SavedBelief],
    slate: SlateRecord,
) -> Learned | None:
    """Work in the feedback on a learned slate; None if it had been withdrawn, so that its place is in the middle."""
    learned, saved = known
    if slate.status == WITHDRAWN:
        return learned
    if slate.closed_at is None or slate.closed_at > saved.saved_at:
        return None
    events = transaction.feedback_on(slate)
    numbers, now = served.numbers(slate.items), Tally.of(events)
    then = Tally.of(event for event in events if event.received_at <= saved.saved_at)
    return learn_again(learned, policy, LoggedSlate(slate, numbers, then), LoggedSlate(slate, numbers, now))
