"""Slates that explore: some positions are filled at random."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slatewise.compiled import compiled
from slatewise.slates.available import Available, as_table
from slatewise.slates.greedy import Choice, choose
from slatewise.slates.kernels import Floats, Integers, inner
from slatewise.slates.rules import relevance
from slatewise.slates.scores import table


def epsilon_greedy(
    scores: ArrayLike, available: Available | ArrayLike, k: int, epsilon: float, random_draws: ArrayLike
) -> Choice:
    """Fill each position with a uniformly drawn item with probability epsilon, else with the best score left.

    scores: (n_users, n_items); random_draws: uniform on [0, 1), shaped (n_users, k, 2): one for whether to explore,
    one for which item.
    """
    values = np.asarray(scores, dtype=np.float64)
    best = choose(table(values), relevance(), available, k)
    draws = np.ascontiguousarray(random_draws, dtype=np.float64)
    if draws.shape != (len(values), k, 2) or not ((draws >= 0.0) & (draws < 1.0)).all():
        raise ValueError(f"random_draws have shape {draws.shape}; give two in [0, 1) a position: {(len(values), k, 2)}")
    allowed = np.ascontiguousarray(as_table(available, *values.shape))
    items = np.full_like(best.items, -1)
    mix_in_random_items(best.items, allowed, draws, float(epsilon), items)
    gains = np.where(items >= 0, np.take_along_axis(values, np.maximum(items, 0), axis=1), 0.0)
    return Choice(items, gains, np.zeros_like(gains))


@compiled
def mix_in_random_items(
    best: Integers, available: NDArray[np.bool_], draws: Floats, epsilon: float, items: Integers
) -> None:
    """Fill in slates (n_users, k) from the best items of each user, with random ones where the first draw says so."""
    for user in range(best.shape[0]):
        left = available[user].copy()
        n_left, following = left.sum(), 0
        for position in range(min(best.shape[1], n_left)):
            if draws[user, position, 0] < epsilon:
                item = nth_set(left, int(draws[user, position, 1] * n_left))
            else:
                while not left[best[user, following]]:
                    following += 1
                item = best[user, following]
            items[user, position] = item
            left[item] = False
            n_left -= 1


@inner
def nth_set(flags: NDArray[np.bool_], number: int) -> int:
    """Return the index of the flag that is set after `number` others."""
    for index in range(flags.size):
        if flags[index]:
            if number == 0:
                return index
            number -= 1
    return -1
