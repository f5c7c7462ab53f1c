"""Greedy slates whose variety depends on the categories covered so far: xQuAD, calibration, submodular bandits."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from slatewise.policies.protocol import Booleans, Floats
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


Gains = Callable[[Covered], Floats]
"""What each item would add to a slate, given what is covered (n_users, n_items)."""


def nothing_covered(n_users: int, n_categories: int) -> Covered:
    """Return what empty slates cover."""
    return Covered(0, np.zeros((n_users, n_categories)), np.ones((n_users, n_categories)))


def choose_by_coverage(gains: Gains, coverage: Floats, available: Booleans | Available, n_users: int, k: int) -> Choice:
    """Choose k items greedily; coverage (n_items, n_categories); ties go to the lowest index, as everywhere."""
    left = np.array(as_table(available, n_users, len(coverage)))
    chosen = Choice(np.full((n_users, k), -1, dtype=np.int64), np.zeros((n_users, k)), np.zeros((n_users, k)))
    covered = nothing_covered(n_users, coverage.shape[1])
    for place in range(min(k, len(coverage))):
        users = np.flatnonzero(left.any(axis=1))
        items, best = _first_best(gains(covered)[users], left[users])
        chosen.items[users, place], chosen.gains[users, place] = items, best
        left[users, items] = False
        added = np.zeros_like(covered.total)
        added[users] = coverage[items]
        covered = covered.with_items(added)
    return chosen


def _first_best(gains: Floats, left: Booleans) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], Floats]:
    """Return the lowest index among the nearly best gains of what is left, and the best gain."""
    open_gains = np.where(left, gains, -np.inf)
    best = open_gains.max(axis=1, initial=-np.inf)
    return np.argmax(open_gains >= (best - TIE * (1.0 + np.abs(best)))[:, None], axis=1), best
