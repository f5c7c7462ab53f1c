"""kill -9 at random moments, under load: nothing acknowledged is lost, and nothing counts twice."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from slatewise.recommender import Recommender
from tests.durability.conftest import Tell, make_catalog
from tests.support.beliefs import n_stored, wrong_beliefs
from tests.support.notes import Event, Notes, clicks_of, complaints
from tests.support.postgres_kinds import POSTGRES_KINDS
from tests.support.served import Caller, Place, Running, start, start_by_command
from tests.support.visitors import visiting

LONGEST_ROUND = 0.6
LONGEST_TRAP = 10.0


def forked(place: Place) -> Running:
    return start(place)


def dying_in_a_checkpoint(place: Place) -> Running:
    return start(place, "dying in a checkpoint")


def hasty(place: Place) -> Running:
    return start(place, "hasty")


def while_the_catalog_changes(place: Place) -> Running:
    return start(place)


STARTS = (forked, dying_in_a_checkpoint, while_the_catalog_changes, start_by_command, forked)
"""How the service of each round is started, and when it is killed."""


@dataclass
class Course:
    """Rounds on one store, which grows: clients visit until the service dies, and the next one is questioned."""

    place: Place
    draw: random.Random
    clicks: int = 0
    acknowledged: int = 0
    unanswered: int = 0
    died_in_a_checkpoint: int = 0
    slowest: dict[str, float] = field(default_factory=dict)

    def run(self, starts: tuple[Callable[[Place], Running], ...], n_rounds: int) -> list[str]:
        """Return all complaints."""
        found: list[str] = []
        service = self.started(starts[0])
        for number in range(n_rounds):
            notes, begin = Notes(), starts[number % len(starts)]
            with changing_catalog(self.place) if begin is while_the_catalog_changes else nothing():
                self.die_under_load(service, notes, number, begin is dying_in_a_checkpoint)
            service = self.started(starts[(number + 1) % len(starts)])
            found += [f"round {number}: {words}" for words in self.question(notes)]
        service.kill()
        return found

    def started(self, begin: Callable[[Place], Running]) -> Running:
        service = begin(self.place)
        self.slowest[begin.__name__] = max(self.slowest.get(begin.__name__, 0.0), service.ready_after)
        return service

    def die_under_load(self, service: Running, notes: Notes, number: int, is_trap: bool) -> None:
        """Let clients visit, and kill the service in the middle, unless it dies by itself before."""
        trap = self.place.directory / "trap"
        trap.touch()
        with visiting(self.place, notes, number):
            until = time.monotonic() + (LONGEST_TRAP if is_trap else self.draw.uniform(0.02, LONGEST_ROUND))
            while time.monotonic() < until and service.is_alive:
                time.sleep(0.001)
            self.died_in_a_checkpoint += not service.is_alive
            service.kill()
        trap.unlink()

    def question(self, notes: Notes) -> list[str]:
        """Look at what survived, send everything again, and look at what it has become."""
        self.acknowledged += len(notes.acknowledged) + len(notes.slates)
        self.unanswered += len(notes.sent) - len(notes.acknowledged) + notes.asked.total() - len(notes.slates)
        with Caller(self.place) as caller:
            found = complaints(notes, {user: caller.export(user) for user in notes.users})
            found += [words for event in notes.sent.values() for words in send_again(caller, notes, event)]
            exports = {user: caller.export(user) for user in notes.users}
            self.clicks += clicks_of(exports)
            found += complaints(notes, exports) + self.miscounted(caller)
            return found + wrong_beliefs(caller, self.place.store, make_catalog(), notes.users)

    def miscounted(self, caller: Caller) -> list[str]:
        """The counters of the policies must be what the exports of all users so far add up to."""
        counted = sum(one["clicks"] for one in caller.ask("GET", "/v1/experiments").body)
        return [] if counted == self.clicks else [f"{counted} clicks are counted, {self.clicks} are in the log"]


def send_again(caller: Caller, notes: Notes, event: Event) -> list[str]:
    """Repeat an event: one that was acknowledged is a duplicate, any other may be new."""
    answer = caller.ask("POST", "/v1/feedback", event.body)
    if answer.status != 200:
        return [f"event {event.event_id} is refused with {answer.status}"]
    was_known, is_known = event.event_id in notes.acknowledged, answer.body["duplicate"]
    notes.acknowledge(event)
    return [f"event {event.event_id} was acknowledged and is new again"] if was_known and not is_known else []


@contextmanager
def nothing() -> Iterator[None]:
    yield


@contextmanager
def changing_catalog(place: Place) -> Iterator[None]:
    """Save one catalog and then another, and have each loaded, over and over; the first is there in the end."""
    halt = threading.Event()

    def change() -> None:
        catalogs = (make_catalog(seed=1, first=150), make_catalog())
        with Caller(place) as caller:
            while not halt.is_set():
                for catalog in catalogs:
                    catalog.save(place.catalog)
                    caller.ask("POST", "/v1/catalog/reload", {})

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        halt.set()
        thread.join()


def test_nothing_acknowledged_is_lost_and_nothing_counts_twice(place: Place, n_rounds: int, tell: Tell) -> None:
    course = Course(place, random.Random(0))
    assert course.run(STARTS, n_rounds) == []
    assert course.acknowledged > 2 * n_rounds
    assert course.died_in_a_checkpoint >= n_rounds // len(STARTS)
    with Recommender(make_catalog(), store=place.store) as recommender:
        assert {user: problem for user, problem in recommender.verify() if problem} == {}
        assert n_stored(recommender.store) > 0
    ready = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in course.slowest.items())
    tell(
        f"kill -9: {n_rounds} rounds ({course.died_in_a_checkpoint} in a checkpoint), {course.acknowledged:,} "
        f"acknowledged and {course.unanswered:,} unanswered requests; nothing lost, nothing twice, beliefs equal the "
        f"log; slowest start to ready: {ready}"
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", POSTGRES_KINDS)
def test_nothing_is_lost_on_postgresql_either(
    place: Place, kind: str, n_rounds: int, request: pytest.FixtureRequest
) -> None:
    """Plain, in hash partitions, and through PgBouncer; a quarter of the rounds for each."""
    n_rounds = max(4, n_rounds // 4)
    course = Course(replace(place, url=POSTGRES_KINDS[kind](request)), random.Random(2))
    assert course.run((forked,), n_rounds) == []
    assert course.acknowledged > 2 * n_rounds


def test_a_store_that_acknowledges_before_the_commit_is_caught(place: Place) -> None:
    found: list[str] = []
    course = Course(place, random.Random(1))
    for _ in range(5):
        found += course.run((hasty,), 1)
        if any("is lost" in words for words in found):
            return
    raise AssertionError(f"five rounds did not show it: {found}")


def test_the_checks_can_fail() -> None:
    """The checks themselves: each kind of wrong is complained about."""
    notes = Notes()
    notes.ask("ann")
    items = notes.take({"slate_id": "s", "user": "ann", "items": [{"id": 1}, {"id": 2}]})
    event = Event("e", "ann", "s", items[:1], True)
    notes.send(event)
    slate: dict[str, Any] = {"slate_id": "s", "number": 0, "items": [1, 2], "status": "closed"}
    answer = event.body
    good = {"slates": [slate], "feedback": [answer]}
    assert complaints(notes, {"ann": good}) == []
    assert complaints(notes, {"ann": {**good, "feedback": []}}) == []
    notes.acknowledge(event)
    for wrong in (
        {**good, "feedback": []},
        {**good, "slates": []},
        {**good, "feedback": [answer, answer]},
        {**good, "feedback": [answer, {**answer, "event_id": "other"}]},
        {**good, "feedback": [{**answer, "clicked": [2]}]},
        {**good, "slates": [{**slate, "items": [1, 3]}]},
        {**good, "slates": [slate, {**slate, "slate_id": "t", "number": 1}]},
    ):
        assert len(complaints(notes, {"ann": wrong})) == 1, wrong
