"""The log of a store as training data: person by person, in short snapshots, also next to a running service.

What counts is what learning counts: slates that were closed and that somebody said something about, with the items that
count as seen, and events from elsewhere of known kinds.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from slatewise.recommender.event_kinds import ITEM, standing
from slatewise.recommender.fitting import reactions_of
from slatewise.recommender.learning import LoggedSlate
from slatewise.recommender.loading import LogTail
from slatewise.recommender.rules import LearningRules
from slatewise.retraining.log import InteractionLog, LogBuilder
from slatewise.retraining.log_cache import KnownLog, key_of
from slatewise.store.protocol import Store, Transaction
from slatewise.store.records import CLOSED, EventRecord, UserRecord

USERS_AT_ONCE = 500


def read_interaction_log(
    store: Store, rules: LearningRules, on_user: Callable[[], None] | None = None
) -> InteractionLog:
    """Read what everybody's log teaches by the rules of a service."""
    return read_news(store, rules, None, on_user).known.log


@dataclass(frozen=True)
class Reading:
    """A log, and how many people of the store had to be read for it."""

    known: KnownLog
    n_read: int


def read_news(
    store: Store, rules: LearningRules, known: KnownLog | None, on_user: Callable[[], None] | None = None
) -> Reading:
    """Read the log of everybody about whom anything was written since a log was read; take the others from that."""
    builder, keys, people, n_read = LogBuilder(), list[bytes](), list[int](), 0
    numbers = builder.number(known.log.item_ids) if known is not None else None
    for user in _with_versions(store):
        person = None if known is None else known.person_of.get(key_of(user.user, user.version))
        n_before = builder.n_people
        if person is None:
            user, tail = store.read(lambda transaction, user=user: _read_user(transaction, user.user))  # type: ignore[misc]
            _add_person(builder, rules, tail)
            n_read += 1
        elif known is not None and numbers is not None and person >= 0:
            builder.add_person(known.log, person, numbers)
        if user.version and not user.damaged:
            keys.append(key_of(user.user, user.version))
            people.append(n_before if builder.n_people > n_before else -1)
        if on_user is not None:
            on_user()
    return Reading(KnownLog(builder.log(), tuple(keys), np.array(people, dtype=np.int64)), n_read)


def _with_versions(store: Store) -> Iterator[UserRecord]:
    """Yield all users, some hundred from each snapshot."""
    users = store.users()
    while some := list(islice(users, USERS_AT_ONCE)):
        yield from store.read(lambda transaction, some=some: [transaction.lock(user) for user in some])  # type: ignore[misc]


def _read_user(transaction: Transaction, user: str) -> tuple[UserRecord, LogTail]:
    return transaction.lock(user), LogTail.read(transaction, user)


def _add_person(builder: LogBuilder, rules: LearningRules, log: LogTail) -> None:
    """Add the steps of a person in the order of learning: events with position n before slate n."""
    told = [
        slate for slate in log.numbered_slates(builder.number) if slate.record.status == CLOSED and slate.tally.n_events
    ]
    about_items = [event for event in standing(log.events) if rules.about(event.kind) == ITEM]
    events = sorted(about_items, key=lambda event: (event.position, event.at, event.event_id))
    done = 0
    evidence = rules.attention.evidence(reactions_of(told)) if told else None
    for row, slate in enumerate(told):
        done = _add_events(builder, rules, events, done, slate)
        if evidence is not None:
            builder.add_slate(slate.record.created_at, evidence, row)
    _add_events(builder, rules, events, done, None)
    builder.end_person()


def _add_events(
    builder: LogBuilder, rules: LearningRules, events: list[EventRecord], done: int, before: LoggedSlate | None
) -> int:
    """Add the events before a slate, all that are left without one; return how many have been added by now."""
    while done < len(events) and (before is None or events[done].position <= before.record.number):
        event = events[done]
        kind = rules.kinds.get(event.kind)
        if kind is not None:
            value, weight = kind.meaning(event.value)
            builder.add_event(event.at, event.item, value, weight)
        done += 1
    return done
