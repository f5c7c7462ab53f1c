"""Jobs that PostgreSQL commits together: none harms another, users do not wait for each other, round trips are few."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import psycopg
import pytest

from slatewise.catalog import Catalog
from slatewise.recommender import Recommender
from slatewise.recommender.feedback import FeedbackEvent, record_feedback
from slatewise.store import StoreError, postgres_batch, postgres_session, postgres_writer
from slatewise.store.postgres import PostgresStore
from slatewise.store.protocol import Transaction
from tests.support.postgres import Server, wait_for
from tests.support.recommending import serving
from tests.support.store_rows import do, emptied, one_more

N_JOBS = 20


@pytest.fixture
def url(postgres_server: Server) -> str:
    return emptied(postgres_server)


@pytest.fixture
def store(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresStore]:
    """A store with one writer, so that what is queued meanwhile becomes one batch."""
    monkeypatch.setattr(postgres_writer, "N_WRITERS", 1)
    opened = PostgresStore.open(url)
    yield opened
    opened.close()


def committed_together(store: PostgresStore, jobs: list[Callable[[Transaction], Any]]) -> list[Future[Any]]:
    """Queue jobs while the writer is kept busy, so that it takes all of them at once; return them when done."""
    are_queued = threading.Event()
    first = store.write(lambda _: are_queued.wait(timeout=30))
    wait_for(first.running)
    futures = [store.write(job) for job in jobs]
    are_queued.set()
    for future in futures:
        future.exception(timeout=30)
    return futures


def n_commits(url: str) -> int:
    """How many transactions the server has committed that changed anything."""
    with psycopg.connect(url) as connection:
        return int(connection.execute("SELECT count(DISTINCT xmin::text) FROM slatewise.users").fetchall()[0][0])


def test_what_is_queued_is_committed_together(store: PostgresStore, url: str) -> None:
    futures = committed_together(store, [one_more(f"user {number}") for number in range(N_JOBS)])
    assert [future.result() for future in futures] == [1] * N_JOBS
    assert n_commits(url) == 1


def test_jobs_about_one_user_run_one_after_the_other(store: PostgresStore) -> None:
    futures = committed_together(store, [one_more("u")] * N_JOBS)
    assert sorted(future.result() for future in futures) == list(range(1, N_JOBS + 1))
    assert store.read(lambda t: t.lock("u")).n_slates == N_JOBS


def test_jobs_about_one_user_that_run_side_by_side_are_caught(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server itself does not keep jobs of one transaction apart."""
    monkeypatch.setattr(postgres_batch.Task, "wait_for_turn", lambda _task, _user: None)
    committed_together(store, [one_more("u")] * N_JOBS)
    assert store.read(lambda t: t.lock("u")).n_slates < N_JOBS


def slates_counted(store: PostgresStore) -> float:
    """Send several final events on one slate, which are committed together; return how often it was counted."""
    catalog = Catalog.from_vectors(range(9), [[float(item), 1.0] for item in range(9)])
    recommender = Recommender(catalog, store=store)
    slate = recommender.recommend("ann", 5)
    events = [FeedbackEvent(slate.slate_id, (item.id,), event_id=str(item.id)) for item in slate.items]
    jobs: list[Callable[[Transaction], Any]] = [
        partial(record_feedback, serving(recommender), event=event, changes=deque()) for event in events
    ]
    assert not any(future.result().duplicate for future in committed_together(store, jobs))
    return sum(counts.slates for counts in store.read(lambda t: t.counts_of("ann")).values())


def test_feedback_on_one_slate_that_is_committed_together_closes_it_once(store: PostgresStore) -> None:
    """Each looks at the slate again after the one before."""
    assert slates_counted(store) == 1


def test_feedback_that_uses_what_was_read_too_early_is_caught(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for_turn = postgres_batch.Task.wait_for_turn

    def careless(task: postgres_batch.Task, user: str) -> bool:
        wait_for_turn(task, user)
        return True

    monkeypatch.setattr(postgres_batch.Task, "wait_for_turn", careless)
    assert slates_counted(store) > 1


def failing(t: Transaction) -> None:
    """A job that fails after it has written."""
    one_more("w")(t)
    raise KeyError("w")


def conflicting(t: Transaction) -> None:
    """A job that makes the server refuse a statement."""
    t.save_user(t.lock("w\0"))


def refusing(t: Transaction) -> None:
    """A job that fails before it has written."""
    raise KeyError(t.lock("x").user)


@pytest.mark.parametrize(
    ("job", "error"),
    [(failing, KeyError), (conflicting, StoreError), (refusing, KeyError)],
    ids=lambda one: one.__name__,
)
def test_a_job_that_fails_harms_no_other(
    url: str, store: PostgresStore, job: Callable[[Transaction], Any], error: type
) -> None:
    futures = committed_together(store, [one_more("u"), one_more("v"), job, one_more("u")])
    assert [futures[number].result() for number in (0, 1, 3)] == [1, 1, 2]
    assert isinstance(futures[2].exception(), error)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT user_id FROM slatewise.users ORDER BY 1").fetchall() == [("u",), ("v",)]


def test_jobs_that_fail_together_are_caught(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a writer that gives no job a transaction of its own."""

    def commit(writer: postgres_writer.PostgresWriter, jobs: list[Any], lock: Any) -> list[postgres_batch.Outcome]:
        try:
            return writer.commit_once(jobs, lock)
        except KeyError as error:
            return [postgres_batch.Outcome(error=error) for _ in jobs]

    monkeypatch.setattr(postgres_writer.PostgresWriter, "commit", commit)
    futures = committed_together(store, [one_more("u"), failing, one_more("v")])
    assert all(isinstance(future.exception(), KeyError) for future in futures)


def test_who_is_locked_by_somebody_else_holds_up_nobody_else(
    url: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many jobs wait for one user, who is locked for longer than they need; jobs about others are done meanwhile."""
    monkeypatch.setattr(postgres_session, "SETTINGS", "SET LOCAL search_path = slatewise")
    monkeypatch.setattr(postgres_batch, "PATIENCE", "SET LOCAL lock_timeout = '60s'")
    monkeypatch.setattr("slatewise.store.postgres_session.MAX_SILENCE", 60.0)
    do(store, one_more("u"))
    patient = PostgresStore.open(url)
    with psycopg.connect(url) as connection:
        connection.execute("SELECT * FROM slatewise.users WHERE user_id = 'u' FOR UPDATE")
        waiting = [patient.write(one_more("u")) for _ in range(N_JOBS)]
        assert [do(patient, one_more(f"user {number}")) for number in range(N_JOBS)] == [1] * N_JOBS
        patient.health()
        assert not any(future.done() for future in waiting)
    assert sorted(future.result(timeout=30) for future in waiting) == list(range(2, N_JOBS + 2))
    patient.close()


def test_a_writer_that_waits_for_whoever_is_locked_is_caught(
    url: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: behind one user who is locked, everybody waits."""
    do(store, one_more("u"))
    monkeypatch.setattr(postgres_writer, "lock_if_free", postgres_batch.lock_patiently)
    with psycopg.connect(url) as connection:
        connection.execute("SELECT * FROM slatewise.users WHERE user_id = 'u' FOR UPDATE")
        futures = [store.write(one_more(user)) for user in ("u", "v")]
        wait_for(futures[0].running)
        time.sleep(0.3)
        assert not futures[1].done()
    assert [future.result(timeout=30) for future in futures] == [2, 1]
