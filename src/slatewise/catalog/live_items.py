"""What an item table says, in a catalog: titles and categories change, and untrained items are appended.

Every item keeps its index. Of untrained items, rates and vectors are predicted from their content by the catalog as it
was trained (`slatewise.catalog.additions`).
"""

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from slatewise.catalog.additions import NewItems, expect_items
from slatewise.catalog.identifiers import Identifier
from slatewise.catalog.model_files import CatalogError
from slatewise.catalog.population import without_popularity
from slatewise.catalog.versioned_arrays import with_rows

if TYPE_CHECKING:
    from slatewise.catalog.catalog import Catalog

Integers = NDArray[np.int64]

PREDICTED = ("vectors", "log_odds", "taste_vectors", "rate_strength")
"""What is predicted of untrained items."""
BLOCK = 64


@dataclass(frozen=True)
class ItemContent:
    """What an item table says about an item; what is None is as it was trained.

    Examples
    --------
    >>> ItemContent("tea", "Green tea", ("Hot",)).title
    'Green tea'
    """

    id: Identifier
    title: str | None = None
    categories: tuple[str, ...] | None = None
    vector: tuple[float, ...] | None = None


def with_content(catalog: "Catalog", items: Sequence[ItemContent], category_names: Iterable[str]) -> "Catalog":
    """Return a catalog with the content of some items, and with those that it does not have appended.

    New categories are appended in the given order, then in that of the items. All items at once give the same catalog
    as one after the other, if new items and new categories come in the same order.
    """
    trained = catalog.trained
    rows = catalog.item_ids.find_all([item.id for item in items])
    new = np.flatnonzero(rows < 0)
    rows[new] = np.arange(catalog.n_items, catalog.n_items + len(new))
    new_ids = [items[position].id for position in new.tolist()]
    item_ids = catalog.item_ids.joined(new_ids) if new_ids else catalog.item_ids
    given = [*category_names, *(name for item in items for name in item.categories or ())]
    more = [name for name in dict.fromkeys(given) if name not in set(catalog.category_names)]
    names = (*catalog.category_names, *more) if more else catalog.category_names
    titles, categories = _titles(catalog, item_ids, rows, items), _categories(catalog, rows, items, names)
    arrays = _arrays(catalog, rows, items, categories)
    if not titles and categories is catalog.categories and arrays["vectors"] is catalog.vectors:
        return catalog
    changed = _with_parts(
        catalog,
        item_ids=item_ids,
        titles=catalog.titles.with_changes(titles),
        category_names=names,
        categories=categories,
        co_likes=None if catalog.co_likes is None else _grown(catalog.co_likes, (len(item_ids),) * 2),
        available=None
        if catalog.available is None
        else np.append(catalog.available, np.ones(len(new), dtype=np.bool_)),
        origin=_as_views(trained, arrays),
        **arrays,
    )
    _keep_similarity(changed, catalog, rows)
    return changed


def _keep_similarity(catalog: "Catalog", before: "Catalog", rows: Integers) -> None:
    """Take over the similarity vectors of all items but some that changed, where they were worked out before."""
    known = vars(before).get("similarity_vectors")
    if known is before.vectors:
        if catalog.takes_vectors or catalog.categories[rows].any(axis=1).all():
            vars(catalog)["similarity_vectors"] = catalog.vectors
    elif known is not None:
        changed = without_popularity(catalog.vectors[rows], catalog.trained.popular_direction)
        vars(catalog)["similarity_vectors"] = with_rows(known, catalog.n_items, rows, changed)


def _with_parts(catalog: "Catalog", **parts: Any) -> "Catalog":
    """Return a catalog with other parts that fit; numbers that were checked before are not looked at again."""
    other = copy(catalog)
    vars(other).clear()
    vars(other).update({field.name: getattr(catalog, field.name) for field in fields(catalog)} | parts)
    for part in parts.values():
        if isinstance(part, np.ndarray):
            part.flags.writeable = False
    return other


def _titles(
    catalog: "Catalog", item_ids: Sequence[Identifier], rows: Integers, items: Sequence[ItemContent]
) -> dict[int, str]:
    """Return the titles that change, by index; without one, that of the training counts, and then the id."""
    titles, trained = {}, catalog.trained
    for row, item in zip(rows.tolist(), items, strict=True):
        title = item.title
        if title is None:
            title = trained.titles[row] if row < trained.n_items else str(item_ids[row])
        if row >= catalog.n_items or title != catalog.titles[row]:
            titles[row] = title
    return titles


def _categories(
    catalog: "Catalog", rows: Integers, items: Sequence[ItemContent], names: tuple[str, ...]
) -> NDArray[np.bool_]:
    """Return which item has which category; without any given, those of the training count."""
    trained, columns = catalog.trained, {name: column for column, name in enumerate(names)}
    has_category = np.zeros((len(rows), len(names)), dtype=np.bool_)
    pairs = [(row, columns[name]) for row, item in enumerate(items) for name in item.categories or ()]
    has_category[tuple(np.array(pairs, dtype=np.int64).reshape(-1, 2).T)] = True
    is_as_trained = np.array([item.categories is None for item in items], dtype=np.bool_) & (rows < trained.n_items)
    has_category[is_as_trained, : trained.n_categories] = trained.categories[rows[is_as_trained]]
    n_items = max(catalog.n_items, int(rows.max(initial=-1)) + 1)
    if len(names) > catalog.n_categories:
        return with_rows(_grown(catalog.categories, (catalog.n_items, len(names))), n_items, rows, has_category)
    return with_rows(catalog.categories, n_items, rows, has_category)


def _arrays(
    catalog: "Catalog", rows: Integers, items: Sequence[ItemContent], categories: NDArray[np.bool_]
) -> dict[str, Any]:
    """Return what is predicted of untrained items as it is expected now; of all others it stays as it is."""
    arrays = {name: getattr(catalog, name) for name in PREDICTED}
    new = np.flatnonzero(rows >= catalog.trained.n_items)
    if not len(new):
        return arrays
    changing, n_items = rows[new], len(categories)
    expected = _expected(catalog.trained, [items[at] for at in new.tolist()], categories[changing])
    if n_items == catalog.n_items and all(
        np.array_equal(arrays[name][changing], values) for name, values in expected.items()
    ):
        return arrays
    if not all(np.isfinite(values).all() for values in expected.values()):
        raise CatalogError("what an item is expected to be like would not be finite; check its vector")
    arrays["rate_strength"] = catalog.rate_strengths
    return {name: with_rows(array, n_items, changing, expected[name]) for name, array in arrays.items()}


def _expected(
    trained: "Catalog", items: Sequence[ItemContent], categories: NDArray[np.bool_]
) -> dict[str, NDArray[Any]]:
    """Predict items in blocks of one size: an item's prediction is the same, to the last bit, in any company."""
    blocks = []
    for start in range(0, len(items), BLOCK):
        rows = np.minimum(np.arange(start, start + BLOCK), len(items) - 1)
        content = [items[row] for row in rows.tolist()]
        titles = [str(item.id) if item.title is None else item.title for item in content]
        vectors = [_usable(trained, item.vector) for item in content]
        blocks.append(expect_items(trained, NewItems([], titles, (), categories, vectors), categories[rows]))
    rates, strengths, tastes, given = (
        np.concatenate([getattr(block, name) for block in blocks])[: len(items)]
        for name in ("rates", "strengths", "tastes", "vectors")
    )
    return {
        "vectors": given.astype(np.float32),
        "log_odds": np.log(rates / (1.0 - rates)),
        "taste_vectors": tastes.astype(np.float32),
        "rate_strength": strengths,
    }


def _usable(trained: "Catalog", vector: tuple[float, ...] | None) -> NDArray[np.float64] | None:
    """Return a vector that somebody brought, if the catalog takes such vectors."""
    is_usable = vector is not None and trained.takes_vectors and len(vector) == trained.dim
    return np.array(vector) if is_usable else None


def _grown(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return a copy of an array with zeros at the end of its axes."""
    grown = np.zeros(shape, dtype=array.dtype)
    grown[tuple(slice(size) for size in array.shape)] = array
    return grown


def _as_views(trained: "Catalog", arrays: dict[str, Any]) -> "Catalog":
    """Return a catalog as it was trained whose arrays are parts of larger ones, so that they are in memory once."""
    if np.may_share_memory(trained.vectors, arrays["vectors"][: trained.n_items]):
        return trained
    shared = [name for name in PREDICTED if getattr(trained, name) is not None]
    views = _with_parts(trained, **{name: arrays[name][: trained.n_items] for name in shared})
    names = {field.name for field in fields(trained)}
    vars(views).update({name: value for name, value in vars(trained).items() if name not in names})
    return views
