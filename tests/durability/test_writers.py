"""Eight writers on one user, one process or two: no update is lost."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from slatewise.catalog import Catalog
from slatewise.store import open_store
from tests.support.beliefs import n_stored, wrong_beliefs
from tests.support.notes import Notes, clicks_of, complaints
from tests.support.postgres_kinds import POSTGRES_KINDS
from tests.support.served import Caller, Place, Running, start, start_by_command
from tests.support.visitors import Visitor

N_WRITERS = 8
N_SLATES = 6


def write_together(place: Place, notes: Notes) -> None:
    """Let eight clients take slates for the same user and answer them, all at once."""

    def write(number: int) -> None:
        visitor = Visitor(place, notes, ("ann",), Random(number))
        with Caller(place) as caller:
            for _ in range(N_SLATES):
                visitor.take_one(caller)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(N_WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def wrongs(service: Running, store: str, notes: Notes) -> list[str]:
    """Return what is wrong with the user afterwards: the log, the counters, the belief."""
    with Caller(service.place) as caller:
        export = {"ann": caller.export("ann")}
        counted = caller.ask("GET", "/v1/experiments").body[0]
        found = wrong_beliefs(caller, store, Catalog.load(service.place.catalog), ["ann"])
    found += complaints(notes, export)
    closed = [slate for slate in export["ann"]["slates"] if slate["status"] == "closed"]
    if (counted["slates"], counted["clicks"]) != (len(closed), clicks_of(export)):
        found.append(f"{counted['slates']} slates and {counted['clicks']} clicks are counted")
    if len(export["ann"]["slates"]) != N_WRITERS * N_SLATES:
        found.append(f"{len(export['ann']['slates'])} slates are there, {N_WRITERS * N_SLATES} were asked for")
    reader = open_store(store, read_only=True)
    found += [] if n_stored(reader) == 1 else ["no belief is stored"]
    reader.close()
    return found


def test_eight_writers_on_one_user(place: Place) -> None:
    service, notes = start(place), Notes()
    try:
        write_together(place, notes)
        assert wrongs(service, place.store, notes) == []
    finally:
        service.kill()


def test_a_store_that_reads_outside_the_transaction_is_caught(place: Place) -> None:
    service, notes = start(place, "careless"), Notes()
    try:
        write_together(place, notes)
        assert wrongs(service, place.store, notes)
    finally:
        service.kill()


@pytest.fixture(params=POSTGRES_KINDS)
def two_workers(place: Place, request: pytest.FixtureRequest) -> Iterator[Running]:
    place = replace(place, url=POSTGRES_KINDS[request.param](request))
    service = start_by_command(place, "--store", place.store, "--workers", "2")
    yield service
    service.stop()


@pytest.mark.slow
def test_eight_writers_on_one_user_and_two_processes(two_workers: Running) -> None:
    notes = Notes()
    write_together(two_workers.place, notes)
    assert wrongs(two_workers, two_workers.place.store, notes) == []
