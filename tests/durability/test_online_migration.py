"""Workers of the version before write while a PostgreSQL store is brought up to date; whoever does it may be killed."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from slatewise.store import StoreError, open_store, postgres_migration
from slatewise.store.migrations import MIGRATIONS, online_part
from slatewise.store.protocol import Store
from slatewise.store.records import UserRecord
from slatewise.store.rows import feedback_values, slate_values, user_values
from tests.support.old_store import USERS, copied_store
from tests.support.postgres import Server, wait_for
from tests.support.served import FORKS
from tests.support.store_rows import answer, do, one_more, slate

N_WRITERS, N_WRITES = 3, 15
PAUSE_LOCK = 0x70617574
PAUSE = f"SELECT pg_advisory_xact_lock({PAUSE_LOCK})"
LOCK = "SELECT stamp FROM slatewise.users WHERE user_id = %s FOR UPDATE"
ADD_SLATE = """
    INSERT INTO slatewise.slates (slate_id, user_id, number, created_at, catalog, policy, items, variety, status,
    closed_at, checksum) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
ADD_ANSWER = """
    INSERT INTO slatewise.answers (event_id, slate_id, user_id, clicked, retracted, final, received_at, checksum)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
"""
SAVE_USER = """
    INSERT INTO slatewise.users (user_id, stamp, n_slates, logged_slates, logged_answers, checksum)
    VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (user_id) DO UPDATE SET stamp = excluded.stamp,
    n_slates = excluded.n_slates, logged_slates = excluded.logged_slates,
    logged_answers = excluded.logged_answers, checksum = excluded.checksum
"""
NO_SUCH_TABLE = (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn)
INVALID = "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid"
BUILDING = "SELECT pid FROM pg_stat_progress_create_index WHERE phase = 'waiting for old snapshots'"
LOOKING_IN_A_TRANSACTION = (
    "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT phase%' AND state LIKE 'idle in transaction%'"
)


@dataclass
class OldWriter:
    """Writes as a worker of version 1 does, until the tables have another form; keeps what was acknowledged."""

    url: str
    user: str
    written: int = 0
    end: Exception | None = None
    halt: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        with psycopg.connect(self.url) as connection:
            while not self.halt.is_set():
                try:
                    self.write(connection)
                except NO_SUCH_TABLE as error:
                    self.end = error
                    return

    def write(self, connection: psycopg.Connection[Any]) -> None:
        """One slate, one answer to it and the row of the user, in one transaction."""
        n_written = self.written
        with connection.transaction():
            connection.execute(LOCK, (self.user,))
            *shown, _, checksum = slate_values(slate(self.user, n_written))
            connection.execute(ADD_SLATE, (*shown, checksum))
            *said, _, _, _, checksum = feedback_values(answer(self.user, n_written))
            connection.execute(ADD_ANSWER, (*said, checksum))
            record = UserRecord(self.user, f"stamp {n_written}", n_written + 1)
            *known, _, _, checksum = user_values(record, (n_written + 1, n_written + 1, 0))
            connection.execute(SAVE_USER, (*known, checksum))
        self.written += 1

    def lost_in(self, store: Store) -> list[str]:
        """What was acknowledged and is not in a store."""
        slates, feedback = store.read(lambda t: (t.slates_of(self.user), t.feedback_of(self.user)))
        expected = range(self.written)
        found = [one for one in slates if one == slate(self.user, one.number)]
        said = {event.event_id for event in feedback}
        return [
            f"{self.user} {number}"
            for number in expected
            if number not in {one.number for one in found} or answer(self.user, number).event_id not in said
        ]


@pytest.fixture
def holder(postgres_server: Server, tmp_path: Path) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """A connection that holds the lock a migration of the old store stops at."""
    with copied_store(tmp_path, postgres_server) as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", (PAUSE_LOCK,))
        yield connection


@contextmanager
def writing(url: str) -> Iterator[list[OldWriter]]:
    writers = [OldWriter(url, f"writer {number}") for number in range(N_WRITERS)]
    threads = [threading.Thread(target=writer.run) for writer in writers]
    for thread in threads:
        thread.start()
    try:
        yield writers
    finally:
        for writer in writers:
            writer.halt.set()
        for thread in threads:
            thread.join()


def pause_before(statement: int, part: str) -> None:
    """Stop this process when it migrates, before a statement of a part of the step from version 1."""
    statements = MIGRATIONS[1][part].split(";")
    statements.insert(statement, PAUSE if part == "postgresql online" else f"SET LOCAL lock_timeout = 0; {PAUSE}")
    MIGRATIONS[1][part] = ";".join(statements)


def migrate(url: str, prepare: Callable[[], Any]) -> None:
    """Bring the store up to date, in a process of its own."""
    prepare()
    open_store(url).close()


@contextmanager
def migrating(url: str, prepare: Callable[[], Any] = list) -> Iterator[Any]:
    process = FORKS.Process(target=migrate, args=(url, prepare), daemon=True)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def value(holder: psycopg.Connection[tuple[Any, ...]], sql: str) -> list[Any]:
    return [one for (one,) in holder.execute(sql)]


def is_paused(holder: psycopg.Connection[tuple[Any, ...]]) -> bool:
    waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND NOT granted"
    return bool(holder.execute(waiting, (PAUSE_LOCK,)).fetchall())


def n_waiting_for_tables(holder: psycopg.Connection[tuple[Any, ...]]) -> int:
    return len(value(holder, "SELECT 1 FROM pg_locks WHERE locktype = 'relation' AND NOT granted"))


def pause_online() -> None:
    pause_before(4, "postgresql online")


def pause_in_script() -> None:
    pause_before(9, "postgresql")


@pytest.mark.parametrize("is_released_late", [True, False])
def test_workers_of_the_version_before_write_while_it_migrates(
    holder: psycopg.Connection[tuple[Any, ...]], postgres_server: Server, is_released_late: bool
) -> None:
    """They write while indexes are built, until the tables have their new form; nothing of it is lost."""
    url = postgres_server.url
    with writing(url) as writers, migrating(url, pause_online) as process:
        wait_for(lambda: is_paused(holder))
        before = [writer.written for writer in writers]
        wait_for(lambda: all(one.written >= n + N_WRITES for one, n in zip(writers, before, strict=True)))
        assert value(holder, "SELECT max(version) FROM slatewise.schema_version") == [1]
        if is_released_late:
            time.sleep(0.2)
        holder.execute("SELECT pg_advisory_unlock(%s)", (PAUSE_LOCK,))
        process.join(60)
        assert process.exitcode == 0
        wait_for(lambda: all(writer.end is not None for writer in writers))
    store = open_store(url)
    assert [lost for writer in writers for lost in writer.lost_in(store)] == []
    assert sorted(store.users()) == sorted([*USERS, *(writer.user for writer in writers)])
    assert do(store, one_more("writer 0")) == writers[0].written + 1
    assert value(holder, "SELECT version FROM slatewise.schema_version") == [1, 2, 3]
    assert value(holder, INVALID) == []
    store.close()


def test_a_migration_that_holds_up_writers_is_caught(
    holder: psycopg.Connection[tuple[Any, ...]], postgres_server: Server
) -> None:
    """Negative control: while the script of a step runs, everybody waits; so nothing that takes long may be in it."""
    with writing(postgres_server.url) as writers, migrating(postgres_server.url, pause_in_script):
        wait_for(lambda: all(writer.written > 0 for writer in writers) and is_paused(holder))
        wait_for(lambda: n_waiting_for_tables(holder) == N_WRITERS)
        before = [writer.written for writer in writers]
        time.sleep(0.3)
        after = [writer.written for writer in writers]
        holder.execute("SELECT pg_advisory_unlock(%s)", (PAUSE_LOCK,))
    assert after == before


def lose_an_answer() -> None:
    MIGRATIONS[1]["postgresql"] = "; ".join(
        ["DELETE FROM answers WHERE user_id = 'writer 1'", MIGRATIONS[1]["postgresql"]]
    )


def test_a_migration_that_loses_what_is_written_meanwhile_is_caught(
    holder: psycopg.Connection[tuple[Any, ...]], postgres_server: Server
) -> None:
    """Negative control of the comparison."""
    assert value(holder, "SELECT 1") == [1]
    with writing(postgres_server.url) as writers:
        wait_for(lambda: all(writer.written > 3 for writer in writers))
        with migrating(postgres_server.url, lose_an_answer) as process:
            process.join(60)
    store = open_store(postgres_server.url)
    with pytest.raises(StoreError, match="rows where"):
        writers[1].lost_in(store)
    assert writers[0].lost_in(store) == []
    store.close()


def killed_while_building(holder: psycopg.Connection[tuple[Any, ...]], url: str) -> None:
    """Kill a process that builds an index, and the server's process that builds it for it."""
    with psycopg.connect(url) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("SELECT count(*) FROM slatewise.users")
        with migrating(url) as process:
            wait_for(lambda: bool(value(holder, BUILDING)))
            os.kill(process.pid, signal.SIGKILL)
            process.join()
        holder.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_progress_create_index")
        wait_for(lambda: not value(holder, BUILDING))
    assert value(holder, INVALID) == ["slatewise.slates_by_number"]


def test_after_a_kill_the_next_goes_on(holder: psycopg.Connection[tuple[Any, ...]], postgres_server: Server) -> None:
    """What was half built is built again; what was complete is not."""
    holder.execute(online_part(1)[0])
    holder.execute(online_part(1)[2])
    ((complete,),) = holder.execute("SELECT 'slatewise.slates_by_id'::regclass::oid").fetchall()
    with writing(postgres_server.url) as writers:
        killed_while_building(holder, postgres_server.url)
        wait_for(lambda: all(writer.written > N_WRITES for writer in writers))
        store = open_store(postgres_server.url)
    assert [lost for writer in writers for lost in writer.lost_in(store)] == []
    assert value(holder, INVALID) == []
    assert value(holder, "SELECT 'slatewise.slates_by_id'::regclass::oid") == [complete]
    store.close()


def test_a_migration_that_trusts_what_it_finds_is_caught(
    holder: psycopg.Connection[tuple[Any, ...]], postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: half an index is taken for a whole one."""
    killed_while_building(holder, postgres_server.url)
    monkeypatch.setattr(postgres_migration, "IS_VALID", postgres_migration.IS_VALID.replace("indisvalid", "true", 1))
    with pytest.raises(StoreError, match="not valid"):
        open_store(postgres_server.url)


def test_it_says_how_it_goes(
    holder: psycopg.Connection[tuple[Any, ...]],
    postgres_server: Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(postgres_migration, "TELL_EVERY", 0.01)
    assert value(holder, "SELECT 1") == [1]
    with psycopg.connect(postgres_server.url) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("SELECT count(*) FROM slatewise.users")
        opening = threading.Thread(target=lambda: open_store(postgres_server.url).close())
        opening.start()
        wait_for(lambda: "step 2 of 6, index slates_by_number: waiting for old snapshots" in capsys.readouterr().err)
        assert value(holder, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT phase%'") == [1]
        assert value(holder, LOOKING_IN_A_TRANSACTION) == [0], "an index could wait for this transaction for ever"
    opening.join()
