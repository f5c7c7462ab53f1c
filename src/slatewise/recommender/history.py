"""What people did before the service knew them, written to a store in bulk: one short job per user.

An event that is already there is left alone, so that an import can be repeated, and resumed by repeating it.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace

from slatewise.recommender.events import Event
from slatewise.recommender.recommend import CLOCK_STEP, new_version
from slatewise.recommender.types import ConflictError
from slatewise.store.protocol import Store, Transaction
from slatewise.store.records import EventRecord

EVENTS_PER_JOB = 1_000
JOBS_AT_ONCE = 128
"""How many jobs are queued: a SQLite store commits what is queued together."""


def add_history(
    store: Store, events: Iterable[Event], clock: Callable[[], float] = time.time
) -> Iterator[tuple[int, int]]:
    """Record events; yield the number of events that were looked at and of those that were new, as they are durable.

    Events of the same user should stand together: each run of them is one job.
    """
    queued: deque[tuple[int, Future[int]]] = deque()
    for run in _runs(events):
        queued.append((len(run), store.write(lambda transaction, run=run: _record(transaction, run, clock()))))  # type: ignore[misc]
        if len(queued) == JOBS_AT_ONCE:
            yield from _finished(queued, JOBS_AT_ONCE // 2)
    yield from _finished(queued, 0)


def _finished(queued: deque[tuple[int, Future[int]]], remaining: int) -> Iterator[tuple[int, int]]:
    while len(queued) > remaining:
        n_events, written = queued.popleft()
        yield n_events, written.result()


def _runs(events: Iterable[Event]) -> Iterator[list[Event]]:
    """Yield events of one user each, at most EVENTS_PER_JOB."""
    run: list[Event] = []
    for event in events:
        if run and (event.user != run[0].user or len(run) == EVENTS_PER_JOB):
            yield run
            run = []
        run.append(event)
    if run:
        yield run


def _record(transaction: Transaction, events: Sequence[Event], now: float) -> int:
    """Record events of one user that are not there yet; return how many."""
    user = transaction.lock(events[0].user)
    new = _unknown(transaction, events)
    if not new:
        return 0
    time_of_arrival = max(now, user.updated_at + CLOCK_STEP)
    for key, event in new.items():
        at = time_of_arrival if event.at is None else min(event.at, time_of_arrival)
        position = transaction.position_at(user.user, at) if user.n_slates else 0
        content = (event.item, event.kind, event.value)
        transaction.add_event(EventRecord(key, user.user, *content, at, time_of_arrival, position))
        time_of_arrival += CLOCK_STEP
    transaction.discard_belief(user.user)
    transaction.save_user(replace(user, version=new_version(), updated_at=time_of_arrival))
    return len(new)


def _unknown(transaction: Transaction, events: Sequence[Event]) -> dict[str, Event]:
    """Return events by id, without those recorded before; refuse an id that was used for something else."""
    user, new = events[0].user, dict[str, Event]()
    known = {event.event_id: (event.item, event.kind, event.value) for event in transaction.events_of(user)}
    for event in events:
        key, content = event.event_id or event.content_id(), (event.item, event.kind, event.value)
        if key not in known:
            new[key] = event
        if known.setdefault(key, content) != content:
            raise ConflictError(f"event_id {key!r} of user {user!r} was used before for something else")
    return new
