"""The SQLite store: whose file it is, group commit, full disks, faults at every call, and what is left behind."""

import hashlib
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

from slatewise.store import (
    Store,
    StoreDamagedError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
    migrations,
    open_store,
    statements,
)
from slatewise.store.protocol import BeliefRecord, PolicyCounts, Transaction, UserRecord
from slatewise.store.sqlite import SqliteStore
from slatewise.store.sqlite_files import filesystem_of
from slatewise.store.sqlite_writer import SqliteWriter
from tests.conftest import missing
from tests.support.store_rows import answer, do, fill, one_more, slate

HOLD = """
import sys, time
from slatewise.store import open_store
store = open_store(sys.argv[1])
store.write(lambda t: t.count("u", "p", __import__("slatewise.store.protocol").store.protocol.PolicyCounts(1))).result()
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "slates.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore.open(str(path))
    yield opened
    opened.close()


def writer(store: SqliteStore) -> SqliteWriter:
    assert store.writer is not None
    return store.writer


def on_connection(store: SqliteStore, chore: Callable[[apsw.Connection], Any]) -> Any:
    """Do something with the writing connection, between commits."""
    return writer(store).between_commits(chore).result(timeout=30)


@contextmanager
def held_up(store: SqliteStore) -> Iterator[None]:
    """Keep the writer busy, so that what is submitted meanwhile becomes one batch."""
    go, busy = threading.Event(), threading.Event()

    def hold(_: Transaction) -> None:
        busy.set()
        go.wait(30)

    waiting = store.write(hold)
    busy.wait(30)
    yield
    go.set()
    waiting.exception(timeout=30)


def rows_of(store: Store, user: str) -> Any:
    return store.read(lambda t: (t.lock(user), t.slates_of(user), t.feedback_of(user), t.belief(user)))


# --- whose file it is


def test_a_second_opener_is_refused(store: SqliteStore, path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match=rf"{path}.*process {os.getpid()}"):
        SqliteStore.open(str(path))
    store.close()
    SqliteStore.open(str(path)).close()


@pytest.mark.process
def test_a_second_process_is_refused_until_the_first_is_killed(path: Path) -> None:
    holder = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", HOLD, f"sqlite:///{path}"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        with pytest.raises(StoreUnavailableError, match=f"process {holder.pid}"):
            SqliteStore.open(str(path))
        reader = open_store(f"sqlite:///{path}", read_only=True)
        assert reader.read(lambda t: t.totals())[0].slates == 1
        reader.close()
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    again = SqliteStore.open(str(path))
    assert again.read(lambda t: t.totals())[0].slates == 1
    again.close()


def test_nobody_else_may_read_the_files(store: SqliteStore, path: Path) -> None:
    do(store, one_more("u"))
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == dict.fromkeys(["slates.db", "slates.db-shm", "slates.db-wal", "slates.db.lock"], 0o600)


def test_the_settings_that_durability_needs(store: SqliteStore) -> None:
    def settings(connection: apsw.Connection) -> dict[str, Any]:
        names = ("journal_mode", "synchronous", "secure_delete", "mmap_size")
        return {name: connection.pragma(name) for name in names}

    assert on_connection(store, settings) == {
        "journal_mode": "wal",
        "synchronous": 2,
        "secure_delete": 1,
        "mmap_size": 0,
    }


def test_what_is_not_a_store_is_refused(path: Path) -> None:
    path.write_bytes(b"this is not a database, but a text that is long enough to have a header" * 99)
    with pytest.raises(StoreDamagedError, match=r"slates\.db"):
        SqliteStore.open(str(path))
    assert path.read_bytes().startswith(b"this is not")
    path.unlink()
    apsw.Connection(str(path)).execute("CREATE TABLE theirs (x)")
    with pytest.raises(StoreError, match="another program"):
        SqliteStore.open(str(path))
    with pytest.raises(StoreError, match="another program"):
        SqliteStore.open(str(path), read_only=True)


def test_places_that_do_not_serve_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreUnavailableError, match="does not exist"):
        SqliteStore.open(str(tmp_path / "nowhere" / "slates.db"))
    with pytest.raises(StoreError):
        SqliteStore.open(str(tmp_path))
    with pytest.raises(StoreError):
        SqliteStore.open(str(tmp_path / "none.db"), read_only=True)
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    with pytest.raises(StoreError, match=r"3\.51\.2"):
        SqliteStore.open(str(tmp_path / "slates.db"))


def test_network_file_systems_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = "/dev/sda / ext4 rw 0 0\nserver:/x /srv/with\\040space nfs4 rw 0 0\n"
    assert filesystem_of(Path("/srv/with space/slates.db"), table) == "nfs4"
    assert filesystem_of(Path("/srv/with"), table) == "ext4"
    monkeypatch.setattr("slatewise.store.sqlite_files.mounted", lambda: f"server:/x {tmp_path} cifs rw 0 0\n")
    with pytest.raises(StoreError, match="cifs"):
        SqliteStore.open(str(tmp_path / "slates.db"))


# --- migrations


def test_the_first_migration_is_carved_in_stone() -> None:
    """Stores exist that were made with it; a change of the tables is a new step."""
    digest = hashlib.sha256(migrations.MIGRATIONS[0]["sqlite"].encode()).hexdigest()
    assert digest[:16] == "242695d5bfc47e88"


@pytest.fixture
def steps() -> Iterator[list[dict[str, str]]]:
    """The list of migrations, for a test to append to."""
    released = list(migrations.MIGRATIONS)
    yield migrations.MIGRATIONS
    migrations.MIGRATIONS[:] = released


def test_an_old_store_is_brought_up_to_date(store: SqliteStore, path: Path, steps: list[dict[str, str]]) -> None:
    fill(store, ["u"])
    before = rows_of(store, "u")
    store.close()
    steps.append({"sqlite": "CREATE TABLE notes (x); CREATE TABLE notes (x)"})
    with pytest.raises(StoreError, match="notes"):
        SqliteStore.open(str(path))
    steps[-1] = {"sqlite": "CREATE TABLE notes (x); INSERT INTO notes VALUES (7)"}
    with pytest.raises(StoreError, match="older"):
        SqliteStore.open(str(path), read_only=True)
    for _ in range(2):
        again = SqliteStore.open(str(path))
        assert on_connection(again, lambda c: c.execute("SELECT x FROM notes").fetchall()) == [(7,)]
        assert rows_of(again, "u") == before
        again.close()
    steps.pop()
    for read_only in (False, True):
        with pytest.raises(StoreError, match="newer slatewise"):
            SqliteStore.open(str(path), read_only)


@pytest.mark.parametrize("sql", [statements.FEEDBACK_ON, statements.FEEDBACK_ON_OR_WITH_ID])
def test_feedback_on_a_slate_is_found_without_reading_all_feedback_of_its_user(store: SqliteStore, sql: str) -> None:
    """SQLite knows no statistics; without the time of arrival in the index it would rather read a whole history."""
    explain = f"EXPLAIN QUERY PLAN {sql}"
    plan = on_connection(store, lambda c: [row[3] for row in c.execute(explain, ("x",) * sql.count("?"))])
    assert "SEARCH feedback USING INDEX feedback_by_slate (user_id=? AND slate_id=?)" in plan
    assert "feedback_by_arrival" not in str(plan)


def plans_for_later_users(store: SqliteStore) -> int:
    """Return how often SQLite asks about columns, as it does when it plans, once statements were run for one user."""
    fill(store, ["anna", "ben", "cleo"])
    asked: list[object] = []

    def allow(*about: object) -> int:
        asked.append(about)
        return apsw.SQLITE_OK

    def watch(connection: apsw.Connection) -> None:
        connection.authorizer = allow

    on_connection(store, watch)
    for number, user in enumerate(["anna", "ben", "cleo"]):
        if number == 1:
            asked.clear()
        do(store, partial(read_everything, user=user, before=1e9 + number))
    return len(asked)


def read_everything(transaction: Transaction, user: str, before: float) -> None:
    transaction.slates_of(user)
    transaction.choices_of(user)
    transaction.feedback_of(user)
    transaction.feedback_on(slate(user, 1), f"answer 1 of {user}")
    transaction.events_of(user)
    transaction.expired(before, 5, 1)


def test_a_statement_is_planned_once_and_not_for_every_parameter(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: what SQLite does if it is not told to keep its plans."""
    assert plans_for_later_users(store) == 0
    monkeypatch.setattr(apsw, "SQLITE_DBCONFIG_ENABLE_QPSG", apsw.SQLITE_DBCONFIG_ENABLE_VIEW)
    other = SqliteStore.open(str(tmp_path / "other.db"))
    try:
        assert plans_for_later_users(other) > 0
    finally:
        other.close()


# --- group commit


def test_one_commit_for_all_that_wait_and_no_answer_before_it(store: SqliteStore) -> None:
    commits: list[list[bool]] = []
    futures: list[Future[int]] = []

    def trace(_cursor: apsw.Cursor, sql: str, _parameters: Any) -> bool:
        if sql == "COMMIT":
            commits.append([future.done() for future in futures])
        return True

    with held_up(store):
        writer(store).connection.exec_trace = trace
        futures += [store.write(one_more("u")) for _ in range(100)]
    assert [future.result(timeout=30) for future in futures] == list(range(1, 101))
    writer(store).connection.exec_trace = None
    assert commits[-1] == [False] * 100
    assert len(commits) == 2


def test_a_cancelled_work_is_not_run(store: SqliteStore) -> None:
    with held_up(store):
        futures = [store.write(one_more("u")) for _ in range(3)]
        assert futures[1].cancel()
    assert [futures[0].result(timeout=30), futures[2].result(timeout=30)] == [1, 2]


def test_a_queue_that_is_too_long_is_refused(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slatewise.store.sqlite_writer.MAX_QUEUE", 5)
    with held_up(store):
        futures = [store.write(one_more("u")) for _ in range(7)]
    assert [type(future.exception(timeout=30)) for future in futures] == [type(None)] * 5 + [StoreUnavailableError] * 2


@pytest.mark.slow
def test_the_wal_stays_bounded_though_somebody_always_reads(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slatewise.store.sqlite_writer.CHECKPOINT_PAGES", 40)
    monkeypatch.setattr("slatewise.store.sqlite_checkpoints.RESTART_PAGES", 160)
    monkeypatch.setattr("slatewise.store.sqlite_checkpoints.RETRY_PAGES", 40)
    stop, longest = threading.Event(), 0

    def read() -> None:
        while not stop.is_set():
            store.read(lambda t: (t.lock("u"), stop.wait(0.005)))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(300):
        do(store, one_more("u", os.urandom(40_000)))
        longest = max(longest, path.with_name("slates.db-wal").stat().st_size)
    stop.set()
    for reader in readers:
        reader.join()
    assert longest < 300 * 40_000 / 4


# --- full disks


def test_a_full_disk_is_said_and_survived(store: SqliteStore) -> None:
    fill(store, ["u"])
    pages = on_connection(store, lambda c: c.pragma("page_count"))
    on_connection(store, lambda c: c.pragma("max_page_count", pages + 3))
    big = os.urandom(100_000)
    with held_up(store):
        small = [store.write(one_more("u")) for _ in range(5)]
        large = store.write(one_more("v", big))
        small += [store.write(one_more("u")) for _ in range(5)]
    with pytest.raises(StoreFullError, match=r"no space.*slates\.db"):
        large.result(timeout=30)
    assert [future.result(timeout=30) for future in small] == list(range(4, 14))
    assert rows_of(store, "v") == (UserRecord("v"), [], [], BeliefRecord("v"))
    on_connection(store, lambda c: c.pragma("max_page_count", pages + 1000))
    assert do(store, one_more("v", big)) == 1
    assert rows_of(store, "v")[3].content == big


def test_a_work_that_does_not_mind_a_full_disk_still_leaves_nothing(store: SqliteStore) -> None:
    """SQLite has undone the transaction by then; what the work writes afterwards must not be kept on its own."""
    pages = on_connection(store, lambda c: c.pragma("page_count"))
    on_connection(store, lambda c: c.pragma("max_page_count", pages + 3))

    def stubborn(t: Transaction) -> None:
        for _ in range(3):
            with suppress(StoreError):
                t.add_slate(slate("u", 0, items=("x" * 100_000,)))
        t.count("u", "dc2b", PolicyCounts(1, 1, 1, 1.0))

    with held_up(store):
        works: list[Callable[[Transaction], Any]] = [one_more("v"), stubborn, one_more("v")]
        futures = [store.write(work) for work in works]
    assert [type(future.exception(timeout=30)) for future in futures] == [type(None), StoreFullError, type(None)]
    assert store.read(lambda t: t.totals()) == []
    assert rows_of(store, "v")[0].n_slates == 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:  # noqa: S603
        missing("the right to mount a small tmpfs")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)  # noqa: S603, S607


@pytest.mark.process
def test_a_small_disk_fills_up_and_goes_on_when_there_is_room(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(300_000))
    store = SqliteStore.open(str(small_disk / "slates.db"))
    fill(store, ["u"])
    told, error = 3, None
    while error is None:
        future = store.write(one_more("u", os.urandom(9000)))
        error = future.exception(timeout=30)
        told += error is None
    assert isinstance(error, StoreFullError)
    assert rows_of(store, "u")[0].n_slates == told
    assert float(store.health()["free_bytes"]) < 50_000
    with pytest.raises(StoreFullError):
        do(store, one_more("w", os.urandom(90_000)))
    ballast.unlink()
    assert do(store, one_more("u")) == told + 1
    store.close()
    again = SqliteStore.open(str(small_disk / "slates.db"))
    assert rows_of(again, "u")[0].n_slates == told + 1
    again.close()


# --- faults at every call


class FaultyDisk(apsw.VFS):
    """A file system on which writing, flushing and truncating fail from the n-th call on, until it is repaired."""

    def __init__(self) -> None:
        self.calls_left = 10**9
        self.failure: type[apsw.Error] = apsw.FullError
        super().__init__("faulty", "")

    def xOpen(self, name: Any, flags: list[int]) -> "FaultyFile":  # noqa: N802
        return FaultyFile(self, name, flags)

    def count(self) -> None:
        self.calls_left -= 1
        if self.calls_left <= 0:
            raise self.failure("on purpose")


class FaultyFile(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, name: Any, flags: list[int]) -> None:
        self.disk = disk
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self.disk.count()
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self.disk.count()
        super().xSync(flags)

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self.disk.count()
        super().xTruncate(size)


@pytest.fixture
def faulty_disk() -> Iterator[FaultyDisk]:
    disk = FaultyDisk()
    apsw.set_default_vfs("faulty")
    yield disk
    apsw.set_default_vfs("unix")
    disk.unregister()


def feedback(number: int) -> Callable[[Transaction], int]:
    """A work that changes every table."""

    def work(t: Transaction) -> int:
        row = t.lock("u")
        t.add_slate(slate("u", row.n_slates))
        t.add_feedback(answer("u", row.n_slates, event=str(number)))
        t.save_user(UserRecord("u", str(number), row.n_slates + 1))
        t.save_belief(BeliefRecord("u", "space", row.n_slates + 1, os.urandom(3000)))
        return number

    return work


def acknowledged(store: SqliteStore, begin_faults: Callable[[], object]) -> list[int]:
    """Submit three works as one batch, and return those that were acknowledged though faults happen."""
    with held_up(store):
        begin_faults()
        futures = [store.write(feedback(number)) for number in range(3)]
    errors = [future.exception(timeout=30) for future in futures]
    assert all(error is None or isinstance(error, StoreError) for error in errors)
    return [number for number, error in enumerate(errors) if error is None]


def check_log(store: SqliteStore, expected: list[int]) -> None:
    row, slates, answers, belief = rows_of(store, "u")
    assert row.n_slates == len(slates) == len(answers) == belief.covers == len(expected)
    assert not row.damaged
    assert not belief.damaged
    assert [one.event_id.rpartition("u")[2] for one in answers] == [str(number) for number in expected]


def check_recovery(store: SqliteStore, told: list[int]) -> None:
    """All that was acknowledged is there and nothing else, and writing goes on, also after opening again."""
    check_log(store, told)
    do(store, feedback(98))
    store.close()
    again = SqliteStore.open(str(store.path))
    check_log(again, [*told, 98])
    do(again, feedback(99))
    again.close()


@pytest.mark.parametrize(("failure", "error"), [(apsw.FullError, StoreFullError), (apsw.IOError, StoreError)])
def test_what_was_acknowledged_survives_a_disk_that_fails_at_any_call(
    faulty_disk: FaultyDisk, tmp_path: Path, failure: type[apsw.Error], error: type[StoreError]
) -> None:
    faulty_disk.failure = failure
    told: list[int] = []
    n_calls = 0
    while len(told) < 3:
        n_calls += 1
        store = SqliteStore.open(str(tmp_path / f"{n_calls}.db"))
        told = acknowledged(store, partial(setattr, faulty_disk, "calls_left", n_calls))
        if len(told) < 3:
            assert isinstance(store.write(feedback(50)).exception(timeout=30), error)
        faulty_disk.calls_left = 10**9
        check_recovery(store, told)
    assert n_calls > 10


def test_what_was_acknowledged_survives_a_fault_of_any_statement(tmp_path: Path) -> None:
    """The n-th statement of the writer fails, for every n, each time in a new store."""
    n_refused, left = 0, [0]

    def trace(_cursor: apsw.Cursor, _sql: str, _parameters: Any) -> bool:
        left[0] -= 1
        if left[0] == 0:
            raise apsw.IOError("on purpose")
        return True

    for n_calls in range(1, 100):
        store = SqliteStore.open(str(tmp_path / f"{n_calls}.db"))
        left[0] = n_calls
        told = acknowledged(store, partial(writer(store).connection.set_exec_trace, trace))
        writer(store).connection.set_exec_trace(None)
        check_recovery(store, told)
        n_refused += 3 - len(told)
        if left[0] > 0:
            break
    assert left[0] > 0
    assert n_refused > 3


# --- what is left behind


def test_nothing_is_left_of_who_was_forgotten(store: SqliteStore, path: Path) -> None:
    traces = [b"forget-me-not", b"secret-item", b"telltale-belief"]

    def left() -> set[bytes]:
        files = [file.read_bytes() for file in path.parent.iterdir()]
        return {trace for trace in traces for content in files if trace in content}

    fill(store, [f"user {number}" for number in range(30)])

    def work(t: Transaction) -> None:
        for number in range(30):
            t.add_slate(slate("forget-me-not", number, items=("secret-item",) * 50))
            t.add_feedback(answer("forget-me-not", number, clicked=("secret-item",)))
        t.save_user(UserRecord("forget-me-not", "stamp", 30))
        t.save_belief(BeliefRecord("forget-me-not", "space", 30, b"telltale-belief" * 1000))

    do(store, work)
    assert left() == set(traces)
    do(store, lambda t: t.forget("forget-me-not"))
    assert left() == set(traces)
    store.vacuum()
    assert left() == set()
    assert len(rows_of(store, "user 7")[1]) == 3


def test_vacuum_does_not_pretend_while_a_read_holds_the_old_content(
    store: SqliteStore,
) -> None:
    fill(store, ["u"])
    on_connection(store, lambda c: c.set_busy_timeout(50))

    def work(t: Transaction) -> None:
        t.lock("u")
        with pytest.raises(StoreUnavailableError, match="long read"):
            store.vacuum()

    store.read(work)
    store.vacuum()
