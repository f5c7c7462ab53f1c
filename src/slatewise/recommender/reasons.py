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
- `popular`, if the item is among the tenth of the catalog that most people like (and more of them than half of it);
- `ranked`, if none of this holds: the best of what is left, by a policy that cannot say more.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from slatewise import belief
from slatewise.belief.rates import Rates
from slatewise.catalog import Catalog
from slatewise.compiled import compiled
from slatewise.evidence import Evidence
from slatewise.policies import Policy, Slates, State
from slatewise.policies.baselines import EpsilonGreedy, Random
from slatewise.policies.protocol import ExplainablePolicy, ScoreTerms, explainable
from slatewise.randomness import Streams
from slatewise.recommender.served_catalog import PROBABILITY_DIGITS, Integers, ServedCatalog
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

DIGITS = PROBABILITY_DIGITS
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
    figures = (chosen.probability[0], chosen.deviation[0], chosen.diversity_gain[0])
    columns = np.array([*(column[: len(numbers)] for column in figures), distances])
    of_items = reasons(served, numbers, choosing, chosen.beliefs)
    items = []
    for number, (reason, source), rounded in zip(numbers.tolist(), of_items, _rounded(columns.T), strict=True):
        item, title, categories = served.label(number)
        because, because_title = (None, None) if source is None else _source(served, source)
        probability, deviation, gain, distance = rounded
        reasoned = (probability, deviation or None, gain or 0.0, reason, because, because_title, distance)
        items.append(SlateItem(item, title, categories, *reasoned))
    return tuple(items), variety


def as_clicks(chosen: Slates, rates: Rates | None) -> Slates:
    """Return a slate that says how probable clicks are instead of likes; the same if the policy knows no rates."""
    if rates is None or rates.level == 1.0:
        return chosen
    probability = rates.as_clicks(chosen.probability, chosen.items)
    return replace(chosen, probability=probability, deviation=rates.level * chosen.deviation)


def distances_of(catalog: Catalog, numbers: Integers) -> tuple[Floats, float | None]:
    """Return how unlike the others each of some items is, NaN where nothing is known, and how varied all are."""
    distances, variety = np.empty((1, len(numbers))), np.empty(1)
    similarity.measure_variety(numbers[None], catalog.categories, catalog.similarity_vectors, distances, variety)
    return distances[0], _rounded(variety[None])[0][0]


def reasons(
    served: ServedCatalog, numbers: Integers, choosing: Choosing, beliefs: belief.Factored | None = None
) -> list[Reason]:
    """Return the reason for each of the chosen items, in their order; see the top of this module.

    beliefs are those that chose them, if they are at hand.
    """
    popular = _most_liked(served, numbers)
    policy = explainable(choosing.policy)
    if policy is None:
        usual = EXPLORING if isinstance(choosing.policy, RANDOM_POLICIES) else RANKED
        by_score: list[Reason] = [(POPULAR if is_popular else usual, None) for is_popular in popular.tolist()]
    else:
        known = belief.factor(policy.belief_in(choosing.state)) if beliefs is None else beliefs
        by_score = _by_belief(policy, known, numbers, choosing, popular)
    if choosing.boosted or choosing.pinned:
        pairs = zip(numbers.tolist(), by_score, strict=True)
        return [_by_rule(number, choosing) or reason for number, reason in pairs]
    return by_score


def _by_belief(
    policy: ExplainablePolicy,
    beliefs: belief.Factored,
    numbers: Integers,
    choosing: Choosing,
    popular: NDArray[np.bool_],
) -> list[Reason]:
    """Return what decided by the belief of a policy, with what is cited."""
    terms = policy.score_terms(beliefs, numbers, choosing.random)
    score = terms.prior + terms.learned + terms.explored
    decided = _decided(terms, score, popular.tolist())
    because: list[Reason] = [(term, None) for term in decided]
    if LEARNED in decided and (choosing.likes.items.size or len(choosing.wishes)):
        because = _with_sources(policy, beliefs, numbers, choosing, decided)
    if (LEARNED, None) not in because:
        return because
    would_be_here = popular & (score - terms.learned >= score.min())
    pairs = zip(because, would_be_here.tolist(), strict=True)
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
    pairs = zip(decided, cited(shares, sources, numbers, decided), strict=True)
    return [
        (ASKED, words[-2 - source]) if source is not None and source < -1 else (term, source) for term, source in pairs
    ]


def like_shares(policy: ExplainablePolicy, beliefs: belief.Factored, items: Integers, likes: Evidence) -> Floats:
    """Return the share x_iᵀ Σ s_j of each like (1, n) in m·x_i of each item (k,): (k, n) for one user."""
    return np.asarray(beliefs.times_covariance(policy.chosen_at(items)[None])[0] @ policy.shifts(likes).T)


def _source(served: ServedCatalog, source: int | str | None) -> tuple[ItemId | None, str | None]:
    """Return the id and the title of what an item cites."""
    return served.label(source)[:2] if isinstance(source, int) else (source, source)


def _decided(terms: ScoreTerms, score: Floats, popular: list[bool]) -> list[str]:
    """Return what decided about each item, by the terms of its score; from the last to the first."""
    decided, best_later = [], -math.inf
    columns = (score, terms.learned, terms.explored)
    rows = [*zip(*(column.tolist() for column in columns), popular, strict=True)]
    for total, learned, explored, is_popular in reversed(rows):
        least = LEAST_SHARE * abs(total)
        if learned > 0.0 and learned >= least and learned >= explored:
            decided.append(LEARNED)
        elif explored > learned and explored >= least:
            decided.append(EXPLORING)
        elif best_later > total + ROUNDING:
            decided.append(VARIETY)
        else:
            decided.append(POPULAR if is_popular else RANKED)
        best_later = max(best_later, total)
    return decided[::-1]


def cited(shares: Floats, liked: Integers, numbers: Integers, decided: list[str]) -> list[int | None]:
    """Return the liked item that each item cites, None for those that were not learned or have none left to cite.

    shares (k, n) are those of the likes, whose items may repeat; where they are largest, items choose first.
    """
    places = np.full(len(numbers), -1, dtype=np.int64)
    _cite(shares, liked, numbers, np.array([term == LEARNED for term in decided]), places)
    return [None if place < 0 else int(liked[place]) for place in places.tolist()]


@compiled
def _cite(shares: Floats, liked: Integers, numbers: Integers, is_learned: NDArray[np.bool_], cited: Integers) -> None:
    """Write the place of the like that each item cites, the first of those of the same item; −1 stays where none is."""
    k, n = shares.shape
    totals, largest, is_done, uses = np.zeros((k, n)), np.zeros(k), ~is_learned, np.zeros(n, dtype=np.int64)
    for like in range(n):
        first = 0
        while liked[first] != liked[like]:
            first += 1
        for place in range(k):
            if liked[like] != numbers[place]:
                totals[place, first] += shares[place, like]
    for place in range(k):
        for like in range(n):
            largest[place] = max(largest[place], totals[place, like])
    for _ in range(k):
        place = -1
        for other in range(k):
            if not is_done[other] and (place < 0 or largest[other] > largest[place]):
                place = other
        if place < 0 or largest[place] <= 0.0:
            return
        is_done[place], best = True, -1
        for like in range(n):
            if uses[like] < MOST_CITED and (best < 0 or totals[place, like] > totals[place, best]):
                best = like
        if best >= 0 and totals[place, best] >= LEAST_OF_LARGEST * largest[place]:
            cited[place] = best
            uses[best] += 1


def _most_liked(served: ServedCatalog, numbers: Integers) -> NDArray[np.bool_]:
    """Return whether each item is among the tenth that most people like, as far as training knows."""
    return np.asarray(served.catalog.log_odds[numbers] >= served.popular_log_odds)


def _by_rule(number: int, choosing: Choosing) -> Reason | None:
    if number in choosing.pinned:
        return PINNED, None
    return (BOOSTED, None) if number in choosing.boosted else None


def _rounded(table: Floats) -> list[list[float | None]]:
    """Return the rows of a table with few digits, None for what is not finite."""
    rows: list[list[float | None]] = table.round(DIGITS).tolist()
    if np.isfinite(table).all():
        return rows
    return [[value if value is not None and math.isfinite(value) else None for value in row] for row in rows]
