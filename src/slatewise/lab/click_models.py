"""Who looks at what, and clicks: simulated audiences that do not look at everything, or click on little.

A click model is a function of which places (n_users, k) hold an item that the user likes; it returns what the user
clicked and what the user saw. Only what is seen is clicked.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from slatewise.randomness import Streams

Booleans = NDArray[np.bool_]
Floats = NDArray[np.float64]
ClickModel = Callable[[Booleans, Streams], tuple[Booleans, Booleans]]

STOPS_AFTER_CLICK = 0.5
STOPS_AFTER_SKIP = 0.05
UNSEEN_SHARE = 0.3
RETICENT_CLICKS = 0.3


def everything(liked: Booleans, random: Streams) -> tuple[Booleans, Booleans]:
    """Everybody looks at everything and clicks on whatever they like: the paper."""
    del random
    return liked, np.ones_like(liked)


def inverse_root(liked: Booleans, random: Streams) -> tuple[Booleans, Booleans]:
    """Place r is looked at with probability 1/√r, each on its own."""
    return _by_place(liked, random, 1.0 / np.sqrt(np.arange(1, liked.shape[1] + 1)))


def inverse(liked: Booleans, random: Streams) -> tuple[Booleans, Booleans]:
    """Place r is looked at with probability 1/r, each on its own."""
    return _by_place(liked, random, 1.0 / np.arange(1, liked.shape[1] + 1))


def cascade(liked: Booleans, random: Streams) -> tuple[Booleans, Booleans]:
    """People look from the top down and stop after a click with probability ½, after a skip with .05."""
    draws = random.uniform(liked.shape[1])
    stops = draws < np.where(liked, STOPS_AFTER_CLICK, STOPS_AFTER_SKIP)
    stopped_above = np.logical_or.accumulate(stops, axis=1)[:, :-1]
    seen = ~np.concatenate([np.zeros((len(liked), 1), dtype=np.bool_), stopped_above], axis=1)
    return liked & seen, seen


def unseen_slates(liked: Booleans, random: Streams) -> tuple[Booleans, Booleans]:
    """Nobody looks at 30 % of the slates."""
    seen = np.broadcast_to(random.uniform(1) >= UNSEEN_SHARE, liked.shape)
    return liked & seen, seen


def reticent(liked: Booleans, random: Streams) -> tuple[Booleans, Booleans]:
    """Everybody looks at everything, but clicks on what they like with probability 0.3 only."""
    return liked & (random.uniform(liked.shape[1]) < RETICENT_CLICKS), np.ones_like(liked)


def _by_place(liked: Booleans, random: Streams, examination: Floats) -> tuple[Booleans, Booleans]:
    seen = random.uniform(liked.shape[1]) < examination
    return liked & seen, seen


CLICK_MODELS: dict[str, ClickModel] = {
    "everything": everything,
    "1/√r": inverse_root,
    "1/r": inverse,
    "cascade": cascade,
    "30 % unseen": unseen_slates,
    "reticent": reticent,
}
"""Click models by the name of the world they make."""
