"""What everyone's reactions say about the items: collected in memory, kept in the store, published to all workers.

The log is the truth. A feedback event changes what its slate says about its items by as much as `slate_rates` of all
events so far differs from that of the events before, so that late and retracted reactions are exact. The sums are kept
per catalog and worker. Rates that moved noticeably are published under a number, and slates are chosen by published
rates only and logged with that number, so that they can be chosen again.
"""

import os
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from slatewise.belief.rates import RateEvidence, Rates
from slatewise.evidence import Attention, Reactions
from slatewise.recommender.learning import Tally
from slatewise.recommender.served_catalog import ServedCatalog
from slatewise.store.protocol import Store, Transaction
from slatewise.store.records import WITHDRAWN, Choice, FitRecord, ItemId, ItemRate, SlateRecord

SHARDS = 16
PER_WRITE = 500
PER_READ, PAUSE = 4, 0.003
"""Feedback events that are read at a time, and the seconds between two such reads."""
NOTICED, GROWN = 0.25, 1.25
"""A rate is published if it moved by so many of its deviations, or if it became so many times as certain."""
LOCK = "rates of items"
"""The key that makes workers publish one after the other."""
KEPT_IN_MEMORY = 10_000


def slate_rates(
    slate: SlateRecord, tally: Tally, choice: Choice | None, attention: Attention
) -> dict[ItemId, ItemRate]:
    """Return what a slate says about its items: whoever saw them, what was clicked, and what taste explains of it.

    A skip counts in full, unlike in what is learned about a user.
    """
    if not tally.n_events or slate.status == WITHDRAWN:
        return {}
    items, told = slate.items, np.array([tally.seen is not None])
    value, seen = ([[of(item) for item in items]] for of in (tally.value, tally.is_seen))
    reactions = Reactions(np.arange(len(items))[None], np.array(value), np.array(seen), told)
    evidence = replace(attention, skip_weight=1.0).evidence(reactions)
    explained = ((choice or {}).get("exploration") or {}).get("explained") or [0.0] * len(items)
    rows = zip(items, evidence.items[0], evidence.value[0], evidence.examined[0], explained, strict=True)
    return {
        item: ItemRate(float(examined), float(value), float(examined * due))
        for item, place, value, examined, due in rows
        if place >= 0
    }


def event_rates(transaction: Transaction, slate_id: str, event_id: str, attention: Attention) -> dict[ItemId, ItemRate]:
    """Return by how much one feedback event changed what its slate says."""
    slate = transaction.slate(slate_id)
    if slate is None:
        return {}
    events = transaction.feedback_on(slate)
    position = next((index for index, event in enumerate(events) if event.event_id == event_id), -1)
    choice = transaction.choices_of(slate.user, slate.number, 1).get(slate.number)
    before, after = (slate_rates(slate, Tally.of(events[:end]), choice, attention) for end in (position, position + 1))
    return total_rates([(1.0, after), (-1.0, before)]) if position >= 0 else {}


def _rates_of_events(
    events: Sequence[tuple[str, str]], attention: Attention, transaction: Transaction
) -> list[dict[ItemId, ItemRate]]:
    return [event_rates(transaction, *event, attention) for event in events]


def total_rates(parts: Iterable[tuple[float, Mapping[ItemId, ItemRate]]]) -> dict[ItemId, ItemRate]:
    """Add up sums, each with a factor."""
    totals = defaultdict[ItemId, list[float]](lambda: [0.0, 0.0, 0.0])
    for factor, rates in parts:
        for item, one in rates.items():
            for place, more in enumerate((one.seen, one.clicked, one.explained)):
                totals[item][place] += factor * more
    return {item: ItemRate(*sums) for item, sums in totals.items() if any(sums)}


@dataclass(frozen=True)
class PublishedRates:
    """The rates in force, mean and strength: of items that have been seen, and of all others if nothing was known."""

    version: int = 0
    unseen: tuple[float, float] | None = None
    rates: Mapping[ItemId, tuple[float, float]] = field(default_factory=dict)

    def on(self, served: ServedCatalog) -> Rates | None:
        """Return the rates of the items of a catalog; None before anything was published."""
        if not self.version:
            return None
        known, numbers = Rates.of(served.catalog), served.numbers(self.rates)
        mean, strength = known.mean.copy(), known.strength.copy()
        if self.unseen is not None:
            mean[:], strength[:] = self.unseen
        values = np.array([*self.rates.values()]).reshape(-1, 2)
        mean[numbers[numbers >= 0]], strength[numbers[numbers >= 0]] = values[numbers >= 0].T
        return Rates(mean, strength)

    def after(self, fits: Sequence[FitRecord]) -> "PublishedRates":
        """Return the rates after more publications."""
        if not fits:
            return self
        rates = dict(self.rates)
        for fit in fits:
            rates.update((item, (mean, strength)) for item, mean, strength in fit.content["rates"])
        return PublishedRates(self.version + len(fits), fits[-1].content["unseen"], rates)


class RatesHistory:
    """The rates that were in force under each version, for a catalog with this digest."""

    def __init__(self, transaction: Transaction, digest: str) -> None:
        self._fits, self._last = publications(transaction, digest), PublishedRates()

    def at(self, version: int) -> PublishedRates:
        """Return the rates under a version; quick if versions are asked for in order."""
        before = self._last if version >= self._last.version else PublishedRates()
        self._last = before.after(self._fits[before.version : version])
        return self._last


class LiveRates:
    """Collects the feedback of this process and follows what is published by all; safe to use from several threads."""

    def __init__(self, store: Store) -> None:
        self._store, self._lock = store, threading.Lock()
        self.noted = deque[tuple[str, str]](maxlen=KEPT_IN_MEMORY)
        """Slates and feedback events that the next `step` learns; what is forgotten here is still in the log."""
        self._published = PublishedRates()
        self._served: ServedCatalog | None = None

    def use(self, served: ServedCatalog) -> None:
        """Let a catalog choose by the rates published for it."""
        with self._lock:
            self._follow(served)

    def step(self, served: ServedCatalog, now: float) -> int:
        """Learn what was noted, publish what moved, and follow what others published; return the version in force."""
        with self._lock:
            noted = [self.noted.popleft() for _ in range(len(self.noted))]
            for start in range(0, len(noted), PER_WRITE):
                self._learn(served, noted[start : start + PER_WRITE])
            self._follow(served)
            if noted:
                self._publish(served, now)
                self._follow(served)
            return self._published.version

    def rebuild(self, served: ServedCatalog, now: float) -> int:
        """Learn the rates again from the log of this catalog, and write by how much the kept sums differ from it."""
        with self._lock:
            self.noted.clear()
            kept = self._store.read(lambda transaction: transaction.rates(served.digest))
            logged = total_rates((1.0, self._logged(served, user)) for user in self._store.users())
            self._save(served.digest, total_rates([(1.0, logged), (-1.0, kept)]))
            self._follow(served)
            self._publish(served, now)
            self._follow(served)
            return self._published.version

    def _learn(self, served: ServedCatalog, noted: Sequence[tuple[str, str]]) -> None:
        """Keep what some events say; they are read a few at a time, so that other threads are not held up."""
        parts = list[dict[ItemId, ItemRate]]()
        for start in range(0, len(noted), PER_READ):
            events = noted[start : start + PER_READ]
            parts += self._store.read(partial(_rates_of_events, events, served.rules.attention))
            time.sleep(PAUSE)
        self._save(served.digest, total_rates((1.0, part) for part in parts))

    def _logged(self, served: ServedCatalog, user: str) -> dict[ItemId, ItemRate]:
        return self._store.read(lambda transaction: logged_rates(transaction, user, served))

    def _save(self, digest: str, more: Mapping[ItemId, ItemRate]) -> None:
        items = [*more.items()]
        for start in range(0, len(items), PER_WRITE):
            self._write(f"{digest}/{os.getpid() % SHARDS}", dict(items[start : start + PER_WRITE]))

    def _write(self, shard: str, more: Mapping[ItemId, ItemRate]) -> None:
        self._store.write(lambda transaction: transaction.add_rates(shard, more)).result()

    def _follow(self, served: ServedCatalog) -> None:
        """Read what was published since, and hand it to the policies of the catalog."""
        if self._served is None or served.digest != self._served.digest:
            self._published = PublishedRates()
        fits = self._store.read(lambda transaction: publications(transaction, served.digest, self._published.version))
        self._published = self._published.after(fits)
        if fits or served is not self._served:
            self._served = served
            served.use_rates(self._published.on(served), self._published.version)

    def _publish(self, served: ServedCatalog, now: float) -> None:
        """Publish the rates that moved, unless another worker has published in the meantime."""
        totals = self._store.read(lambda transaction: transaction.rates(served.digest))
        learned = learned_rates(served, totals)
        moved = _moved(served.numbers(totals), self._published.on(served) or Rates.of(served.catalog), learned)
        if not len(moved):
            return
        rows = [
            [served.label(item)[0], float(learned.mean[item]), float(learned.strength[item])] for item in moved.tolist()
        ]
        least = int(learned.strength.argmin())
        unseen = (float(learned.mean[least]), float(learned.strength[least])) if served.catalog.knows_nothing else None
        fit = FitRecord(_name(served.digest, self._published.version + 1), now, {"unseen": unseen, "rates": rows})
        self._store.write(lambda transaction: _add_publication(transaction, fit)).result()


def learned_rates(served: ServedCatalog, totals: Mapping[ItemId, ItemRate]) -> Rates:
    """Return the rates that sums of evidence lead to."""
    numbers = served.numbers(totals)
    sums = np.array([[one.seen, one.clicked, one.explained] for one in totals.values()]).reshape(-1, 3)
    evidence = RateEvidence.nothing(served.n_items).added(numbers, *sums.T)
    prior = Rates.of(served.catalog)
    return prior.after_unknown(evidence) if served.catalog.knows_nothing else prior.after(evidence)


def logged_rates(transaction: Transaction, user: str, served: ServedCatalog) -> dict[ItemId, ItemRate]:
    """Return what the whole log of a user says about items, as far as slates were chosen from this catalog."""
    choices, feedback = transaction.choices_of(user), transaction.feedback_of(user)
    slates = [slate for slate in transaction.slates_of(user) if slate.catalog == served.digest]
    said = ((slate, Tally.of(one for one in feedback if one.slate_id == slate.slate_id)) for slate in slates)
    attention = served.rules.attention
    return total_rates((1.0, slate_rates(slate, tally, choices.get(slate.number), attention)) for slate, tally in said)


def _moved(seen: NDArray[np.int64], before: Rates, now: Rates) -> NDArray[np.int64]:
    """Return which of the items that were seen moved noticeably since their rate was published."""
    is_moved = np.abs(now.mean - before.mean) > NOTICED * now.deviation
    is_grown = (now.strength > GROWN * before.strength) | (before.strength > GROWN * now.strength)
    items = np.sort(seen[seen >= 0])
    return items[(is_moved | is_grown)[items]]


def _name(digest: str, version: int) -> str:
    return f"rates {digest} {version}"


def publications(transaction: Transaction, digest: str, after: int = 0) -> Sequence[FitRecord]:
    """Return what was published for a catalog after a version."""
    fits = list[FitRecord]()
    while (fit := transaction.fit(_name(digest, after + len(fits) + 1))) is not None:
        fits.append(fit)
    return fits


def _add_publication(transaction: Transaction, fit: FitRecord) -> None:
    """Publish under the next number; if another worker has taken it, what it published is followed first."""
    transaction.lock(LOCK)
    if transaction.fit(fit.name) is None:
        transaction.save_fit(fit)
