"""Click models against the frequencies they promise, by chi-square; a model that is off must be noticed."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from slatewise.lab.click_models import CLICK_MODELS, ClickModel
from slatewise.randomness import Streams, user_keys

Floats = NDArray[np.float64]
N_USERS, PLACES = 20_000, 10
KEYS = user_keys(range(N_USERS))
LIKED = Streams(1, KEYS, 0).uniform(PLACES) < 0.4
RARE = 1e-6

Examination = Callable[[NDArray[np.bool_]], Floats]


def cascade_by_loops(liked: NDArray[np.bool_]) -> Floats:
    """The probability that each place is reached, from the top down."""
    reached = np.ones(liked.shape)
    for place in range(1, liked.shape[1]):
        stays = np.where(liked[:, place - 1], 0.5, 0.95)
        reached[:, place] = reached[:, place - 1] * stays
    return reached


EXAMINATION: dict[str, Examination] = {
    "everything": lambda liked: np.ones(liked.shape),
    "1/√r": lambda liked: np.broadcast_to([1 / r**0.5 for r in range(1, PLACES + 1)], liked.shape),
    "1/r": lambda liked: np.broadcast_to([1 / r for r in range(1, PLACES + 1)], liked.shape),
    "cascade": cascade_by_loops,
    "30 % unseen": lambda liked: np.full(liked.shape, 0.7),
    "reticent": lambda liked: np.ones(liked.shape),
}
CLICKS = dict.fromkeys(CLICK_MODELS, 1.0) | {"reticent": 0.3}


def chi_square_is_rare(observed: NDArray[np.bool_], expected: Floats) -> bool:
    """Whether the counts per place (n, places) are further from their probabilities than chance explains."""
    from scipy import stats

    variance = (expected * (1.0 - expected)).sum(axis=0)
    difference = observed.sum(axis=0) - expected.sum(axis=0)
    certain = variance == 0.0
    if difference[certain].any():
        return True
    total = float((difference[~certain] ** 2 / variance[~certain]).sum())
    return bool((~certain).any() and stats.chi2.sf(total, int((~certain).sum())) < RARE)


def is_off(model: ClickModel, world: str, step: int = 3) -> bool:
    """Whether what is seen, or clicked of what is liked, differs from what the world promises."""
    clicks, seen = model(LIKED, Streams(0, KEYS, step))
    examined = EXAMINATION[world](LIKED)
    return chi_square_is_rare(seen, examined) or chi_square_is_rare(clicks, LIKED * examined * CLICKS[world])


@pytest.mark.parametrize("world", CLICK_MODELS)
def test_every_place_is_seen_and_clicked_as_often_as_promised(world: str) -> None:
    assert not is_off(CLICK_MODELS[world], world)


@pytest.mark.parametrize("world", CLICK_MODELS)
def test_another_model_is_noticed(world: str) -> None:
    """The negative control: every model is off in every other world, though slates as a whole are seen as often."""
    others = [model for name, model in CLICK_MODELS.items() if name != world]
    assert all(is_off(model, world) for model in others)


@pytest.mark.parametrize("world", CLICK_MODELS)
def test_only_what_is_liked_and_seen_is_clicked(world: str) -> None:
    clicks, seen = CLICK_MODELS[world](LIKED, Streams(0, KEYS, 1))
    assert clicks.shape == seen.shape == LIKED.shape
    assert not (clicks & ~(LIKED & seen)).any()
    if world != "reticent":
        np.testing.assert_array_equal(clicks, LIKED & seen)


@pytest.mark.parametrize("world", CLICK_MODELS)
def test_draws_depend_on_seed_user_and_step_only(world: str) -> None:
    model = CLICK_MODELS[world]
    clicks, seen = model(LIKED, Streams(5, KEYS, 2))
    for part in (slice(7, 8), slice(100, 300)):
        some_clicks, some_seen = model(LIKED[part], Streams(5, KEYS[part], 2))
        np.testing.assert_array_equal(some_clicks, clicks[part])
        np.testing.assert_array_equal(some_seen, seen[part])
    if world != "everything":
        assert (model(LIKED, Streams(5, KEYS, 3))[0] != clicks).any()


def test_slates_are_unseen_as_a_whole() -> None:
    _, seen = CLICK_MODELS["30 % unseen"](LIKED, Streams(0, KEYS, 1))
    assert (seen.all(axis=1) | ~seen.any(axis=1)).all()


def test_a_cascade_has_no_gaps() -> None:
    _, seen = CLICK_MODELS["cascade"](LIKED, Streams(0, KEYS, 1))
    assert seen[:, 0].all()
    assert (seen[:, 1:] <= seen[:, :-1]).all()
