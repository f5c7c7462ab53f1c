"""Greedy slates whose variety depends on the categories covered so far: xQuAD, calibration, submodular bandits."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from slatewise.compiled import compiled
from slatewise.policies.protocol import Booleans, Floats, Integers
from slatewise.slates import Available, Choice, as_table
from slatewise.slates.greedy import TIE


@dataclass(frozen=True, eq=False)
class Covered:
    """What slates of `size` items cover: summed coverage and Π (1 − coverage), both (n_users, n_categories)."""

    size: int
    total: Floats
    left: Floats

    def with_items(self, coverage: Floats) -> "Covered":
        """Add one item per user, by how much of each category it covers (n_users, n_categories)."""
        return Covered(self.size + 1, self.total + coverage, self.left * (1.0 - coverage))


Variety = Callable[[Covered], Floats]
"""What each distinct set of categories would add to a slate, given what is covered (n_users, n_sets)."""


@dataclass(frozen=True, eq=False)
class Gains:
    """What item i adds to a slate: own_i + scale_i · variety of its set.

    own: (n_users, n_items), or one row for all; scale and of_item, the set of each item: (n_items,); coverage: of each
    category by each item (n_items, n_categories).
    """

    own: Floats
    scale: Floats
    of_item: Integers
    coverage: Floats
    variety: Variety


def nothing_covered(n_users: int, n_categories: int) -> Covered:
    """Return what empty slates cover."""
    return Covered(0, np.zeros((n_users, n_categories)), np.ones((n_users, n_categories)))


def choose_by_coverage(gains: Gains, available: Booleans | Available, n_users: int, k: int) -> Choice:
    """Choose k items greedily; ties go to the lowest index, as everywhere."""
    n_items, n_categories = gains.coverage.shape
    left = np.array(as_table(available, n_users, n_items))
    chosen = Choice(np.full((n_users, k), -1, dtype=np.int64), np.zeros((n_users, k)), np.zeros((n_users, k)))
    covered = nothing_covered(n_users, n_categories)
    for place in range(min(k, n_items)):
        items, best = chosen.items[:, place], chosen.gains[:, place]
        take_best((gains.own, gains.scale, gains.of_item), gains.variety(covered), left, items, best)
        covered = covered.with_items(np.where((items >= 0)[:, None], gains.coverage[items], 0.0))
    return chosen


@compiled
def take_best(
    items: tuple[Floats, Floats, Integers], variety: Floats, left: Booleans, chosen: Integers, best: Floats
) -> None:
    """Write for each user the lowest index among the nearly best gains of what is left, and the best gain."""
    own, scale, of_item = items
    gains = np.empty(scale.size)
    for user in range(chosen.size):
        row, highest = own[user if len(own) > 1 else 0], -np.inf
        for item in range(gains.size):
            gains[item] = row[item] + scale[item] * variety[user, of_item[item]] if left[user, item] else -np.inf
            highest = max(highest, gains[item])
        if highest > -np.inf:
            best[user] = highest
            chosen[user] = np.argmax(gains >= highest - TIE * (1.0 + abs(highest)))
            left[user, chosen[user]] = False
