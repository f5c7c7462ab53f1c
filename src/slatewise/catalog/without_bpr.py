"""A catalog without BPR: taste vectors serve as item vectors too, and likes need not fit in memory."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from slatewise.catalog.catalog import Catalog
from slatewise.catalog.identifiers import Identifiers, PackedText
from slatewise.catalog.likes import Likes, Products, in_threads
from slatewise.catalog.population import fit_population, item_log_odds, item_scale
from slatewise.catalog.taste import LARGEST_RANK, PASSES, taste_vectors
from slatewise.version import __version__

if TYPE_CHECKING:
    from slatewise.data.dataset import Dataset
    from slatewise.data.stored_likes import StoredLikes

READINGS = PASSES + 2
"""How often the likes are read: for the taste vectors, and for the population."""


def train_without_bpr(
    dataset: "Dataset | StoredLikes",
    dim: int = 10,
    seed: int = 0,
    products: Products = in_threads,
    on_reading: Callable[[], None] | None = None,
) -> Catalog:
    """Return a catalog whose item vectors are the leading `dim` taste vectors.

    `dc2b-calibrated` needs nothing else. The population of users in the space of these vectors is estimated as in
    `Catalog.from_vectors`, so that `dc2b` and the paper's other methods work too, with other vectors than the paper's.
    """
    from slatewise.data.dataset import Dataset

    likes = Likes.of(dataset) if isinstance(dataset, Dataset) else _stored(dataset)
    tastes = taste_vectors(likes, LARGEST_RANK, seed, products, on_reading)
    vectors = tastes[:, :dim] * item_scale(tastes[:, :dim])
    log_odds = item_log_odds(likes.counts, likes.n_users)
    mean, covariance = fit_population(vectors, log_odds, likes, products)
    if on_reading is not None:
        on_reading()
    return Catalog(
        item_ids=Identifiers.of(dataset.item_ids.tolist()),
        titles=PackedText.pack(dataset.titles),
        category_names=dataset.category_names,
        categories=dataset.categories.copy(),
        vectors=vectors.astype(np.float32),
        log_odds=log_odds,
        population_mean=mean,
        population_covariance=covariance,
        taste_vectors=tastes.astype(np.float32),
        about=_about(dataset, {"method": "taste", "dim": vectors.shape[1], "seed": seed}),
        available=None if dataset.available is None else dataset.available.copy(),
    )


def _stored(stored: "StoredLikes") -> Likes:
    return Likes.in_groups(stored.n_users, stored.counts, stored.parts)


def _about(dataset: "Dataset | StoredLikes", training: dict[str, Any]) -> dict[str, Any]:
    data = {**dataset.describe(), "sha256": dataset.digest}
    return {"slatewise": __version__, "training": training, "data": data}
