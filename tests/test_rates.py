"""Rates of items: Beta beliefs by their textbook, evidence that adds up, and draws that give new items their chance."""

import numpy as np
import pytest

from slatewise.belief.rates import RateEvidence, Rates, click_level
from slatewise.catalog import Catalog
from slatewise.catalog.embeddings import BprSettings
from slatewise.data.synthetic import WorldSize, make_world
from slatewise.policies.calibrated import Calibrated
from slatewise.randomness import Streams, user_keys

N_ITEMS = 60


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    """Fifty items with the likes of 999 users, in a space of two dimensions, and ten that nobody has seen."""
    random = np.random.default_rng(2)
    known = Catalog.from_vectors(range(50), random.normal(size=(50, 2)), categories=["A", "B"] * 25)
    about = {**known.about, "data": {"users": 999}}
    odds = random.normal(-1.0, 0.5, 50)
    parts = {name: getattr(known, name) for name in ("item_ids", "titles", "category_names", "categories", "vectors")}
    population = {name: getattr(known, name) for name in ("population_mean", "population_covariance")}
    tastes = (0.1 * random.normal(size=(50, 2))).astype(np.float32)
    trained = Catalog(**parts, **population, log_odds=odds, taste_vectors=tastes, about=about)
    return trained.with_items(range(50, 60), categories=["A"] * 10)


def test_rates_by_their_textbook(catalog: Catalog) -> None:
    """At the level of training, a Beta prior with pseudo-counts takes clicks and refusals one by one."""
    rates = Rates.of(catalog)
    random = np.random.default_rng(3)
    items = random.integers(0, N_ITEMS, 400)
    clicks = (random.random(400) < rates.mean[items]).astype(np.float64)
    explained = 0.1 * random.normal(size=400)
    evidence = RateEvidence.nothing(N_ITEMS).added(items, np.ones(400), clicks, explained)
    level = click_level(rates, evidence)
    after = rates.after(evidence)
    for item in range(N_ITEMS):
        likes, refusals = rates.mean[item] * rates.strength[item], (1 - rates.mean[item]) * rates.strength[item]
        for one, clicked, due in zip(items, clicks, explained, strict=True):
            if one == item:
                likes, refusals = likes + clicked - level * due, refusals + level - clicked + level * due
        assert after.mean[item] == pytest.approx(max(likes / (likes + refusals), 1e-4))
        assert after.strength[item] == pytest.approx(likes + refusals)


def test_evidence_in_any_order_and_taken_back() -> None:
    nothing = RateEvidence.nothing(3)
    items, ones = np.array([2, 0, 2, -1]), np.ones(4)
    clicked, explained = np.array([1.0, 0.0, 0.0, 1.0]), np.array([0.25, 0.5, -0.25, 9.0])
    once = nothing.added(items, ones, clicked, explained)
    back = once.added(items[::-1], -ones, -clicked[::-1], -explained[::-1])
    assert once.seen.tolist() == [1.0, 0.0, 2.0]
    assert once.clicked.tolist() == [0.0, 0.0, 1.0]
    for name in ("seen", "clicked", "explained"):
        assert getattr(back, name).tolist() == [0.0, 0.0, 0.0]


def test_people_who_click_little_do_not_make_items_worse(catalog: Catalog) -> None:
    rates = Rates.of(catalog)
    seen = np.full(N_ITEMS, 1_000.0)
    half = rates.after(RateEvidence(seen, 0.5 * seen * rates.mean, np.zeros(N_ITEMS)))
    np.testing.assert_allclose(half.mean, rates.mean, rtol=0.01)
    better = 0.5 * seen * rates.mean * np.where(np.arange(N_ITEMS) == 55, 3.0, 1.0)
    found = rates.after(RateEvidence(seen, better, np.zeros(N_ITEMS)))
    assert found.mean[55] / rates.mean[55] == pytest.approx(3.0, rel=0.1)


def test_intervals_hold_the_rate(catalog: Catalog) -> None:
    """Of rates drawn from the prior of new items, and observed thirty times, about 95 % lie in their interval."""
    random, (mean, strength, n) = np.random.default_rng(5), (0.2, 10.0, 3_000)
    truth = random.beta(strength * mean, strength * (1 - mean), n)
    clicks = random.binomial(30, truth).astype(np.float64)
    rates = Rates((strength * mean + clicks) / (strength + 30.0), np.full(n, strength + 30.0))
    inside = [low <= true <= high for true, (low, high) in zip(truth, map(rates.interval, range(n)), strict=True)]
    assert 0.93 <= np.mean(inside) <= 0.98
    new = Rates.of(catalog)
    assert (new.deviation[50:] > 3.0 * new.deviation[:50].max()).all()


def streams(step: int, n_users: int = 400) -> Streams:
    return Streams(0, user_keys(range(n_users)), step)


def test_exploring_draws_rates_as_uncertain_as_they_are(catalog: Catalog) -> None:
    """Without taste, a score is a rate and its draw; draws have the deviation of the rate, times `explore`."""
    policy = Calibrated(catalog, explore=0.5)
    draws = Streams(0x9D5C2E0B, user_keys(range(5_000)), 0).normal(8) @ policy.items.features[:, -8:].T
    np.testing.assert_allclose(draws.std(axis=0), policy.current.deviation, rtol=0.08)
    assert np.abs(draws.mean(axis=0) / policy.current.deviation).max() < 0.06


def test_exploring_gives_new_items_their_chance_and_repeats(catalog: Catalog) -> None:
    everything = np.ones((400, N_ITEMS), dtype=bool)
    plain, curious = (Calibrated(catalog, diversity=0.0, explore=explore) for explore in (0.0, 1.0))
    shown = {policy: policy.select(policy.start(400), everything, 5, streams(0)) for policy in (plain, curious)}
    assert not (shown[plain].items >= 50).any()
    assert 0.02 < (shown[curious].items >= 50).mean() < 0.6
    assert shown[curious].items.tolist() == curious.select(curious.start(400), everything, 5, streams(0)).items.tolist()
    assert shown[curious].items.tolist() != curious.select(curious.start(400), everything, 5, streams(1)).items.tolist()
    assert (shown[curious].deviation > 0.0).all()


def test_learned_rates_move_choices_but_no_beliefs(catalog: Catalog) -> None:
    policy = Calibrated(catalog, diversity=0.0)
    seen = np.where(np.arange(N_ITEMS) == 57, 200.0, 0.0)
    liked = policy.with_rates(policy.current.after(RateEvidence(seen, 0.9 * seen, 0.0 * seen)))
    everything = np.ones((1, N_ITEMS), dtype=bool)
    slates = liked.select(liked.start(1), everything, 3, streams(0, 1))
    assert slates.items[0, 0] == 57
    assert slates.probability[0, 0] == pytest.approx(liked.current.mean[57])
    assert liked.model is policy.model
    assert liked.with_diversity(0.3).current is liked.current


@pytest.mark.parametrize("explore", [0.0, 0.5])
def test_features_after_a_change_of_some_rates_are_those_prepared_at_once(explore: float) -> None:
    """Bit by bit; also where no rate was known, since all of them change then."""
    world = make_world(WorldSize(n_users=60, n_items=40, n_categories=4, dim=3), seed=2)
    for catalog in (
        Catalog.train(world.dataset, BprSettings(epochs=1)),
        Catalog.from_vectors(range(40), world.vectors),
    ):
        policy, seen = Calibrated(catalog, explore=explore), np.zeros(40)
        for item in (3, 7, 7, 20):
            seen[item] += 5.0
            evidence = RateEvidence(seen.copy(), 0.4 * seen, 0.1 * seen)
            prior = Rates.of(catalog)
            rates = prior.after_unknown(evidence) if catalog.knows_nothing else prior.after(evidence)
            policy = policy.with_rates(rates)
            at_once = Calibrated(catalog, explore=explore).with_rates(rates)
            assert np.array_equal(policy.features, at_once.features)
            assert np.array_equal(policy.tastes_now, at_once.tastes_now)


@pytest.mark.parametrize("seen", [-1.0, -30.0])
def test_less_than_nobody_who_saw_an_item_is_nobody(seen: float) -> None:
    """What a killed process had not written yet may be taken back by another one."""
    prior, nothing = Rates(np.full(3, 0.3), np.full(3, 10.0)), np.zeros(3)
    evidence = RateEvidence(np.array([seen, 0.0, 0.0]), nothing, nothing)
    for rates in (prior.after(evidence), prior.after_unknown(evidence)):
        assert (rates.strength > 0.0).all()
        assert ((rates.mean > 0.0) & (rates.mean < 1.0)).all()
        assert np.isfinite(rates.deviation).all()
