"""Items that come after training: appended to a catalog with what their content leads one to expect."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slatewise.catalog.content import Content, ContentModel, Expected, Trained
from slatewise.catalog.from_vectors import one_per_item
from slatewise.catalog.identifiers import PackedText
from slatewise.catalog.model_files import CatalogError
from slatewise.categories import indicators

if TYPE_CHECKING:
    from slatewise.catalog.catalog import Catalog

Floats = NDArray[np.float64]

NOTHING_KNOWN = 2.0
"""What a rate of ½ is worth in a catalog without any interactions, in observations: it may be anything from 0 to 1."""


@dataclass(frozen=True, eq=False)
class NewItems:
    """Items to add: one id, title, category set and vector (None: it has none) each."""

    ids: list[Any]
    titles: list[str]
    category_names: tuple[str, ...]
    categories: NDArray[np.bool_]
    vectors: list[Floats | None]

    @classmethod
    def of(
        cls,
        ids: Iterable[Any],
        titles: Iterable[str] | None,
        categories: Iterable[Any] | None,
        vectors: Iterable[ArrayLike | None] | None,
    ) -> "NewItems":
        """Put what was given for each item side by side; missing titles are the ids."""
        listed = [item.item() if isinstance(item, np.generic) else item for item in ids]
        named = [str(title) for title in one_per_item("titles", titles, listed)]
        names, has_category = indicators(one_per_item("categories", categories, [None] * len(listed)))
        given = one_per_item("vectors", vectors, [None] * len(listed))
        rows = [None if row is None else np.asarray(row, dtype=np.float64) for row in given]
        return cls(listed, named, names, has_category, rows)


def append_items(catalog: "Catalog", new: NewItems) -> "Catalog":
    """Return the catalog with more items at its end; the rows of all others stay what they are, bit by bit."""
    if not new.ids:
        return catalog
    _check_ids(catalog, new.ids)
    names = (*catalog.category_names, *(name for name in new.category_names if name not in catalog.category_names))
    categories = np.zeros((len(new.ids), len(names)), dtype=np.bool_)
    categories[:, [names.index(name) for name in new.category_names]] = new.categories
    expected = expect_items(catalog, new, categories)
    added = replace(
        catalog,
        item_ids=catalog.item_ids.joined(new.ids),
        titles=catalog.titles.joined(PackedText.pack(new.titles)),
        category_names=names,
        categories=np.concatenate([_widened(catalog.categories, len(names)), categories]),
        vectors=np.concatenate([catalog.vectors, expected.vectors.astype(np.float32)]),
        log_odds=np.concatenate([catalog.log_odds, np.log(expected.rates / (1.0 - expected.rates))]),
        taste_vectors=np.concatenate([catalog.taste_vectors, expected.tastes.astype(np.float32)]),
        rate_strength=np.concatenate([catalog.rate_strengths, expected.strengths]),
        co_likes=_with_nothing(catalog.co_likes, len(new.ids)),
        available=None if catalog.available is None else np.append(catalog.available, np.ones(len(new.ids), np.bool_)),
    )
    vars(added).update(
        {name: vars(catalog)[name] for name in ("content_model", "vector_model") if name in vars(catalog)}
    )
    return added


def fit_content(catalog: "Catalog", *, with_vectors: bool) -> ContentModel:
    """Fit what content says on the items of the training."""
    n_trained, n_users = catalog.item_ids.n_sorted, catalog.n_users
    rates = 1.0 / (1.0 + np.exp(-catalog.log_odds[:n_trained]))
    vectors = catalog.vectors[:n_trained].astype(np.float64)
    content = Content(catalog.titles, catalog.categories[:n_trained], vectors if with_vectors else None)
    trained = Trained(rates, n_users or NOTHING_KNOWN, catalog.taste_vectors[:n_trained].astype(np.float64), vectors)
    return ContentModel.fit(content, trained)


def expect_items(catalog: "Catalog", new: NewItems, categories: NDArray[np.bool_]) -> Expected:
    """Predict items from their content; a vector that somebody brings is kept as it is, in the catalog's scale."""
    expected = catalog.content_model.expect(Content(new.titles, categories))
    rows = np.array([row for row, vector in enumerate(new.vectors) if vector is not None], dtype=np.int64)
    if not len(rows):
        return expected
    vectors = _given_vectors(catalog, [vector for vector in new.vectors if vector is not None])
    content = Content([new.titles[row] for row in rows.tolist()], categories[rows], vectors)
    better = catalog.vector_model.expect(content)
    for name in ("rates", "strengths", "tastes"):
        getattr(expected, name)[rows] = getattr(better, name)
    expected.vectors[rows] = vectors
    return expected


def _given_vectors(catalog: "Catalog", vectors: Sequence[Floats]) -> Floats:
    if not catalog.takes_vectors:
        raise CatalogError("this catalog learned its vectors from likes and takes no given ones; leave vectors out")
    for vector in vectors:
        if vector.shape != (catalog.dim,) or not np.isfinite(vector).all():
            raise CatalogError(f"a vector has shape {vector.shape}; give {catalog.dim} finite numbers")
    return np.stack(vectors) * float(catalog.about["training"].get("scale", 1.0))


def _check_ids(catalog: "Catalog", ids: Sequence[Any]) -> None:
    """Refuse ids that are not distinct or not of the catalog's type."""
    try:
        catalog.item_ids.joined(ids)
    except (TypeError, OverflowError) as error:
        raise CatalogError(str(error)) from error
    seen: set[Any] = set()
    for item in ids:
        if item in seen or catalog.item_ids.find(item) is not None:
            raise CatalogError(f"item {item!r} is there already; ids must be distinct")
        seen.add(item)


def _widened(categories: NDArray[np.bool_], n_categories: int) -> NDArray[np.bool_]:
    return np.pad(categories, ((0, 0), (0, n_categories - categories.shape[1])))


def _with_nothing(co_likes: NDArray[np.float32] | None, n_new: int) -> NDArray[np.float32] | None:
    return None if co_likes is None else np.pad(co_likes, ((0, n_new), (0, n_new)))
