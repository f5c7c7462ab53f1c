"""What everyone's reactions say about the items: collected in memory, kept in the store, published to all workers.

The log is the truth. A feedback event changes what its slate says about its items by as much as what all events so far
say differs from what those before did, so that late and retracted reactions are exact. The sums are kept
per catalog and worker. Rates that moved noticeably are published under a number, and slates are chosen by published
rates only and logged with that number, so that they can be chosen again.
"""

import math
import os
import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from slatewise.belief.rates import RateEvidence, Rates
from slatewise.evidence import Attention
from slatewise.recommender.learning import LoggedSlate, SlateChange, by_size, reactions_to
from slatewise.recommender.loading import LogTail
from slatewise.recommender.rate_publications import PublishedRates, compact, latest_rates, note_catalog, publish
from slatewise.recommender.served_catalog import ServedCatalog
from slatewise.store.protocol import Store, StoreFullError, StoreUnavailableError, StoreUncertainError, Transaction
from slatewise.store.records import Choice, ItemId, ItemRate

SHARDS = 16
PER_WRITE = 500
NOTICED, GROWN = 0.25, 1.25
"""A rate is published if it moved by so many of its deviations, or if it became so many times as certain."""
LEVEL_NOTICED = 0.02
"""The level of clicks is published with every rate, and by itself if it moved by this share."""
KEPT_IN_MEMORY = 10_000


def logged_explanation(choice: Choice | None) -> Sequence[float]:
    """Return what taste adds to the rates of the items of a slate, as it was logged; nothing if it was not."""
    return ((choice or {}).get("exploration") or {}).get("explained") or ()


def _add_rates(shard: str, more: Mapping[ItemId, ItemRate], transaction: Transaction) -> None:
    transaction.add_rates(shard, more)


def _with_explanations(changes: Sequence[SlateChange], transaction: Transaction) -> list[SlateChange]:
    return [
        change if change.after.explained is not None else _read_explanation(change, transaction) for change in changes
    ]


def _read_explanation(change: SlateChange, transaction: Transaction) -> SlateChange:
    """Return a change with what taste explains, from the log.

    The slate may have been merged into another user since, where it has another number, or forgotten.
    """
    slate = transaction.slate(change.after.record.slate_id)
    choices = {} if slate is None else transaction.choices_of(slate.user, slate.number, 1)
    explained = logged_explanation(None if slate is None else choices.get(slate.number))
    return SlateChange(replace(change.before, explained=explained), replace(change.after, explained=explained))


def slate_rates(slates: Iterable[LoggedSlate], attention: Attention) -> dict[ItemId, ItemRate]:
    """Add up what slates say about their items: who saw them, what was clicked, and what taste explains of it.

    A skip counts in full, unlike in what is learned about a user.
    """
    counted, in_full = by_size(slate for slate in slates if slate.counts), replace(attention, skip_weight=1.0)
    return total_rates((1.0, _rates_of_size(same, in_full)) for same in counted.values())


def _rates_of_size(slates: Sequence[LoggedSlate], attention: Attention) -> dict[ItemId, ItemRate]:
    """Add up what slates of one size say, all of them at once."""
    shape = (len(slates), len(slates[0].record.items))
    evidence = attention.evidence(reactions_to(slates, np.broadcast_to(np.arange(shape[1]), shape)))
    examined = evidence.examined * (evidence.items >= 0)
    explained = np.array([slate.explained or (0.0,) * shape[1] for slate in slates])
    sums = np.stack([examined, evidence.value * (evidence.items >= 0), examined * explained], axis=-1)
    return _sums_by_item([item for slate in slates for item in slate.record.items], sums.reshape(-1, 3))


def _sums_by_item(items: Sequence[ItemId], rows: NDArray[np.float64]) -> dict[ItemId, ItemRate]:
    """Return the sums of rows (n, 3) by item; items whose sums are all 0 are left out."""
    positions = {item: position for position, item in enumerate(dict.fromkeys(items))}
    totals = np.zeros((len(positions), 3))
    np.add.at(totals, [positions[item] for item in items], rows)
    sums = zip(positions, totals.tolist(), strict=True)
    return {item: ItemRate(*row) for item, row in sums if any(row)}


def total_rates(parts: Iterable[tuple[float, Mapping[ItemId, ItemRate]]]) -> dict[ItemId, ItemRate]:
    """Add up sums, each with a factor."""
    totals = defaultdict[ItemId, list[float]](lambda: [0.0, 0.0, 0.0])
    for factor, rates in parts:
        for item, rate in rates.items():
            for column, more in enumerate((rate.seen, rate.clicked, rate.explained)):
                totals[item][column] += factor * more
    return {item: ItemRate(*sums) for item, sums in totals.items() if any(sums)}


def by_catalog(changes: Sequence[SlateChange], attention: Attention) -> dict[str, dict[ItemId, ItemRate]]:
    """Return what some feedback changed, by the catalog that its slates were chosen from: not only that served now."""
    groups = defaultdict[str, list[SlateChange]](list)
    for change in changes:
        groups[change.after.record.catalog].append(change)
    changed = {}
    for digest, ours in groups.items():
        after = slate_rates((change.after for change in ours), attention)
        before = slate_rates((change.before for change in ours), attention)
        changed[digest] = total_rates([(1.0, after), (-1.0, before)])
    return changed


class LiveRates:
    """Collects the feedback of this process and follows what is published by all; safe to use from several threads."""

    def __init__(self, store: Store) -> None:
        self._store, self._lock = store, threading.Lock()
        self.noted = deque[SlateChange](maxlen=KEPT_IN_MEMORY)
        """What the next `step` learns, since feedback was recorded; what is forgotten here is still in the log."""
        self._unsaved = deque[tuple[str, dict[ItemId, ItemRate]]]()
        """Sums to write, by shard; they stay here while the store is away."""
        self._published = PublishedRates()
        self._served: ServedCatalog | None = None
        self._listed: str | None = None
        self._evidence: RateEvidence | None = None
        """What everyone did with the items of the catalog, unless it has to be read again."""

    def use(self, served: ServedCatalog) -> None:
        """Let a catalog choose by the rates published for it."""
        with self._lock:
            self._follow(served)

    def step(self, served: ServedCatalog, now: float) -> int:
        """Learn what was noted, publish what moved, and follow what others published; return the version in force."""
        with self._lock:
            noted = self._learn_noted(served)
            if self._follow(served):
                self._evidence = None  # others have learned something, too
            if noted:
                self._publish(served, now)
                self._follow(served)
                compact(self._store, served.digest, self._published, now)
                if self._listed != served.digest:
                    note_catalog(self._store, served.digest, now)
                    self._listed = served.digest
            return self._published.version

    def rebuild(self, served: ServedCatalog, now: float) -> int:
        """Learn the rates again from the log of this catalog, and write by how much the kept sums differ from it.

        What was noted comes first: some of it may be about other catalogs.
        """
        with self._lock:
            self._learn_noted(served)
            self._evidence = None
            kept = self._store.read(lambda transaction: transaction.rates(served.digest))
            logged = total_rates((1.0, self._logged(served, user)) for user in self._store.users())
            self._save(served, {served.digest: total_rates([(1.0, logged), (-1.0, kept)])})
            self._follow(served)
            self._publish(served, now)
            self._follow(served)
            return self._published.version

    def _learn_noted(self, served: ServedCatalog) -> bool:
        """Keep what was noted, and what could not be written before; return whether there was any."""
        is_any = bool(self.noted or self._unsaved)
        if self._unsaved:
            self._evidence = None
            self._write_unsaved()
        for _ in range(math.ceil(len(self.noted) / PER_WRITE)):
            noted = [self.noted.popleft() for _ in range(min(len(self.noted), PER_WRITE))]
            try:
                complete = self._explained(noted)
            except StoreUnavailableError:
                self.noted.extendleft(reversed(noted))
                raise
            self._save(served, by_catalog(complete, served.rules.attention))
        return is_any

    def _explained(self, changes: Sequence[SlateChange]) -> Sequence[SlateChange]:
        """Return changes with what taste explains, which is known already of slates that this process has shown."""
        if all(change.after.explained is not None for change in changes):
            return changes
        return self._store.read(partial(_with_explanations, changes))

    def _logged(self, served: ServedCatalog, user: str) -> dict[ItemId, ItemRate]:
        return self._store.read(lambda transaction: logged_rates(transaction, user, served))

    def _save(self, served: ServedCatalog, sums: Mapping[str, Mapping[ItemId, ItemRate]]) -> None:
        """Write sums by catalog; if that fails halfway, or items have changed, everyone's evidence is read again."""
        known, self._evidence = self._evidence, None
        for digest, more in sums.items():
            items, shard = [*more.items()], f"{digest}/{os.getpid() % SHARDS}"
            parts = (items[start : start + PER_WRITE] for start in range(0, len(items), PER_WRITE))
            self._unsaved += ((shard, dict(part)) for part in parts)
        self._write_unsaved()
        if known is not None and served is self._served:
            self._evidence = with_sums(served, known, sums.get(served.digest, {}))

    def _write_unsaved(self) -> None:
        """Write sums that are not in the store yet; keep them as long as it is away or full, and has not got them."""
        while self._unsaved:
            shard, more = self._unsaved.popleft()
            try:
                self._store.write(partial(_add_rates, shard, more)).result()
            except StoreUncertainError:
                raise
            except (StoreUnavailableError, StoreFullError):
                self._unsaved.appendleft((shard, more))
                raise

    def _follow(self, served: ServedCatalog) -> bool:
        """Read what was published since, and hand it to the policies of the catalog; return whether there was any."""
        if self._served is None or served.digest != self._served.digest:
            self._published = PublishedRates()
        known = self._published
        self._published = self._store.read(lambda transaction: latest_rates(transaction, served.digest, known))
        is_newer = self._published.version != known.version
        if served is not self._served:
            self._evidence = None
        if is_newer or served is not self._served:
            self._served = served
            served.use_rates(self._published.on(served), self._published.version)
        return is_newer

    def _everyone(self, served: ServedCatalog) -> RateEvidence:
        """Return what everyone did; it is only read if others may have added to it, since reading it all takes long."""
        if self._evidence is None:
            totals = self._store.read(lambda transaction: transaction.rates(served.digest))
            self._evidence = with_sums(served, RateEvidence.nothing(served.n_items), totals)
        return self._evidence

    def _publish(self, served: ServedCatalog, now: float) -> None:
        """Publish the rates that moved, unless another worker has published in the meantime."""
        evidence = self._everyone(served)
        learned, before = learned_rates(served, evidence), served.rates
        seen = np.union1d(np.flatnonzero(evidence.seen), served.numbers(self._published.rates))
        moved, told = _moved(seen, before, learned), _moved_beyond(before, learned)
        is_level_kept = abs(learned.level - before.level) <= LEVEL_NOTICED * before.level
        if is_level_kept and not len(moved) and not len(told):
            return
        rows = [
            [served.label(item)[0], float(learned.mean[item]), float(learned.strength[item])] for item in moved.tolist()
        ]
        beyond = [[served.label(item)[0], learned.beyond_of(item)] for item in told.tolist()]
        least = int(learned.strength.argmin())
        unseen = (float(learned.mean[least]), float(learned.strength[least])) if served.catalog.knows_nothing else None
        content = {"unseen": unseen, "level": learned.level, "rates": rows, "beyond": beyond}
        if not publish(self._store, served.digest, self._published.version + 1, content, now):
            self._evidence = None  # others have learned something, too


def with_sums(served: ServedCatalog, evidence: RateEvidence, more: Mapping[ItemId, ItemRate]) -> RateEvidence:
    """Return evidence about the items of a catalog with more sums."""
    sums = np.array([[rate.seen, rate.clicked, rate.explained] for rate in more.values()]).reshape(-1, 3)
    return evidence.added(served.numbers(more), *sums.T)


def learned_rates(served: ServedCatalog, evidence: RateEvidence) -> Rates:
    """Return the rates that evidence leads to."""
    prior = Rates.of(served.catalog)
    return prior.after_unknown(evidence) if served.catalog.knows_nothing else prior.after(evidence)


def logged_rates(transaction: Transaction, user: str, served: ServedCatalog) -> dict[ItemId, ItemRate]:
    """Return what the whole log of a user says about items, as far as slates were chosen from this catalog."""
    choices, tail = transaction.choices_of(user), LogTail.read(transaction, user)
    slates = [slate for slate in tail.logged_slates(served) if slate.record.catalog == served.digest]
    explained_slates = (
        replace(slate, explained=logged_explanation(choices.get(slate.record.number))) for slate in slates
    )
    return slate_rates(explained_slates, served.rules.attention)


def _moved(seen: NDArray[np.int64], before: Rates, now: Rates) -> NDArray[np.int64]:
    """Return which of the items that were seen, ascending, moved noticeably since their rate was published."""
    is_moved = np.abs(now.mean - before.mean) > NOTICED * now.deviation
    is_grown = (now.strength > GROWN * before.strength) | (before.strength > GROWN * now.strength)
    items = seen[seen >= 0]
    return items[(is_moved | is_grown)[items]]


def _moved_beyond(before: Rates, now: Rates) -> NDArray[np.int64]:
    """Return which of the items that are clicked more often than the level moved noticeably in what is told of them."""
    is_beyond = np.zeros(len(now.mean), dtype=np.bool_)
    for rates in (before, now):
        is_beyond |= False if rates.beyond is None else rates.beyond > 0.0
    shares = now.shares
    deviation = np.sqrt(shares * (1.0 - shares) * now.level / now.strength)
    return np.flatnonzero(is_beyond & (np.abs(shares - before.shares) > NOTICED * deviation))
