"""Variety by the similarity of categories or, without them, of vectors: the knob, what is reported, what is unknown."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slatewise import Catalog, Recommender, make_policy
from slatewise.catalog.embeddings import BprSettings
from slatewise.catalog.live_items import ItemContent, with_content
from slatewise.catalog.population import without_popularity
from slatewise.cli.catalog import variety_words
from slatewise.data.dataset import Dataset
from slatewise.data.sources import load
from slatewise.lab.metrics import per_split, per_user
from slatewise.lab.simulate import Session, simulate
from slatewise.policies.calibrated import Calibrated
from slatewise.recommender import Item
from slatewise.slates.kernels import read_only
from slatewise.slates.similarity import measure_variety, slate_varieties
from tests.support import naive
from tests.support.text_vectors import text_vectors

Make = Callable[[Dataset], Catalog]
KNOBS = (0.0, 0.25, 0.5, 0.75, 1.0)


@given(st.integers(0, 10_000), st.integers(1, 6))
def test_variety_and_distances_by_a_loop(seed: int, k: int) -> None:
    random = np.random.default_rng(seed)
    categories, vectors = random.random((k, 3)) < 0.3, random.normal(size=(k, 2)) * (random.random((k, 1)) < 0.7)
    slate, distances, variety = np.arange(k)[None], np.empty((1, k)), np.empty(1)
    measure_variety(slate, read_only(categories, bool), read_only(vectors, float), distances, variety)
    expected = naive.slate_distance([*range(k)], categories, vectors)
    assert variety[0] == pytest.approx(np.nan if expected is None else expected, nan_ok=True)
    for item, found in enumerate(distances[0]):
        others = [naive.similarity(categories, vectors, item, other) for other in range(k) if other != item]
        known = [1 - one for one in others if one is not None]
        assert found == pytest.approx(np.mean(known) if known else np.nan, nan_ok=True)


def without_categories(dataset: Dataset) -> Dataset:
    return replace(dataset, category_names=(), categories=np.zeros((dataset.n_items, 0), dtype=bool))


def trained(dataset: Dataset) -> Catalog:
    return Catalog.train(dataset, BprSettings(epochs=3))


def from_text(dataset: Dataset) -> Catalog:
    titles = dataset.titles
    return Catalog.from_vectors(dataset.item_ids, text_vectors(titles), titles=titles, interactions=dataset)


@pytest.mark.parametrize("make", [trained, from_text])
@pytest.mark.parametrize(
    "name", ["synthetic", *(pytest.param(n, marks=pytest.mark.slow) for n in ("ml-100k", "ml-1m", "anime-5k"))]
)
def test_the_knob_is_monotone_without_categories(name: str, make: Make, request: pytest.FixtureRequest) -> None:
    """Slates become more varied and less relevant, by vectors trained on likes and by vectors of titles."""
    with pytest.MonkeyPatch.context() as patch:
        if name != "synthetic":
            patch.setenv("SLATEWISE_DATA", str(request.getfixturevalue("real_data")))
        train, test = without_categories(load(name)).split(0.2, seed=5)
    catalog, asked, measured = make(train), test.take(range(100)), []
    for knob in KNOBS:
        records = simulate(make_policy("dc2b-calibrated", catalog, diversity=knob), asked, Session(rounds=3))
        labelled = records.with_columns(dataset=pl.lit(name), split=pl.lit(0), policy=pl.lit("x"))
        users = per_user(labelled, test.categories, (30,), catalog.similarity_vectors)
        measured.append(per_split(users).select("diversity", "p@30").row(0))
    varieties = [diversity for diversity, _ in measured]
    assert varieties == sorted(varieties)
    assert 1.0 > varieties[-1] > varieties[0] + 0.03
    assert measured[-1][1] <= measured[0][1]


@given(st.integers(0, 10_000))
def test_what_popular_items_share_is_left_out_by_a_loop(seed: int) -> None:
    """The rest is at right angles to their sum by rates, and of each item the same whichever others there are."""
    random = np.random.default_rng(seed)
    vectors, rates = random.normal(size=(6, 3)).astype(np.float32), random.random(4) + 0.01
    vectors[2] = 0.0
    popular = np.asarray(sum(rates[item] * vectors[item].astype(float) for item in range(4)))
    found = without_popularity(vectors, popular)
    for item in range(6):
        along = vectors[item] @ popular / (popular @ popular)
        assert found[item] == pytest.approx(vectors[item] - along * popular, abs=1e-5)
        assert (found[item] == without_popularity(vectors[[item]], popular)[0]).all()
    assert not without_popularity(np.outer(rates, [1.0, 2.0]).astype(np.float32), np.array([1.0, 2.0])).any()


def test_only_items_that_were_trained_say_what_popular_ones_share() -> None:
    """And items that change or are added later get what working all out again would give them."""
    catalog = Catalog.train(without_categories(load("synthetic")), BprSettings(epochs=1))
    before = catalog.similarity_vectors
    changes = [ItemContent(catalog.item_ids[3], categories=("Sea",)), ItemContent(10**6, "A new one")]
    changed = with_content(catalog, changes, ())
    assert "similarity_vectors" in vars(changed)
    found = vars(changed).pop("similarity_vectors")
    assert np.array_equal(found, changed.similarity_vectors)
    assert np.array_equal(found[: len(before)], before)


def test_items_are_not_alike_for_being_popular() -> None:
    """Given vectors are compared as they are. The control: by the trained vectors themselves, all are alike."""
    train, test = without_categories(load("synthetic")).split(0.2, seed=5)
    catalog = Catalog.train(train, BprSettings())
    popular = np.argsort(-catalog.log_odds)[:40][None]
    alike, control = (
        1 - slate_varieties(popular, catalog.categories, one) for one in (catalog.similarity_vectors, catalog.vectors)
    )
    assert alike[0] < 0.4 < 0.6 < control[0]
    policy = Calibrated(catalog)
    raw = policy.with_diversity(policy.diversity)
    vars(raw)["similarity_vectors"] = catalog.vectors
    liked, without = (simulate(one, test, Session())["clicked"].to_numpy().mean() for one in (policy, raw))
    assert liked > 1.1 * without
    given_ones = from_text(train)
    assert given_ones.similarity_vectors is given_ones.vectors


def test_slates_are_as_today_where_all_items_have_categories() -> None:
    """Vectors then make no difference at all, whatever they are."""
    random = np.random.default_rng(3)
    categories = [f"c{number % 4}|c{number % 7}" for number in range(60)]
    vectors = random.normal(size=(60, 5))
    catalog = Catalog.from_vectors(range(60), vectors, categories=categories)
    turned = replace(catalog, vectors=catalog.vectors[::-1].copy(), about={})
    slates = []
    for one in (catalog, turned):
        assert Calibrated(one).similarity_vectors.size == 0
        with Recommender(one) as recommender:
            slates.append(recommender.recommend("ann", diversity=0.9))
    assert [item.id for item in slates[0].items] == [item.id for item in slates[1].items]
    assert slates[0].variety == slates[1].variety


def test_what_cannot_be_compared_is_unknown_and_not_varied() -> None:
    vectors = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    with Recommender(Catalog.from_vectors(["a", "b", "c", "d"], vectors)) as recommender:
        alike = recommender.recommend("ann", candidates=["a", "b"])
        unknown = recommender.recommend("ben", candidates=["c", "d"])
        single = recommender.recommend("cem", 1)
        both = recommender.recommend("dan")
        assert (alike.variety, unknown.variety, single.variety, both.variety) == (0.0, None, None, 0.0)
        assert [item.distance for item in both.items if item.id in ("c", "d")] == [None, None]
        again = recommender.recommend("ben", request_id="1")
        assert recommender.recommend("ben", request_id="1") == again
        assert all(replayed.is_same for replayed in recommender.replay())


def test_commands_say_by_what_items_are_compared() -> None:
    vectors = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    assert variety_words(Catalog.from_vectors(["a", "b", "c"], vectors, categories=["A", "B", "A"])) == []
    (some,) = variety_words(Catalog.from_vectors(["a", "b", "c"], vectors, categories=["A", None, "A"]))
    assert some.startswith("1 item has no categories")
    (unknown,) = variety_words(Catalog.from_vectors(["a", "b", "c"], vectors, categories=["A", "A", None]))
    assert unknown.startswith("1 item has neither categories nor a vector")
    none, unknown = variety_words(Catalog.from_vectors(["a", "b", "c"], vectors))
    assert none.startswith("no item has categories")
    assert unknown == "1 item has neither categories nor a vector: the variety is unknown"


def test_commands_do_not_speak_of_vectors_that_tell_no_items_apart() -> None:
    """Trained ones are compared without what popular items share, which may be all that there is."""
    nothing = Catalog.from_vectors(["a", "b"], np.zeros((2, 2)))
    alike = replace(Catalog.from_vectors(["a", "b"], np.ones((2, 2))), about={"data": {"users": 5}})
    for catalog in (nothing, alike):
        assert not catalog.similarity_vectors.any()
        with Recommender(catalog) as recommender:
            assert recommender.recommend("ann").variety is None
        assert variety_words(catalog) == [
            "no item has categories or a vector to compare it by: the variety of slates is unknown"
        ]


def test_new_items_about_which_nothing_is_known_are_not_alike() -> None:
    """Their tastes are those of an average item; what they are similar to is unknown until somebody says it."""
    catalog = trained(load("synthetic"))
    new = ["new 1", "the new 2"]
    ids = [catalog.n_items + number for number in range(len(new))]
    with Recommender(catalog) as recommender:
        recommender.put_items([Item(number, title) for number, title in zip(ids, new, strict=True)])
        unknown = recommender.recommend("ann", candidates=ids, diversity=1.0)
        assert (unknown.variety, [item.distance for item in unknown.items]) == (None, [None, None])
        assert [item.diversity_gain for item in unknown.items] == [0.0, 0.0]
        mixed = recommender.recommend("ben", candidates=[*ids, 0, 1], diversity=1.0)
        known = recommender.recommend("cem", candidates=[0, 1], diversity=1.0)
        assert mixed.variety == known.variety is not None
        assert [item.distance for item in mixed.items if item.id in ids] == [None, None]
        name = catalog.category_names[0]
        recommender.put_items([Item(number, title, [name]) for number, title in zip(ids, new, strict=True)])
        assert recommender.recommend("dan", candidates=ids).variety == 0.0


def test_a_new_item_without_a_vector_is_unknown_beside_given_vectors() -> None:
    vectors = np.random.default_rng(4).normal(size=(20, 3))
    catalog = Catalog.from_vectors(range(20), vectors)
    with Recommender(catalog) as recommender:
        recommender.put_items([Item(20, "one"), Item(21, "two"), Item(22, "three", vector=(1.0, 2.0, 3.0))])
        assert recommender.recommend("ann", candidates=[20, 21]).variety is None
        assert recommender.recommend("ben", candidates=[20, 22]).variety is None
        assert recommender.recommend("cem", candidates=[3, 22]).variety is not None
    more = catalog.with_items([20, 21, 22], vectors=[None, None, (1.0, 2.0, 3.0)])
    pairs = [(20, 21), (20, 22), (3, 22)]
    known = [naive.similarity(more.categories, more.vectors.astype(float), *pair) is not None for pair in pairs]
    assert known == [False, False, True]
