"""Probabilities that hold although a skip weighs less than a like.

A belief for which a skip has weight w chooses better where people do not look at everything (docs/method.md), but it
has seen too few refusals. With much evidence its odds of a like are those of likes to w times the refusals, that is 1/w
times too high; before any evidence they are right. So odds are multiplied by w^(n / (n + h)) after n slates.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

HALFWAY = 3.0
"""h, the number of slates after which half of log w is made up for; chosen on validation users (docs/method.md)."""
LEAST_WEIGHT = 0.05
"""Skips that weigh less are made up for as if they weighed so much; without any there would be nothing to go by."""


def odds_factor(rounds: NDArray[np.int64], skip_weight: float) -> Floats:
    """Return w^(n / (n + h)) of users who were shown n slates (n_users,)."""
    counted = np.maximum(rounds, 0)
    return np.asarray(np.power(max(skip_weight, LEAST_WEIGHT), counted / (counted + HALFWAY)))


def with_odds(probability: Floats, factor: Floats) -> Floats:
    """Return probabilities (n_users, n) whose odds are multiplied by a factor of the user (n_users,); 0 and 1 stay."""
    scaled = factor[:, None] * probability
    return np.asarray(scaled / (1.0 - probability + scaled))


def slope_with_odds(probability: Floats, factor: Floats) -> Floats:
    """Return the derivative of `with_odds`, by which a small deviation of the probability is multiplied."""
    return np.asarray(factor[:, None] / np.square(1.0 - probability + factor[:, None] * probability))
