"""Likes from elsewhere say which items are liked, not how many; against derivatives by differences and by loops."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from slatewise import belief
from slatewise.catalog import Catalog
from slatewise.catalog.embeddings import Factors
from slatewise.data.synthetic import WorldSize, make_world
from slatewise.evidence import Evidence
from slatewise.policies.calibrated import Calibrated
from slatewise.recommender import Event, Recommender
from slatewise.recommender.profile import learn_everything
from slatewise.recommender.reasons import like_shares
from tests.support.recommending import loaded_profile, make_catalog

Floats = NDArray[np.float64]

CATALOG = make_catalog(40)
POLICY = Calibrated(CATALOG)
STEP = 1e-4


def log_probability(item: int, theta: Floats) -> float:
    """The logarithm of the probability that a reported like is about an item."""
    likes = POLICY.rates + POLICY.vectors.astype(np.float64) @ theta
    return float(np.log(likes[item] / likes.sum()))


def gradient(item: int) -> Floats:
    """By differences, around the average taste."""
    steps = STEP * np.eye(POLICY.vectors.shape[1])
    return np.array([(log_probability(item, one) - log_probability(item, -one)) / (2 * STEP) for one in steps])


def reports(items: list[int], weights: list[float]) -> Evidence:
    numbers, ones = np.array([items]), np.ones((1, len(items)))
    return Evidence(numbers, ones, np.array([weights]), ones, np.ones((1, len(items)), dtype=bool))


def test_a_report_adds_the_gradient_and_the_information_of_which_item_it_is_about() -> None:
    state = POLICY.update(POLICY.start(1), reports([3, 8], [1.0, 0.5]))
    np.testing.assert_allclose(state["shift"][0], gradient(3) + 0.5 * gradient(8), rtol=1e-5, atol=1e-7)
    shares = POLICY.rates / POLICY.rates.sum()
    information = sum(share * np.outer(gradient(item), gradient(item)) for item, share in enumerate(shares.tolist()))
    np.testing.assert_allclose(
        state["precision"][0] - np.eye(len(information)), 1.5 * information, rtol=1e-4, atol=1e-6
    )


@given(seed=st.integers(0, 2**32 - 1))
def test_reports_add_up_with_what_was_shown_in_any_order_and_can_be_taken_back(seed: int) -> None:
    draw = np.random.default_rng(seed)
    n = int(draw.integers(1, 8))
    mixed = Evidence(
        draw.integers(0, 40, (1, n)),
        draw.integers(0, 2, (1, n)).astype(float),
        draw.uniform(0.1, 2.0, (1, n)),
        draw.uniform(0.2, 1.0, (1, n)),
        draw.random((1, n)) < 0.5,
    )
    together = POLICY.update(POLICY.start(1), mixed)
    apart = POLICY.start(1)
    for place in draw.permutation(n):
        names = ("items", "value", "weight", "examined", "is_reported")
        apart = POLICY.update(apart, Evidence(*(getattr(mixed, name)[:, [place]] for name in names)))
    back = POLICY.update(together, replace(mixed, weight=-mixed.weight))
    for name in POLICY.additive:
        np.testing.assert_allclose(apart[name], together[name], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(back[name], POLICY.start(1)[name], rtol=1e-9, atol=1e-7)


def test_shares_of_reports_add_up_to_what_taste_adds() -> None:
    evidence = reports([3, 8, 11], [1.0, 0.5, 1.0])
    mixed = replace(evidence, reported=np.array([[True, False, True]]))
    state, items = POLICY.update(POLICY.start(1), mixed), np.arange(5)
    beliefs = belief.factor(POLICY.belief_in(state))
    shares = like_shares(POLICY, beliefs, items, mixed)
    np.testing.assert_allclose(shares.sum(axis=1), POLICY.chosen_at(items) @ beliefs.mean[0], rtol=1e-6, atol=1e-9)
    seen = like_shares(POLICY, beliefs, items, replace(mixed, reported=None))
    assert np.abs(seen.sum(axis=1) - shares.sum(axis=1)).max() > 1e-3, "the control: taken for items that were seen"


def test_somebody_who_reports_much_is_not_taken_to_like_everything() -> None:
    """People of a synthetic world report a third of their likes; nobody knows how many more there are."""
    world, draw = make_world(WorldSize(n_users=400, n_items=200)), np.random.default_rng(5)
    policy = Calibrated(Catalog.from_factors(world.dataset, Factors(world.tastes, world.vectors), {}))
    before = float(policy.probabilities(policy.start(1)).sum())
    said, taken_for_seen = list[float](), list[float]()
    for user in range(60):
        likes = draw.permutation(world.dataset.items[world.dataset.users == user])
        evidence = reports(likes[: len(likes) // 3].tolist(), [1.0] * (len(likes) // 3))
        for found, taken in ((said, evidence), (taken_for_seen, replace(evidence, reported=None))):
            found.append(float(policy.probabilities(policy.update(policy.start(1), taken)).sum()))
    assert np.mean(said) == pytest.approx(before, rel=0.15)
    assert np.mean(taken_for_seen) > 1.5 * before, "the control"


@pytest.mark.parametrize(("kind", "value"), [("like", None), ("purchase", None), ("rating", 1.0)])
def test_events_that_only_say_yes_are_reports_and_ratings_are_not(kind: str, value: float | None) -> None:
    items = list(range(12))
    shown = POLICY.update(POLICY.start(1), replace(reports(items, [1.0] * 12), reported=None))
    reported = POLICY.update(POLICY.start(1), reports(items, [1.0] * 12))
    with Recommender(CATALOG) as recommender:
        recommender.record_events([Event("ann", 100 + item, kind, value) for item in items])
        learned = learn_everything(loaded_profile(recommender, "ann")).state
    wanted, other = (shown, reported) if kind == "rating" else (reported, shown)
    np.testing.assert_allclose(learned["shift"], wanted["shift"], rtol=1e-9, atol=1e-9)
    assert np.abs(learned["shift"] - other["shift"]).max() > 0.1


def test_of_very_many_items_some_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(7)
    vectors, rates = 0.1 * draw.normal(size=(20_000, 3)).astype(np.float32), draw.uniform(0.05, 0.5, 20_000)
    everything = belief.ReportedLikes.of(vectors, rates)
    monkeypatch.setattr("slatewise.belief.reported_likes.MOST_ITEMS", 5_000)
    some = belief.ReportedLikes.of(vectors, rates)
    np.testing.assert_allclose(some.center, everything.center, atol=0.01)
    np.testing.assert_allclose(some.information, everything.information, atol=0.005)
    assert np.abs(some.information - everything.information).max() > 0.0
