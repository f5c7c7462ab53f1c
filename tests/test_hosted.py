"""Works of a SQLite store in the thread of an event loop: the same promises, another thread."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import pytest

from slatewise.service.waiting import result
from slatewise.store import StoreFullError
from slatewise.store.protocol import BeliefRow, Transaction
from slatewise.store.sqlite import SqliteStore
from tests.store_rows import answer, do, slate


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def loop() -> Iterator[Loop]:
    running = Loop()
    yield running
    if running.thread.is_alive():
        running.stop()


@pytest.fixture
def store(tmp_path: Path, loop: Loop) -> Iterator[SqliteStore]:
    opened = SqliteStore.open(str(tmp_path / "slates.db"))
    opened.work_in(loop.loop.call_soon_threadsafe)
    yield opened
    opened.close()


def test_works_run_in_the_loop_and_commits_beside_it(store: SqliteStore, loop: Loop) -> None:
    assert do(store, lambda _: threading.current_thread()) is loop.thread
    assert store._writer is not None
    seen: list[threading.Thread] = []

    def note() -> bool:
        seen.append(threading.current_thread())
        return False

    store._writer.connection.set_commit_hook(note)
    do(store, lambda t: t.add_slate(slate("u", 0)))
    assert seen
    assert loop.thread not in seen


def test_a_work_that_fails_undoes_itself_and_no_other(store: SqliteStore) -> None:
    def fail(transaction: Transaction) -> None:
        transaction.add_slate(slate("v", 0))
        raise ValueError("no")

    hold = threading.Event()
    store.submit(lambda _: hold.wait(10))
    waiting = [store.submit(lambda t: t.add_slate(slate("u", 0))), store.submit(fail)]
    waiting.append(store.submit(lambda t: t.add_answer(answer("u", 0))))
    hold.set()
    waiting[0].result(10)
    waiting[2].result(10)
    with pytest.raises(ValueError, match="no"):
        waiting[1].result(10)
    assert store.read(lambda t: (len(t.slates_of("u")), len(t.slates_of("v")))) == (1, 0)


def test_a_full_disk_is_said_and_survived(store: SqliteStore) -> None:
    do(store, lambda t: t.add_slate(slate("u", 0)))
    assert store._writer is not None
    store._writer.connection.execute("PRAGMA max_page_count = 40").fetchall()
    with pytest.raises(StoreFullError):
        do(store, lambda t: t.save_belief(BeliefRow("u", "space", 1, bytes(1_000_000))))
    store._writer.connection.execute("PRAGMA max_page_count = 100000").fetchall()
    do(store, lambda t: t.save_belief(BeliefRow("u", "space", 1, bytes(1_000_000))))


def test_a_loop_that_was_closed_is_not_waited_for(store: SqliteStore, loop: Loop) -> None:
    loop.stop()
    assert do(store, lambda _: threading.current_thread()) is not loop.thread


def test_what_waits_is_done_before_the_store_is_closed(store: SqliteStore) -> None:
    hold = threading.Event()
    store.submit(lambda _: hold.wait(10))
    waiting: list[Future[None]] = [store.submit(lambda t, at=at: t.add_slate(slate("u", at))) for at in range(50)]  # type: ignore[misc]
    closing = threading.Thread(target=store.close)
    closing.start()
    time.sleep(0.05)
    hold.set()
    closing.join(30)
    assert [one.result(0) for one in waiting] == [None] * 50


@pytest.fixture(params=["hosted", "alone"])
def either(request: pytest.FixtureRequest, store: SqliteStore) -> SqliteStore:
    """A store with a host, and one without."""
    if request.param == "alone":
        store.work_in(None)
    return store


def test_a_work_that_is_not_ready_lets_others_go_first(either: SqliteStore) -> None:
    order: list[str] = []
    is_ready = threading.Event()
    first = either.submit(lambda _: order.append("first"), is_ready.wait)
    for number in range(3):
        do(either, lambda _, number=number: order.append(f"other {number}"))  # type: ignore[misc]
    assert not first.done()
    is_ready.set()
    first.result(10)
    assert order == ["other 0", "other 1", "other 2", "first"]


def test_a_work_that_cannot_say_when_it_is_ready_need_not_wait(either: SqliteStore) -> None:
    assert either.submit(lambda _: "done", lambda _: bool(1 / 0)).result(10) == "done"


def test_a_store_is_closed_only_when_all_were_ready(either: SqliteStore) -> None:
    is_ready = threading.Event()
    waiting = either.submit(lambda t: t.add_slate(slate("u", 0)), is_ready.wait)
    closing = threading.Thread(target=either.close)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive()
    is_ready.set()
    closing.join(10)
    assert waiting.result(0) is None


def test_answers_leave_before_the_next_works_begin(store: SqliteStore, loop: Loop) -> None:
    order: list[str] = []
    others: list[Future[None]] = []

    def submit_another() -> bool:
        if not others:
            others.append(store.submit(lambda _: order.append("the next work")))
        return False

    async def client() -> None:
        await result(store.submit(lambda _: order.append("a work")))
        order.append("its answer")

    assert store._writer is not None
    store._writer.connection.set_commit_hook(submit_another)
    asyncio.run_coroutine_threadsafe(client(), loop.loop).result(10)
    others[0].result(10)
    assert order == ["a work", "its answer", "the next work"]


def slowly(done: list[int], number: int, _: Transaction) -> None:
    time.sleep(0.001)
    done.append(number)


def test_the_loop_gets_its_turn_between_works(store: SqliteStore, loop: Loop) -> None:
    """Whatever comes while a long queue is worked off is heard before its end."""
    hold = threading.Event()
    store.submit(lambda _: hold.wait(10))
    done: list[int] = []
    for at in range(200):
        store.submit(partial(slowly, done, at))
    heard: list[int] = []
    loop.loop.call_soon_threadsafe(lambda: heard.append(len(done)))
    hold.set()
    do(store, lambda _: None)
    assert len(done) == 200
    assert heard[0] < 50
