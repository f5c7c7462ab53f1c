"""The n-th call of the store fails, for every n: nothing is half-written, and nobody is served from a failed work."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from slatewise.recommender.people import PeopleAtHand, Person

from slatewise.catalog import Catalog
from slatewise.policies import State
from slatewise.recommender import Recommender, Slate, people, states
from slatewise.store import Store, StoreError, open_store
from slatewise.store.memory import MemoryTables
from slatewise.store.protocol import Ready, Transaction, UserRecord
from tests.durability.broken import Wrapped
from tests.durability.conftest import FEW_ROUNDS, make_catalog

USERS = ("ann", "ben")
LONG_AGO = 10_000.0
STRIDES = {"memory": 3, "sqlite": 7}


class DiskError(StoreError):
    """The failure that is made."""


@dataclass
class Countdown:
    """PolicyCounts calls, and fails once, at a given one; 0 never fails."""

    at: int = 0
    calls: int = 0

    def count(self) -> None:
        self.calls += 1
        if self.calls == self.at:
            raise DiskError(f"call {self.at} failed")


class Faulty(Wrapped):
    """A store whose n-th call fails: any method of any transaction, or its commit."""

    def __init__(self, inner: Store, countdown: Countdown) -> None:
        super().__init__(inner)
        self.countdown = countdown

    def submit(self, work: Callable[[Any], Any], ready: Ready | None = None) -> Future[Any]:
        """Run work on a transaction that may fail, and whose commit may."""

        def attempt(transaction: Transaction) -> Any:
            result = work(_FaultyTransaction(transaction, self.countdown))
            self.countdown.count()
            return result

        return self.inner.write(attempt, ready)


class _FaultyTransaction:
    def __init__(self, transaction: Transaction, countdown: Countdown) -> None:
        self.transaction, self.countdown = transaction, countdown

    def __getattr__(self, name: str) -> Any:
        self.countdown.count()
        return getattr(self.transaction, name)


@dataclass
class Life:
    """Two people use the recommender; every request that fails is made again, as clients do."""

    recommender: Recommender
    now: list[float]
    slates: list[Slate] = field(default_factory=list)
    failures: int = 0

    def live(self, after_failure: Callable[[], None]) -> None:
        """Do everything that writes."""
        for step in STEPS:
            before = kept(self.recommender.store)
            try:
                step(self)
            except DiskError:
                self.failures += 1
                assert kept(self.recommender.store) == before
                after_failure()
                step(self)

    def show(self, user: str, **wishes: Any) -> None:
        self.slates.append(self.recommender.recommend(user, 4, **wishes))

    def click(self, number: int, *places: int, **options: Any) -> None:
        slate = self.slates[number]
        clicked = [slate.items[place].id for place in places]
        self.recommender.feedback(slate.slate_id or "", clicked, event_id=f"{number} {places} {options}", **options)

    def close_expired(self) -> None:
        self.now[0] += LONG_AGO
        try:
            self.recommender.close_expired()
        finally:
            self.now[0] -= LONG_AGO

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
"""Slates, clicks early, late and twice, a withdrawn slate, another policy, expiry, a rebuild, someone forgotten."""


def kept(store: Store) -> dict[str, Any]:
    """Everything that is stored, as it is."""

    def of_user(t: Transaction, user: str) -> list[Any]:
        return [t.lock(user), t.belief(user), t.slates_of(user), t.feedback_of(user)]

    def of_all(transaction: Transaction) -> list[Any]:
        return [*(of_user(transaction, user) for user in USERS), transaction.totals()]

    return {"all": store.read(of_all)}


def meaning(recommender: Recommender) -> list[Any]:
    """Everything in the log, without names that are drawn anew each time."""
    found: list[Any] = []
    for user in USERS:
        slates, answers = recommender.store.read(lambda t, user=user: (t.slates_of(user), t.feedback_of(user)))  # type: ignore[misc]
        found += [(row.user, row.number, row.items, row.status, row.policy) for row in slates]
        found += [(row.event_id, row.clicked, row.final) for row in answers]
    return [*found, recommender.store.read(lambda t: t.totals())]


def beliefs(recommender: Recommender) -> list[State]:
    """What is known of everyone at hand, and of everyone on a new start."""
    desk = recommender.desk
    space = desk.spaces.space(next(iter(recommender.shares)))

    def both(t: Transaction) -> list[Person]:
        rows = [t.lock(user) for user in USERS]
        return [desk.person(t, row, space) for row in rows] + [people.load(t, row, desk.spaces, space) for row in rows]

    return [people.caught_up(person).state for person in recommender.store.read(both)]


def check(recommender: Recommender, catalog: Catalog) -> None:
    """Beliefs are those of the log, and what is kept at hand is what a new start would read."""
    assert [problem for _, problem in recommender.verify() if problem] == []
    fresh = Recommender(catalog, store=recommender.store, clock=recommender.desk.clock)
    for user in USERS:
        ours, theirs = (one.recommend(user, 4, preview=True) for one in (recommender, fresh))
        assert ours == theirs


@contextmanager
def opened(kind: str, path: Path, catalog: Catalog, countdown: Countdown) -> Iterator[Life]:
    store = open_store("memory://" if kind == "memory" else f"sqlite:///{path}")
    now = [1_000_000.0]
    recommender = Recommender(catalog, store=Faulty(store, countdown), clock=lambda: now[0])
    try:
        yield Life(recommender, now)
    finally:
        store.close()


@pytest.mark.parametrize("saved_every", [1, people.SAVED_EVERY])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_the_nth_call_fails_for_every_n(
    kind: str, saved_every: int, tmp_path: Path, n_rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For every n in CI; for some when time is short."""
    monkeypatch.setattr(people, "SAVED_EVERY", saved_every)
    stride = STRIDES[kind] if n_rounds <= FEW_ROUNDS else 1
    catalog, whole = make_catalog(n_items=40), Countdown()
    with opened(kind, tmp_path / "whole.db", catalog, whole) as life:
        life.live(lambda: None)
        expected, beliefs_expected = meaning(life.recommender), beliefs(life.recommender)
    assert whole.calls > 5 * len(STEPS)
    for number in range(1, whole.calls + 1, stride):
        with opened(kind, tmp_path / f"{number}.db", catalog, Countdown(number)) as life:
            recommender = life.recommender
            life.live(lambda recommender=recommender: check(recommender, catalog))  # type: ignore[misc]
            assert life.failures == 1
            check(recommender, catalog)
            assert meaning(recommender) == expected
            for ours, theirs in zip(beliefs(recommender), beliefs_expected, strict=True):
                assert states.difference(ours, theirs) <= 1e-9


def test_a_memory_of_people_that_ignores_stamps_is_caught(tmp_path: Path) -> None:
    """The control: whoever was put at hand by a work that failed is served as if it had not."""

    def get(self: PeopleAtHand, row: UserRecord) -> Person | None:
        return self.people.get(row.user)

    catalog, n_caught = make_catalog(n_items=40), 0
    with patch.object(people.PeopleAtHand, "get", get):
        for number in range(1, 30):
            with opened("memory", tmp_path, catalog, Countdown(number)) as life:
                try:
                    life.live(lambda life=life: check(life.recommender, catalog))  # type: ignore[misc]
                except (AssertionError, StopIteration):
                    n_caught += 1
    assert n_caught > 0


def test_a_store_that_does_not_undo_is_caught(tmp_path: Path) -> None:
    """The control: what a failed work had written already stays."""

    def put(self: MemoryTables, table: dict[Any, Any], key: Any, row: Any) -> None:  # noqa: ARG001
        table.update({key: row}) if row is not None else table.pop(key)

    catalog, n_caught = make_catalog(n_items=40), 0
    with patch.object(MemoryTables, "put", put):
        for number in range(1, 20):
            with opened("memory", tmp_path, catalog, Countdown(number)) as life:
                try:
                    life.live(lambda: None)
                except AssertionError:
                    n_caught += 1
    assert n_caught > 0
