"""The PostgreSQL store: several processes at once, lost connections, full disks, and passwords that stay secret."""

import os
import random
import shutil
import subprocess
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from operator import methodcaller
from pathlib import Path
from typing import Any

import psycopg
import pytest

from slatewise.store import (
    StoreError,
    StoreFullError,
    StoreUnavailableError,
    migrations,
    open_store,
    postgres_batch,
    postgres_writer,
)
from slatewise.store.postgres import PostgresStore
from slatewise.store.postgres_connection import Address, connect
from slatewise.store.postgres_writer import N_WRITERS
from slatewise.store.protocol import BeliefRecord, Transaction, UserRecord
from slatewise.store.sql import SqlTransaction
from tests.conftest import ROOT, missing
from tests.support.postgres import Server, until_it_works
from tests.support.store_rows import answer, at_once, do, emptied, fill, one_more, slate

OTHER_PROCESS = """
import sys
from slatewise.store import open_store
from tests.support.store_rows import at_once, do, one_more
from tests.test_store_postgres import answer_once
store = open_store(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
at_once([lambda: [do(store, one_more("u")) for _ in range(15)]] * 4)
print(sum(do(store, answer_once(number)) for number in range(40)))
store.close()
"""


@pytest.fixture
def url(postgres_server: Server) -> str:
    return emptied(postgres_server)


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    opened = PostgresStore.open(url)
    yield opened
    opened.close()


@pytest.fixture
def another(url: str) -> Iterator[PostgresStore]:
    """The same store as another process would open it."""
    opened = PostgresStore.open(url)
    yield opened
    opened.close()


def answer_once(number: int) -> Callable[[Transaction], bool]:
    """A work that records an event unless it is known, without locking anything first."""

    def work(t: Transaction) -> bool:
        event = answer(f"user {number % 3}", number)
        if t.feedback_on(slate(event.user, number), event.event_id):
            return False
        t.add_feedback(event)
        return True

    return work


def ask(transaction: Transaction, sql: str) -> Any:
    """Send a statement behind the back of the store, and return its one value."""
    assert isinstance(transaction, SqlTransaction)
    return transaction.execute(sql, ())[0][0]


def test_two_processes_lose_no_update_and_count_no_event_twice(store: PostgresStore, url: str) -> None:
    command = [sys.executable, "-c", OTHER_PROCESS, url]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    others = [subprocess.Popen(command, cwd=ROOT, **pipes) for _ in range(2)]  # noqa: S603
    for other in others:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
    for other in others:
        assert other.stdin is not None
        other.stdin.write("go\n")
        other.stdin.flush()
    at_once([lambda: [do(store, one_more("u")) for _ in range(15)]] * 4)
    recorded: int = sum(do(store, answer_once(number)) for number in range(40))
    recorded += sum(int(other.communicate(timeout=60)[0]) for other in others)
    assert [other.returncode for other in others] == [0, 0]
    assert store.read(lambda t: t.lock("u")).n_slates == 3 * 4 * 15
    assert recorded == 40
    assert sum(len(store.read(methodcaller("feedback_of", f"user {n}"))) for n in range(3)) == 40


def test_a_race_for_an_event_id_makes_the_second_look_again(store: PostgresStore, another: PostgresStore) -> None:
    """Both look before either writes, so that the database itself has to tell them apart."""
    both_have_looked = threading.Barrier(2)
    runs: list[bool] = []

    def work(t: Transaction) -> bool:
        known = bool(t.feedback_on(slate("u", 0)))
        runs.append(known)
        if len(runs) <= 2:
            both_have_looked.wait(timeout=30)
        if not known:
            t.add_feedback(answer("u", 0))
        return known

    futures = [store.write(work), another.write(work)]
    assert sorted(future.result(timeout=30) for future in futures) == [False, True]
    assert runs == [False, False, True]


def test_forgetting_and_writing_at_once_leaves_a_whole_log(store: PostgresStore) -> None:
    def key(number: int) -> str:
        return f"{threading.get_ident()} {number} {os.urandom(4).hex()}"

    def grow() -> None:
        for _ in range(12):
            do(store, grown)

    def grown(t: Transaction) -> None:
        row = t.lock("u")
        t.add_slate(slate("u", row.n_slates, slate_id=key(row.n_slates)))
        t.save_user(UserRecord("u", key(0), row.n_slates + 1))
        t.save_belief(BeliefRecord("u", "space", row.n_slates + 1, b"belief"))

    at_once([grow, grow, grow, lambda: [do(store, lambda t: t.forget("u")) for _ in range(12)]])
    row, slates, belief = store.read(lambda t: (t.lock("u"), t.slates_of("u"), t.belief("u")))
    assert [one.number for one in slates] == list(range(row.n_slates))
    assert belief.covers == row.n_slates
    assert not row.damaged
    assert not belief.damaged


def test_works_that_block_each_other_are_run_again(store: PostgresStore, another: PostgresStore) -> None:
    both_hold_one = threading.Barrier(2)
    runs: list[str] = []

    def crossing(first: str, second: str) -> Callable[[Transaction], None]:
        def work(t: Transaction) -> None:
            one_more(first)(t)
            runs.append(first)
            if len(runs) <= 2:
                both_hold_one.wait(timeout=30)
            one_more(second)(t)

        return work

    for future in [store.write(crossing("u", "v")), another.write(crossing("v", "u"))]:
        future.result(timeout=30)
    assert [store.read(methodcaller("lock", user)).n_slates for user in "uv"] == [2, 2]
    assert len(runs) > 2


def test_works_of_one_transaction_that_wait_for_each_other_are_run_again(store: PostgresStore) -> None:
    """One of them locks its users against the order, as feedback may whose slate was merged into another user.

    The first writer takes both together, because the others are kept busy.
    """
    may_go_on = [threading.Event() for _ in range(N_WRITERS)]
    runs: list[str] = []

    def blocking(has_begun: threading.Event, may_go_on: threading.Event) -> Callable[[Transaction], None]:
        def work(_: Transaction) -> None:
            has_begun.set()
            may_go_on.wait(timeout=60)

        return work

    def crossing(*users: str) -> Callable[[Transaction], list[UserRecord]]:
        def work(t: Transaction) -> list[UserRecord]:
            runs.append(users[0])
            return [t.lock(user) for user in users]

        return work

    def long(t: Transaction) -> None:
        runs.append("u")
        one_more("u")(t)
        for _ in range(5):
            t.slate("unknown")

    busy: list[Future[Any]] = []
    for may_go in may_go_on:
        has_begun = threading.Event()
        busy.append(store.write(blocking(has_begun, may_go)))
        assert has_begun.wait(timeout=30)
    together: list[Future[Any]] = [store.write(crossing("v", "u")), store.write(long)]
    may_go_on[0].set()
    for future in together:
        future.result(timeout=30)
    for may_go in may_go_on:
        may_go.set()
    for future in busy:
        future.result(timeout=30)
    assert runs == ["v", "u", "v", "u"]
    assert store.read(methodcaller("lock", "u")).n_slates == 1


def test_works_that_lock_several_users_in_any_order_all_count_once(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to 40 of them share a transaction of the only writer, and those that wait for each other are run again."""
    monkeypatch.setattr(postgres_writer, "N_WRITERS", 1)
    draw, expected, alone = random.Random(0), Counter[str](), PostgresStore.open(url)

    def counting(users: list[str]) -> Callable[[Transaction], None]:
        def work(t: Transaction) -> None:
            for row in [t.lock(user) for user in users]:
                t.save_user(UserRecord(row.user, f"stamp {row.n_slates}", row.n_slates + 1))

        return work

    for n_works in [3, 12, 40] * 10:
        chosen = [draw.sample("stuvw", draw.randint(1, 3)) for _ in range(n_works)]
        expected.update(user for users in chosen for user in users)
        for future in [alone.write(counting(users)) for users in chosen]:
            future.result(timeout=60)
    alone.close()
    assert {user: store.read(methodcaller("lock", user)).n_slates for user in expected} == expected


def test_a_work_that_waits_for_users_locks_none_before_it_says_so(store: PostgresStore, url: str) -> None:
    """It may turn out to be about another one, whose lock somebody holds who waits for the first."""
    do(store, one_more("v"))

    def work(t: Transaction) -> int:
        t.expect_feedback("unknown", "v", None)
        t.slate("unknown")
        with psycopg.connect(url) as other:
            found = other.execute("SELECT 1 FROM slatewise.users WHERE user_id = 'v' FOR UPDATE SKIP LOCKED").fetchall()
        return len(found)

    session = connect(Address.of(url))
    n_free = {
        lock: postgres_batch.commit_jobs(session, "here", [work], lock)[0].result
        for lock in (postgres_batch.lock_patiently, postgres_batch.lock_if_free)
    }
    session.close()
    assert n_free == {postgres_batch.lock_patiently: 1, postgres_batch.lock_if_free: 0}


def test_a_connection_that_breaks_is_replaced(store: PostgresStore) -> None:
    runs = []

    def work(t: Transaction) -> int:
        runs.append(one_more("u")(t))
        if len(runs) == 1:
            ask(t, "SELECT pg_terminate_backend(pg_backend_pid())")
        return runs[-1]

    assert do(store, work) == 1
    assert runs == [1, 1]


def test_all_connections_that_break_while_idle_are_replaced(store: PostgresStore, url: str) -> None:
    at_once([lambda: do(store, one_more("u"))] * 8)
    with psycopg.connect(url) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    assert do(store, one_more("u")) == 9
    at_once([lambda: do(store, one_more("u"))] * 8)
    assert store.read(lambda t: t.lock("u").n_slates) == 17


def test_a_server_that_goes_away_is_said_and_its_return_noticed(store: PostgresStore, postgres_server: Server) -> None:
    do(store, one_more("u"))
    postgres_server.stop("immediate")
    try:
        for attempt in (lambda: do(store, one_more("u")), lambda: store.read(lambda t: t.lock("u")), store.health):
            with pytest.raises(StoreUnavailableError, match="cannot be reached"):
                attempt()
        with pytest.raises(StoreUnavailableError, match="cannot be reached"):
            PostgresStore.open(postgres_server.url)
    finally:
        postgres_server.start()
    until_it_works(lambda: do(store, one_more("u")))
    assert store.read(lambda t: t.lock("u")).n_slates == 2


def test_who_waits_too_long_for_a_user_is_told(
    url: str, monkeypatch: pytest.MonkeyPatch, postgres_server: Server
) -> None:
    monkeypatch.setattr("slatewise.store.postgres_batch.PATIENCE", "SET LOCAL lock_timeout = '100ms'")
    hasty = PostgresStore.open(url)
    do(hasty, one_more("u"))
    with psycopg.connect(postgres_server.url) as connection:
        connection.execute("SELECT * FROM slatewise.users FOR UPDATE")
        with pytest.raises(StoreUnavailableError, match="too long"):
            do(hasty, one_more("u"))
        assert do(hasty, one_more("v")) == 1
    assert do(hasty, one_more("u")) == 2
    hasty.close()


@pytest.fixture
def small_tablespace(url: str, postgres_server: Server) -> Iterator[Path]:
    """A disk of two megabytes for the beliefs."""
    place = postgres_server.directory / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:  # noqa: S603
        missing("the right to mount a small tmpfs")
    shutil.chown(place, "postgres")
    PostgresStore.open(url).close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLESPACE small LOCATION '{place}'")
        connection.execute("ALTER TABLE slatewise.beliefs SET TABLESPACE small")
        yield place
        emptied(postgres_server, tables_too=True)
        connection.execute("DROP TABLESPACE small")
    subprocess.run(["umount", "-l", str(place)], check=True)  # noqa: S603, S607


def test_a_full_disk_is_said_and_survived(small_tablespace: Path, url: str) -> None:
    ballast = small_tablespace / "ballast"
    ballast.write_bytes(bytes(1_000_000))
    store = PostgresStore.open(url)
    told, error = 0, None
    while error is None:
        error = store.write(one_more(f"user {told}", os.urandom(40_000))).exception(timeout=30)
        told += error is None
    assert isinstance(error, StoreFullError)
    assert len(list(store.users())) == told
    assert [store.read(methodcaller("belief", f"user {n}")).covers for n in range(told + 1)] == [1] * told + [0]
    ballast.unlink()
    assert do(store, one_more("another", os.urandom(40_000))) == 1
    store.close()


def test_a_server_that_commits_lazily_is_told_not_to(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER ROLE tester SET synchronous_commit = off")
        store = PostgresStore.open(url)
        setting = do(store, lambda t: ask(t, "SELECT current_setting('synchronous_commit')"))
        store.close()
        connection.execute("ALTER ROLE tester RESET synchronous_commit")
    assert setting == "on"


def test_an_address_that_is_wrong_says_what_is_wrong(postgres_server: Server) -> None:
    with pytest.raises(StoreUnavailableError, match='database "nowhere" does not exist'):
        open_store(postgres_server.url.replace("/postgres", "/nowhere"))


def test_the_password_is_never_shown(postgres_server: Server) -> None:
    secret = "open-sesame"  # noqa: S105
    shown = ""
    for place in ("tester:{}@127.0.0.1:1/postgres", "tester:{}@127.0.0.1:port/x", "tester@localhost:1/x?password={}"):
        try:
            open_store("postgresql://" + place.format(secret))
        except (StoreError, ValueError):
            shown += traceback.format_exc()
    assert shown.count("postgres") > 3
    host = f"127.0.0.1:{postgres_server.port}"
    store = PostgresStore.open(f"postgresql://tester:{secret}@{host}/postgres")
    shown += f"{store.address} {store.health()} {vars(store)}"
    store.close()
    shown += str(store.write(one_more("u")).exception())
    assert secret not in shown


def test_several_processes_may_make_the_tables_at_once(postgres_server: Server) -> None:
    url = emptied(postgres_server, tables_too=True)
    with pytest.raises(StoreError, match="empty"):
        PostgresStore.open(url, read_only=True)
    at_once([lambda: PostgresStore.open(url).close()] * 4)
    store = PostgresStore.open(url)
    fill(store, ["u"])
    store.close()


def test_whoever_waited_for_a_migration_sees_it_at_any_isolation_level(postgres_server: Server) -> None:
    """A snapshot taken before the wait would show the tables as they were, and they would be made again."""
    url = emptied(postgres_server, tables_too=True)
    strict = f"{url}?options=-c%20default_transaction_isolation%3Drepeatable%5C%20read"
    at_once([lambda: PostgresStore.open(strict).close()] * 4)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM slatewise.schema_version").fetchall() == [(1,)]


def test_an_old_store_is_brought_up_to_date(store: PostgresStore, url: str, postgres_server: Server) -> None:
    fill(store, ["u"])
    store.close()
    steps = migrations.MIGRATIONS
    try:
        steps.append({"postgresql": "CREATE TABLE notes (x TEXT); CREATE TABLE notes (x TEXT)"})
        with pytest.raises(StoreError, match="notes"):
            PostgresStore.open(url)
        steps[-1] = {"postgresql": "ALTER TABLE slates ADD COLUMN note TEXT DEFAULT 'none'"}
        for _ in range(2):
            again = PostgresStore.open(url)
            assert again.read(lambda t: len(t.slates_of("u"))) == 3
            again.close()
    finally:
        steps.pop()
    with pytest.raises(StoreError, match="newer slatewise"):
        PostgresStore.open(url)
    emptied(postgres_server, tables_too=True)
