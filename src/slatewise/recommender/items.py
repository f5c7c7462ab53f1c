"""The item table merged with the trained catalog, as of one version: what slates are chosen from."""

import hashlib
import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from slatewise.catalog import Catalog
from slatewise.catalog.blocked_text import BlockedText
from slatewise.catalog.identifiers import LARGEST, SMALLEST, Identifier
from slatewise.catalog.live_items import ItemContent, with_content
from slatewise.catalog.versioned_arrays import with_rows
from slatewise.recommender.attributes import kind_of
from slatewise.store.protocol import Store, Transaction
from slatewise.store.records import ItemId, ItemRecord, ItemTable

if TYPE_CHECKING:
    import polars as pl

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]

NOTHING: Integers = np.empty(0, dtype=np.int64)
PER_READ = 50_000
LAST = 2**62


@dataclass(frozen=True, eq=False)
class UntrainedItems:
    """Items that the catalog was not trained on, by the hash of their id, ascending, and when their content changed.

    What is learned from such an item depends on its content: if that changes, or the item appears at all, those who
    have met it are learned again from their log.
    """

    n_trained: int
    hashes: Integers = field(default_factory=lambda: NOTHING)
    versions: Integers = field(default_factory=lambda: NOTHING)

    @cached_property
    def version(self) -> int:
        """The version of the table when content last changed."""
        return int(self.versions.max(initial=0))

    def changed_since(self, version: int, hashes: Integers) -> bool:
        """Return whether one of these items had other content at a version, or may have had.

        That is so at a later version than this one, which another process knows first.
        """
        if not len(hashes) or version == self.version:
            return False
        if version > self.version:
            return True
        positions = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return bool(((self.hashes[positions] == hashes) & (self.versions[positions] > version)).any())

    def with_items(self, records: Sequence[ItemRecord]) -> "UntrainedItems":
        """Return these and others, or others in their place."""
        if not records:
            return self
        hashes = np.concatenate([hashes_of(record.item for record in records), self.hashes])
        versions = np.concatenate([[record.content_version for record in records], self.versions])
        distinct, first = np.unique(hashes, return_index=True)
        return UntrainedItems(self.n_trained, distinct, versions[first])


def hashes_of(ids: Iterable[ItemId]) -> Integers:
    """Return 64 bits for each id."""
    digests = (hashlib.blake2b(json.dumps(item).encode(), digest_size=8).digest() for item in ids)
    return np.frombuffer(b"".join(digests), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class ItemSnapshot:
    """A catalog with everything that the item table says as of a version; arrays are in the order of the catalog.

    attributes: JSON, empty for an item without any; published_at: NaN if it was not given; kinds: of the attributes;
    mixed: those that had values of several kinds, of which the latest counts; changed: the numbers of the items that
    may differ from the snapshot before, and `changed_since` its version.
    """

    catalog: Catalog
    available: Booleans
    published_at: Floats
    attributes: BlockedText
    untrained: UntrainedItems
    version: int = 0
    kinds: dict[str, str] = field(default_factory=dict)
    mixed: frozenset[str] = frozenset()
    changed: Integers = field(default_factory=lambda: NOTHING)
    changed_since: int | None = None

    @classmethod
    def of(cls, catalog: Catalog) -> "ItemSnapshot":
        """Return a catalog without an item table."""
        trained = catalog.trained
        n_items = trained.n_items
        available = np.ones(n_items, dtype=np.bool_) if trained.available is None else trained.available
        nothing = BlockedText.of_nothing(n_items)
        return cls(trained, available, np.full(n_items, np.nan), nothing, UntrainedItems(n_items))

    @classmethod
    def read(cls, store: Store, catalog: Catalog) -> "ItemSnapshot":
        """Merge the item table of a store with a catalog."""
        return store.read(lambda transaction: _read(transaction, cls.of(catalog)))

    def refreshed(self, store: Store) -> "ItemSnapshot":
        """Return the snapshot with what changed since; the same object if nothing did."""
        return store.read(lambda transaction: _read(transaction, self))

    @cached_property
    def withdrawn(self) -> Integers:
        """The numbers of the items that are not available, ascending."""
        return np.flatnonzero(~self.available)

    @cached_property
    def last_published(self) -> float:
        """The time from which on every available item is published."""
        return float(np.max(self.published_at, where=~np.isnan(self.published_at), initial=-np.inf))

    def hidden(self, now: float) -> Integers:
        """Return the numbers of the items that are not offered at a time, ascending; `withdrawn` after the last one."""
        return np.flatnonzero(~self.available | (self.published_at > now))

    @cached_property
    def frame(self) -> "pl.DataFrame":
        """One row per item of the catalog: id, title, categories, available, published_at, and every attribute."""
        from slatewise.recommender.item_frame import item_frame  # polars is needed only where attributes are

        return item_frame(self)

    def with_records(self, records: Sequence[ItemRecord], table: ItemTable) -> "ItemSnapshot":
        """Return the snapshot after changes, in the order in which their items first appeared.

        Items with ids of another type than the catalog's are left out.
        """
        ids = [catalog_id(self.catalog, record.item) for record in records]
        fitting = [(item, record) for item, record in zip(ids, records, strict=True) if item is not None]
        contents = [ItemContent(item, record.title, record.categories, record.vector) for item, record in fitting]
        catalog = with_content(self.catalog, contents, table.categories)
        rows = catalog.item_ids.find_all([item for item, _ in fitting])
        numbers = rows.tolist()
        kept = [record for _, record in fitting]
        is_untrained = [number >= self.untrained.n_trained for number in numbers]
        texts = {number: _text(record) for number, record in zip(numbers, kept, strict=True)}
        new_kinds = [
            pair for number, record in zip(numbers, kept, strict=True) for pair in self._new_kinds(number, record)
        ]
        kinds = self.kinds | dict(new_kinds)
        mixed = {name for name, kind in {*self.kinds.items(), *new_kinds} if kinds[name] != kind}
        changed = replace(
            self,
            catalog=catalog,
            available=with_rows(self.available, catalog.n_items, rows, np.array([record.available for record in kept])),
            published_at=with_rows(
                self.published_at, catalog.n_items, rows, np.array([_time(record) for record in kept])
            ),
            attributes=self.attributes.with_changes(texts),
            untrained=self.untrained.with_items(
                [record for record, new in zip(kept, is_untrained, strict=True) if new]
            ),
            version=table.version,
            kinds=kinds,
            mixed=self.mixed | mixed,
            changed=rows,
            changed_since=self.version,
        )
        if "frame" in vars(self) and changed.mixed == self.mixed and kinds.items() >= self.kinds.items():
            from slatewise.recommender.item_frame import changed_frame

            vars(changed)["frame"] = changed_frame(self.frame, changed, numbers)
        return changed

    def _new_kinds(self, number: int, record: ItemRecord) -> list[tuple[str, str]]:
        """Return the attributes that a change of an item gives a new value, with its kind.

        A value that stays decides nothing: the kinds may not depend on which item was changed last.
        """
        text = self.attributes[number] if number < len(self.attributes) else ""
        before = {name: (kind_of(value), value) for name, value in json.loads(text or "{}").items()}
        now = {name: (kind_of(value), value) for name, value in record.attributes.items()}
        return [(name, kind) for name, (kind, value) in now.items() if before.get(name) != (kind, value)]

    def uses(self, attribute: str, kind: str, without: Iterable[Identifier]) -> bool:
        """Return whether an item other than these has an attribute of a kind; slow."""
        others = {self.catalog.item_ids.find(item) for item in without}
        texts = (text for number, text in enumerate(self.attributes) if text and number not in others)
        return any(
            kind_of(value) == kind for text in texts for name, value in json.loads(text).items() if name == attribute
        )


def catalog_id(catalog: Catalog, item: ItemId) -> Identifier | None:
    """Return an id as the type that the catalog's ids have; None if it has another type."""
    kind = catalog.item_ids.kind
    if kind == "int":
        return item if isinstance(item, int) and SMALLEST <= item <= LARGEST else None
    if not isinstance(item, str):
        return None
    try:
        return item if kind == "str" else uuid.UUID(item)
    except ValueError:
        return None


def _read(transaction: Transaction, snapshot: ItemSnapshot) -> ItemSnapshot:
    """Read what changed since a snapshot: everything in pages, or a few changes at once."""
    table = transaction.item_table()
    if table.version == snapshot.version:
        return snapshot
    if snapshot.version:
        records, after = list[ItemRecord](), (snapshot.version, LAST)
        while page := transaction.items_since(after, PER_READ):
            records += page
            after = (page[-1].version, page[-1].number)
        return snapshot.with_records(sorted(records, key=lambda record: record.number), table)
    number = 0
    while page := transaction.items_by_number(number, PER_READ):
        snapshot, number = snapshot.with_records(page, table), page[-1].number
    return snapshot


def _text(record: ItemRecord) -> str:
    return json.dumps(record.attributes) if record.attributes else ""


def _time(record: ItemRecord) -> float:
    return np.nan if record.published_at is None else record.published_at
