"""Other programs at the file of a running service: one that holds SQLite's lock, one that reads for very long."""

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.support.served import Answer, Caller, Place, start

N_CLIENTS = 12


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock for writing, as a shell does that was left in a transaction."""
    shell = sqlite3.connect(path, isolation_level=None)
    shell.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        shell.execute("ROLLBACK")
        shell.close()


def ask_for_slate(place: Place, number: int) -> Answer:
    with Caller(place) as caller:
        return caller.ask("POST", "/v1/slates", {"user": f"user {number}", "k": 5})


def test_a_program_that_holds_the_lock_stops_writing_only_while_it_does(place: Place) -> None:
    """Everyone is refused while the lock is still held, and the event loop is never blocked."""
    service = start(place)
    try:
        with ThreadPoolExecutor(N_CLIENTS) as clients, Caller(place) as caller:
            with locked(place.directory / "slates.db"):
                answers = [clients.submit(ask_for_slate, place, number) for number in range(N_CLIENTS)]
                while not all(one.done() for one in answers):
                    assert caller.ask("GET", "/health/live").status == 200
                assert caller.ask("GET", "/health/ready").status == 200
                assert caller.ask("POST", "/v1/slates", {"user": "x", "preview": True}).status == 200
            assert {one.result().status for one in answers} == {503}
            assert {one.result().body["detail"] for one in answers} == {"Nothing was recorded; try again."}
            assert [ask_for_slate(place, number).status for number in range(3)] == [201] * 3
            assert [caller.export(f"user {number}")["slates"][0]["number"] for number in range(3)] == [0] * 3
    finally:
        service.kill()
