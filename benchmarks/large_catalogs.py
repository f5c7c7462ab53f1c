"""Catalogs of up to ten million items, made part by part so that little more than the catalog itself is held."""

import numpy as np
from numpy.typing import NDArray

from benchmarks.inputs import CATEGORIES_PER_ITEM, N_CATEGORIES, SEED
from slatewise.catalog import Catalog
from slatewise.catalog.identifiers import Identifiers, PackedText
from slatewise.catalog.taste import taste_vectors
from slatewise.data.dataset import Dataset
from slatewise.policies.protocol import sigmoid

Floats = NDArray[np.float64]

RANK = 50
PART = 1 << 18
DEVIATION = 0.3


def random_tastes(n_items: int, equal: bool = False) -> Catalog:
    """Return items of random tastes; those of equal rates and lengths are the hardest to tell apart."""
    random = np.random.default_rng(SEED)
    log_odds = np.full(n_items, -3.0) if equal else random.normal(-3.0, 1.0, n_items)
    rates, tastes = sigmoid(log_odds), np.empty((n_items, RANK), dtype=np.float32)
    for first in range(0, n_items, PART):
        part = random.standard_normal((min(PART, n_items - first), RANK), dtype=np.float32)
        lengths = np.sqrt(np.square(part).sum(axis=1)) if equal else np.float32(np.sqrt(RANK))
        scale = (rates * (1.0 - rates))[first : first + PART].astype(np.float32) / lengths
        tastes[first : first + PART] = part * scale[:, None]
    return _catalog(tastes, log_odds, random)


def resampled_tastes(dataset: Dataset, n_items: int) -> Catalog:
    """Return items like those of a data set: each is one of them, drawn at random, with its rate and taste changed.

    Log-odds move by 0.3 and directions by 0.3 of their length, both one standard deviation; lengths follow the rates.
    """
    random, trained = np.random.default_rng(SEED), taste_vectors(dataset).astype(np.float32)
    counts = np.bincount(dataset.items, minlength=dataset.n_items)
    trained_odds = np.log((counts + 0.5) / (dataset.n_users - counts + 0.5))
    lengths, rank = np.sqrt(np.square(trained).sum(axis=1)), trained.shape[1]
    drawn = random.integers(dataset.n_items, size=n_items)
    log_odds, tastes = (
        trained_odds[drawn] + random.normal(0.0, DEVIATION, n_items),
        np.empty((n_items, rank), np.float32),
    )
    growth = np.sqrt(_variance(log_odds) / _variance(trained_odds[drawn])).astype(np.float32)
    for first in range(0, n_items, PART):
        who = drawn[first : first + PART]
        part = random.standard_normal((len(who), rank), dtype=np.float32) * (DEVIATION / np.float32(np.sqrt(rank)))
        part = trained[who] + part * lengths[who, None]
        part *= (lengths[who] / np.maximum(np.sqrt(np.square(part).sum(axis=1)), 1e-20))[:, None]
        tastes[first : first + PART] = part * growth[first : first + PART, None]
    return _catalog(tastes, log_odds, random)


def _variance(log_odds: Floats) -> Floats:
    rates = sigmoid(log_odds)
    return np.asarray(rates * (1.0 - rates))


def _catalog(tastes: NDArray[np.float32], log_odds: Floats, random: np.random.Generator) -> Catalog:
    """Add 18 random categories, integer ids and empty titles; the vectors of other policies have one dimension."""
    n_items = len(tastes)
    categories = np.zeros((n_items, N_CATEGORIES), dtype=np.bool_)
    for _ in range(CATEGORIES_PER_ITEM):
        categories[np.arange(n_items), random.integers(N_CATEGORIES, size=n_items)] = True
    return Catalog(
        item_ids=Identifiers("int", np.arange(n_items, dtype=np.int64)),
        titles=PackedText(np.zeros(0, dtype=np.uint8), np.zeros(n_items, dtype=np.int64)),
        category_names=tuple(f"category {number:02}" for number in range(N_CATEGORIES)),
        categories=categories,
        vectors=np.ones((n_items, 1), dtype=np.float32),
        log_odds=log_odds,
        population_mean=np.zeros(1),
        population_covariance=np.eye(1),
        taste_vectors=tastes,
        about={"training": {"method": "random"}},
    )
