"""Catalogs, clocks and stores that the tests of the recommender share."""

from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np

from slatewise.catalog import Catalog
from slatewise.evidence import Evidence, Reactions
from slatewise.policies import State
from slatewise.recommender import Preview, Recommender, Slate
from slatewise.recommender.loading import load_profile
from slatewise.recommender.profile import UserProfile, learn_everything
from slatewise.recommender.recommend import Serving
from slatewise.recommender.served_catalog import ServedCatalog, ServedPolicy
from slatewise.store import Store
from slatewise.store.protocol import BeliefRecord, Transaction
from slatewise.store.records import CLOSED, OPEN, EventRecord, FeedbackRecord, ItemId, SlateRecord
from tests.support.wishes import said, with_wish

Job = Callable[[Any], Any]
Entry = tuple[float, Evidence | EventRecord, bool]
"""Something that teaches: when, what, and whether it is an event; a wish for more or less of a category is itself."""


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
    known, rules = serving(recommender), served_catalog(recommender).rules
    return Recommender(
        recommender.catalog,
        known.served.shares,
        recommender.store,
        seed=known.seed,
        reward_wait=recommender.reward_wait,
        clock=known.clock,
        attention=rules.attention,
        half_life=rules.half_life,
        repeat_after=rules.repeat_after,
    )


def serving(recommender: Recommender) -> Serving:
    """What a recommender works with: the served catalog, cached profiles, the seed and the clock.

    Tests of laws compare this with a slow twin, or with what another process would have. It is replaced as a whole when
    the items change and is no part of the public API, so that only this function reaches it.
    """
    return recommender._serving


def served_catalog(recommender: Recommender) -> ServedCatalog:
    """What a recommender serves from now."""
    return serving(recommender).served


def served_policy(recommender: Recommender, name: str | None = None) -> ServedPolicy:
    """A policy of a recommender by name; the first one without a name."""
    return served_catalog(recommender).policy(name or next(iter(recommender.shares)))


def cached_profile(recommender: Recommender, user: str) -> UserProfile | None:
    """The cached profile of a user if it is up to date."""
    profile = serving(recommender).profiles.get(user)
    version = recommender.store.read(lambda transaction: transaction.lock(user).version)
    return profile if profile is not None and profile.version == version else None


def loaded_profile(recommender: Recommender, user: str, name: str | None = None) -> UserProfile:
    """The profile of a user as it is read from the store, with all closed slates learned."""
    served, policy = served_catalog(recommender), served_policy(recommender, name)
    return recommender.store.read(lambda t: load_profile(t, t.lock(user), served, policy))


def state_of(recommender: Recommender, user: str) -> State:
    """What will be known when the next slate is chosen."""
    return learn_everything(loaded_profile(recommender, user)).state


def stored_belief(recommender: Recommender, user: str) -> BeliefRecord:
    """The belief about a user that the store keeps."""
    return recommender.store.read(lambda transaction: transaction.belief(user))


def folded(recommender: Recommender, user: str, policy: ServedPolicy, before: float = float("inf")) -> State:
    """The slow twin of every belief: what slates and events before a number teach, one after the other.

    Slates after an open one wait for it. Policies that are not additive learn the events before a slate together.
    """
    slates, feedback, events = recommender.store.read(
        lambda t: (t.slates_of(user), t.feedback_of(user), t.events_of(user))
    )
    entries: list[Entry] = []
    undone = [event.item for event in events if event.kind == "retract"]
    standing = [event for event in events if event.kind != "retract" and event.event_id not in undone]
    ordered = sorted(standing, key=lambda event: (event.position, event.at, event.event_id))
    waiting = [event for event in ordered if event.position < before]
    first_open = next((slate.number for slate in slates if slate.status == OPEN), len(slates))
    for slate in slates[: int(min(before, first_open))]:
        if slate.status == CLOSED:
            entries += event_entries(recommender, policy, [one for one in waiting if one.position <= slate.number])
            waiting = [one for one in waiting if one.position > slate.number]
            said = [event for event in feedback if event.slate_id == slate.slate_id]
            evidence = slate_evidence(recommender, policy, slate, said)
            entries += [(slate.created_at, evidence, False)] if said else []
    entries += event_entries(recommender, policy, waiting)
    return fold(policy, entries)


def event_entries(recommender: Recommender, policy: ServedPolicy, events: list[EventRecord]) -> list[Entry]:
    """What the events between two slates teach, wishes first."""
    about = [event for event in events if event.kind in ("more", "less")]
    wishes: list[Entry] = [
        (event.at, event, True) for event in about if event.item in recommender.catalog.category_names
    ]
    others = [event for event in events if event not in about]
    entries = [(event.at, event_evidence(recommender, policy, event), True) for event in others]
    return wishes + (list[Entry](entries) if policy.policy.additive or not entries else _together(entries))


def _together(entries: list[tuple[float, Evidence, bool]]) -> list[Entry]:
    arrays = [
        [getattr(one, name) for _, one, _ in entries]
        for name in ("items", "value", "weight", "examined", "is_reported")
    ]
    return [(max(at for at, _, _ in entries), Evidence(*(np.hstack(parts) for parts in arrays)), True)]


def fold(policy: ServedPolicy, entries: list[Entry]) -> State:
    """Update with one piece of evidence after the other; its weight halves with every half-life before the last.

    Events are no rounds: they change only what is additive, if anything is.
    """
    state, last = policy.start, max((at for at, _, _ in entries), default=0.0)
    for at, evidence, is_event in entries:
        factor = 0.5 ** ((last - at) / 86_400.0 / policy.rules.half_life)
        if isinstance(evidence, EventRecord):
            lift, weight = said(policy.policy, str(evidence.item), evidence.kind)
            state = with_wish(policy.policy, state, str(evidence.item), lift, weight * factor)
            continue
        after = policy.policy.update(state, replace(evidence, weight=evidence.weight * factor))
        kept = [name for name in state if is_event and policy.policy.additive and name not in policy.policy.additive]
        state = {**after, **{name: state[name] for name in kept}}
    return state


def event_evidence(recommender: Recommender, policy: ServedPolicy, event: EventRecord) -> Evidence:
    """What an event from elsewhere teaches."""
    liked, weight = policy.rules.kinds[event.kind].meaning(event.value)
    number = served_catalog(recommender).numbers([event.item])
    is_report = event.kind in ("like", "purchase", "add-to-cart", "view", "owned")
    return Evidence(number[None], np.array([[liked]]), np.array([[weight]]), np.ones((1, 1)), np.array([[is_report]]))


def slate_evidence(
    recommender: Recommender, policy: ServedPolicy, slate: SlateRecord, said: list[FeedbackRecord]
) -> Evidence:
    """What a slate teaches."""
    told = [event for event in said if event.seen is not None]
    mentioned = [item for event in said for item in (*(event.seen or ()), *event.reacted)]
    seen = [not told or item in mentioned for item in slate.items]
    value = [reaction(item, said) for item in slate.items]
    numbers = served_catalog(recommender).numbers(slate.items)
    reactions = Reactions(numbers[None], np.array([value]), np.array([seen]), np.array([bool(told)]))
    return policy.rules.attention.evidence(reactions)


def reaction(item: ItemId, said: list[FeedbackRecord]) -> float:
    """What was said about an item in the end; NaN for nothing."""
    clicks, grade = 0, None
    for event in said:
        if item in event.retracted:
            clicks, grade = (clicks - 1, None) if grade is None else (clicks, None)
        if item in event.clicked:
            clicks, grade = clicks + 1, None
        grade = 0.0 if item in event.disliked else dict(event.values).get(item, grade)
    return (1.0 if clicks > 0 else float("nan")) if grade is None else grade


def counted(recommender: Recommender, users: list[str]) -> tuple[int, int]:
    """Count the closed slates of users, and the likes on them, from the log."""
    n_slates = n_likes = 0
    for user in users:
        slates, events = recommender.store.read(lambda t, user=user: (t.slates_of(user), t.feedback_of(user)))  # type: ignore[misc]
        closed = [slate for slate in slates if slate.status == CLOSED]
        n_slates += len(closed)
        for slate in closed:
            said = [event for event in events if event.slate_id == slate.slate_id]
            n_likes += sum(reaction(item, said) > 0.5 for item in slate.items)
    return n_slates, n_likes


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
