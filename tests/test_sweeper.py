"""Expired slates are closed in small portions: nobody waits behind many, and all of them are closed in the end."""

import asyncio
import io
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest

from slatewise.recommender import Recommender
from slatewise.recommender.expiry import MOST_COUNTED, PORTION
from slatewise.service.metrics import Metrics
from slatewise.service.sweeper import IDLE, INTERVAL, START_OVER, Sweeper, pause
from slatewise.store import Store, StoreDamagedError, open_store
from slatewise.store.memory import MemoryStore
from slatewise.store.postgres import PostgresStore
from slatewise.store.protocol import Transaction
from tests.support.postgres import Server
from tests.support.recommending import Clock, WrappedStore, make_catalog
from tests.support.serving import local, written_at_once
from tests.support.store_rows import emptied, slate

CATALOG = make_catalog(10)
WAIT = 100.0


def expired(metrics: Metrics) -> int:
    """How many expired slates are counted as closed."""
    return int(metrics.registry.get_sample_value("slatewise_slates_expired_total") or 0)


class Queued(Future[Any]):
    """A result that is there once the queue has been worked off."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__()
        self.work = work

    def result(self, timeout: float | None = None) -> Any:
        self.work()
        return super().result(timeout)


class QueueingStore(WrappedStore):
    """A store whose writes wait in a queue and take their time, by a clock of its own; some of them fail."""

    def __init__(self, clock: Clock, seconds: float = 0.0005) -> None:
        self.memory = MemoryStore()
        super().__init__(self.memory)
        self.clock, self.seconds, self.longest = clock, seconds, 0
        self.queue: list[tuple[Queued, Callable[[Transaction], Any]]] = []
        self.damaged: set[str] = set()
        self.tried: Counter[str] = Counter()

    def write(self, job: Callable[[Transaction], Any]) -> Future[Any]:
        future = Queued(self.work)
        self.queue.append((future, job))
        self.longest = max(self.longest, len(self.queue))
        return future

    def work(self) -> None:
        while self.queue:
            future, job = self.queue.pop(0)
            self.clock.now += self.seconds
            done = self.inner.write(lambda t, job=job: job(Fragile(t, self)))  # type: ignore[misc]
            error = done.exception()
            future.set_exception(error) if error else future.set_result(done.result())


class Fragile:
    """A transaction that cannot lock a user whose log is damaged."""

    def __init__(self, inner: Transaction, store: QueueingStore) -> None:
        self.inner, self.store = inner, store

    def lock(self, user: str) -> Any:
        self.store.tried[user] += 1
        if user in self.store.damaged:
            raise StoreDamagedError("damaged")
        return self.inner.lock(user)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class World:
    """A sweeper in a time of its own, and visitors who ask for slates and never answer."""

    def __init__(self, seconds: float = 0.0005) -> None:
        self.clock, self.logged = Clock(), io.BytesIO()
        self.store = QueueingStore(self.clock, seconds)
        self.recommender = Recommender(CATALOG, store=self.store, reward_wait=WAIT, clock=self.clock)
        self.metrics, self.created = Metrics(), 0
        self.sweeper = Sweeper(self.recommender, self.metrics, written_at_once(self.logged), self.clock)

    def add(self, number: int, age: float = 2 * WAIT) -> None:
        rows = [slate(f"u{self.created + at}", 0, created_at=self.clock.now - age) for at in range(number)]
        for row in rows:
            self.store.inner.write(methodcaller("add_slate", row)).result()
        self.created += number

    def run(self, seconds: float, rate: float = 0.0) -> None:
        """Sweep for so long, while slates expire at a rate."""
        started = self.clock.now
        expected = self.created
        while self.clock.now < started + seconds:
            pause_seconds = self.sweeper.step()
            self.clock.now += pause_seconds
            due = expected + int(rate * (self.clock.now - started))
            self.add(due - self.created)

    @property
    def closed(self) -> int:
        return expired(self.metrics)


@pytest.mark.parametrize("number", [3, 500])
def test_no_more_than_a_portion_is_queued_at_a_time(number: int) -> None:
    world = World()
    world.add(number)
    world.run(10.0)
    assert world.closed == number
    assert world.store.longest == min(number, PORTION)


def test_the_check_of_the_queue_can_fail() -> None:
    """Negative control: everything at once, as it was done before."""
    world = World()
    world.add(500)
    world.recommender.expired_slates().close_portion(limit=1_000)
    assert world.store.longest == 500


def test_the_library_closes_in_portions_too() -> None:
    world = World()
    world.add(35)
    assert world.recommender.close_expired(limit=12) == 12
    assert world.recommender.close_expired() == 23
    assert world.recommender.close_expired() == 0
    assert world.store.longest == PORTION


def test_the_pace_keeps_up_with_150_slates_per_second() -> None:
    """Also if every write takes three milliseconds; the metric shows that hardly any wait."""
    for seconds in (0.0005, 0.003):
        world = World(seconds)
        world.run(10.0, rate=150.0)
        assert world.closed >= 1_500 - 150 * IDLE
        assert world.sweeper.figures()["waiting"] <= 2 * PORTION


def test_a_busy_store_is_left_alone_for_as_long_as_a_portion_took() -> None:
    """Writes that take 50 ms mean a long queue: half of the time at most is spent in it."""
    world = World(seconds=0.05)
    world.add(400)
    world.run(20.0)
    assert world.closed == pytest.approx(20.0 / (2 * PORTION * 0.05) * PORTION, abs=PORTION)
    assert world.sweeper.figures()["waiting"] > 0


@pytest.mark.parametrize(
    ("found", "seconds", "expected"),
    [(0, 0.001, IDLE), (1, 0.001, INTERVAL - 0.001), (10, 0.03, 0.03), (10, 0.5, 0.5), (10, 90.0, IDLE)],
)
def test_pauses(found: int, seconds: float, expected: float) -> None:
    assert pause(found, seconds) == pytest.approx(expected)


def test_slates_that_cannot_be_closed_hold_up_nobody_and_are_tried_again_later() -> None:
    """More of them than a portion, and all older than the rest."""
    world = World()
    world.store.damaged = {f"u{number}" for number in range(3 * PORTION)}
    world.add(3 * PORTION)
    world.add(50, age=1.5 * WAIT)
    world.run(0.8 * START_OVER)
    assert world.closed == 50
    assert {world.store.tried[user] for user in world.store.damaged} == {1}
    assert world.logged.getvalue().count(b"StoreDamagedError") == 3 * PORTION
    world.store.damaged = set()
    world.run(0.4 * START_OVER)
    assert world.closed == 50 + 3 * PORTION
    assert world.sweeper.figures() == {"waiting": 0, "oldest_seconds": 0.0}


def test_the_library_raises_the_error_once_all_others_are_closed() -> None:
    world = World()
    world.store.damaged = {f"u{number}" for number in range(PORTION)}
    world.add(3 * PORTION)
    with pytest.raises(StoreDamagedError):
        world.recommender.close_expired()
    assert len(world.store.read(lambda t: t.expired(world.clock.now, 100))) == PORTION


def test_a_damaged_row_is_passed_over(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'slates.db'}")
    with Recommender(CATALOG, store=store, reward_wait=-1.0) as recommender:
        slates = [recommender.recommend(f"u{number}") for number in range(PORTION + 1)]
        damage(store, slates[0].slate_id)
        with pytest.raises(StoreDamagedError, match="checksum"):
            recommender.close_expired()
        assert store.read(lambda t: t.expired(time.time(), 100)) == [None]


def damage(store: Any, slate_id: str) -> None:
    sql = "UPDATE slates SET variety = 7.0 WHERE slate_id = ?"
    store.writer.between_commits(lambda connection: connection.execute(sql, (slate_id,)).fetchall()).result()


def test_a_store_that_is_down_is_asked_again_a_little_later() -> None:
    world = World()
    world.add(3)
    world.store.memory.is_closed = True
    assert world.sweeper.step() == IDLE
    assert b"StoreUnavailableError" in world.logged.getvalue()
    world.store.memory.is_closed = False
    world.sweeper.step()
    assert world.closed == 3


def test_the_metric_says_how_many_wait_and_for_how_long_but_counts_no_more_than_it_must() -> None:
    world = World(seconds=0.0)
    world.add(MOST_COUNTED + 100, age=WAIT + 40.0)
    world.sweeper.step()
    assert world.sweeper.figures() == {"waiting": MOST_COUNTED, "oldest_seconds": pytest.approx(40.0)}
    world.clock.now += 5.0
    assert world.sweeper.figures()["oldest_seconds"] == pytest.approx(45.0)


def test_looking_for_expired_slates_reads_an_index_of_open_ones_only(tmp_path: Path) -> None:
    """However many slates there are."""
    from slatewise.store import statements

    store: Any = open_store(f"sqlite:///{tmp_path / 'slates.db'}")
    for sql, parameters in ((statements.EXPIRED, (1.0, 10, 0)), (statements.COUNT_EXPIRED, (1.0, 10))):
        explain = f"EXPLAIN QUERY PLAN {sql}"
        plan = store.writer.between_commits(lambda c, p=parameters, s=explain: c.execute(s, p).fetchall()).result()
        steps = [str(row[-1]) for row in plan]
        assert any("open_slates" in step for step in steps)
        assert not any("TEMP B-TREE" in step for step in steps)
    store.close()


def test_the_service_sweeps_while_it_runs(tmp_path: Path) -> None:
    recommender = Recommender(CATALOG, reward_wait=-1.0)
    for number in range(2 * PORTION):
        recommender.recommend(f"u{number}")
    CATALOG.save(tmp_path / "catalog")

    with local(tmp_path, recommender) as service:

        async def live() -> str:
            async with service.app.router.lifespan_context(service.app):
                while expired(service.state.metrics) < 2 * PORTION:
                    await asyncio.sleep(0.01)
                return (await service.client.client.get("/metrics")).text

        text = service.client.loop.run_until_complete(asyncio.wait_for(live(), 30))
    assert "slatewise_expired_waiting " in text
    assert "slatewise_expired_oldest_seconds " in text


# --- several processes on one store


class CountingStore(WrappedStore):
    """A store that counts the writes asked of it, and lets another process come in before the first."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.n_writes, self.meanwhile = 0, list[Callable[[], Any]]()

    def write(self, job: Callable[[Transaction], Any]) -> Future[Any]:
        while self.meanwhile:
            self.meanwhile.pop()()
        self.n_writes += 1
        return super().write(job)


def sweep_at_once(url: str) -> tuple[list[int], list[float]]:
    """Let a second process sweep while the first is at it; return how many writes each asks for, how many it sees.

    Then the second sweeps alone.
    """
    stores = [CountingStore(open_store(url)) for _ in range(2)]
    recommenders = [Recommender(CATALOG, store=store, reward_wait=WAIT) for store in stores]
    sweepers = [Sweeper(one, Metrics(), written_at_once(io.BytesIO())) for one in recommenders]
    rows = [slate(f"u{number}", 0, created_at=time.time() - 2 * WAIT) for number in range(PORTION + 1)]
    for row in rows[1:]:
        stores[0].inner.write(methodcaller("add_slate", row)).result()
    stores[0].meanwhile.append(sweepers[1].step)
    sweepers[0].step()
    seen = [sweeper.figures()["waiting"] for sweeper in sweepers]
    stores[0].inner.write(methodcaller("add_slate", rows[0])).result()
    sweepers[1].step()
    for recommender in recommenders:
        recommender.close()
    return [store.n_writes for store in stores], seen


def test_of_several_processes_one_sweeps_at_a_time(postgres_server: Server) -> None:
    """The other one leaves the same slates alone, and still knows how many there are."""
    assert sweep_at_once(emptied(postgres_server)) == ([PORTION, 1], [PORTION, PORTION])


def test_processes_that_do_not_take_turns_do_the_same_work_twice(
    postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    monkeypatch.setattr(PostgresStore, "sweeping", lambda _: nullcontext(True))
    assert sweep_at_once(emptied(postgres_server))[0] == [PORTION, PORTION + 1]
