"""The parts of a catalog that is built from given item vectors: ids in order, and the population of users."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from slatewise.catalog.identifiers import Identifiers
from slatewise.catalog.likes import ArrayPart, Likes, in_threads
from slatewise.catalog.model_files import CatalogError
from slatewise.catalog.population import fit_population, item_log_odds

if TYPE_CHECKING:
    from slatewise.data.dataset import Dataset

Floats = NDArray[np.float64]


def sorted_order(ids: Sequence[Any]) -> list[int]:
    """Return the order that sorts the ids; ids of mixed types and duplicates are refused."""
    try:
        Identifiers.of(ids)
    except (TypeError, OverflowError) as error:
        raise CatalogError(str(error)) from error
    order = sorted(range(len(ids)), key=ids.__getitem__)
    for first, second in pairwise(order):
        if ids[first] == ids[second]:
            raise CatalogError(f"item {ids[first]!r} appears twice; ids must be distinct")
    return order


def one_per_item(name: str, values: Iterable[Any] | None, default: list[Any]) -> list[Any]:
    """Return a value for every item, or the defaults; another number of values is refused."""
    listed = default if values is None else list(values)
    if len(listed) != len(default):
        raise CatalogError(f"there are {len(listed)} {name} for {len(default)} items; give one per item")
    return listed


def describe_population(
    ids: Identifiers, vectors: Floats, interactions: "Dataset | None"
) -> tuple[Floats, Floats, Floats]:
    """Return the log-odds of the items, and the mean and covariance of the users' vectors."""
    dim = vectors.shape[1]
    if interactions is None:
        return np.zeros(len(ids)), np.zeros(dim), np.eye(dim)
    item_ids = interactions.item_ids.tolist()
    indices = [ids.find(item_id) for item_id in item_ids]
    if None in indices:
        missing = item_ids[indices.index(None)]
        raise CatalogError(
            f"the interactions refer to item {missing!r}, which has no vector; add its vector or drop the item"
        )
    part = ArrayPart(np.array(indices, dtype=np.int32)[interactions.items], interactions.user_starts)
    likes = Likes(interactions.n_users, np.bincount(part.items, minlength=len(ids)), ((part,),))
    log_odds = item_log_odds(likes.counts, likes.n_users)
    return log_odds, *fit_population(vectors, log_odds, likes, in_threads)
