"""No room: writing is refused with 507, reading goes on, writing resumes, and nothing acknowledged is missing."""

import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.load.server import free_port
from slatewise.catalog import Catalog
from tests.conftest import missing
from tests.support.notes import Notes, complaints
from tests.support.served import Caller, Place, Running, start, start_by_command
from tests.support.visitors import Visitor

MANY = 3_000


def fill(place: Place, notes: Notes) -> set[int]:
    """Take and answer slates until one is refused; return with which status."""
    visitor = Visitor(place, notes, tuple(map(str, range(5))), random.Random(0))
    with Caller(place) as caller:
        any(not visitor.take_one(caller) for _ in range(MANY))
    return visitor.refusals


def check_reading_goes_on(place: Place, notes: Notes) -> None:
    with Caller(place) as caller:
        assert caller.ask("GET", "/health/live").status == 200
        assert caller.ask("GET", "/health/ready").status == 200
        for user in notes.users:
            assert caller.ask("GET", f"/v1/users/{user}").status == 200
        assert caller.ask("POST", "/v1/slates", {"user": "new", "k": 5, "preview": True}).status == 200


def check_writing_resumes(place: Place, notes: Notes) -> None:
    """New slates and answers are taken, and nothing acknowledged before, during and after is missing."""
    with Caller(place) as caller:
        visitor = Visitor(place, notes, tuple(map(str, range(5))), random.Random(1))
        assert any(visitor.take_one(caller) for _ in range(MANY))
        for _ in range(20):
            assert visitor.take_one(caller)
        assert complaints(notes, {user: caller.export(user) for user in notes.users}) == []


def run_out_and_recover(service: Running, make_space: Callable[[], object]) -> None:
    notes = Notes()
    assert fill(service.place, notes) == {507}
    assert notes.acknowledged
    check_reading_goes_on(service.place, notes)
    make_space()
    check_writing_resumes(service.place, notes)


def want_space(place: Place) -> None:
    """Ask for space and wait for it: before, a write that fits into the last page may succeed, and the next fail."""
    wanted = place.directory / "space"
    wanted.touch()
    end = time.monotonic() + 30.0
    while wanted.exists():
        assert time.monotonic() < end, "nobody made space"
        time.sleep(0.01)


def test_a_database_that_may_not_grow(place: Place) -> None:
    service = start(place, "small disk")
    try:
        run_out_and_recover(service, lambda: want_space(place))
    finally:
        service.kill()


def test_a_store_that_acknowledges_what_it_has_no_room_for_is_caught(place: Place) -> None:
    service, notes = start(place, "shrugging"), Notes()
    try:
        with Caller(place) as caller:
            visitor = Visitor(place, notes, ("ann", "ben"), random.Random(0))
            for _ in range(100):
                visitor.take_one(caller)
            assert complaints(notes, {user: caller.export(user) for user in notes.users})
    finally:
        service.kill()


@pytest.fixture
def small_place(tmp_path: Path, catalog: Catalog) -> Iterator[Place]:
    """A directory on a file system of six megabytes."""
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(small)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:  # noqa: S603
        missing("the right to mount a small file system (root)")
    catalog.save(tmp_path / "catalog")
    yield Place(tmp_path, free_port())
    subprocess.run(["umount", str(small)], check=True)  # noqa: S603, S607


def test_a_file_system_that_is_full(small_place: Place) -> None:
    ballast = small_place.directory / "small" / "ballast"
    ballast.write_bytes(bytes(4_500_000))
    service = start_by_command(small_place, "--store", f"sqlite:///{small_place.directory}/small/slates.db")
    try:
        run_out_and_recover(service, ballast.unlink)
    finally:
        service.kill()
