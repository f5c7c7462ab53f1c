"""Items appended to a catalog: every index stays, and the order in which changes came does not matter."""

import math
import uuid
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slatewise.catalog import Catalog, versioned_arrays
from slatewise.catalog.identifiers import PackedText
from slatewise.catalog.live_items import ItemContent, with_content
from slatewise.catalog.versioned_arrays import with_rows

KINDS: dict[str, Any] = {"int": int, "str": lambda number: f"ü{number}", "uuid": lambda number: uuid.UUID(int=number)}


def make(kind: str = "int") -> Catalog:
    vectors = np.random.default_rng(0).normal(size=(5, 3))
    ids = [KINDS[kind](number) for number in (20, 4, 6, 8, 10)]
    return Catalog.from_vectors(ids, vectors, titles="abcde", categories=["X", "X|Y", None, "Y", "Z"])


def described(catalog: Catalog) -> list[Any]:
    arrays = (catalog.vectors, catalog.log_odds, catalog.taste_vectors, catalog.categories)
    text = (list(catalog.item_ids), list(catalog.titles), catalog.category_names)
    return [*text, *(array.tolist() for array in arrays)]


@pytest.mark.parametrize("kind", KINDS)
def test_appended_items_are_found_and_trained_ones_stay_where_they_are(kind: str) -> None:
    catalog, name = make(kind), KINDS[kind]
    items = [ItemContent(name(5), "new", ("Y", "W")), ItemContent(name(1)), ItemContent(name(30))]
    more = with_content(catalog, items, ())
    assert list(more.item_ids) == [*catalog.item_ids, name(5), name(1), name(30)]
    assert [more.item_ids.find(one) for one in more.item_ids] == list(range(8))
    assert [more.item_ids.find(name(one)) for one in (2, 7, 31)] == [None] * 3
    assert list(more.titles)[5:] == ["new", str(name(1)), str(name(30))]
    assert more.categories_of(5) == ("Y", "W")
    for array in ("vectors", "log_odds", "taste_vectors"):
        np.testing.assert_array_equal(getattr(more, array)[:5], getattr(catalog, array))
    assert np.isfinite(more.log_odds).all()
    for at, item in enumerate(items):
        alone = with_content(catalog, [item], ())
        np.testing.assert_array_equal(alone.taste_vectors[5], more.taste_vectors[5 + at])


def test_nothing_given_is_as_it_was_trained() -> None:
    catalog = make()
    changed = with_content(catalog, [ItemContent(4, "other", ("New",)), ItemContent(5, "five", ("New",))], ())
    assert (changed.titles[0], changed.categories_of(0)) == ("other", ("New",))
    back = with_content(changed, [ItemContent(4), ItemContent(5)], ())
    assert (back.titles[0], back.categories_of(0)) == (catalog.titles[0], catalog.categories_of(0))
    assert (back.titles[5], back.categories_of(5)) == ("5", ())


def test_arrays_are_in_memory_once() -> None:
    more = with_content(with_content(make(), [ItemContent(5)], ()), [ItemContent(7)], ())
    assert np.shares_memory(more.trained.vectors, more.vectors)
    assert more.trained.n_items == 5
    assert with_content(more, [ItemContent(4, "title")], ()).vectors is more.vectors


def test_co_likes_grow_too() -> None:
    catalog = make()
    from dataclasses import replace

    more = with_content(replace(catalog, co_likes=np.ones((5, 5), dtype=np.float32)), [ItemContent(5)], ())
    assert more.co_likes is not None
    assert more.co_likes.sum() == 25.0


def test_a_saved_catalog_is_the_trained_one(tmp_path: Any) -> None:
    catalog = make()
    changed = with_content(catalog, [ItemContent(4, "other"), ItemContent(5)], ())
    assert changed.save(tmp_path / "one") == catalog.save(tmp_path / "two")


contents = st.builds(
    ItemContent,
    st.integers(0, 12),
    st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
    st.none() | st.lists(st.sampled_from("XYVW"), unique=True).map(tuple),
)


@given(st.lists(st.lists(contents, unique_by=lambda item: item.id), max_size=4))
def test_changes_one_after_the_other_are_changes_at_once(batches: list[list[ItemContent]]) -> None:
    catalog, last, names = make(), dict[Any, ItemContent](), list[str]()
    step = catalog
    for batch in batches:
        step = with_content(step, batch, ())
        last |= {item.id: item for item in batch}
        names += [name for item in batch for name in item.categories or ()]
    assert described(step) == described(with_content(catalog, [*last.values()], names))


@given(st.lists(st.text(max_size=4)), st.dictionaries(st.integers(0, 8), st.text(max_size=4)), st.lists(st.text()))
def test_packed_text_with_changes(texts: list[str], changes: dict[int, str], more: list[str]) -> None:
    texts = [text.encode(errors="replace").decode() for text in texts]
    changes = {at: text.encode(errors="replace").decode() for at, text in changes.items() if at < len(texts)}
    changes |= {len(texts) + at: text.encode(errors="replace").decode() for at, text in enumerate(more)}
    expected = [changes.get(at, (texts + more)[at]) for at in range(len(texts) + len(more))]
    assert list(PackedText.pack(texts).with_changes(changes)) == expected


@pytest.mark.parametrize("least_mapped", [versioned_arrays.LEAST_MAPPED, 1])
@given(seed=st.integers(0, 2**32 - 1))
def test_arrays_that_grow_in_the_same_memory_are_those_of_copies(least_mapped: int, seed: int) -> None:
    """Any array may be grown or changed any number of times, and none sees what was made of it."""
    random = np.random.default_rng(seed)
    arrays = [(array := random.random((random.integers(1, 300), 2)), array.copy())]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(versioned_arrays, "LEAST_MAPPED", least_mapped)
        patch.setattr(versioned_arrays, "MOST_WRITTEN", math.inf)
        grow_and_change(arrays, random)
    for array, expected in arrays:
        np.testing.assert_array_equal(array, expected)


def grow_and_change(arrays: list[tuple[Any, Any]], random: np.random.Generator) -> None:
    """Add versions of any of the arrays, with copies that say what they must be."""
    for _ in range(20):
        array, copy = arrays[random.integers(len(arrays))]
        n_rows = len(array) + int(random.integers(0, 40))
        changed = np.concatenate(
            [random.choice(len(array), random.integers(0, 2), replace=False), np.arange(len(array), n_rows)]
        )
        rows = random.random((len(changed), 2))
        expected = np.concatenate([copy, np.zeros((n_rows - len(copy), 2))])
        expected[changed] = rows
        arrays.append((with_rows(array, n_rows, changed, rows), expected))


def test_added_rows_go_into_the_memory_behind_once() -> None:
    first = with_rows(np.zeros(100), 101, np.array([100]), np.ones(1))
    second = with_rows(first, 102, np.array([101]), np.ones(1))
    third = with_rows(first, 102, np.array([101]), np.full(1, 2.0))
    assert np.shares_memory(first, second)
    assert not np.shares_memory(first, third)
    assert with_rows(first, 101, np.array([7]), np.zeros(1)) is first
