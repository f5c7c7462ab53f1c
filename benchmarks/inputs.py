"""What is measured on: random catalogs of any size, and one user of a policy."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from slatewise.catalog import Catalog
from slatewise.catalog.identifiers import Identifiers, PackedText
from slatewise.catalog.taste import linearized_taste
from slatewise.evidence import Evidence
from slatewise.policies import Available, Policy, Slates, State, make_policy
from slatewise.randomness import Streams, user_keys

SEED = 0
SLATE_SIZE = 10
SLATES_BEFORE = 5
"""How many slates a returning user has answered."""
THREE_CLICKS = np.arange(SLATE_SIZE)[None, :] < 3
N_CATEGORIES = 18
CATEGORIES_PER_ITEM = 2


def random_vectors(n_items: int, dim: int, seed: int = SEED) -> NDArray[np.float32]:
    """Return Gaussian rows (n_items, dim) with a root mean square length of 1."""
    table = np.random.default_rng(seed).standard_normal((n_items, dim), dtype=np.float32)
    return table / np.float32(np.sqrt(dim))


def random_catalog(n_items: int, dim: int, is_minimal: bool = False) -> Catalog:
    """Return a catalog of random vectors, popularity and categories with integer ids, however large.

    A minimal one has only what `dc2b` needs: no categories, empty titles, and taste vectors of one dimension.
    """
    random, numbers = np.random.default_rng(SEED), np.arange(n_items, dtype=np.int64)
    vectors, log_odds = random_vectors(n_items, dim), random.normal(-3.0, 1.0, n_items)
    names = () if is_minimal else tuple(f"category {number:02}" for number in range(N_CATEGORIES))
    features = (vectors[:, :1] if is_minimal else vectors).astype(np.float64)
    categories = random.random((n_items, len(names)), dtype=np.float32) < CATEGORIES_PER_ITEM / N_CATEGORIES
    categories[~categories.any(axis=1), :1] = True
    return Catalog(
        item_ids=Identifiers("int", numbers),
        titles=PackedText.pack("" if is_minimal else f"item {number}" for number in numbers.tolist()),
        category_names=names,
        categories=categories,
        vectors=vectors,
        log_odds=log_odds,
        population_mean=np.zeros(dim),
        population_covariance=np.eye(dim),
        taste_vectors=linearized_taste(features, log_odds, np.eye(features.shape[1])).astype(np.float32),
        about={"training": {"method": "vectors", "dim": dim}},
    )


@dataclass
class Visitor:
    """One user of a policy, who may see everything and gets fresh random numbers for every slate."""

    policy: Policy
    state: State
    available: Available
    step: int = 0

    @classmethod
    def new(cls, name: str, catalog: Catalog, **options: float) -> Self:
        """Return somebody never seen before."""
        policy = make_policy(name, catalog, **options)
        return cls(policy, policy.start(1), Available.of(catalog.n_items))

    @classmethod
    def returning(cls, name: str, catalog: Catalog, **options: float) -> Self:
        """Return somebody who has reacted to five slates, each with three clicks."""
        visitor = cls.new(name, catalog, **options)
        for _ in range(SLATES_BEFORE):
            visitor.select_and_update(THREE_CLICKS)
        return visitor

    def select(self) -> Slates:
        """Choose a slate."""
        self.step += 1
        random = Streams(SEED, user_keys(["visitor"]), self.step)
        return self.policy.select(self.state, self.available, SLATE_SIZE, random)

    def select_and_update(self, clicks: NDArray[np.bool_]) -> None:
        """Choose a slate and learn from these clicks (1, k)."""
        self.state = self.policy.update(self.state, Evidence.of_clicks(self.select().items, clicks))
