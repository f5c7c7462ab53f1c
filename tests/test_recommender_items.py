"""Items are live: what a shop says about them is in force from the next slate on, and no belief is lost over it."""

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slatewise.catalog import Catalog, additions, live_items
from slatewise.recommender import Event, Item, Pin, Recommender, RequestError, SlateRules, UnknownItemError
from slatewise.recommender.attributes import kind_of
from slatewise.recommender.item_frame import item_frame
from slatewise.recommender.items import ItemSnapshot
from slatewise.recommender.verify import difference
from slatewise.store import Store, StoreUnavailableError, open_store
from slatewise.store.protocol import StoreUncertainError
from slatewise.store.records import ItemRecord, ItemTable
from tests.support.recommending import (
    Clock,
    InterruptedStore,
    cached_profile,
    ids,
    loaded_profile,
    make_catalog,
    restarted,
    served_catalog,
)
from tests.support.store_rows import do, emptied

N_ITEMS = 12


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return make_catalog(N_ITEMS)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recommender(catalog: Catalog, clock: Clock) -> Iterator[Recommender]:
    with Recommender(catalog, clock=clock) as opened:
        yield opened


def offered(recommender: Recommender, user: str = "somebody") -> set[Any]:
    """Every item that a user may be offered."""
    return set(ids(recommender.preview(user, 500)))


TRAINED = set(range(100, 100 + N_ITEMS))


def test_items_may_be_plain_data() -> None:
    catalog = Catalog.from_vectors(range(4), np.eye(4))
    plain: dict[str, Any] = {"id": 9, "title": "Tea", "categories": ["Hot"], "attributes": {"price": 3}}
    one, other = Recommender(catalog, clock=Clock()), Recommender(catalog, clock=Clock())
    one.put_items([plain, Item(8)])
    other.put_items([Item(**plain), Item(8)])
    assert one.item(9) == other.item(9)
    for wrong in ({"title": "no id"}, {"id": 1, "price": 3}, {"id": 1, "title": 3}, "tea", 7):
        with pytest.raises(RequestError, match=r"^items/1: "):
            one.put_items([plain, wrong])  # type: ignore[list-item]


def test_a_day_in_the_shop(recommender: Recommender) -> None:
    before = recommender.recommend("ann", 12)
    assert recommender.put_items([Item(7, "A new thing", ["New", "A"], {"price": 2})]) == 1
    assert offered(recommender) == TRAINED | {7}
    assert recommender.withdraw_items([100, 7]) == 2
    assert offered(recommender) == TRAINED - {100}
    assert not recommender.item(100).available
    recommender.feedback(before.slate_id, [100, 101], seen=ids(before))
    assert [item for item, _ in recommender.explain("ann").liked] == [101, 100]
    recommender.patch_item(100, {"available": True})
    recommender.patch_item(7, {"available": True, "title": "An old thing"})
    assert offered(recommender) == TRAINED | {7}
    shown = next(item for item in recommender.preview("ben", 500).items if item.id == 7)
    assert (shown.title, shown.categories) == ("An old thing", ("A", "New"))
    assert dict(recommender.verify()) == {"ann": None}


def test_what_is_known_about_an_item(recommender: Recommender) -> None:
    recommender.put_items([Item(101, attributes={"b": [1 * "x"], "a": 1, "t": {"time": "2026-01-31"}}), Item(5)])
    trained, new = recommender.items([101, 5])
    assert (trained.title, trained.trained, trained.categories) == ("101", True, recommender.item(101).categories)
    assert trained.attributes == {"a": 1.0, "b": ["x"], "t": {"time": 1769817600.0}}
    assert (new.title, new.trained, new.categories, new.updated_at) == ("5", False, (), 1_000_000.0)
    assert recommender.item(102).updated_at is None
    for call in (recommender.item, lambda item: recommender.withdraw_items([100, item]), patched(recommender)):
        with pytest.raises(UnknownItemError):
            call(99)
    assert recommender.snapshot.version == 1


def patched(recommender: Recommender) -> Any:
    return lambda item: recommender.patch_item(item, {"title": "no"})


def test_a_patch_changes_only_what_it_names(recommender: Recommender) -> None:
    recommender.put_items([Item(1, "one", ["X"], {"a": 1, "b": "two"}, [0.5] * 6, published_at=5.0)])
    recommender.patch_item(1, {"attributes": {"b": None, "c": True}})
    details = recommender.item(1)
    assert details.attributes == {"a": 1.0, "c": True}
    assert (details.title, details.categories, details.vector) == ("one", ("X",), (0.5,) * 6)
    recommender.patch_item(1, {"title": None})
    assert recommender.item(1).title == "1"


def test_what_says_the_same_is_no_change(recommender: Recommender) -> None:
    item = Item(1, "one", ["X"], {"a": 1})
    assert [recommender.put_items([item]), recommender.put_items([item])] == [1, 1]
    served = served_catalog(recommender)
    assert not recommender.follow_items()
    assert served_catalog(recommender) is served


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": "text in a catalog of numbers"},
        {"id": True},
        {"id": 2**63},
        {"title": "x" * 1001},
        {"title": "\0"},
        {"title": "\ud800"},
        {"categories": "A"},
        {"categories": [""]},
        {"categories": ["A|B"]},
        {"attributes": {"1st": 1}},
        {"attributes": {"title": "x"}},
        {"attributes": {"x": float("nan")}},
        {"attributes": {"x": [1]}},
        {"attributes": {"x": {"date": 1}}},
        {"attributes": {"x": b"bytes"}},
        {"attributes": {f"x{number}": 1 for number in range(101)}},
        {"attributes": {"price": "cheap"}},
        {"vector": []},
        {"vector": [float("inf")]},
        {"vector": ["x"]},
        {"available": 1},
        {"published_at": "tomorrow"},
        {"published_at": float("nan")},
    ],
    ids=str,
)
def test_what_cannot_be_kept_is_refused_and_changes_nothing(recommender: Recommender, wrong: dict[str, Any]) -> None:
    recommender.put_items([Item(1, attributes={"price": 1})])
    with pytest.raises(RequestError):
        recommender.put_items([Item(3), Item(**{"id": 2, **wrong})])
    assert recommender.snapshot.version == 1


def test_the_kind_of_an_attribute_can_change_once_no_other_item_has_it(recommender: Recommender) -> None:
    recommender.put_items([Item(1, attributes={"price": "cheap"})])
    with pytest.raises(RequestError, match="price of other items is a text, not a number"):
        recommender.put_items([Item(2, attributes={"price": 1})])
    recommender.put_items([Item(1, attributes={"price": 1})])
    recommender.put_items([Item(2, attributes={"price": 2})])
    assert recommender.snapshot.frame["price"].drop_nulls().to_list() == [1.0, 2.0]


@pytest.fixture
def mixed(recommender: Recommender) -> Recommender:
    """Items that an import of an older version left with an attribute of two kinds, of which the last counts."""
    records = [ItemRecord(100, attributes={"sku": 5.0}, vector=(1.0,)), ItemRecord(101, attributes={"sku": "A-7"})]
    recommender.store.write(lambda transaction: transaction.put_items(records)).result()
    recommender.follow_items()
    assert recommender.snapshot.kinds == {"sku": "text"}
    return recommender


def test_only_what_is_sent_is_checked(mixed: Recommender) -> None:
    mixed.patch_item(100, {"available": False})
    mixed.patch_item(100, {"attributes": {"price": 3}})
    for wrong in ({"attributes": {"sku": 6}}, {"vector": [1.0]}):
        with pytest.raises(RequestError):
            mixed.patch_item(100, wrong)
    mixed.patch_item(100, {"attributes": {"sku": "B-8"}})
    assert mixed.item(100).attributes == {"sku": "B-8", "price": 3.0}


def test_what_stays_as_it_is_does_not_change_the_kind_of_an_attribute(mixed: Recommender) -> None:
    mixed.withdraw_items([100])
    mixed.patch_item(100, {"title": "Five"})
    assert mixed.snapshot.kinds == restarted(mixed).snapshot.kinds == {"sku": "text"}
    assert ids(mixed.preview("ann", rules=SlateRules(filter="sku = 'A-7'"))) == [101]


def test_true_may_become_a_number(catalog: Catalog, tmp_path: Path) -> None:
    with Recommender(catalog, store=f"sqlite:///{tmp_path / 's.db'}") as recommender:
        for value, kind in ((True, "boolean"), (1.0, "number"), (True, "boolean")):
            recommender.put_items([Item(100, attributes={"new": value})])
            assert recommender.snapshot.kinds == {"new": kind}


def test_a_pin_beyond_the_slate_says_how_many_places_there_are(recommender: Recommender) -> None:
    for k, said in ((1, "the slate has 1 place"), (2, "the slate has 2 places")):
        pins = (Pin(101, 1), Pin(102, 2), Pin(103, 3))
        assert recommender.preview("ann", k, rules=SlateRules(pin=pins)).unmet[-1].reason == said


def test_the_frame_has_a_row_per_item_of_the_catalog(recommender: Recommender) -> None:
    when = datetime(2026, 1, 31, 12, tzinfo=UTC)
    tea = {"brand": "Ü", "price": 1, "new": True, "tags": ["a", "b"], "since": when}
    recommender.put_items([Item(103, "Tea", ["Hot"], tea, published_at=when), Item(1, available=False)])
    frame = recommender.snapshot.frame
    assert frame["id"].to_list() == [*sorted(TRAINED), 1]
    row = frame.row(3, named=True)
    assert row == {
        "id": 103,
        "title": "Tea",
        "categories": ["Hot"],
        "available": True,
        "published_at": when,
        "brand": "Ü",
        "price": 1.0,
        "new": True,
        "tags": ["a", "b"],
        "since": when,
    }
    assert frame.row(N_ITEMS, named=True)["available"] is False
    assert frame["price"].null_count() == N_ITEMS


def test_an_item_is_not_offered_before_it_is_published(recommender: Recommender, clock: Clock) -> None:
    recommender.put_items([Item(1, published_at=clock.now + 10), Item(101, published_at=clock.now + 20)])
    assert offered(recommender) == TRAINED - {101}
    clock.now += 10
    assert offered(recommender) == (TRAINED | {1}) - {101}
    clock.now += 10
    assert offered(recommender) == TRAINED | {1}


def test_hidden_items_stay_hidden_among_candidates(recommender: Recommender) -> None:
    """What is withdrawn, shown before, hidden for good or excluded, in any order of their numbers."""
    recommender.record_event(Event("ann", 106, "hide"))
    recommender.feedback(recommender.recommend("ann", 2, candidates=[101, 102]).slate_id, [101])
    recommender.withdraw_items([104])
    slate = recommender.preview("ann", 2, candidates=range(100, 109), exclude=[100])
    assert set(ids(slate)) <= {103, 105, 107, 108}
    everything = recommender.preview("ann", 500, candidates=range(100, 109), exclude=[100])
    assert set(ids(everything)) == {101, 102, 103, 105, 107, 108}


def test_new_items_leave_beliefs_as_they_are(recommender: Recommender) -> None:
    for _ in range(2):
        slate = recommender.recommend("ann", 3)
        recommender.feedback(slate.slate_id, [slate.items[0].id])
    recommender.recommend("ann", 3)
    known = cached_profile(recommender, "ann")
    recommender.put_items([Item(1, categories=["New"]), Item(100, categories=["Other"])])
    moved = cached_profile(recommender, "ann")
    assert known is not None
    assert moved is not None
    assert moved.learned.state["shift"] is known.learned.state["shift"]
    assert ids(recommender.preview("ann", 500))
    assert {one.name for one in recommender.explain("ann").categories} >= {"New", "Other"}
    assert recommender.rebuilt == 0
    assert dict(recommender.verify()) == {"ann": None}


@pytest.mark.parametrize("is_saved", [False, True])
def test_evidence_about_an_item_counts_from_the_day_it_exists(recommender: Recommender, is_saved: bool) -> None:
    """Also if the belief without it was saved long before."""
    recommender.record_event(Event("ann", 1, "owned"))
    for _ in range(9 if is_saved else 1):
        recommender.feedback(recommender.recommend("ann", 1).slate_id, [])
    recommender.recommend("ann", 1)
    again = restarted(recommender) if is_saved else recommender
    again.put_items([Item(1), Item(2)])
    assert 1 not in offered(again, "ann")
    assert {1, 2} <= offered(again, "ben")
    assert dict(again.verify())["ann"] is None


def test_users_who_met_a_new_item_are_learned_again_when_it_changes(
    recommender: Recommender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an untrained item teaches depends on its content."""
    plain = additions.expect_items

    def by_title(trained: Catalog, new: Any, categories: Any) -> Any:
        expected = plain(trained, new, categories)
        expected.tastes[:, 0] = [len(title) / 100 for title in new.titles]
        return expected

    monkeypatch.setattr(live_items, "expect_items", by_title)
    recommender.put_items([Item(1, "x")])
    for user in ("ann", "ben"):
        for number in range(10):
            slate = recommender.recommend(user, 1, candidates=[1 if user == "ann" and not number else 100 + number])
            recommender.feedback(slate.slate_id, ids(slate))
        recommender.recommend(user, 1)
    before = {user: loaded_profile(recommender, user) for user in ("ann", "ben")}
    recommender.put_items([Item(1, "x" * 20), Item(2)])
    after = {user: loaded_profile(recommender, user) for user in ("ann", "ben")}
    assert [after[user].saved for user in after] == [0, before["ben"].saved]
    assert difference(before["ann"].learned, after["ann"].learned) > 1e-3
    assert difference(before["ben"].learned, after["ben"].learned) == 0.0
    assert dict(recommender.verify()) == {"ann": None, "ben": None}


@pytest.mark.parametrize("categories", [(), ("New",)])
@pytest.mark.parametrize("policy", ["dc2b-calibrated", "dc2b", "popular"])
@pytest.mark.parametrize("new", [range(1, 50), TRAINED])
def test_a_belief_from_items_that_only_another_process_knows_is_learned_again(
    catalog: Catalog, policy: str, categories: tuple[str, ...], new: Iterable[int]
) -> None:
    """Until this process has the new items as well: it cannot tell what they, or their categories, have taught."""
    store = open_store("memory://")
    first, behind = (Recommender(catalog, policy, store=store, clock=Clock()) for _ in range(2))
    first.put_items([Item(item, "New", categories) for item in new])
    for item in [*new][:10]:
        slate = first.recommend("ann", 1, candidates=[item])
        first.feedback(slate.slate_id, [item])
    first.recommend("ann", 1)
    assert loaded_profile(first, "ann").saved
    assert set(ids(behind.preview("ann", 500))) == TRAINED
    slate = behind.recommend("ann", 3)
    first.feedback(slate.slate_id, ids(slate))
    assert {item for item, _ in behind.explain("ann").liked} <= TRAINED
    assert dict(first.verify()) == {"ann": None}
    assert behind.follow_items()
    assert dict(behind.verify()) == {"ann": None}


def test_verifying_follows_items_that_others_change(catalog: Catalog, tmp_path: Path) -> None:
    """Else what is learned meanwhile would look wrong, or would not be compared."""
    store = open_store(f"sqlite:///{tmp_path / 'slates.db'}")
    with Recommender(catalog, store=store, clock=Clock()) as service:
        verifying = Recommender(catalog, store=store, clock=Clock())
        service.put_items([Item(item, "New", ["New"]) for item in range(1, 12)])
        for item in range(1, 12):
            service.feedback(service.recommend("ann", 1, candidates=[item]).slate_id, [item])
        service.recommend("ann", 1)
        assert dict(verifying.verify()) == {"ann": None}
        service.put_items([Item(12, "Newer", ["Newer"])])
        service.feedback(service.recommend("ann", 1, candidates=[12]).slate_id, [12])
        service.rebuild("ann")
        do(store, lambda t: t.save_belief(replace(t.belief("ann"), covers=t.belief("ann").covers - 1)))
        assert dict(verifying.verify())["ann"] is not None


def test_a_policy_with_an_entry_per_item_is_learned_again() -> None:
    catalog = replace(make_catalog(N_ITEMS), co_likes=np.ones((N_ITEMS, N_ITEMS), dtype=np.float32))
    with Recommender(catalog, "ease") as recommender:
        for _ in range(10):
            recommender.feedback(recommender.recommend("ann", 1).slate_id, [])
        recommender.put_items([Item(1)])
        assert recommender.recommend("ann", 3).items
        assert dict(recommender.verify()) == {"ann": None}


def test_other_categories_change_slates_at_once_and_beliefs_only_with_the_next_training() -> None:
    """What was learned stays valid, to the last bit, and is what the whole log says."""
    with Recommender(make_catalog(N_ITEMS), "dc2b-calibrated") as recommender:
        for _ in range(10):
            slate = recommender.recommend("ann", 1)
            recommender.feedback(slate.slate_id, ids(slate))
        before, categories = loaded_profile(recommender, "ann").learned.state, recommender.catalog.category_names
        recommender.put_items([Item(100, categories=["New", categories[0]]), Item(1, categories=["New"])])
        after = loaded_profile(recommender, "ann").learned.state
        assert all(np.array_equal(before[name], after[name]) for name in before)
        assert recommender.recommend("ann", 3).items
        assert set(recommender.preview("ben", 1, candidates=[100]).items[0].categories) == {"New", categories[0]}
        assert dict(recommender.verify()) == {"ann": None}
        assert recommender.rebuilt == 0


def test_a_catalog_trained_with_other_categories_is_learned_again() -> None:
    catalog = make_catalog(N_ITEMS)
    other = replace(catalog, categories=catalog.categories[::-1].copy())
    assert (catalog.categories != other.categories).any()
    with Recommender(catalog, "dc2b-calibrated") as recommender:
        for _ in range(10):
            slate = recommender.recommend("ann", 1)
            recommender.feedback(slate.slate_id, ids(slate))
        recommender.use_catalog(other)
        assert recommender.recommend("ann", 2).items
        assert recommender.rebuilt == 1
        assert dict(recommender.verify()) == {"ann": None}


def test_a_new_catalog_keeps_what_the_shop_said(recommender: Recommender, catalog: Catalog) -> None:
    recommender.put_items([Item(1, "one"), Item(101, "tea", available=False)])
    recommender.use_catalog(make_catalog(3, seed=1, first=1))
    assert offered(recommender) == {1, 2, 3}
    assert recommender.item(1).trained
    assert recommender.preview("ann", 9, candidates=[1]).items[0].title == "one"
    recommender.use_catalog(catalog)
    assert offered(recommender) == TRAINED - {101} | {1}


def test_a_catalog_may_say_what_is_not_available(tmp_path: Path) -> None:
    available = np.arange(N_ITEMS) > 2
    replace(make_catalog(N_ITEMS), available=available).save(tmp_path / "shop")
    with Recommender(Catalog.load(tmp_path / "shop")) as recommender:
        assert offered(recommender) == TRAINED - {100, 101, 102}
        assert not recommender.item(100).available
        recommender.patch_item(100, {"available": True})
        assert offered(recommender) == TRAINED - {101, 102}


def test_every_slate_says_which_version_it_was_chosen_from(recommender: Recommender) -> None:
    recommender.recommend("ann", 2)
    assert [one.is_same for one in recommender.replay()] == [True]
    recommender.put_items([Item(1)])
    recommender.recommend("ann", 2)
    choices = recommender.store.read(lambda t: t.choices_of("ann"))
    assert [choice["item_table"] for choice in choices.values()] == [0, 1]
    replayed = list(recommender.replay())
    assert [one.is_same for one in replayed] == [False, True]
    assert replayed[0].obstacle == "the item table has changed since"


def test_a_draft_from_before_a_change_is_drafted_again(recommender: Recommender) -> None:
    from slatewise.recommender.recommend import SlateRequest

    draft = recommender.draft(SlateRequest("ann", k=12))
    recommender.withdraw_items([100])
    assert recommender.record(draft).result() is None
    assert 100 not in ids(recommender.recommend("ann", 12))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_second_recommender_on_the_store_follows(
    kind: str, catalog: Catalog, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "sqlite":
        first = second = open_store(f"sqlite:///{tmp_path / 'slates.db'}")
    else:
        url = emptied(request.getfixturevalue("postgres_server"))
        first, second = open_store(url), open_store(url)
    with Recommender(catalog, store=first) as one, Recommender(catalog, store=second) as other:
        for step, number in enumerate([1, 2, 1]):
            one.put_items([Item(number, f"{step}", [f"step {step}"], available=step < 2)])
            assert other.follow_items()
            assert not other.follow_items()
            assert offered(one) == offered(other)
            assert one.catalog.category_names == other.catalog.category_names
        assert list(other.catalog.item_ids)[-2:] == [1, 2]


class Naive:
    """The item table merged with a catalog in the plainest way: from the start, after every change."""

    def __init__(self, catalog: Catalog, store: Store) -> None:
        rows = store.read(lambda t: t.items_by_number(0, 1000))
        self.table = {row.item: row for row in rows}
        trained = list(catalog.item_ids)
        self.ids: list[Any] = trained + [row.item for row in rows if row.item not in trained]
        self.catalog = catalog

    def title(self, item: Any) -> str:
        index = self.catalog.item_ids.find(item)
        said = self.table.get(item, ItemRecord(item)).title
        return said if said is not None else str(item) if index is None else self.catalog.titles[index]

    def categories(self, item: Any) -> set[str]:
        index = self.catalog.item_ids.find(item)
        said = self.table.get(item, ItemRecord(item)).categories
        if said is not None:
            return set(said)
        return set() if index is None else set(self.catalog.categories_of(index))

    def is_offered(self, item: Any, now: float) -> bool:
        row = self.table.get(item, ItemRecord(item))
        return row.available and (row.published_at is None or row.published_at <= now)


items = st.builds(
    ItemRecord,
    st.integers(98, 106),
    st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=3),
    st.none() | st.lists(st.sampled_from(["A", "B", "New", "Other"]), unique=True, max_size=3).map(tuple),
    st.dictionaries(st.sampled_from("ab"), st.booleans(), max_size=2),
    st.none(),
    st.booleans(),
    st.none() | st.integers(0, 20).map(float),
)
SMALL = make_catalog(4)


@settings(max_examples=50)
@given(st.lists(st.lists(items, unique_by=lambda item: item.item, max_size=4), max_size=4), st.data())
def test_a_snapshot_is_the_naive_merge(batches: list[list[ItemRecord]], data: st.DataObject) -> None:
    """However many changes a snapshot takes in at a time."""
    store, snapshot = open_store("memory://"), ItemSnapshot.of(SMALL)
    for batch in batches:
        do(store, lambda t, batch=batch: t.put_items(batch))  # type: ignore[misc]
        snapshot = snapshot.refreshed(store) if data.draw(st.booleans()) else snapshot
        assert len(snapshot.frame) == snapshot.catalog.n_items
    naive = Naive(SMALL, store)
    for one in (snapshot.refreshed(store), ItemSnapshot.read(store, SMALL)):
        catalog = one.catalog
        assert list(catalog.item_ids) == naive.ids
        assert list(catalog.titles) == [naive.title(item) for item in naive.ids]
        assert [set(catalog.categories_of(at)) for at in range(len(naive.ids))] == [*map(naive.categories, naive.ids)]
        for now in (0.0, 7.0, 30.0):
            hidden = [at for at, item in enumerate(naive.ids) if not naive.is_offered(item, now)]
            assert one.hidden(now).tolist() == hidden
        assert one.frame.equals(item_frame(one).select(one.frame.columns))
        texts = [json.loads(text or "{}") for text in one.attributes]
        assert texts == [dict(naive.table.get(item, ItemRecord(item)).attributes) for item in naive.ids]
        assert one.version == store.read(lambda t: t.item_table()).version
    np.testing.assert_array_equal(one.catalog.vectors[:4], SMALL.vectors)


VALUES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.lists(st.text("aé|", max_size=3), max_size=2),
    st.integers(-(10**9), 10**9).map(lambda seconds: {"time": float(seconds)}),
)


@settings(max_examples=30, deadline=None)
@given(rows=st.lists(st.dictionaries(st.sampled_from("xyz"), VALUES), min_size=1, max_size=8))
def test_a_frame_by_columns_is_the_frame_row_by_row(catalog: Catalog, rows: list[dict[str, Any]]) -> None:
    records = [ItemRecord(100 + number, None, ("A",), row) for number, row in enumerate(rows)]
    snapshot = ItemSnapshot.of(catalog).with_records(records, ItemTable(1, ("A", "B")))
    frame = snapshot.frame
    assert frame["categories"].to_list()[: len(rows)] == [["A"]] * len(rows)
    for name, kind in snapshot.kinds.items():
        values = [row.get(name) for row in rows]
        fitting = [value if value is not None and kind_of(value) == kind else None for value in values]
        if kind == "time":
            fitting = [None if one is None else datetime.fromtimestamp(one["time"], UTC) for one in fitting]
        assert frame[name].to_list() == fitting + [None] * (N_ITEMS - len(rows))
    assert snapshot.with_records(records[-1:], ItemTable(2, ("A", "B"))).frame.equals(frame)


def test_changes_at_the_same_time_all_count(catalog: Catalog, tmp_path: Path) -> None:
    with Recommender(catalog, store=f"sqlite:///{tmp_path}/slates.db") as recommender:
        recommender.put_items([Item(7)])

        def change(number: int) -> None:
            for step in range(3):
                recommender.patch_item(7, {"attributes": {f"a{number}_{step}": step}})
            recommender.put_items([Item(1_000 + number, attributes={"price": number})])

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(change, range(4)))
        assert recommender.snapshot.version == 1 + 4 * 4
        assert len(recommender.item(7).attributes) == 4 * 3
        assert recommender.snapshot.frame["price"].drop_nulls().sort().to_list() == [0.0, 1.0, 2.0, 3.0]


def test_a_change_that_cannot_be_read_right_after_is_not_said_to_be_lost(catalog: Catalog) -> None:
    def go_away() -> None:
        raise StoreUnavailableError("the store is away")

    store = InterruptedStore(open_store("memory://"))
    recommender = Recommender(catalog, store=store)
    store.before_reads = [go_away]
    with pytest.raises(StoreUncertainError, match="the items were changed"):
        recommender.put_items([Item(7_000, "New")])
    assert recommender.follow_items()
    assert recommender.item(7_000).title == "New"
