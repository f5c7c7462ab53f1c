"""Publications of rates are compacted: bounded, exact for whatever is kept, and whole after a crash at any moment."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from slatewise.recommender import Recommender, rate_publications
from slatewise.recommender.rate_publications import (
    PublishedRates,
    RatesHistory,
    RatesIndex,
    compact,
    latest_rates,
    note_catalog,
    publish,
)
from slatewise.store import Store, open_store
from slatewise.store.memory import MemoryStore
from slatewise.store.protocol import Transaction
from tests.support.recommending import Clock, WrappedStore, make_catalog

DIGEST = "abc"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots after four publications, of which three are kept, in parts of two rates."""
    for name, value in {"EVERY": 4, "KEPT": 3, "PER_PART": 2, "PER_REMOVAL": 2, "REMOVALS": 3}.items():
        monkeypatch.setattr(rate_publications, name, value)


def changes(version: int) -> list[list[Any]]:
    """What a version publishes: two of five items."""
    return [[item, version / 1000, float(version)] for item in (version % 5, (3 * version) % 5 + 10)]


def naive(version: int) -> dict[Any, tuple[float, float]]:
    """The rates after all publications up to a version, one after the other."""
    return {item: (mean, strength) for one in range(1, version + 1) for item, mean, strength in changes(one)}


def step(store: Store, digest: str = DIGEST) -> int:
    """What a worker does: follow, publish, follow, compact."""
    known = store.read(lambda transaction: latest_rates(transaction, digest, PublishedRates()))
    version = known.version + 1
    publish(store, digest, version, {"unseen": (0.1, 2.0), "rates": changes(version)}, 0.0)
    known = store.read(lambda transaction: latest_rates(transaction, digest, known))
    compact(store, digest, known, 0.0)
    return known.version


def check(store: Store, version: int) -> None:
    """Everything that is kept is what was published; `version` is the latest that was acknowledged."""
    rates = store.read(lambda transaction: latest_rates(transaction, DIGEST, PublishedRates()))
    assert rates.version in (version, version + 1)
    assert rates.rates == naive(rates.version)
    assert rates.unseen is not None
    assert [*rates.unseen] == [0.1, 2.0]
    kept = store.read(lambda transaction: [RatesHistory(transaction, DIGEST).at(one) for one in range(1, version + 1)])
    assert all(one is not None for one in kept[-8:])
    for number, one in enumerate(kept, 1):
        assert one is None or one.rates == naive(number)


def names(store: Store) -> set[str]:
    """The names of all fits of a memory store."""
    assert isinstance(store, MemoryStore)
    return {*store.tables.fits}


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/slates.db"}
    with closing(open_store(urls[request.param])) as opened:
        yield opened


def test_the_rates_of_every_kept_version_are_those_published(store: Store) -> None:
    for version in range(1, 31):
        assert step(store) == version
        check(store, version)
    assert store.read(lambda transaction: RatesHistory(transaction, DIGEST).at(15)) is None
    index = store.read(lambda transaction: RatesIndex.read(transaction, DIGEST))
    assert index == RatesIndex(DIGEST, ((20, 5), (24, 5), (28, 5)), None, 20)


def test_whoever_fell_behind_continues_from_a_snapshot(store: Store) -> None:
    step(store)
    behind = store.read(lambda transaction: latest_rates(transaction, DIGEST, PublishedRates()))
    for _ in range(30):
        step(store)
    assert store.read(lambda transaction: latest_rates(transaction, DIGEST, behind)).rates == naive(31)


def test_a_damaged_snapshot_is_passed_over(store: Store) -> None:
    for _ in range(30):
        step(store)
    store.write(lambda transaction: transaction.discard_fits([f"rates {DIGEST} snapshot 28 1"])).result()
    check(store, 30)


class Stopping(WrappedStore):
    """A store of a process that ends at its nth call: before it, or after it and before anybody hears of it."""

    def __init__(self, store: Store, at: int, is_before: bool) -> None:
        super().__init__(store)
        self.calls, self.at, self.is_before = 0, at, is_before

    def read(self, job: Callable[[Transaction], Any]) -> Any:
        return self._call(lambda: super(Stopping, self).read(job))

    def write(self, job: Callable[[Transaction], Any]) -> Future[Any]:
        future: Future[Any] = self._call(lambda: super(Stopping, self).write(job))
        return future

    def _call(self, call: Callable[[], Any]) -> Any:
        self.calls += 1
        if self.calls == self.at and self.is_before:
            raise KeyboardInterrupt
        result = call()
        if self.calls == self.at:
            raise KeyboardInterrupt
        return result


def interrupted(n_steps: int, at: int, is_before: bool) -> bool:
    """Work until the process ends, check what is left, go on, and check again; return whether it ended at all."""
    store, version, has_ended = MemoryStore(), 0, False
    stopping = Stopping(store, at, is_before)
    try:
        for _ in range(n_steps):
            version = step(stopping)
    except KeyboardInterrupt:
        has_ended = True
        if version:
            check(store, version)
    while version < n_steps + 12:
        version = step(store)
    check(store, version)
    listed = {name for name in names(store) if "snapshot" in name}
    index = store.read(lambda transaction: RatesIndex.read(transaction, DIGEST))
    assert listed == {name for snapshot in index.snapshots for name in index.part_names(snapshot)}
    assert len(names(store)) <= 3 * 5 + 4 * 4 + 1
    return has_ended


@pytest.mark.parametrize("is_before", [True, False])
def test_ending_at_any_call_loses_nothing_and_leaves_nothing(is_before: bool) -> None:
    at = 1
    while interrupted(18, at, is_before):
        at += 1
    assert at > 80


def test_a_snapshot_that_counts_before_it_is_whole_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: what counts at once, and removes the others, is lost with the process that writes it."""

    def begin(transaction: Transaction, digest: str, snapshot: tuple[int, int], now: float) -> None:
        RatesIndex(digest, (snapshot,), snapshot, snapshot[0]).save(transaction, now)

    monkeypatch.setattr(rate_publications, "begin_snapshot", begin)
    with pytest.raises(AssertionError):
        _ = [interrupted(18, at, is_before=True) for at in range(1, 80)]


def test_of_a_catalog_used_long_ago_only_the_latest_rates_are_kept() -> None:
    store, catalogs = MemoryStore(), [f"catalog {number}" for number in range(7)]
    for at in range(1, 60):  # a process that ends at this call, and another one that comes after it
        stopping = Stopping(store, at, is_before=at % 2 == 0)
        for digest in catalogs:
            with suppress(KeyboardInterrupt):
                step(stopping, digest)
                note_catalog(stopping, digest, 0.0)
    for digest in catalogs:
        version = step(store, digest)
        note_catalog(store, digest, 0.0)
    for digest in catalogs:
        rates = store.read(lambda transaction, one=digest: latest_rates(transaction, one, PublishedRates()))  # type: ignore[misc]
        assert rates.rates == naive(rates.version)
        history = sum(name.startswith(f"rates {digest} ") for name in names(store))
        assert history <= (1 + 5 if digest in catalogs[:2] else 3 * 5 + 4 * 4 + 1)
    assert version > 20
    index = store.read(lambda transaction: RatesIndex.read(transaction, catalogs[0]))
    assert len(index.snapshots) == 1
    assert index.removed == index.snapshots[0][0]


def test_replay_says_of_old_slates_that_their_rates_are_gone() -> None:
    with Recommender(make_catalog(12), clock=Clock()) as recommender:
        for number in range(60):
            slate = recommender.recommend(f"user {number}", 3)
            recommender.feedback(slate.slate_id, [item.id for item in slate.items][: number % 3], seen=3)
            version = recommender.learn_rates()
        replayed = [*recommender.replay()]
    assert version > 16
    old = [one for one in replayed if one.obstacle is not None]
    assert {one.obstacle for one in old} == {"the rates of items that it was chosen by are no longer kept"}
    assert len(old) < len(replayed) - 8
    assert all(one.is_same for one in replayed if one.obstacle is None)
