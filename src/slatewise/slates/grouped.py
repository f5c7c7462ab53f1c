"""Greedy choice by score minus overlap for one user, among items in groups of equal category sets.

Overlap depends on the group alone, so of each group only the best item that is left can be chosen: a few hundred
groups stand for all items, whatever was chosen before, and nothing has to be pruned.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slatewise.slates.available import Available
from slatewise.slates.greedy import TIE, Choice, nothing
from slatewise.slates.promise import COPIED_ROWS, LinearBounds, Scores

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_GROUPS = 1024
"""Overlaps of all pairs of groups are kept, so there must not be too many."""
LOWEST = float(np.finfo(np.float64).min)


@dataclass(frozen=True, eq=False)
class SetGroups:
    """Items in the order of their groups, what bounds their scores, and how much groups overlap (n_groups, n_groups).

    The items of group g are items[starts[g]:starts[g + 1]], ascending; `places` says where each item is, `firsts` are
    the starts without the last, which is the end.
    """

    items: Integers
    places: Integers
    starts: list[int]
    firsts: Integers
    overlaps: Floats
    bounds: LinearBounds

    @classmethod
    def of(cls, sets: NDArray[np.bool_], table: NDArray[np.float32], offsets: Floats) -> SetGroups | None:
        """Group items by sets (n_items, n_members); scores are w·x_i + o_i. None where it would not pay."""
        if len(sets) > COPIED_ROWS:
            return None
        packed = np.packbits(sets, axis=1)
        numbers: dict[bytes, int] = {}
        group = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in packed], dtype=np.int64)
        if len(numbers) > MOST_GROUPS:
            return None
        items = np.argsort(group, kind="stable")
        places = np.empty_like(items)
        places[items] = np.arange(len(items))
        starts = np.searchsorted(group[items], np.arange(len(numbers) + 1))
        bounds = LinearBounds.of(table[items], offsets[items])
        return cls(items, places, starts.tolist(), starts[:-1], jaccard(sets[items[starts[:-1]]]), bounds)

    def choose(self, direction: Floats, available: Available, scores: Scores, k: int, weight: float) -> Choice:
        """Choose by score minus weight times the summed overlap; `scores` are exact, the bounds find whom to ask."""
        hidden = Available(available.n_items, self.places[available.excluded])
        promise = self.bounds.promise(direction, hidden, scores)
        promise.values[hidden.excluded] = -np.inf
        race = _Race(self, promise.values, promise.error, scores, weight)
        picks: list[tuple[int, float]] = []
        while len(picks) < k and (pick := race.next()) is not None:
            picks.append(pick)
        return race.choice(picks, k)


class _Race:
    """The groups by the score of their best item that is left, and by what overlap takes from it."""

    def __init__(
        self, groups: SetGroups, values: NDArray[np.floating], error: float, scores: Scores, weight: float
    ) -> None:
        self.groups, self.values, self.error, self.scores, self.weight = groups, values, error, scores, weight
        self.heads = np.maximum.reduceat(values, groups.firsts).astype(np.float64)
        self.penalties = np.zeros(len(self.heads))

    def next(self) -> tuple[int, float] | None:
        """Return the next item and its penalty, and take it out; None if nothing is left."""
        gains = self.heads - self.penalties
        group = int(gains.argmax())
        best = gains.item(group)
        if best == -np.inf:
            return None
        least = max(best - 2.0 * (self.error + TIE * (1.0 + abs(best) + self.error)), LOWEST)
        members = self._members(group)
        place = int(members.argmax())
        if np.count_nonzero(gains >= least) > 1 or self._has_rival(members, place, least + self._penalty(group)):
            group, place = self._closely(np.flatnonzero(gains >= least), least)
            members = self._members(group)
        penalty = self._penalty(group)
        members[place] = -np.inf
        self.heads[group] = members.item(members.argmax())
        self.penalties += self.groups.overlaps[group] * self.weight
        return int(self.groups.items[self.groups.starts[group] + place]), penalty

    def _members(self, group: int) -> NDArray[np.floating]:
        return self.values[self.groups.starts[group] : self.groups.starts[group + 1]]

    def _penalty(self, group: int) -> float:
        return self.penalties.item(group)

    @staticmethod
    def _has_rival(members: NDArray[np.floating], place: int, least: float) -> bool:
        """Whether another member than the best reaches so much."""
        value, members[place] = members[place], -np.inf
        second = members.item(members.argmax())
        members[place] = value
        return bool(second >= least)

    def _closely(self, rivals: Integers, least: float) -> tuple[int, int]:
        """Decide by exact scores, ties by the lowest item, among all that may gain `least`; return group and place."""
        found = [
            (group, place)
            for group in rivals.tolist()
            for place in np.flatnonzero(self._members(group) >= least + self._penalty(group)).tolist()
        ]
        items = self.groups.items[[self.groups.starts[group] + place for group, place in found]]
        gains = self.scores(items) - [self._penalty(group) for group, _ in found]
        best = float(gains.max())
        tied = np.flatnonzero(gains >= best - TIE * (1.0 + abs(best)))
        return found[int(tied[items[tied].argmin()])]

    def choice(self, picks: list[tuple[int, float]], k: int) -> Choice:
        """Return the items with their exact gains."""
        chosen = nothing(1, k)
        if picks:
            items, penalties = zip(*picks, strict=True)
            count, variety = len(items), -np.array(penalties)
            chosen.items[0, :count] = items
            chosen.gains[0, :count] = self.scores(np.array(items)) + variety
            chosen.variety[0, :count] = variety
        return chosen


def jaccard(sets: NDArray[np.bool_]) -> Floats:
    """Return the Jaccard similarity of all pairs of sets (n, n); two empty sets share nothing."""
    table = sets.astype(np.float64)
    shared = table @ table.T
    sizes = table.sum(axis=1)
    united = sizes[:, None] + sizes[None, :] - shared
    return np.asarray(shared / np.maximum(united, 1.0))
