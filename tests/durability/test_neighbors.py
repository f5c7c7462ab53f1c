"""Other programs at the file of a running service: one that holds SQLite's lock, one that reads for very long."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from benchmarks.load.server import free_port
from slatewise.store import (
    StoreUnavailableError,
    open_store,
    sqlite,
    sqlite_checkpoints,
    sqlite_connection,
    sqlite_writer,
)
from slatewise.store.export import export_user
from slatewise.store.sqlite import SqliteStore
from tests.support.notes import Notes, complaints
from tests.support.postgres import until_it_works, wait_for
from tests.support.served import Answer, Caller, Place, start
from tests.support.store_rows import do, fill, one_more
from tests.support.visitors import visiting

N_CLIENTS = 12
EMPTY: dict[str, Any] = {"slates": [], "feedback": [], "events": []}


SHELL = """
import sqlite3, sys
sqlite3.connect(sys.argv[1], isolation_level=None).execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock for writing, as a shell does that was left in a transaction."""
    command = [sys.executable, "-c", SHELL, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shell:  # noqa: S603
        assert shell.stdout is not None
        assert shell.stdout.readline() == "locked\n"
        try:
            yield
        finally:
            shell.kill()


def ask_for_slate(place: Place, number: int) -> Answer:
    with Caller(place) as caller:
        return caller.ask("POST", "/v1/slates", {"user": f"user {number}", "k": 5})


@pytest.mark.slow
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


@pytest.mark.parametrize(("patience", "is_told"), [(100, True), (60_000, False)], ids=["in time", "the control"])
def test_who_writes_is_told_while_the_lock_is_held(
    tmp_path: Path, patience: int, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control is a writer with much patience: as long as the lock is held, it says nothing."""
    monkeypatch.setattr(sqlite_connection, "BUSY_MILLISECONDS", patience)
    store = SqliteStore.open(str(tmp_path / "slates.db"))
    with locked(tmp_path / "slates.db"):
        written = store.write(one_more("u"))
        if is_told:
            assert isinstance(written.exception(timeout=30), StoreUnavailableError)
        else:
            time.sleep(0.5)
            assert not written.done()
    assert until_it_works(lambda: do(store, one_more("u"))) == (1 if is_told else 2)
    store.close()


READ_AND_STOP = """
import os, signal, sys
from slatewise.store import open_store
def job(transaction):
    transaction.lock("u")
    print("reading", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
open_store(sys.argv[1], read_only=True).read(job)
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqliteStore]:
    """A store whose WAL is long after a few writes."""
    monkeypatch.setattr(sqlite_writer, "CHECKPOINT_PAGES", 40)
    monkeypatch.setattr(sqlite_checkpoints, "RESTART_PAGES", 160)
    monkeypatch.setattr(sqlite_checkpoints, "MAX_PAGES_AT_RESTART", 80)
    monkeypatch.setattr(sqlite_checkpoints, "RETRY_PAGES", 40)
    monkeypatch.setattr(sqlite_checkpoints, "LONGEST_PAUSE", 0.2)
    opened = SqliteStore.open(str(tmp_path / "slates.db"))
    yield opened
    opened.close()


@contextmanager
def stopped_reader(store: SqliteStore) -> Iterator[None]:
    """Another process that was stopped in the middle of reading."""
    command = [sys.executable, "-c", READ_AND_STOP, f"sqlite:///{store.path}"]
    reader = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
    try:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "reading\n"
        yield
    finally:
        reader.kill()
        reader.communicate()


def pages_left_at_restarts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows: how many pages the writer has to copy itself whenever it starts the WAL over."""
    restart, left = sqlite_checkpoints.restart_wal, []

    def counted(connection: apsw.Connection) -> bool:
        pages, copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
        left.append(pages - copied)
        return restart(connection)

    monkeypatch.setattr(sqlite_checkpoints, "restart_wal", counted)
    return left


def write_a_lot(store: SqliteStore, n_writes: int = 150) -> None:
    for _ in range(n_writes):
        do(store, one_more("u", os.urandom(40_000)))


def write_until(store: SqliteStore, is_so: Callable[[], bool], complaint: str) -> None:
    """Write little by little until something is so; checkpoints run when there are writes."""
    end = time.monotonic() + 30.0
    while not is_so():
        assert time.monotonic() < end, complaint
        do(store, one_more("u"))


@pytest.mark.process
def test_the_writer_does_not_wait_for_a_reader_that_was_stopped(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It neither tries to start the WAL over nor copies it; once the reader is gone, the WAL is short again."""
    left = pages_left_at_restarts(monkeypatch)
    write_a_lot(store, 20)
    with stopped_reader(store):
        write_a_lot(store)
        assert float(store.health()["wal_bytes"]) > 150 * 40_000
        write_until(store, lambda: float(store.health()["checkpoint_lag_pages"]) > 160, "the lag does not show")
        n_tries = len(left)
        write_a_lot(store)
        assert len(left) == n_tries
    write_until(
        store,
        lambda: float(store.health()["checkpoint_lag_pages"]) <= 80 and bool(left[n_tries:]),
        "the WAL was never started over",
    )
    assert max(left) <= 80 + 40


@pytest.mark.process
def test_a_writer_that_may_copy_everything_copies_a_long_wal(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    monkeypatch.setattr(sqlite_checkpoints, "MAX_PAGES_AT_RESTART", 10**9)
    left = pages_left_at_restarts(monkeypatch)
    with stopped_reader(store):
        write_a_lot(store)
    assert max(left) > 160


class Attempts(sqlite_checkpoints.Checkpoints):
    """When the writer tries to start the WAL over; nothing is copied meanwhile."""

    def serve(self) -> None:
        pass

    def commit(self, monkeypatch: pytest.MonkeyPatch, pages: int, *, is_read: bool) -> bool:
        """Note a commit, while somebody reads or not; return whether the writer tried to start the WAL over."""
        tries: list[int] = []

        def restart(_: apsw.Connection) -> bool:
            tries.append(pages)
            return not is_read

        monkeypatch.setattr(sqlite_checkpoints, "restart_wal", restart)
        self.shorten_wal(apsw.Connection(":memory:"), pages)
        return bool(tries)


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Attempts]:
    monkeypatch.setattr(sqlite_checkpoints, "RESTART_PAGES", 160)
    monkeypatch.setattr(sqlite_checkpoints, "RETRY_PAGES", 40)
    made = Attempts(apsw.Connection(":memory:"), lambda: None)
    yield made
    made.close()


def test_a_restart_that_failed_is_tried_again_soon_however_often_it_failed(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The WAL grows by no more than RETRY_PAGES after the reader has gone, not by what fits in a growing pause."""
    tried = [pages for pages in range(0, 1000, 20) if attempts.commit(monkeypatch, pages, is_read=True)]
    assert tried == list(range(160, 1000, 40))
    assert next(pages for pages in range(1000, 1060, 20) if attempts.commit(monkeypatch, pages, is_read=False)) <= 1040
    tried = [pages for pages in range(0, 240, 20) if attempts.commit(monkeypatch, pages, is_read=True)]
    assert tried == [160, 200]


def test_a_checkpoint_of_our_own_is_no_failed_restart(attempts: Attempts, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite refuses two at a time; the writer does not wait for the other, and tries after its next commit."""
    with attempts.paused():
        assert not attempts.commit(monkeypatch, 160, is_read=False)
    assert attempts.commit(monkeypatch, 161, is_read=False)


def test_a_list_of_users_is_read_in_many_short_reads(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two of them nobody reads, and the WAL can be started over; during one it cannot: that is the control."""
    monkeypatch.setattr(sqlite, "USERS_PER_READ", 2)
    names = [f"user {number}" for number in range(7)]
    fill(store, names)
    found = []
    for user in store.users():
        found.append(user)
        do(store, one_more(user))
        assert can_restart(store)
    assert found == names
    do(store, one_more("user 0"))
    assert not store.read(lambda transaction: (transaction.lock("user 0"), can_restart(store)))[1]


def can_restart(store: SqliteStore) -> bool:
    assert store.writer is not None
    return store.writer.between_commits(sqlite_checkpoints.restart_wal).result(timeout=30)


def run_command(place: Place, *words: str) -> None:
    """Run `slatewise store` next to the service."""
    command = [sys.executable, "-m", "slatewise", "store", *words, "--store", place.store]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)  # noqa: S603
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_verify_and_backup_run_next_to_a_busy_service(place: Place, tmp_path: Path) -> None:
    """Nothing is refused meanwhile, and what was acknowledged before the backup began is in it.

    The control: next to a program that holds the lock, visitors are refused.
    """
    copy, before = Place(tmp_path / "copy", free_port()), Notes()
    (tmp_path / "copy").mkdir()
    service, meanwhile = start(place), Notes()
    try:
        with visiting(place, before, 1):
            time.sleep(1.0)
        with visiting(place, meanwhile, 2) as visitors:
            run_command(place, "verify", "--catalog", str(place.catalog))
            run_command(place, "backup", str(copy.directory / "slates.db"))
        assert [visitor.refusals for visitor in visitors if visitor.refusals] == []
        assert before.acknowledged
        assert meanwhile.acknowledged
        with visiting(place, Notes(), 3) as visitors, locked(place.directory / "slates.db"):
            wait_for(lambda: any(visitor.refusals for visitor in visitors))
    finally:
        service.kill()
    store = open_store(copy.store)
    exports = {user: export_user(store, user) or EMPTY for user in before.users}
    store.close()
    assert [words for words in complaints(before, exports) if "lost" in words] == []


def test_a_service_whose_file_is_replaced_is_not_ready(place: Place) -> None:
    service = start(place)
    path = place.directory / "slates.db"
    try:
        with Caller(place) as caller:
            assert ask_for_slate(place, 0).status == 201
            path.rename(path.with_name("aside.db"))
            assert caller.ask("GET", "/health/ready").status == 503
            assert caller.ask("GET", "/health/live").status == 200
            assert {ask_for_slate(place, number).status for number in range(1, 4)} == {503}
            path.with_name("aside.db").rename(path)
            assert caller.ask("GET", "/health/ready").status == 200
            assert ask_for_slate(place, 4).status == 201
    finally:
        service.kill()
