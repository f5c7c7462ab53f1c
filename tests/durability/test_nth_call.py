"""The n-th call of the store fails, for every n: nothing is half-written, and nothing of a failed job is served."""

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from slatewise.catalog import Catalog
from slatewise.policies import State
from slatewise.recommender import Recommender, Slate, profile, recommend, state_codec
from slatewise.recommender.profile import SAVE_EVERY
from slatewise.store import Store, StoreError, open_store
from slatewise.store.memory import MemoryTables
from slatewise.store.protocol import Transaction
from tests.durability.conftest import FEW_ROUNDS, make_catalog
from tests.support.recommending import Clock, WrappedStore, restarted, state_of

USERS = ("ann", "ben")
LONG_AGO = 10_000.0
STRIDES = {"memory": 3, "sqlite": 7}


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not on a disk: failures are made here, and nothing is killed."""
    return tmp_path_factory.mktemp("calls")


class DiskError(StoreError):
    """The failure that is made."""


@dataclass
class Countdown:
    """Counts calls while it is armed, and fails once, at a given one; 0 never fails."""

    at: int = 0
    calls: int = 0
    is_armed: bool = False

    def count(self) -> None:
        self.calls += self.is_armed
        if self.is_armed and self.calls == self.at:
            raise DiskError(f"call {self.at} failed")


class Faulty(WrappedStore):
    """A store whose n-th call fails: any method of any transaction, reading or writing, or a commit."""

    def __init__(self, inner: Store, countdown: Countdown) -> None:
        super().__init__(inner)
        self.countdown = countdown

    def write(self, job: Callable[[Any], Any]) -> Future[Any]:
        """Run a job on a transaction that may fail, and whose commit may."""

        def attempt(transaction: Transaction) -> Any:
            result = job(_FaultyTransaction(transaction, self.countdown))
            self.countdown.count()
            return result

        return self.inner.write(attempt)

    def read(self, job: Callable[[Any], Any]) -> Any:
        """Run a job that reads on a transaction that may fail."""
        return self.inner.read(lambda transaction: job(_FaultyTransaction(transaction, self.countdown)))


class _FaultyTransaction:
    def __init__(self, transaction: Transaction, countdown: Countdown) -> None:
        self.transaction, self.countdown = transaction, countdown

    def __getattr__(self, name: str) -> Any:
        self.countdown.count()
        return getattr(self.transaction, name)


@dataclass
class Life:
    """Two users of the recommender; every request that fails is made again, as clients do."""

    recommender: Recommender
    clock: Clock
    countdown: Countdown
    slates: list[Slate] = field(default_factory=list)
    failures: int = 0

    def live(self, after_failure: Callable[[], None]) -> None:
        """Do everything that writes."""
        for step in STEPS:
            before = kept(self.recommender.store)
            try:
                self.attempt(step)
            except DiskError:
                self.failures += 1
                assert kept(self.recommender.store) == before
                after_failure()
                self.attempt(step)

    def attempt(self, step: "Callable[[Life], None]") -> None:
        self.countdown.is_armed = True
        try:
            step(self)
        finally:
            self.countdown.is_armed = False

    def show(self, user: str, **options: Any) -> None:
        self.slates.append(self.recommender.recommend(user, 4, **options))

    def click(self, number: int, *positions: int, **options: Any) -> None:
        slate = self.slates[number]
        clicked = [slate.items[position].id for position in positions]
        self.recommender.feedback(slate.slate_id, clicked, event_id=f"{number} {positions} {options}", **options)

    def close_expired(self) -> None:
        self.clock.now += LONG_AGO
        try:
            self.recommender.close_expired()
        finally:
            self.clock.now -= LONG_AGO

    def forget(self, user: str) -> None:
        self.recommender.forget(user)


STEPS: tuple[Callable[[Life], None], ...] = (
    lambda life: life.show("ann"),
    lambda life: life.click(0, 1, final=False),
    lambda life: life.click(0, 2),
    lambda life: life.click(0, 2),
    lambda life: life.show("ben"),
    lambda life: life.show("ben", replaces=life.slates[1].slate_id),
    lambda life: life.show("ann", policy="dc2b"),
    lambda life: life.show("ann"),
    lambda life: life.click(0, 3),
    lambda life: life.click(1, 0),
    lambda life: life.click(4, 0),
    lambda life: life.close_expired(),
    lambda life: life.click(2, 0, 1),
    lambda life: life.recommender.rebuild("ann"),
    lambda life: life.show("ann"),
    lambda life: life.forget("ben"),
    lambda life: life.show("ben"),
)
"""Slates, clicks early, late and twice, a withdrawn slate, another policy, expiry, a rebuild, a user forgotten."""


def kept(store: Store) -> dict[str, Any]:
    """Everything that is stored about the users."""

    def of_user(t: Transaction, user: str) -> list[Any]:
        return [t.lock(user), t.belief(user), t.slates_of(user), t.feedback_of(user)]

    def of_all(transaction: Transaction) -> list[Any]:
        return [*(of_user(transaction, user) for user in USERS), transaction.totals()]

    return {"all": store.read(of_all)}


def meaning(recommender: Recommender) -> list[Any]:
    """Everything in the log, without ids that are drawn at random."""
    facts: list[Any] = []
    for user in USERS:
        slates, events = recommender.store.read(lambda t, user=user: (t.slates_of(user), t.feedback_of(user)))  # type: ignore[misc]
        facts += [(slate.user, slate.number, slate.items, slate.status, slate.policy) for slate in slates]
        facts += [(event.event_id, event.clicked, event.final) for event in events]
    return [*facts, recommender.store.read(lambda t: t.totals())]


def beliefs(recommender: Recommender) -> list[State]:
    """What is known of the users when their next slates are chosen."""
    return [state_of(recommender, user) for user in USERS]


def check(recommender: Recommender) -> None:
    """Beliefs are those of the log, and what is cached is what would be loaded after a restart."""
    assert [problem for _, problem in recommender.verify() if problem] == []
    for user in USERS:
        assert recommender.preview(user, 4) == restarted(recommender).preview(user, 4)


@contextmanager
def opened(kind: str, path: Path, catalog: Catalog, countdown: Countdown) -> Iterator[Life]:
    store, clock = open_store("memory://" if kind == "memory" else f"sqlite:///{path}"), Clock()
    try:
        yield Life(Recommender(catalog, store=Faulty(store, countdown), clock=clock), clock, countdown)
    finally:
        store.close()


@pytest.mark.parametrize("save_every", [1, SAVE_EVERY])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_the_nth_call_fails_for_every_n(
    kind: str, save_every: int, tmp_path: Path, n_rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For every n in CI; for some when time is short."""
    monkeypatch.setattr(profile, "SAVE_EVERY", save_every)
    stride = STRIDES[kind] if n_rounds <= FEW_ROUNDS else 1
    catalog, whole = make_catalog(n_items=40), Countdown()
    with opened(kind, tmp_path / "whole.db", catalog, whole) as life:
        life.live(lambda: None)
        expected, beliefs_expected = meaning(life.recommender), beliefs(life.recommender)
    assert whole.calls > 5 * len(STEPS)
    for number in range(1, whole.calls + 1, stride):
        with opened(kind, tmp_path / f"{number}.db", catalog, Countdown(number)) as life:
            recommender = life.recommender
            life.live(lambda recommender=recommender: check(recommender))  # type: ignore[misc]
            assert life.failures == 1
            check(recommender)
            assert meaning(recommender) == expected
            for state, state_expected in zip(beliefs(recommender), beliefs_expected, strict=True):
                assert state_codec.difference(state, state_expected) <= 1e-9


def test_profiles_whose_version_does_not_change_are_caught(tmp_path: Path) -> None:
    """The control: what a failed job has cached looks up to date."""
    assert n_caught(tmp_path) == 0
    with patch.object(recommend, "version_numbers", itertools.repeat(0)):
        assert n_caught(tmp_path) > 0


def test_a_store_that_does_not_undo_is_caught(tmp_path: Path) -> None:
    """The control: what a failed job had written already stays."""

    def put(self: MemoryTables, table: dict[Any, Any], key: Any, row: Any) -> None:  # noqa: ARG001
        table.update({key: row}) if row is not None else table.pop(key)

    with patch.object(MemoryTables, "put", put):
        assert n_caught(tmp_path) > 0


def n_caught(path: Path) -> int:
    """Fail at each of the first calls; return how often something is wrong afterwards."""
    catalog, caught = make_catalog(n_items=40), 0
    for number in range(1, 30):
        with opened("memory", path, catalog, Countdown(number)) as life:
            try:
                life.live(lambda life=life: check(life.recommender))  # type: ignore[misc]
            except AssertionError:
                caught += 1
    return caught
