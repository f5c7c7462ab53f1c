from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slatewise.catalog import Catalog
from slatewise.catalog.live_items import ItemContent, with_content
from slatewise.catalog.taste import category_columns, linearized_taste, taste_categories, taste_vectors
from slatewise.data.synthetic import WorldSize, make_world
from slatewise.policies.calibrated import Calibrated
from tests.support import naive

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


@pytest.fixture(scope="module")
def shop() -> Catalog:
    return Catalog.from_vectors(
        range(10, 16), np.eye(6), categories=["Hot", "Hot|Bitter", None, "Cold", "Cold|Sweet", "Sweet"]
    )


def rows_of(catalog: Catalog) -> list[list[float]]:
    """Tastes by the textbook: what each item was trained with, or came with, of the categories that were trained."""
    trained = catalog.trained
    known = [column for column in range(trained.n_categories) if trained.categories[:6, column].any()]
    source = [trained if item < trained.n_items else catalog for item in range(catalog.n_items)]
    owned = np.array([[one.categories[item, column] for column in known] for item, one in enumerate(source)])
    rates = [1 / (1 + np.exp(-odds)) for odds in catalog.log_odds]
    tastes = catalog.taste_vectors.astype(float)
    wide = naive.with_categories(tastes, rates, owned, Calibrated(catalog).category_weight)
    rows: list[list[float]] = wide.astype(np.float32).tolist()
    return rows


def test_tastes_keep_the_categories_of_the_training(shop: Catalog) -> None:
    """Items come, in known and unknown categories, and trained ones get others: no trained row changes by a bit."""
    before = Calibrated(shop).vectors
    assert before.tolist() == rows_of(shop)
    changed = with_content(shop, [ItemContent(10, categories=("Cold",)), ItemContent(7, "Tea", ("New", "Sweet"))], ())
    grown = shop.with_items([7, 8], titles=["Tea", "Ale"], categories=["New|Sweet", "New"])
    for catalog in (changed, grown):
        after = Calibrated(catalog).vectors
        assert after.tolist() == rows_of(catalog)
        assert np.array_equal(after[:6], before)
    assert changed.categories_of(0) == ("Cold",)
    names = [name for name in changed.category_names if name != "New"]
    assert taste_categories(changed)[6].tolist() == [name == "Sweet" for name in names]


def test_of_many_categories_those_with_the_most_trained_items_have_columns() -> None:
    """Items that come later have no say in it."""
    names = [f"{number:02d}" for number in range(60)]
    labels = [names[:55]] * 2 + [names[5:]]
    catalog = Catalog.from_vectors(range(3), np.eye(3), categories=labels)
    counts = [sum(name in label for label in labels) for name in names]
    common = sorted(sorted(range(60), key=lambda column: -counts[column])[:50])
    grown = catalog.with_items(range(3, 9), categories=[names[55:]] * 6)
    assert np.array_equal(taste_categories(catalog), catalog.categories[:, common])
    assert np.array_equal(taste_categories(grown), grown.categories[:, common])
    assert category_columns(taste_categories(grown), np.full(9, 0.5), 0.25).shape == (9, 50)


def test_without_categories_nothing_is_added_and_nothing_copied() -> None:
    catalog = Catalog.from_vectors(range(3), np.eye(3))
    assert Calibrated(catalog).vectors is catalog.taste_vectors
    later = with_content(catalog, [ItemContent(0, categories=("New",))], ())
    assert Calibrated(later).vectors is later.taste_vectors
