"""Rates of items under numbers: what changed from one version to the next, and now and then all of them.

Slates are logged with the version of the rates that they were chosen by. A publication holds the rates that changed.
After some publications all rates are saved as a snapshot, so that nobody reads more than what was published since. The
latest snapshots are kept, with everything published after the first of them; what is older is removed, and slates that
were chosen by it cannot be chosen again. Each step is a short transaction, and the process may end after any of them:
an index says which snapshots are complete, which one was begun, and what is removed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from slatewise.belief.rates import Rates
from slatewise.recommender.served_catalog import ServedCatalog
from slatewise.store.protocol import Store, Transaction
from slatewise.store.records import FitRecord, ItemId

EVERY, KEPT = 1_000, 10
"""Publications from one snapshot to the next, and snapshots that are kept."""
PER_PART, PER_REMOVAL, REMOVALS = 2_000, 100, 10
"""Rates per row of a snapshot, publications that are removed in one transaction, and such transactions per step."""
KEPT_CATALOGS, CATALOGS = 5, "rates catalogs"
"""Catalogs whose history is kept, those used last, and the name of their list; of others only the latest rates are."""
LOCK = "rates of items"
"""The key that makes workers publish one after the other."""

Snapshot = tuple[int, int]
"""The version of a snapshot, and the number of its parts."""


@dataclass(frozen=True)
class PublishedRates:
    """The rates in force, mean and strength: of items that have been seen, and of all others if nothing was known.

    level: how often a like is clicked, and beyond: what the means of some items lack (`Rates`). In what was published
    before there were levels, the level is 1.
    """

    version: int = 0
    unseen: tuple[float, float] | None = None
    rates: Mapping[ItemId, tuple[float, float]] = field(default_factory=dict)
    level: float = 1.0
    beyond: Mapping[ItemId, float] = field(default_factory=dict)

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
        return Rates(mean, strength, self.level, self._beyond(served))

    def after(self, fits: Sequence[FitRecord]) -> "PublishedRates":
        """Return the rates after more publications."""
        if not fits:
            return self
        rates, beyond = dict(self.rates), dict(self.beyond)
        for fit in fits:
            rates.update((item, (mean, strength)) for item, mean, strength in fit.content["rates"])
            beyond.update(fit.content.get("beyond", ()))
        last = fits[-1].content
        return PublishedRates(self.version + len(fits), last["unseen"], rates, last.get("level", 1.0), beyond)

    def _beyond(self, served: ServedCatalog) -> NDArray[np.float64] | None:
        if not any(self.beyond.values()):
            return None
        numbers, beyond = served.numbers(self.beyond), np.zeros(served.n_items)
        beyond[numbers[numbers >= 0]] = np.array([*self.beyond.values()])[numbers >= 0]
        return beyond

    def parts(self) -> Iterator[dict[str, object]]:
        """Yield the content of the rows of a snapshot."""
        items = [*self.rates]
        for start in range(0, max(len(items), 1), PER_PART):
            part = items[start : start + PER_PART]
            rates = [[item, *self.rates[item]] for item in part]
            beyond = [[item, self.beyond[item]] for item in part if self.beyond.get(item)]
            yield {"unseen": self.unseen, "level": self.level, "rates": rates, "beyond": beyond}


@dataclass(frozen=True)
class RatesIndex:
    """What is kept for a catalog: snapshots, the oldest first, one that was begun, and up to where all is removed."""

    digest: str
    snapshots: tuple[Snapshot, ...] = ((0, 0),)
    begun: Snapshot | None = None
    removed: int = 0

    @classmethod
    def read(cls, transaction: Transaction, digest: str) -> "RatesIndex":
        """Return the index of a catalog."""
        fit = transaction.fit(f"rates {digest} index")
        if fit is None:
            return cls(digest)
        begun, snapshots = fit.content["begun"], fit.content["snapshots"]
        return cls(
            digest, tuple(map(tuple, snapshots)), None if begun is None else tuple(begun), fit.content["removed"]
        )

    def save(self, transaction: Transaction, now: float) -> None:
        """Write the index."""
        content = {"snapshots": self.snapshots, "begun": self.begun, "removed": self.removed}
        transaction.save_fit(FitRecord(f"rates {self.digest} index", now, content))

    def latest(self, transaction: Transaction, until: float = float("inf")) -> PublishedRates | None:
        """Return the latest snapshot that can be read, up to a version; None if there is none."""
        for snapshot in reversed([snapshot for snapshot in self.snapshots if snapshot[0] <= until]):
            parts = [transaction.fit(name) for name in self.part_names(snapshot)]
            intact = [part for part in parts if part is not None]
            if len(intact) == len(parts):
                return replace(PublishedRates().after(intact), version=snapshot[0])
        return None

    def part_names(self, snapshot: Snapshot) -> list[str]:
        """Return the names of the rows of a snapshot."""
        version, n_parts = snapshot
        return [f"rates {self.digest} snapshot {version} {part}" for part in range(n_parts)]


class RatesHistory:
    """The rates that were in force under each version, for a catalog with this digest."""

    def __init__(self, transaction: Transaction, digest: str) -> None:
        self._transaction, self._index = transaction, RatesIndex.read(transaction, digest)
        self._last: PublishedRates | None = None

    def at(self, version: int) -> PublishedRates | None:
        """Return the rates under a version, quick if versions are asked for in order; None if they are not kept."""
        known = self._last
        if known is None or not 0 <= version - known.version <= EVERY:
            known = self._index.latest(self._transaction, version)
        if known is None:
            return None
        more = publications(self._transaction, self._index.digest, known.version, version - known.version)
        self._last = known.after(more)
        return self._last if self._last.version == version else None


def latest_rates(transaction: Transaction, digest: str, known: PublishedRates) -> PublishedRates:
    """Return the rates after everything that was published, from those that are known or from a snapshot.

    If no snapshot can be read, they are those before anything was published, under the latest number: what was learned
    since will be published again.
    """
    index = RatesIndex.read(transaction, digest)
    if not known.version or known.version < index.removed:
        known = index.latest(transaction) or PublishedRates(index.snapshots[-1][0])
    return known.after(publications(transaction, digest, known.version))


def publications(transaction: Transaction, digest: str, after: int, limit: float = float("inf")) -> list[FitRecord]:
    """Return what was published for a catalog after a version, up to so many."""
    fits = list[FitRecord]()
    while len(fits) < limit and (fit := transaction.fit(_name(digest, after + len(fits) + 1))) is not None:
        fits.append(fit)
    return fits


def publish(store: Store, digest: str, version: int, content: Mapping[str, object], now: float) -> bool:
    """Publish under a number; return False if another worker has taken it, whose rates are to be followed first."""
    fit = FitRecord(_name(digest, version), now, content)

    def job(transaction: Transaction) -> bool:
        transaction.lock(LOCK)
        is_free = transaction.fit(fit.name) is None
        if is_free:
            transaction.save_fit(fit)
        return is_free

    return store.write(job).result()


def compact(store: Store, digest: str, rates: PublishedRates, now: float) -> None:
    """Save a snapshot of the rates in force if it is time for one, and remove a little of what is too old."""
    index = store.read(lambda transaction: RatesIndex.read(transaction, digest))
    if rates.version >= index.snapshots[-1][0] + EVERY:
        _save_snapshot(store, index, rates, now)
        index = store.read(lambda transaction: RatesIndex.read(transaction, digest))
    for _ in range(REMOVALS):
        if index.removed >= index.snapshots[0][0]:
            return
        index = store.write(lambda transaction: _remove(transaction, digest, now)).result()


def note_catalog(store: Store, digest: str, now: float) -> None:
    """Note that a catalog is in use; of those that were used longest ago, keep no more than the latest rates."""
    for retired in store.write(lambda transaction: _use(transaction, digest, now)).result():
        known = store.read(lambda transaction, catalog=retired: latest_rates(transaction, catalog, PublishedRates()))  # type: ignore[misc]
        _retire(store, retired, known, now)


def _use(transaction: Transaction, digest: str, now: float) -> list[str]:
    """Put a catalog at the head of the list; return those that are too far down, which stay there until retired."""
    transaction.lock(LOCK)
    fit = transaction.fit(CATALOGS)
    known = [] if fit is None else [*fit.content["digests"]]
    listed = [digest, *(other for other in known if other != digest)]
    if listed != known:
        transaction.save_fit(FitRecord(CATALOGS, now, {"digests": listed}))
    return listed[KEPT_CATALOGS:]


def _retire(store: Store, digest: str, rates: PublishedRates, now: float) -> None:
    """Keep only the latest rates of a catalog, and take it off the list; done again if it was interrupted."""
    index = store.read(lambda transaction: RatesIndex.read(transaction, digest))
    if rates.version > index.snapshots[-1][0]:
        _save_snapshot(store, index, rates, now)
    store.write(lambda transaction: _keep_last(transaction, digest, now)).result()
    index = store.read(lambda transaction: RatesIndex.read(transaction, digest))
    while index.removed < index.snapshots[0][0]:
        index = store.write(lambda transaction: _remove(transaction, digest, now)).result()
    store.write(lambda transaction: _unlist(transaction, digest, now)).result()


def _keep_last(transaction: Transaction, digest: str, now: float) -> None:
    transaction.lock(LOCK)
    _keep_latest(transaction, RatesIndex.read(transaction, digest), 1, now)


def _unlist(transaction: Transaction, digest: str, now: float) -> None:
    transaction.lock(LOCK)
    fit = transaction.fit(CATALOGS)
    digests = [] if fit is None else [other for other in fit.content["digests"] if other != digest]
    transaction.save_fit(FitRecord(CATALOGS, now, {"digests": digests}))


def _save_snapshot(store: Store, index: RatesIndex, rates: PublishedRates, now: float) -> None:
    """Write a snapshot part by part; it is not there before the index says so."""
    parts = [*rates.parts()]
    snapshot = (rates.version, len(parts))
    store.write(lambda transaction: begin_snapshot(transaction, index.digest, snapshot, now)).result()
    for name, content in zip(index.part_names(snapshot), parts, strict=True):
        fit = FitRecord(name, now, content)
        store.write(lambda transaction, fit=fit: transaction.save_fit(fit)).result()  # type: ignore[misc]
    store.write(lambda transaction: _finish(transaction, index.digest, snapshot, now)).result()


def begin_snapshot(transaction: Transaction, digest: str, snapshot: Snapshot, now: float) -> None:
    """Note that a snapshot is written; what is left of another that was begun is removed."""
    transaction.lock(LOCK)
    index = RatesIndex.read(transaction, digest)
    if index.begun is not None:
        transaction.discard_fits(index.part_names(index.begun))
    replace(index, begun=snapshot).save(transaction, now)


def _finish(transaction: Transaction, digest: str, snapshot: Snapshot, now: float) -> None:
    """Note that a snapshot is complete, and drop the oldest; unless another worker has begun one since."""
    transaction.lock(LOCK)
    index = RatesIndex.read(transaction, digest)
    if index.begun != snapshot:
        transaction.discard_fits(index.part_names(snapshot))
        return
    _keep_latest(transaction, replace(index, snapshots=(*index.snapshots, snapshot), begun=None), KEPT, now)


def _keep_latest(transaction: Transaction, index: RatesIndex, kept: int, now: float) -> None:
    """Drop all snapshots but the latest."""
    for dropped in index.snapshots[:-kept]:
        transaction.discard_fits(index.part_names(dropped))
    replace(index, snapshots=index.snapshots[-kept:]).save(transaction, now)


def _remove(transaction: Transaction, digest: str, now: float) -> RatesIndex:
    """Remove the oldest publications that no kept snapshot needs; return the index."""
    transaction.lock(LOCK)
    index = RatesIndex.read(transaction, digest)
    until = min(index.removed + PER_REMOVAL, index.snapshots[0][0])
    transaction.discard_fits([_name(digest, version) for version in range(index.removed + 1, until + 1)])
    shortened = replace(index, removed=until)
    shortened.save(transaction, now)
    return shortened


def _name(digest: str, version: int) -> str:
    return f"rates {digest} {version}"
