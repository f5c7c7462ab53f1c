"""Catalogs, clocks and stores that the tests of the recommender share."""

from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import numpy as np

from slatewise.catalog import Catalog
from slatewise.policies import State
from slatewise.recommender import Preview, Recommender, Slate
from slatewise.recommender.profile import UserProfile, clicked_items, load_profile, tally_by_slate
from slatewise.recommender.served_catalog import ServedPolicy
from slatewise.store import Store
from slatewise.store.protocol import CLOSED, BeliefRecord, Transaction

Job = Callable[[Any], Any]


class Clock:
    """A time that tests move."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def make_catalog(n_items: int = 60, seed: int = 0, first: int = 100) -> Catalog:
    """Items with two categories each; another seed is another training, another first item another selection."""
    draw = np.random.default_rng(seed)
    categories = [f"{'ABCD'[at % 4]}|{'EFG'[at % 3]}" for at in range(n_items)]
    return Catalog.from_vectors(range(first, first + n_items), draw.normal(size=(n_items, 6)), categories=categories)


def ids(slate: Slate | Preview) -> list[Any]:
    """The item ids of a slate."""
    return [item.id for item in slate.items]


def restarted(recommender: Recommender) -> Recommender:
    """The same recommender with nothing cached: another one on the same store, as after a restart."""
    return Recommender(
        recommender.catalog,
        recommender._policies,
        recommender.store,
        seed=recommender._serving.seed,
        reward_wait=recommender.reward_wait,
        clock=recommender._serving.clock,
    )


def served_policy(recommender: Recommender, name: str | None = None) -> ServedPolicy:
    """A policy of a recommender by name; the first one without a name."""
    return recommender._serving.served.policy(name or next(iter(recommender.shares)))


def cached_profile(recommender: Recommender, user: str) -> UserProfile | None:
    """The cached profile of a user if it is up to date."""
    profile = recommender._serving.profiles.get(user)
    version = recommender.store.read(lambda transaction: transaction.lock(user).version)
    return profile if profile is not None and profile.version == version else None


def loaded_profile(recommender: Recommender, user: str, name: str | None = None) -> UserProfile:
    """The profile of a user as it is read from the store, with all closed slates learned."""
    served, policy = recommender._serving.served, served_policy(recommender, name)
    return recommender.store.read(lambda t: load_profile(t, t.lock(user), served, policy))


def state_of(recommender: Recommender, user: str) -> State:
    """What will be known when the next slate is chosen."""
    return loaded_profile(recommender, user).state


def stored_belief(recommender: Recommender, user: str) -> BeliefRecord:
    """The belief about a user that the store keeps."""
    return recommender.store.read(lambda transaction: transaction.belief(user))


def folded(recommender: Recommender, user: str, policy: ServedPolicy, before: float = float("inf")) -> State:
    """The slow twin of every belief: closed slates with numbers below `before`, one after the other, from the log."""
    slates, events = recommender.store.read(lambda t: (t.slates_of(user), t.feedback_of(user)))
    clicks = tally_by_slate(events)
    state, numbers = policy.start, recommender._serving.served.numbers
    for slate in slates:
        if slate.status == CLOSED and slate.number < before:
            liked = clicked_items(clicks.get(slate.slate_id, {}))
            state = policy.learn(state, numbers(slate.items), np.array([item in liked for item in slate.items]))
    return state


def counted(recommender: Recommender, users: list[str]) -> tuple[int, int]:
    """Count the closed slates of users, and the clicks on them, from the log."""
    n_slates = n_clicks = 0
    for user in users:
        slates, events = recommender.store.read(lambda t, user=user: (t.slates_of(user), t.feedback_of(user)))  # type: ignore[misc]
        clicks = tally_by_slate(events)
        closed = [slate for slate in slates if slate.status == CLOSED]
        n_slates += len(closed)
        n_clicks += sum(len(clicked_items(clicks.get(slate.slate_id, {}))) for slate in closed)
    return n_slates, n_clicks


class WrappedStore:
    """A store around another one."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def write(self, job: Job) -> Future[Any]:
        """Queue a job."""
        return self.inner.write(job)

    def read(self, job: Job) -> Any:
        """Run a job that only reads."""
        return self.inner.read(job)


class InterruptedStore(WrappedStore):
    """Other things happen right before jobs that read or write: one before each job, until there are no more."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.before_reads: list[Callable[[], Any]] = []
        self.before_writes: list[Callable[[], Any]] = []
        self._is_interrupted = False

    def write(self, job: Job) -> Future[Any]:
        """Let the next interruption happen, then queue the job."""
        self._interrupt(self.before_writes)
        return self.inner.write(job)

    def read(self, job: Job) -> Any:
        """Let the next interruption happen, then run the job."""
        self._interrupt(self.before_reads)
        return self.inner.read(job)

    def _interrupt(self, actions: list[Callable[[], Any]]) -> None:
        if actions and not self._is_interrupted:
            self._is_interrupted = True
            actions.pop(0)()
            self._is_interrupted = False


class CountingStore(WrappedStore):
    """Counts the methods of transactions that are called, by name."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.calls: Counter[str] = Counter()

    def write(self, job: Job) -> Future[Any]:
        """Queue a job on a transaction that counts."""
        return self.inner.write(lambda transaction: job(_CountingTransaction(transaction, self.calls)))

    def read(self, job: Job) -> Any:
        """Run a job on a transaction that counts."""
        return self.inner.read(lambda transaction: job(_CountingTransaction(transaction, self.calls)))

    def calls_of(self, action: Callable[[], Any]) -> Mapping[str, int]:
        """Return which methods an action calls, and how often."""
        self.calls.clear()
        action()
        return dict(self.calls)


class _CountingTransaction:
    def __init__(self, transaction: Transaction, calls: Counter[str]) -> None:
        self._transaction, self._calls = transaction, calls

    def __getattr__(self, name: str) -> Any:
        self._calls[name] += 1
        return getattr(self._transaction, name)
