"""Every event is sent one to five times, at once and across a restart: it counts once."""

import random
from concurrent.futures import ThreadPoolExecutor

from tests.support.notes import Event, Notes, clicks_of, complaints
from tests.support.served import Answer, Caller, Place, start
from tests.support.visitors import Visitor

N_USERS = 4
N_SLATES = 4
N_SENDERS = 6


def events_of(place: Place, notes: Notes, draw: random.Random) -> list[Event]:
    """Take slates, and think of events on them without sending any."""
    events: list[Event] = []

    class Silent(Visitor):
        def send(self, caller: Caller, event: Event) -> bool:  # noqa: ARG002
            self.notes.send(event)
            events.append(event)
            return True

    with Caller(place) as caller:
        for user in range(N_USERS):
            for _ in range(N_SLATES):
                assert Silent(place, notes, (str(user),), draw).take_one(caller)
    return events


def send_all(place: Place, events: list[Event]) -> list[Answer]:
    """Send events, repeats and all, by several clients at once."""

    def send(part: list[Event]) -> list[Answer]:
        with Caller(place) as caller:
            return [caller.ask("POST", "/v1/feedback", event.body) for event in part]

    parts = [events[number::N_SENDERS] for number in range(N_SENDERS)]
    with ThreadPoolExecutor(N_SENDERS) as senders:
        return [answer for answers in senders.map(send, parts) for answer in answers]


def repeated(place: Place, way: str) -> tuple[list[str], int, int]:
    """Send everything one to five times, half before a kill and half after; return complaints, news, and events."""
    notes, draw = Notes(), random.Random(3)
    service = start(place, way)
    events = events_of(place, notes, draw)
    copies = [event for event in events for _ in range(draw.randint(1, 5))]
    draw.shuffle(copies)
    answers = send_all(place, copies[::2])
    service.kill()
    service = start(place, way)
    answers += send_all(place, copies[1::2])
    assert {answer.status for answer in answers} == {200}
    for event in events:
        notes.acknowledge(event)
    with Caller(place) as caller:
        exports = {user: caller.export(user) for user in notes.users}
        counted = sum(one["clicks"] for one in caller.ask("GET", "/v1/experiments").body)
    service.kill()
    found = complaints(notes, exports)
    if counted != clicks_of(exports):
        found.append(f"{counted} clicks are counted, {clicks_of(exports)} are in the log")
    return found, sum(not answer.body["duplicate"] for answer in answers), len(events)


def test_every_event_counts_once(place: Place) -> None:
    found, n_new, n_events = repeated(place, "plain")
    assert found == []
    assert n_new == n_events


def test_a_store_without_a_memory_for_events_is_caught(place: Place) -> None:
    found, n_new, n_events = repeated(place, "forgetful")
    assert found
    assert n_new > n_events


def test_the_same_event_with_other_content_is_refused(place: Place) -> None:
    service, notes = start(place), Notes()
    event = events_of(place, notes, random.Random(4))[0]
    with Caller(place) as caller:
        assert caller.ask("POST", "/v1/feedback", event.body).status == 200
        before = caller.export(event.user)
        assert caller.ask("POST", "/v1/feedback", {**event.body, "final": not event.final}).status == 409
        assert caller.export(event.user) == before
    service.kill()
