"""Why each item is on a slate: what decided it, read off the belief that chose it.

The score of an item before variety is the sum of three terms (`contributions.Terms`), and the reason is
- `pinned` or `boosted`, where a rule of the shop did it;
- `learned`, if what is known about the user makes at least a tenth of the score, and no less than exploration does. It
  cites the like with the largest share in that term, among the latest likes that are kept at hand: each like at most
  twice a slate, and never one that has less than half of the largest share;
- `exploring`, if the draw does;
- `variety`, if an item further down has a higher score: it was put behind this one for being like the others; where
  places are drawn at random (`explore_slates`), `exploring`, since the draw may have done it;
- `popular`, if the item is among the tenth of the catalog that most people like;
- `ranked`, if none of this holds: the best of what is left, by a policy that cannot say more.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slatewise import belief
from slatewise.catalog import Catalog
from slatewise.evidence import Evidence
from slatewise.policies import Policy, Slates, State
from slatewise.policies.baselines import EpsilonGreedy, Random
from slatewise.randomness import Streams
from slatewise.recommender.contributions import BELIEF_LAYOUTS, Terms, like_shares
from slatewise.recommender.served_catalog import Integers, ServedCatalog
from slatewise.recommender.types import (
    BOOSTED,
    EXPLORING,
    LEARNED,
    PINNED,
    POPULAR,
    RANKED,
    VARIETY,
    SlateItem,
)
from slatewise.slates import similarity

Floats = NDArray[np.float64]

DIGITS = 7
"""Decimal places of what is said and logged about each item of a slate."""
LEAST_SHARE = 0.1
"""The part of a score that a term must make to be the reason."""
MOST_CITED = 2
"""How often a slate cites the same like."""
LEAST_OF_LARGEST = 0.5
"""A like is cited if its share is at least this part of the largest one."""
ROUNDING = 1e-9
RANDOM_POLICIES = (Random, EpsilonGreedy)

Reason = tuple[str, int | None]
"""What decided, and the number of the liked item that is cited."""


@dataclass(frozen=True, eq=False)
class Choosing:
    """How a slate was chosen for one user: policy, state and random numbers, the likes at hand (1, n), and rules.

    pinned and boosted are the numbers of the items that a rule of the shop put there or raised.
    """

    policy: Policy
    state: State
    random: Streams
    likes: Evidence
    pinned: frozenset[int] = frozenset()
    boosted: frozenset[int] = frozenset()


def describe(served: ServedCatalog, chosen: Slates, choosing: Choosing) -> tuple[tuple[SlateItem, ...], float | None]:
    """Return the items of a chosen slate with titles, categories, probabilities and reasons, and its variety."""
    numbers = chosen.items[0][chosen.items[0] >= 0]
    distances, variety = distances_of(served.catalog, numbers)
    columns = zip(
        numbers.tolist(),
        _rounded(chosen.probability[0]),
        _rounded(chosen.deviation[0]),
        chosen.diversity_gain[0].round(DIGITS).tolist(),
        reasons(served, numbers, choosing),
        distances,
        strict=False,
    )
    items = []
    for number, probability, deviation, gain, (reason, source), distance in columns:
        item, title, categories = served.label(number)
        because, because_title = (None, None) if source is None else served.label(source)[:2]
        reasoned = (probability, deviation, gain, reason, because, because_title, distance)
        items.append(SlateItem(item, title, categories, *reasoned))
    return tuple(items), variety


def distances_of(catalog: Catalog, numbers: Integers) -> tuple[list[float | None], float | None]:
    """Return how unlike the others each of some items is, and how varied all are; None where nothing is known."""
    distances, variety = np.empty((1, len(numbers))), np.empty(1)
    similarity.measure_variety(numbers[None], catalog.categories, catalog.vectors, distances, variety)
    return [*_rounded(distances[0])], next(iter(_rounded(variety)))


def reasons(served: ServedCatalog, numbers: Integers, choosing: Choosing) -> list[Reason]:
    """Return the reason for each of the chosen items, in their order; see the top of this module."""
    policy, layout = choosing.policy, BELIEF_LAYOUTS.get(type(choosing.policy))
    popular = _most_liked(served, numbers)
    if layout is None:
        usual = EXPLORING if isinstance(policy, RANDOM_POLICIES) else RANKED
        found: list[Reason] = [(POPULAR if is_popular else usual, None) for is_popular in popular]
    else:
        beliefs = belief.factor(layout.belief(choosing.state))
        terms = layout.terms(policy, beliefs, numbers, choosing.random)
        decided = _decided(terms, popular)
        sources: list[int | None] = [None] * len(numbers)
        if LEARNED in decided and choosing.likes.items.size:
            shares = like_shares(layout, policy, beliefs, numbers, choosing.likes)
            sources = cited(shares, choosing.likes.items[0], numbers, decided)
        found = [*zip(decided, sources, strict=True)]
    if choosing.boosted or choosing.pinned:
        found = [_by_rule(number, choosing) or one for number, one in zip(numbers.tolist(), found, strict=True)]
    return found


def _decided(terms: Terms, popular: list[bool]) -> list[str]:
    """Return what decided about each item, by the terms of its score."""
    score = terms.score
    least = LEAST_SHARE * np.abs(score)
    is_learned = (terms.learned >= least) & (terms.learned >= terms.explored) & (terms.learned > 0.0)
    is_explored = (terms.explored >= least) & (terms.explored > terms.learned)
    later = np.maximum.accumulate(score[::-1])[::-1]
    is_ahead = np.append(later[1:] > score[:-1] + ROUNDING, False)
    kinds = np.where(is_learned, LEARNED, np.where(is_explored, EXPLORING, np.where(is_ahead, VARIETY, "")))
    return [kind or (POPULAR if liked else RANKED) for kind, liked in zip(kinds.tolist(), popular, strict=True)]


def cited(shares: Floats, liked: Integers, numbers: Integers, decided: list[str]) -> list[int | None]:
    """Return the liked item that each item cites, None for those that were not learned or have none left to cite.

    shares (k, n) are those of the likes, whose items may repeat; where they are largest, items choose first.
    """
    sources, column = np.unique(liked, return_inverse=True)
    totals = np.zeros((len(numbers), len(sources)))
    np.add.at(totals.T, column, shares.T)
    totals[sources[None, :] == numbers[:, None]] = 0.0
    largest, left = totals.max(axis=1), np.full(len(sources), MOST_CITED)
    found: list[int | None] = [None] * len(numbers)
    for place in np.argsort(-largest, kind="stable").tolist():
        if decided[place] != LEARNED or largest[place] <= 0.0:
            continue
        best = int(np.where(left > 0, totals[place], 0.0).argmax())
        if left[best] and totals[place, best] >= LEAST_OF_LARGEST * largest[place]:
            found[place], left[best] = int(sources[best]), left[best] - 1
    return found


def _most_liked(served: ServedCatalog, numbers: Integers) -> list[bool]:
    """Return whether each item is among the tenth that most people like, as far as training knows."""
    return [odds >= served.popular_log_odds for odds in served.catalog.log_odds[numbers].tolist()]


def _by_rule(number: int, choosing: Choosing) -> Reason | None:
    if number in choosing.pinned:
        return PINNED, None
    return (BOOSTED, None) if number in choosing.boosted else None


def _rounded(values: NDArray[np.float64]) -> Iterable[float | None]:
    return (value if math.isfinite(value) else None for value in values.round(DIGITS).tolist())
