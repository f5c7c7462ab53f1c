"""Why each item is on a slate: what decided it, read off the belief that chose it.

The score of an item before variety is the sum of three terms (`policies.protocol.ScoreTerms`), and the reason is
- `pinned` or `boosted`, where a rule of the shop did it;
- `learned`, if what is known about the user makes at least a tenth of the score, and no less than exploration does. It
  cites the like with the largest share in that term, among the latest likes that are kept at hand: each like at most
  twice a slate, and never one that has less than half of the largest share;
  Where no like is left to cite, a popular item is `popular` if it would be on the slate without that term too: if the
  rest of its score is not below the lowest score on the slate;
- `asked`, if the largest share in that term is not that of a like but of something that the user asked for (`wishes`);
- `exploring`, if the draw does;
- `variety`, if an item further down has a higher score: it was put behind this one for being like the others; where
  places are drawn at random (`explore_slates`), `exploring`, since the draw may have done it;
- `popular`, if the item is among the tenth of the catalog that most people like;
- `ranked`, if none of this holds: the best of what is left, by a policy that cannot say more.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from slatewise import belief
from slatewise.catalog import Catalog
from slatewise.evidence import Evidence
from slatewise.policies import Policy, Slates, State
from slatewise.policies.baselines import EpsilonGreedy, Random
from slatewise.policies.protocol import ExplainablePolicy, ScoreTerms, explainable
from slatewise.randomness import Streams
from slatewise.recommender.served_catalog import Integers, ServedCatalog
from slatewise.recommender.types import (
    ASKED,
    BOOSTED,
    EXPLORING,
    LEARNED,
    PINNED,
    POPULAR,
    RANKED,
    VARIETY,
    SlateItem,
)
from slatewise.recommender.wishes import NO_WISHES, Directions, wish_words
from slatewise.slates import similarity
from slatewise.store.records import ItemId

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

Reason = tuple[str, int | str | None]
"""What decided, and what is cited: the number of a liked item, or what was asked for in words."""


@dataclass(frozen=True, eq=False)
class Choosing:
    """How a slate was chosen for one user: policy, state and random numbers, the likes (1, n) and wishes, and rules.

    pinned and boosted are the numbers of the items that a rule of the shop put there or raised.
    """

    policy: Policy
    state: State
    random: Streams
    likes: Evidence
    wishes: Floats = field(default_factory=lambda: NO_WISHES)
    directions: Directions | None = None
    pinned: frozenset[int] = frozenset()
    boosted: frozenset[int] = frozenset()


def describe(served: ServedCatalog, chosen: Slates, choosing: Choosing) -> tuple[tuple[SlateItem, ...], float | None]:
    """Return the items of a chosen slate with titles, categories, probabilities and reasons, and its variety.

    A deviation of 0 is that of a policy that does not know how sure it is, so there is none then.
    """
    numbers = chosen.items[0][chosen.items[0] >= 0]
    distances, variety = distances_of(served.catalog, numbers)
    columns = zip(
        numbers.tolist(),
        _rounded(chosen.probability[0]),
        _rounded(np.where(chosen.deviation[0] > 0.0, chosen.deviation[0], np.nan)),
        chosen.diversity_gain[0].round(DIGITS).tolist(),
        reasons(served, numbers, choosing),
        distances,
        strict=False,
    )
    items = []
    for number, probability, deviation, gain, (reason, source), distance in columns:
        item, title, categories = served.label(number)
        because, because_title = _source(served, source)
        reasoned = (probability, deviation, gain, reason, because, because_title, distance)
        items.append(SlateItem(item, title, categories, *reasoned))
    return tuple(items), variety


def distances_of(catalog: Catalog, numbers: Integers) -> tuple[list[float | None], float | None]:
    """Return how unlike the others each of some items is, and how varied all are; None where nothing is known."""
    distances, variety = np.empty((1, len(numbers))), np.empty(1)
    similarity.measure_variety(numbers[None], catalog.categories, catalog.similarity_vectors, distances, variety)
    return [*_rounded(distances[0])], next(iter(_rounded(variety)))


def reasons(served: ServedCatalog, numbers: Integers, choosing: Choosing) -> list[Reason]:
    """Return the reason for each of the chosen items, in their order; see the top of this module."""
    popular = _most_liked(served, numbers)
    policy = explainable(choosing.policy)
    if policy is None:
        usual = EXPLORING if isinstance(choosing.policy, RANDOM_POLICIES) else RANKED
        found: list[Reason] = [(POPULAR if is_popular else usual, None) for is_popular in popular.tolist()]
    else:
        found = _by_belief(policy, numbers, choosing, popular)
    if choosing.boosted or choosing.pinned:
        found = [_by_rule(number, choosing) or one for number, one in zip(numbers.tolist(), found, strict=True)]
    return found


def _by_belief(
    policy: ExplainablePolicy, numbers: Integers, choosing: Choosing, popular: NDArray[np.bool_]
) -> list[Reason]:
    """Return what decided by the belief of a policy, with what is cited."""
    beliefs = belief.factor(policy.belief_in(choosing.state))
    terms = policy.score_terms(beliefs, numbers, choosing.random)
    score = terms.crowd + terms.learned + terms.explored
    decided = _decided(terms, score, popular.tolist())
    found: list[Reason] = [(one, None) for one in decided]
    if LEARNED in decided and (choosing.likes.items.size or len(choosing.wishes)):
        found = _with_sources(policy, beliefs, numbers, choosing, decided)
    if (LEARNED, None) not in found:
        return found
    would_be_here = popular & (score - terms.learned >= score.min())
    pairs = zip(found, would_be_here.tolist(), strict=True)
    return [(POPULAR, None) if reason == (LEARNED, None) and is_here else reason for reason, is_here in pairs]


def _with_sources(
    policy: ExplainablePolicy, beliefs: belief.Factored, numbers: Integers, choosing: Choosing, decided: list[str]
) -> list[Reason]:
    """Return what decided about each item with what it cites; wishes are sources with numbers below −1."""
    shares, sources = like_shares(policy, beliefs, numbers, choosing.likes), choosing.likes.items[0]
    words: list[str] = []
    if choosing.directions is not None and len(choosing.wishes):
        shown, wishes = policy.chosen_at(numbers), choosing.wishes
        words = wish_words(wishes, [*choosing.directions.names])
        shares = np.hstack([shares, choosing.directions.shares(beliefs, shown, wishes)])
        sources = np.concatenate([sources, [-2 - words.index(word) for word in words]])
    found = cited(shares, sources, numbers, decided)
    pairs = zip(decided, found, strict=True)
    return [
        (ASKED, words[-2 - source]) if source is not None and source < -1 else (one, source) for one, source in pairs
    ]


def like_shares(policy: ExplainablePolicy, beliefs: belief.Factored, items: Integers, likes: Evidence) -> Floats:
    """Return the share x_iᵀ Σ s_j of each like (1, n) in m·x_i of each item (k,): (k, n) for one user."""
    return np.asarray(beliefs.times_covariance(policy.chosen_at(items)[None])[0] @ policy.shifts(likes).T)


def _source(served: ServedCatalog, source: int | str | None) -> tuple[ItemId | None, str | None]:
    """Return the id and the title of what an item cites."""
    return served.label(source)[:2] if isinstance(source, int) else (source, source)


def _decided(terms: ScoreTerms, score: Floats, popular: list[bool]) -> list[str]:
    """Return what decided about each item, by the terms of its score; from the last to the first."""
    found, best_later = [], -math.inf
    columns = (score, terms.learned, terms.explored)
    rows = [*zip(*(column.tolist() for column in columns), popular, strict=True)]
    for total, learned, explored, is_popular in reversed(rows):
        least = LEAST_SHARE * abs(total)
        if learned > 0.0 and learned >= least and learned >= explored:
            found.append(LEARNED)
        elif explored > learned and explored >= least:
            found.append(EXPLORING)
        elif best_later > total + ROUNDING:
            found.append(VARIETY)
        else:
            found.append(POPULAR if is_popular else RANKED)
        best_later = max(best_later, total)
    return found[::-1]


def cited(shares: Floats, liked: Integers, numbers: Integers, decided: list[str]) -> list[int | None]:
    """Return the liked item that each item cites, None for those that were not learned or have none left to cite.

    shares (k, n) are those of the likes, whose items may repeat; where they are largest, items choose first.
    """
    sources = {number: column for column, number in enumerate(dict.fromkeys(liked.tolist()))}
    totals = shares
    if len(sources) < len(liked):
        totals = np.zeros((len(sources), len(numbers)))
        np.add.at(totals, [sources[number] for number in liked.tolist()], shares.T)
        totals = totals.T
    names = np.array([*sources])
    totals = np.where(names == numbers[:, None], 0.0, totals)
    largest, used = totals.max(axis=1).tolist(), [0] * len(names)
    found: list[int | None] = [None] * len(numbers)
    for place in sorted(range(len(numbers)), key=lambda one: -largest[one]):
        if decided[place] != LEARNED or largest[place] <= 0.0:
            continue
        best = int(totals[place].argmax())
        if totals[place, best] >= LEAST_OF_LARGEST * largest[place]:
            found[place], used[best] = int(names[best]), used[best] + 1
            if used[best] == MOST_CITED:
                totals[:, best] = -math.inf
    return found


def _most_liked(served: ServedCatalog, numbers: Integers) -> NDArray[np.bool_]:
    """Return whether each item is among the tenth that most people like, as far as training knows."""
    return np.asarray(served.catalog.log_odds[numbers] >= served.popular_log_odds)


def _by_rule(number: int, choosing: Choosing) -> Reason | None:
    if number in choosing.pinned:
        return PINNED, None
    return (BOOSTED, None) if number in choosing.boosted else None


def _rounded(values: NDArray[np.float64]) -> Iterable[float | None]:
    return (value if math.isfinite(value) else None for value in values.round(DIGITS).tolist())
