"""The item table of SQL stores: what a shop says about its items, and how items do with everybody."""

import json
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

from slatewise.store import statements
from slatewise.store.protocol import StoreDamagedError
from slatewise.store.records import ItemId, ItemRate, ItemRecord, ItemTable
from slatewise.store.rows import RESTORE, Execute, Values, checksum, finite, is_intact, to_json

NO_ATTRIBUTES = "{}"
LAST_LETTER = "\U0010ffff"
SETS_CACHED = 4_096
PER_STATEMENT = 50
PUT_ITEMS = statements.put_items(PER_STATEMENT)


@dataclass(frozen=True, slots=True)
class SqlItems:
    """Reads by `read` and writes by `write` within a transaction; `lock` makes other writers of items wait."""

    read: Execute
    write: Execute
    lock: Callable[[], Any]

    def table(self) -> ItemTable:
        """Return the version and the categories."""
        ((version, categories),) = self.read(statements.ITEM_TABLE, ())
        return ItemTable(version, tuple(json.loads(categories)))

    def put(self, items: Sequence[ItemRecord], version: int | None = None) -> int:
        """Write items; the version of the table grows if one of them changed."""
        self.lock()
        before = self.table()
        version = before.version + 1 if version is None else version
        rows = [*{row[0]: row for row in (item_values(item, version) for item in items)}.values()]
        n_together = len(rows) - len(rows) % PER_STATEMENT
        for start in range(0, n_together, PER_STATEMENT):
            self.write(PUT_ITEMS, tuple(chain.from_iterable(rows[start : start + PER_STATEMENT])))
        for row in rows[n_together:]:
            self.write(statements.PUT_ITEM, row)
        if not self.read(statements.FIND_CHANGED_ITEM, (version,)):
            return before.version
        names = dict.fromkeys([*before.categories, *(name for item in items for name in item.categories or ())])
        self.write(statements.SAVE_ITEM_TABLE, (version, to_json([*names])))
        return version

    def find(self, item: ItemId) -> ItemRecord | None:
        """Return one item."""
        records = self._records(statements.FIND_ITEM, (to_json(item),))
        return records[0] if records else None

    def since(self, after: tuple[int, int], limit: int) -> list[ItemRecord]:
        """Return items after a version and number."""
        return self._records(statements.ITEMS_SINCE, (*after, limit))

    def by_number(self, after: int, limit: int) -> list[ItemRecord]:
        """Return items after a number."""
        return self._records(statements.ITEMS_BY_NUMBER, (after, limit))

    def add_rates(self, shard: str, more: Mapping[ItemId, ItemRate]) -> None:
        """Add to the sums of items, in one order, so that two writers never wait for each other."""
        sums = {
            to_json(item): (finite(rate.seen), finite(rate.clicked), finite(rate.explained))
            for item, rate in more.items()
        }
        for item in sorted(sums):
            self.write(statements.ADD_RATE, (item, shard, *sums[item]))

    def rates(self, shards: str) -> dict[ItemId, ItemRate]:
        """Return the sums over the shards whose names begin like this."""
        between = (shards, shards + LAST_LETTER)
        return {json.loads(item): ItemRate(*sums) for item, *sums in self.read(statements.RATES, between)}

    def _records(self, sql: str, parameters: Values) -> list[ItemRecord]:
        try:
            return [item_record(values) for values in self.read(sql, parameters)]
        except UnicodeDecodeError:
            raise StoreDamagedError(f"a row of the item table cannot be decoded; {RESTORE}") from None


def item_values(row: ItemRecord, version: int) -> Values:
    """Return the columns of an item that is written with a version of the table."""
    content = (
        str(row.item) if type(row.item) is int else to_json(row.item),
        row.title,
        None if row.categories is None else _categories_text(row.categories),
        to_json(row.attributes) if row.attributes else NO_ATTRIBUTES,
        None if row.vector is None else array("f", row.vector).tobytes(),
        int(row.available),
        None if row.published_at is None else finite(row.published_at),
    )
    return (*content, checksum("items", content), finite(row.updated_at), version, version)


@lru_cache(SETS_CACHED)
def _categories_text(categories: tuple[str, ...]) -> str:
    """Return categories as JSON; a table has few different sets of them."""
    return to_json(categories)


@lru_cache(SETS_CACHED)
def _categories_of(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def item_record(values: Values) -> ItemRecord:
    """Return the item in these columns; fail if they do not match their checksum."""
    *content, updated_at, number, version, content_version = values
    item, title, categories, attributes, vector, available, published_at, _ = content
    if not is_intact("items", tuple(content)):
        raise StoreDamagedError(
            f"item {item} of the item table does not match its checksum; put it again, or {RESTORE}"
        )
    return ItemRecord(
        json.loads(item) if item[:1] == '"' else int(item),
        title,
        None if categories is None else _categories_of(categories),
        {} if attributes == NO_ATTRIBUTES else json.loads(attributes),
        None if vector is None else tuple(array("f", vector)),
        bool(available),
        published_at,
        updated_at,
        number,
        version,
        content_version,
    )
