"""Checks that the parts of a catalog fit together."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from slatewise.catalog.model_files import CatalogError

if TYPE_CHECKING:
    from slatewise.catalog.catalog import Catalog

LARGEST = {"items": 50_000_000, "dim": 4_096, "rank": 4_096, "categories": 10_000}
AXES = {
    "vectors": ("items", "dim"),
    "log_odds": ("items",),
    "categories": ("items", "categories"),
    "population_mean": ("dim",),
    "population_covariance": ("dim", "dim"),
    "taste_vectors": ("items", "rank"),
    "co_likes": ("items", "items"),
    "rate_strength": ("items",),
    "available": ("items",),
}
"""The arrays of a catalog and what each of their axes counts; co_likes and those after it may be None."""


def check_catalog(catalog: "Catalog") -> None:
    """Refuse a catalog whose parts do not fit together or are not finite."""
    if not isinstance(catalog.about, dict) or not isinstance(catalog.about.get("data", {}), dict):
        raise CatalogError("the catalog's part 'about' is not a description; the manifest may be damaged")
    sizes = {
        "items": len(catalog.item_ids),
        "dim": _width(catalog.vectors),
        "rank": _width(catalog.taste_vectors),
        "categories": len(catalog.category_names),
    }
    for what, size in sizes.items():
        if size > LARGEST[what] or (size == 0 and what != "categories"):
            raise CatalogError(f"a catalog needs 1 to {LARGEST[what]:,} {what}, this one has {size:,}")
    for name, axes in AXES.items():
        if getattr(catalog, name) is not None:
            _check_array(name, getattr(catalog, name), tuple(sizes[axis] for axis in axes))
    if catalog.likes is not None:
        _check_likes(catalog.likes, sizes["items"])
    if len(catalog.titles) != sizes["items"]:
        raise CatalogError(f"there are {len(catalog.titles)} titles for {sizes['items']} items; give one per item")


def _check_array(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise CatalogError(f"{name} has shape {array.shape}; the other parts of this catalog require {shape}")
    if not np.isfinite(array).all():
        raise CatalogError(f"{name} contains NaN or infinite values; every number must be finite")


def _check_likes(likes: NDArray[Any], n_items: int) -> None:
    if likes.ndim != 2 or likes.shape[1] != 2 or not np.issubdtype(likes.dtype, np.integer):
        raise CatalogError(f"likes are {likes.dtype} {likes.shape}; give a user and an item number in each row")
    if likes.size and not (likes.min() >= 0 and likes[:, 1].max() < n_items):
        raise CatalogError(f"likes hold a number that is no item; the catalog has items 0 to {n_items - 1}")


def _width(table: NDArray[Any]) -> int:
    return int(table.shape[1]) if table.ndim == 2 else 0
