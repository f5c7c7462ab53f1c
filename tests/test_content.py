"""New items: what their content says, by slow twins, and that adding them leaves everything else as it was."""

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from slatewise.catalog import Catalog, CatalogError
from slatewise.catalog.content import Content, Design, Features, prior_strength
from slatewise.catalog.embeddings import BprSettings, Factors
from slatewise.data.synthetic import WorldSize, make_world
from slatewise.recommender.served_policies import catalog_digest

Floats = NDArray[np.float64]

WORLD = make_world(WorldSize(n_users=300, n_items=120, n_categories=6, dim=4), seed=3)
ROWS = ("vectors", "taste_vectors", "log_odds", "rate_strengths")


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.train(WORLD.dataset, BprSettings(dim=4, epochs=2))


def naive_ridge(table: Floats, targets: Floats, weights: Floats, shrinkage: float) -> Floats:
    """Minimize the weighted squared error plus λ times the squared weights but the first, with rows for the penalty."""
    roots = np.sqrt(weights)[:, None]
    penalty = np.diag(np.sqrt([0.0, *[shrinkage] * (table.shape[1] - 1)]))
    values = np.vstack([roots * targets, np.zeros((table.shape[1], targets.shape[1]))])
    return np.asarray(np.linalg.lstsq(np.vstack([roots * table, penalty]), values, rcond=None)[0])


def test_a_ridge_and_its_residuals_by_leaving_each_item_out() -> None:
    random = np.random.default_rng(0)
    table = np.column_stack([np.ones(25), random.random((25, 5)) < 0.4])
    targets, weights = random.normal(size=(25, 3)), random.uniform(0.5, 2.0, 25)
    ridge = next(Design.of(table, weights).ridges(targets, [2.0]))
    np.testing.assert_allclose(ridge.weights, naive_ridge(table, targets, weights, 2.0), atol=1e-8)
    for item in range(25):
        others = np.arange(25) != item
        predicted = table[item] @ naive_ridge(table[others], targets[others], weights[others], 2.0)
        np.testing.assert_allclose(ridge.residuals[item], targets[item] - predicted, atol=1e-6)


def test_features_are_counted_words_and_pairs() -> None:
    titles = ["The Red Door (1999)", "red River", "Red Dawn", "Blue Door", "door bell"]
    categories = np.array([[1, 1, 0], [1, 1, 0], [1, 1, 1], [0, 0, 1], [0, 0, 0]], dtype=bool)
    features = Features.of(Content(titles, categories), with_pairs=True)
    assert features.words == ("door", "red")
    assert features.pairs == ((0, 1),)
    assert features.table(Content(["A door"], categories[:1])).tolist() == [[1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0]]


def test_the_strength_of_a_prior_is_found_again() -> None:
    """Rates drawn from Beta(sμ, s(1 − μ)) and observed by n users have the residuals of that strength."""
    random, mean, strength, n_users = np.random.default_rng(1), 0.2, 12.0, 50
    rates = random.beta(strength * mean, strength * (1.0 - mean), 20_000)
    observed = random.binomial(n_users, rates) / n_users
    assert prior_strength(observed - mean, np.full(20_000, mean), n_users) == pytest.approx(strength, rel=0.05)


@pytest.mark.parametrize("kind", ["int", "str", "uuid"])
def test_added_items_leave_all_others_as_they_were(kind: str, tmp_path: Path) -> None:
    makers: dict[str, Any] = {"int": int, "str": lambda n: f"n°{n:03}", "uuid": lambda n: uuid.UUID(int=n)}
    ids = np.array([makers[kind](2 * number) for number in range(120)], dtype=object)
    world = replace(WORLD.dataset, item_ids=ids)
    before = Catalog.from_factors(world, Factors(WORLD.tastes, WORLD.vectors), {})
    names = WORLD.dataset.category_names
    first = before.with_items(
        [makers[kind](31), makers[kind](7)], titles=["One", "Other"], categories=[names[0], "New"]
    )
    after = first.with_items([makers[kind](-5 if kind == "int" else 999)])
    assert [after.index_of(makers[kind](number)) for number in (31, 7, 238)] == [120, 121, 119]
    assert after.titles[121] == "Other"
    assert after.categories_of(120) == (names[0],)
    assert after.categories_of(121) == ("New",)
    assert after.item_ids.find(makers[kind](33)) is None
    for name in ROWS:
        assert getattr(after, name)[:120].tobytes() == getattr(before, name).tobytes(), name
    assert catalog_digest(after) == catalog_digest(before)
    after.save(tmp_path)
    loaded = Catalog.load(tmp_path)
    assert list(loaded.item_ids) == list(after.item_ids)
    assert loaded.index_of(makers[kind](7)) == 121
    assert loaded.rate_strengths.tobytes() == after.rate_strengths.tobytes()


def test_wrong_additions_are_refused(catalog: Catalog) -> None:
    added = catalog.with_items([500])
    for wrong in ([3], [500], [501, 501]):
        with pytest.raises(CatalogError, match="there already"):
            added.with_items(wrong)
    with pytest.raises(CatalogError, match="added ones are str"):
        added.with_items(["tea"])
    with pytest.raises(CatalogError, match="takes no given ones"):
        added.with_items([502], vectors=[np.ones(4)])
    assert catalog.with_items([]) is catalog


def test_a_new_item_is_expected_to_be_like_others_of_its_content() -> None:
    """In a world where one category is liked and one shared vector decides on taste, both are predicted."""
    random = np.random.default_rng(4)
    liked = random.random(60) < 0.5
    vectors = random.normal(size=(60, 3))
    categories = ["Good" if good else "Bad" for good in liked.tolist()]
    catalog = Catalog.from_vectors(range(60), vectors, categories=categories)
    odds = np.where(liked, 0.0, -3.0)
    tastes = vectors @ random.normal(size=(3, 2)) * (1.0 / (2.0 + np.exp(odds) + np.exp(-odds)) ** 0.5)[:, None]
    trained = replace(
        catalog, log_odds=odds, taste_vectors=tastes.astype(np.float32), about={**catalog.about, "data": {"users": 999}}
    )
    new = trained.with_items([60, 61], categories=["Good", "Bad"], vectors=[[1.0, 0.0, 0.0], None])
    rates = 1.0 / (1.0 + np.exp(-new.log_odds[60:]))
    np.testing.assert_allclose(rates, [0.5, 1.0 / (1.0 + np.exp(3.0))], atol=0.03)
    slope = np.linalg.lstsq(vectors[liked], tastes[liked], rcond=None)[0]
    np.testing.assert_allclose(new.taste_vectors[60], slope[0], atol=0.05)
    assert new.vectors[60, 0] == pytest.approx(catalog.about["training"]["scale"])
    assert new.rate_strengths[60] == new.rate_strengths[61]


def test_what_nothing_is_known_about_may_be_as_liked_as_any_item() -> None:
    """Where categories decide who is liked, a prediction from one is worth much, and one from nothing little."""
    random = np.random.default_rng(6)
    liked, vectors = random.random(80) < 0.5, random.normal(size=(80, 2))
    names = np.where(liked, "Good", "Bad").tolist()
    catalog = Catalog.from_vectors(range(80), vectors, categories=names)
    odds = np.where(liked, 0.0, -3.0) + 0.1 * random.normal(size=80)
    trained = replace(catalog, log_odds=odds, about={**catalog.about, "data": {"users": 500}})
    new = trained.with_items([80, 81, 82], categories=["Good", "", "Unheard of"])
    known, bare, unheard_of = new.rate_strengths[80:].tolist()
    assert bare == unheard_of
    assert known > 20 * bare
    rates = 1.0 / (1.0 + np.exp(-odds))
    spread = np.sqrt((rates * (1.0 - rates)).mean() / (bare + 1.0))
    assert spread == pytest.approx(rates.std(), rel=0.02)
