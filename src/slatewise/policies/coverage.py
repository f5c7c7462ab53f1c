"""Greedy slates whose variety depends on the categories covered so far: xQuAD, calibration, submodular bandits."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

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


class Members(NamedTuple):
    """The categories of distinct sets, one set after the other: where each starts (n_sets + 1,), and all of them."""

    starts: Integers
    categories: Integers

    @classmethod
    def of(cls, shares: Floats) -> "Members":
        """List the categories of each set that have a share (n_sets, n_categories)."""
        sets, categories = np.nonzero(shares)
        return cls(np.searchsorted(sets, np.arange(len(shares) + 1)), categories)

    @property
    def n_sets(self) -> int:
        """The number of sets."""
        return len(self.starts) - 1


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


def sum_of_members(members: Members, rows: Integers, tables: Floats) -> Floats:
    """Return Σ_c t_rc over the categories c of each set, r its row in the table t of each user (n_users, n_sets)."""
    sums = np.empty((len(tables), members.n_sets))
    fill_sums(members, rows, tables, sums)
    return sums


def sum_of_pairs(members: Members, left: Floats, matrices: Floats) -> Floats:
    """Return Σ_cd l_c l_d m_cd over the categories c and d of each set, for each user's symmetric matrix m."""
    sums = np.empty((len(matrices), members.n_sets))
    fill_pair_sums(members, left[:, :, None] * left[:, None, :] * matrices, sums)
    return sums


@compiled
def fill_sums(members: Members, rows: Integers, tables: Floats, sums: Floats) -> None:
    """Sum what the row of each set has at its categories."""
    starts, categories = members
    for user in range(len(sums)):
        for number in range(rows.size):
            row, total = tables[user, rows[number]], 0.0
            for entry in range(starts[number], starts[number + 1]):
                total += row[categories[entry]]
            sums[user, number] = total


@compiled
def fill_pair_sums(members: Members, matrices: Floats, sums: Floats) -> None:
    """Sum what symmetric matrices have at the pairs of categories of each set; pairs of two count twice."""
    starts, categories = members
    for user in range(len(sums)):
        for number in range(starts.size - 1):
            total = 0.0
            for entry in range(starts[number], starts[number + 1]):
                row = matrices[user, categories[entry]]
                total += row[categories[entry]]
                for before in range(starts[number], entry):
                    total += 2.0 * row[categories[before]]
            sums[user, number] = total
