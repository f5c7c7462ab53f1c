"""Slate rules on arrays: which k items to show, for a batch of users at once.

Every rule returns exactly min(k, available) distinct available items per user, best first; ties go to the lowest index.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from slatewise.slates import greedy
from slatewise.slates.alone import choose_alone, top_k_alone, top_ranked
from slatewise.slates.available import Available
from slatewise.slates.diversity import Entropy, Indifferent, Marginal, Overlap, Variance, Volume
from slatewise.slates.forms import RuleFor
from slatewise.slates.greedy import Choice, Floats, Integers, choose_together, masked, nothing, record
from slatewise.slates.grouped import SetGroups, jaccard
from slatewise.slates.promise import Bounds, LinearBounds, Promise, Ranking, squared_lengths
from slatewise.slates.screened import choose_by_cosines
from slatewise.slates.solo import SoloIndifferent, SoloMarginal, SoloOverlap, SoloVariance, SoloVolume
from slatewise.slates.vectors import ItemVectors

__all__ = [
    "Available",
    "Bounds",
    "Choice",
    "Entropy",
    "ItemVectors",
    "LinearBounds",
    "Promise",
    "Ranking",
    "RuleFor",
    "SetGroups",
    "choose_alone",
    "cosine_rule",
    "dpp_greedy",
    "entropy_greedy",
    "entropy_rule",
    "epsilon_greedy",
    "jaccard",
    "mmr",
    "nothing",
    "overlap_greedy",
    "overlap_rule",
    "squared_lengths",
    "top_k",
    "top_k_alone",
    "top_ranked",
    "volume_rule",
]


def top_k(scores: ArrayLike, available: ArrayLike, k: int) -> Choice:
    """Choose the k best scores (n_users, n_items) of the available items (n_users or 1, n_items)."""
    left = masked(scores, available)
    return _repeat(left, k, lambda _: left.argmax(axis=1))


def epsilon_greedy(scores: ArrayLike, available: ArrayLike, k: int, epsilon: float, random_draws: ArrayLike) -> Choice:
    """Fill each position with a uniformly drawn item with probability epsilon, else with the best score left.

    Draws are uniform on [0, 1), shaped (n_users, k, 2): one for whether to explore, one for which item.
    """
    left = masked(scores, available)
    draws = np.asarray(random_draws, dtype=np.float64)
    if draws.shape != (len(left), k, 2) or not ((draws >= 0.0) & (draws < 1.0)).all():
        raise ValueError(f"random_draws have shape {draws.shape}; give two in [0, 1) a position: {(len(left), k, 2)}")

    def pick(position: int) -> Integers:
        picks: Integers = left.argmax(axis=1)
        explorers = np.flatnonzero(draws[:, position, 0] < epsilon)
        counts = np.cumsum(left[explorers] > -np.inf, axis=1)
        picks[explorers] = (counts > draws[explorers, position, 1:] * counts[:, -1:]).argmax(axis=1)
        return picks

    return _repeat(left, k, pick)


def mmr(quality: ArrayLike, vectors: ItemVectors, available: ArrayLike, k: int, trade_off: float) -> Choice:
    """Maximal marginal relevance: trade_off·quality − (1 − trade_off)·mean cosine with the items chosen so far."""
    rule = cosine_rule(trade_off)
    scores = masked(trade_off * np.asarray(quality, dtype=np.float64), available)
    return _choose(scores, np.zeros((1, 1)), vectors, k, rule)


def cosine_rule(trade_off: float) -> RuleFor:
    """Return the rule of `mmr`; its scores are trade_off·quality, and variety adds nothing beyond its headroom."""
    if not 0.0 <= trade_off <= 1.0:
        raise ValueError(f"trade_off is {trade_off}; give 0 (only varied) to 1 (only relevant)")
    weight = 1.0 - trade_off
    return RuleFor(
        lambda part, n_rows: Marginal(part, n_rows, weight),
        lambda rows: SoloMarginal(rows, weight),
        lambda scores, vectors, chosen: choose_by_cosines(scores, vectors, chosen, weight),
    )


def overlap_greedy(scores: ArrayLike, sets: ItemVectors, available: ArrayLike, k: int, weight: float) -> Choice:
    """Choose by score minus weight times the summed Jaccard similarity of category sets with the items chosen so far.

    `sets` holds indicators (n_items, n_categories) of zeros and ones; two items without categories share nothing.
    """
    return _choose(masked(scores, available), np.zeros((1, 1)), sets, k, overlap_rule(weight))


def overlap_rule(weight: float) -> RuleFor:
    """Return the rule of `overlap_greedy`; variety adds nothing, it only takes."""
    if not 0.0 <= weight < np.inf:
        raise ValueError(f"weight is {weight}; give 0 (only relevant) or more (more varied)")
    if weight == 0.0:
        return RuleFor(Indifferent, SoloIndifferent)
    return RuleFor(lambda part, n_rows: Overlap(part, n_rows, weight), lambda rows: SoloOverlap(rows, weight))


def dpp_greedy(scores: ArrayLike, vectors: ItemVectors, available: ArrayLike, k: int) -> Choice:
    """Algorithm 2 in the log domain: gain_i = score_i + log ρ_i², with score_i = 2α·logit_i + log p_i from the caller.

    ρ_i² is the squared length of what is left of vector i outside the span of the chosen ones, because
    V_i = r_i^α x_i of equation (2) only scales x_i. When the chosen vectors span the space, or nothing available sticks
    out of their span by more than VANISHED, a new span is begun for the rest of the slate. Zero vectors come last, by
    score, and their score is their gain.
    """
    return _choose(masked(scores, available), vectors.log_lengths, vectors, k, volume_rule)


volume_rule = RuleFor(Volume, SoloVolume)
"""The rule of `dpp_greedy`; variety adds at most `ItemVectors.log_lengths`."""


def entropy_greedy(scores: ArrayLike, vectors: ItemVectors, available: ArrayLike, k: int, entropy: Entropy) -> Choice:
    """C²UCB's greedy: gain_i = score_i + weight·½ log(noise² + ρ_i²), ρ_i² the variance of i left after the chosen."""
    rule = entropy_rule(entropy)
    bound = entropy.largest_gain(vectors.everything.squared_lengths)
    return _choose(masked(scores, available), bound, vectors, k, rule)


def entropy_rule(entropy: Entropy) -> RuleFor:
    """Return the rule of `entropy_greedy`; variety adds at most `entropy.largest_gain`."""
    if not (entropy.weight >= 0.0 and entropy.noise > 0.0):
        raise ValueError(f"entropy is {entropy}; give a weight of 0 or more and a noise above 0")
    return RuleFor(lambda part, n_rows: Variance(part, n_rows, entropy), lambda rows: SoloVariance(rows, entropy))


def _choose(scores: Floats, bound: Floats, vectors: ItemVectors, k: int, rule: RuleFor) -> Choice:
    """Run a greedy rule on users together, or one by one where a block of two would leave the cache.

    `bound` (1, n_items or 1) is the most that variety can add, up to the rule's headroom.
    """
    if len(vectors.table) != scores.shape[1]:
        raise ValueError(f"there are {len(vectors.table)} vectors for {scores.shape[1]} scores; give one per item")
    if len(scores) > 1 and 2 * scores.shape[1] <= greedy.BLOCK_NUMBERS:
        return choose_together(scores, bound, vectors, k, rule)
    chosen = nothing(len(scores), k)
    for user, row in enumerate(scores):
        one = choose_alone(Bounds.of_scores(row, bound[0]), vectors, k, rule)
        chosen.put(slice(user, user + 1), one)
    return chosen


def _repeat(left: Floats, k: int, pick: Callable[[int], Integers]) -> Choice:
    """Choose k times by `pick`, which sees what is left; overwrites it."""
    chosen, rows = nothing(len(left), k), np.arange(len(left))
    for position in range(k):
        picks = pick(position)
        record(chosen, position, picks, left[rows, picks], left[rows, picks])
        left[rows, picks] = -np.inf
    return chosen
