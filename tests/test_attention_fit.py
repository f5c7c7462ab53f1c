"""Curves and skip weights that are known are found again, within their intervals."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from slatewise import belief
from slatewise.attention_fit import SlateLog, examination, fit_attention, fit_curve, predict, user_losses
from slatewise.belief import LinearModel
from slatewise.evidence import Attention, Evidence, Reactions

DIM, PLACES = 4, 6
CURVE = np.array([0.9, 0.7, 0.5, 0.4, 0.3, 0.2])


def linear_world(n_items: int = 60) -> LinearModel:
    """Likes that depend on taste, with probabilities well inside 0 to 1."""
    random = np.random.default_rng(8)
    rates = random.uniform(0.3, 0.5, n_items)
    vectors = (random.normal(size=(n_items, DIM)) * 0.1).astype(np.float32)
    noise = rates * (1 - rates) - np.square(vectors.astype(np.float64)).sum(axis=1)
    return LinearModel(vectors, rates, noise)


MODEL = linear_world()


def simulated(seed: int, curve: NDArray[np.float64], n_users: int = 600, n_slates: int = 5) -> SlateLog:
    """People with tastes from the prior are shown what they are believed to like best, on top what fits best.

    Better items stand at the top, as they do in a service; a curve that is blind to that would be too steep.
    """
    random = np.random.default_rng(seed)
    theta = random.normal(size=(n_users, DIM))
    chances = np.clip(MODEL.expected + theta @ MODEL.vectors.T.astype(np.float64), 0.0, 1.0)
    likes = random.random(chances.shape) < chances
    beliefs, left, rows = belief.start(n_users, np.zeros(DIM), np.eye(DIM)), np.ones(likes.shape, dtype=bool), []
    for _ in range(n_slates):
        scores = MODEL.expected + belief.mean(beliefs) @ MODEL.vectors.T.astype(np.float64)
        items = np.argsort(-np.where(left, scores, -np.inf), axis=1)[:, :PLACES]
        clicks = np.take_along_axis(likes, items, axis=1) & (random.random(items.shape) < curve)
        np.put_along_axis(left, items, False, axis=1)
        arrays = clicks.astype(np.float64), np.ones(items.shape), np.broadcast_to(curve, items.shape)
        beliefs = belief.add_observations(beliefs, Evidence(items, *arrays), MODEL)
        rows.append((items, clicks))
    items, clicks = (np.stack(parts, axis=1).reshape(-1, PLACES) for parts in zip(*rows, strict=True))
    return log_of(items, clicks, np.repeat(np.arange(n_users), n_slates))


def log_of(items: NDArray[np.int64], clicks: NDArray[np.bool_], users: NDArray[np.int64]) -> SlateLog:
    nothing = np.zeros(clicks.shape, dtype=bool)
    return SlateLog(Reactions(items, np.where(clicks, 1.0, np.nan), nothing, nothing[:, 0]), users)


@pytest.mark.parametrize("curve", [CURVE, np.ones(PLACES), np.full(PLACES, 0.3)], ids=["falling", "all", "reticent"])
def test_known_curves_are_within_their_intervals(curve: NDArray[np.float64]) -> None:
    """60 places in ten worlds: about 57 in their 95 % intervals; a curve that is 15 % too high is not."""
    inside, wrong, widths = 0, 0, []
    for seed in range(10):
        for place, estimate in zip(curve, fit_curve(simulated(seed, curve), MODEL), strict=True):
            assert estimate.low <= estimate.value <= estimate.high
            inside += estimate.low <= place <= estimate.high
            wrong += estimate.low <= min(1.15 * place, 1.15) <= estimate.high
            widths.append(estimate.high - estimate.low)
    assert inside >= 52
    assert wrong <= 30
    assert max(widths) < 0.2


def test_a_curve_that_is_blind_to_what_stands_where_is_too_steep() -> None:
    """The negative control of the fit: shares of clicks by place, whatever the items."""
    log = simulated(0, np.ones(PLACES), n_users=3000)
    likes = predict(log, MODEL, Attention().evidence(log.reactions))
    blind = examination(log, np.full(likes.shape, likes.mean()))
    assert blind[0] - blind[-1] > 0.1
    aware = examination(log, likes)
    assert abs(aware[0] - aware[-1]) < 0.05


def test_predictions_by_folding_one_user_after_the_other() -> None:
    log = simulated(3, CURVE, n_users=5, n_slates=4)
    evidence = Attention("curve", 0.6, tuple(CURVE)).evidence(log.reactions)
    found = predict(log, MODEL, evidence)
    for user in range(5):
        beliefs = belief.start(1, np.zeros(DIM), np.eye(DIM))
        for slate in np.flatnonzero(log.users == user):
            items = log.reactions.items[slate]
            expected = MODEL.expected[items] + MODEL.vectors[items].astype(np.float64) @ belief.mean(beliefs)[0]
            np.testing.assert_allclose(found[slate], expected, rtol=1e-10)
            part = Evidence(*(array[[slate]] for array in evidence.arrays))
            beliefs = belief.add_observations(beliefs, part, MODEL)


def test_losses_by_loops() -> None:
    log = simulated(4, CURVE, n_users=40, n_slates=3)
    attention = Attention("curve", 0.5, tuple(CURVE))
    likes = predict(log, MODEL, attention.evidence(log.reactions))
    factor = examination(log, likes)
    expected = np.zeros(40)
    for slate, user in enumerate(log.users):
        if slate % 3:
            for place in range(PLACES):
                chance = factor[place] * likes[slate, place]
                clicked = log.reactions.value[slate, place] == 1.0
                expected[user] -= np.log(chance if clicked else 1.0 - chance)
    np.testing.assert_allclose(user_losses(log, MODEL, attention), expected, rtol=1e-9)


def test_the_most_likely_examination_by_a_fine_grid() -> None:
    random = np.random.default_rng(6)
    likes, n = random.uniform(0.05, 0.6, size=(3000, 2)), 3000
    clicks = random.random(likes.shape) < likes * np.array([0.8, 0.25])
    log = log_of(np.zeros((n, 2), dtype=np.int64), clicks, np.arange(n))
    grid = np.linspace(0.05, 1.2, 2301)
    for place, found in enumerate(examination(log, likes)):
        chance = grid * likes[:, place, None]
        likelihood = np.where(clicks[:, place, None], np.log(chance), np.log1p(-chance)).sum(axis=0)
        assert found == pytest.approx(grid[np.argmax(likelihood)], abs=0.001)


def test_skips_weigh_much_where_all_is_seen_and_little_where_people_click_on_little() -> None:
    """Told or assumed that everything was seen: a skip is a refusal in one crowd, and says little in the other."""
    eager, reticent = (simulated(11, np.full(PLACES, share), n_users=3000) for share in (1.0, 0.3))
    high, low = (fit_attention(log, MODEL, Attention()) for log in (eager, reticent))
    assert high.skip_weight.high == 1.0
    assert low.skip_weight.value < high.skip_weight.value
    assert low.skip_weight.high < 1.0
    assert low.skip_weight.low <= low.skip_weight.value <= low.skip_weight.high
    assert low.attention == replace(Attention(), skip_weight=low.skip_weight.value)


def test_the_rule_that_is_true_predicts_best() -> None:
    log = simulated(12, CURVE, n_users=3000)
    curve = fit_attention(log, MODEL, Attention("curve", curve=(1.0,)))
    all_seen = fit_attention(log, MODEL, Attention())
    assert curve.loss < all_seen.loss
    assert curve.attention.curve == tuple(place.value for place in curve.curve)
    assert all_seen.attention.curve == ()
    assert (curve.n_slates, curve.n_users) == (15_000, 3_000)


def test_what_was_told_as_unseen_has_no_say() -> None:
    """Half of the places were never on screen: the curve of the others is 1, not ½."""
    log = simulated(13, np.ones(PLACES))
    seen = np.random.default_rng(0).random(log.reactions.items.shape) < 0.5
    value = np.where(seen, log.reactions.value, np.nan)
    told = SlateLog(Reactions(log.reactions.items, value, seen, np.ones(len(seen), dtype=bool)), log.users)
    untold = SlateLog(replace(told.reactions, is_seen_told=np.zeros(len(seen), dtype=bool)), log.users)
    assert min(place.high for place in fit_curve(told, MODEL)) > 0.9
    assert max(place.value for place in fit_curve(untold, MODEL)) < 0.65


def test_a_long_log_is_sampled_by_users() -> None:
    log = simulated(14, CURVE, n_users=100)
    some = log.sample(50)
    assert 40 <= len(some.users) <= 50
    assert set(np.unique(some.users, return_counts=True)[1]) == {5}
    np.testing.assert_array_equal(some.users, log.sample(50).users)
    assert log.sample(500) is log


def test_places_without_clicks_or_items_are_not_taken_for_certain() -> None:
    """Nobody clicked on place 1 of 30 slates, and place 2 never held an item."""
    items = np.stack([np.arange(30), np.arange(30, 60), np.full(30, -1)], axis=1)
    clicks = np.stack([np.arange(30) % 3 == 0, np.zeros(30, dtype=bool), np.zeros(30, dtype=bool)], axis=1)
    _, without_clicks, without_items = fit_curve(log_of(items, clicks, np.repeat(np.arange(10), 3)), MODEL)
    assert without_clicks.value < 0.05
    assert 0.1 < without_clicks.high < 0.5
    assert (without_items.low, without_items.high) == (0.0, 1.0)


def test_logs_that_cannot_be_fitted_are_refused() -> None:
    items, clicks = np.array([[3, 4], [5, 6], [7, 8]]), np.zeros((3, 2), dtype=bool)
    with pytest.raises(ValueError, match="do not stand together; sort them by user"):
        log_of(items, clicks, np.array([1, 2, 1]))
    with pytest.raises(ValueError, match="give one per slate"):
        log_of(items, clicks, np.array([1, 1]))
    for rows in (3, 0):
        log = log_of(items[:rows], clicks[:rows], np.arange(rows))
        with pytest.raises(ValueError, match="no user has two slates"):
            fit_attention(log, MODEL, Attention())


def test_items_beyond_the_model_are_refused() -> None:
    log = log_of(np.array([[3, 60]]), np.zeros((1, 2), dtype=bool), np.array([0]))
    with pytest.raises(IndexError, match="item 60 was shown; the model has 60 items"):
        predict(log, MODEL, Attention().evidence(log.reactions))
