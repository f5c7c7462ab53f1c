"""What a catalogue of vectors that were brought along is made of: order, categories and population."""

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from slatewise.catalog.identifiers import Identifiers
from slatewise.catalog.model_files import CatalogError
from slatewise.catalog.population import fit_population, item_log_odds

if TYPE_CHECKING:
    from slatewise.data.dataset import Dataset


def order_of(ids: list[Any]) -> list[int]:
    """Return the order that sorts ids; ids of mixed types or standing twice are refused."""
    try:
        Identifiers.of(ids)
    except (TypeError, OverflowError) as error:
        raise CatalogError(str(error)) from error
    order = sorted(range(len(ids)), key=ids.__getitem__)
    for first, second in pairwise(order):
        if ids[first] == ids[second]:
            raise CatalogError(f"item {ids[first]!r} stands twice; ids must be distinct")
    return order


def population_of(
    ids: Identifiers, vectors: NDArray[np.float64], dataset: "Dataset | None"
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Log-odds of the items, mean and covariance of the users."""
    dim = vectors.shape[1]
    if dataset is None:
        return np.zeros(len(ids)), np.zeros(dim), np.eye(dim)
    places = [ids.find(item_id) for item_id in dataset.item_ids.tolist()]
    if None in places:
        missing = dataset.item_ids.tolist()[places.index(None)]
        raise CatalogError(
            f"the interactions are about item {missing!r}, which has no vector; give one or leave it out"
        )
    liked = np.array(places)[dataset.items]
    log_odds = item_log_odds(np.bincount(liked, minlength=len(ids)), dataset.n_users)
    return log_odds, *fit_population(vectors, log_odds, liked, dataset.user_starts)
