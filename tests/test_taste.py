from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slatewise.catalog import Catalog
from slatewise.catalog.taste import linearized_taste, taste_vectors
from slatewise.data.synthetic import WorldSize, make_world

DATASET = make_world(WorldSize(n_users=700, n_items=60, n_categories=6, dim=3), seed=3).dataset


def likes() -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    table = np.zeros((700, 60))
    table[DATASET.users, DATASET.items] = 1.0
    return table


def test_taste_vectors_by_a_dense_eigendecomposition() -> None:
    """The covariance of likes by its definition; eigenvalues beyond the edge of chance, less that edge."""
    covariance = np.cov(likes().T)
    eigenvalues, basis = np.linalg.eigh(covariance)
    top = np.argsort(-eigenvalues)[:50]
    rates = (likes().sum(axis=0) + 0.5) / 701
    left = rates * (1 - rates)
    for _ in range(10):
        edge = (np.sqrt(left.sum() / 700) + np.sqrt((left**2).sum() / left.sum())) ** 2
        explained = sum(max(eigenvalues[one] - edge, 0) * basis[:, one] ** 2 for one in top)
        left = np.maximum(rates * (1 - rates) - explained, 0)
    expected = sum(
        (eigenvalues[one] - edge) * np.outer(basis[:, one], basis[:, one]) for one in top if eigenvalues[one] > edge
    )
    found = taste_vectors(DATASET)
    np.testing.assert_allclose(found @ found.T, expected, atol=1e-9)


def test_chance_alone_leaves_almost_nothing_and_taste_leaves_much() -> None:
    """Independent likes of equally liked items have no taste; one shared taste must survive."""
    random = np.random.default_rng(0)
    taste = np.outer(random.normal(size=700), np.where(np.arange(60) < 30, 0.15, -0.15))

    def strength(likes: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> float:
        users, items = np.nonzero(likes)
        dataset = replace(DATASET, users=users.astype(np.int32), items=items.astype(np.int32))
        return float(np.square(taste_vectors(dataset)).sum())

    draws = random.random((700, 60))
    assert strength(draws < 0.4) < 0.02
    assert strength(draws < 0.4 + taste) == pytest.approx(60 * 0.15**2, rel=0.3)


def test_linearized_taste_is_the_slope_of_the_logistic_function() -> None:
    """Var(t·θ) must be the variance of σ(o + x·θ) for small spreads."""
    random = np.random.default_rng(1)
    vectors, odds = random.normal(size=(5, 3)), random.normal(size=5)
    covariance = 1e-4 * np.cov(random.normal(size=(3, 50)))
    taste = linearized_taste(vectors, odds, covariance)
    draws = random.multivariate_normal(np.zeros(3), covariance, size=200_000)
    spread = (1 / (1 + np.exp(-(odds + draws @ vectors.T)))).var(axis=0)
    np.testing.assert_allclose((taste**2).sum(axis=1), spread, rtol=0.02)


def test_catalogs_hold_taste_and_co_likes_only_when_asked(tmp_path: Path) -> None:
    catalog = Catalog.from_vectors(range(60), np.random.default_rng(2).normal(size=(60, 4)), interactions=DATASET)
    assert catalog.co_likes is None
    counted = catalog.with_co_likes(DATASET)
    np.testing.assert_array_equal(counted.co_likes, likes().T @ likes())
    counted.save(tmp_path)
    loaded = Catalog.load(tmp_path)
    np.testing.assert_array_equal(loaded.co_likes, counted.co_likes)
    np.testing.assert_array_equal(loaded.taste_vectors, catalog.taste_vectors)


@pytest.mark.parametrize("n_users", [1, 2, 5])
def test_tiny_data_sets_have_taste_vectors_too(n_users: int) -> None:
    vectors = taste_vectors(DATASET.take(range(n_users)))
    assert vectors.shape[0] == 60
    assert vectors.shape[1] >= 1
    assert np.isfinite(vectors).all()
