"""The item table of every store: what was put comes back, versions grow, and nothing is lost."""

import json
from collections.abc import Iterator
from operator import methodcaller
from pathlib import Path

import apsw
import pytest

from slatewise.store import Store, StoreDamagedError, StoreUnavailableError, open_store, transfer
from slatewise.store.protocol import ItemRate, ItemRecord, ItemTable, Transaction
from slatewise.store.transfer import export_lines, load_lines
from tests.support.postgres_kinds import POSTGRES_KINDS, url_of
from tests.support.store_rows import NASTY, at_once, do, item

EVERYTHING = (10**9,)


@pytest.fixture(params=["memory", "sqlite", *POSTGRES_KINDS])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each kind."""
    opened = open_store(url_of(request.param, request, tmp_path))
    yield opened
    opened.close()


def put(store: Store, *items: ItemRecord) -> int:
    return int(do(store, methodcaller("put_items", items)))


def content(store: Store) -> list[ItemRecord]:
    return store.read(lambda t: t.items_by_number(0, 1000))


def test_an_empty_table(store: Store) -> None:
    assert store.read(lambda t: (t.item_table(), t.item(1), t.rates())) == (ItemTable(), None, {})
    assert put(store) == 0


def test_items_come_back_as_they_went(store: Store) -> None:
    given = [item(2), item(1, item="1"), item(3, title=None, categories=None, vector=None, published_at=None)]
    given += [item(4, item=text, title=text, categories=(text,), attributes={text: [text]}) for text in NASTY[:-1]]
    assert put(store, *given) == 1
    found = content(store)
    assert [row.content() for row in found] == [row.content() for row in given]
    assert [row.number for row in found] == sorted(row.number for row in found)
    assert {(row.version, row.content_version, row.updated_at) for row in found} == {(1, 1, 1e9)}
    assert store.read(lambda t: (t.item("1"), t.item(1))) == (found[1], None)
    assert store.read(lambda t: t.item_table()).categories == ("A", "B|C", *NASTY[:-1])


def test_the_version_grows_with_each_change_and_only_then(store: Store) -> None:
    first = put(store, item(1), item(2))
    assert put(store, item(1, updated_at=2e9), item(2)) == first
    assert content(store)[0].updated_at == 1e9
    hidden = put(store, item(2, available=False, updated_at=2e9))
    moved = put(store, item(1, categories=("New", "A"), updated_at=3e9), item(2, available=False))
    turned = put(store, item(2, available=False, vector=(1.0,)))
    assert [first, hidden, moved, turned] == [1, 2, 3, 4]
    one, two = content(store)
    assert (one.version, one.content_version, one.updated_at) == (moved, moved, 3e9)
    assert (two.version, two.content_version, two.available) == (turned, turned, False)
    assert store.read(lambda t: t.item_table()) == ItemTable(4, ("A", "B|C", "New"))


def test_an_attribute_that_becomes_an_equal_value_of_another_type_is_a_change(store: Store) -> None:
    versions = [put(store, item(1, attributes={"new": value})) for value in (True, 1.0, 1.0, True)]
    assert versions == [1, 2, 2, 3]
    assert content(store)[0].attributes["new"] is True


def test_a_change_that_is_no_content_keeps_the_version_of_the_content(store: Store) -> None:
    put(store, item(1))
    put(store, item(1, attributes={}, available=False, published_at=None))
    assert [(row.version, row.content_version) for row in content(store)] == [(2, 1)]


def test_what_changed_since_a_version_page_by_page(store: Store) -> None:
    for start in range(0, 12, 4):
        put(store, *(item(number) for number in range(start, start + 4)))
    put(store, item(5, title="last"))
    pages, after = list[list[ItemRecord]](), (1, 10**9)
    while page := store.read(lambda t, after=after: t.items_since(after, 3)):  # type: ignore[misc]
        pages.append(page)
        after = (page[-1].version, page[-1].number)
    assert [row.item for page in pages for row in page] == [4, 6, 7, 8, 9, 10, 11, 5]
    assert [row.item for row in content(store)] == list(range(12))


def test_a_failed_put_changes_nothing(store: Store) -> None:
    put(store, item(1))
    before = (content(store), store.read(lambda t: t.item_table()))

    def fail(transaction: Transaction) -> None:
        transaction.put_items([item(1, title="no"), item(2)])
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        do(store, fail)
    assert (content(store), store.read(lambda t: t.item_table())) == before
    assert list(store.users()) == []


def test_writers_at_the_same_time_each_make_a_version(store: Store) -> None:
    versions: list[int] = []
    at_once([lambda n=n: versions.append(put(store, item(n), item(99, title=str(n)))) for n in range(8)])  # type: ignore[misc]
    assert sorted(versions) == list(range(1, 9))
    assert len(content(store)) == 9
    last = store.read(lambda t: t.item(99))
    assert last is not None
    assert last.version == 8


def test_items_are_exported_and_loaded_again_with_their_version(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        put(store, item(number), item(9, title=str(number)))
    monkeypatch.setattr(transfer, "ITEMS_PER_LINE", 2)
    lines = [json.dumps(line) for line in export_lines(store)]
    assert len(lines) == 2
    other = open_store("memory://")
    assert load_lines(other, lines) == 0
    assert [row.content() for row in content(other)] == [row.content() for row in content(store)]
    assert other.read(lambda t: t.item_table()).version == store.read(lambda t: t.item_table()).version == 3
    with pytest.raises(StoreUnavailableError, match="not empty"):
        load_lines(other, lines)
    with pytest.raises(StoreDamagedError, match="line 1"):
        load_lines(open_store("memory://"), ['{"items": [{"item": 1, "color": 2}], "version": 1}'])


def test_rates_are_sums_over_shards(store: Store) -> None:
    for shard in ("a", "b", "a"):
        do(store, methodcaller("add_rates", shard, {1: ItemRate(1.0, 0.5, 0.25), "1": ItemRate(2.0, 1.0, -0.5)}))
    assert store.read(lambda t: t.rates()) == {1: ItemRate(3.0, 1.5, 0.75), "1": ItemRate(6.0, 3.0, -1.5)}


@pytest.mark.parametrize("column", ["title", "attributes", "available", "checksum"])
def test_a_damaged_row_is_noticed_and_can_be_put_again(tmp_path: Path, column: str) -> None:
    path = tmp_path / "slates.db"
    store = open_store(f"sqlite:///{path}")
    put(store, item(1, title="1", attributes={"a": 1}))
    store.close()
    connection = apsw.Connection(str(path))
    connection.execute(f"UPDATE items SET {column} = {column} + 1")  # noqa: S608
    connection.close()
    store = open_store(f"sqlite:///{path}")
    with pytest.raises(StoreDamagedError, match="put it again"):
        content(store)
    put(store, item(1, title="1", attributes={"a": 1}))
    assert [row.title for row in content(store)] == ["1"]
    store.close()


def test_items_survive_a_restart(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'slates.db'}"
    for number in range(2):
        store = open_store(url)
        put(store, item(number))
        store.close()
    store = open_store(url)
    assert [row._replace(version=0, content_version=0, number=0) for row in content(store)] == [item(0), item(1)]
    store.close()
