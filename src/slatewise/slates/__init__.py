"""Slate rules on arrays: which k items to show, for a batch of users at once.

Every rule returns exactly min(k, available) distinct available items per user, best first; ties go to the lowest index.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from slatewise.slates.diversity import Entropy, Marginal, Overlap, Variance, Volume
from slatewise.slates.greedy import Choice, Floats, Integers, ItemVectors, choose, masked, nothing, record

__all__ = [
    "Choice",
    "Entropy",
    "ItemVectors",
    "dpp_greedy",
    "entropy_greedy",
    "epsilon_greedy",
    "mmr",
    "overlap_greedy",
    "top_k",
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
    if not 0.0 <= trade_off <= 1.0:
        raise ValueError(f"trade_off is {trade_off}; give 0 (only varied) to 1 (only relevant)")
    scores = masked(trade_off * np.asarray(quality, dtype=np.float64), available)
    bound = np.full_like(vectors.squared_lengths, 1.0 - trade_off)
    return choose(scores, bound, vectors, k, lambda part, n_rows: Marginal(part, n_rows, 1.0 - trade_off))


def overlap_greedy(scores: ArrayLike, sets: ItemVectors, available: ArrayLike, k: int, weight: float) -> Choice:
    """Choose by score minus weight times the summed Jaccard similarity of category sets with the items chosen so far.

    `sets` holds indicators (n_items, n_categories) of zeros and ones; two items without categories share nothing.
    """
    if not 0.0 <= weight < np.inf:
        raise ValueError(f"weight is {weight}; give 0 (only relevant) or more (more varied)")
    bound = np.zeros_like(sets.squared_lengths)
    return choose(masked(scores, available), bound, sets, k, lambda part, n_rows: Overlap(part, n_rows, weight))


def dpp_greedy(scores: ArrayLike, vectors: ItemVectors, available: ArrayLike, k: int) -> Choice:
    """Algorithm 2 in the log domain: gain_i = score_i + log ρ_i², with score_i = 2α·logit_i + log p_i from the caller.

    ρ_i² is the squared length of what is left of vector i outside the span of the chosen ones, because
    V_i = r_i^α x_i of equation (2) only scales x_i. When the chosen vectors span the space, or nothing available sticks
    out of their span by more than VANISHED, a new span is begun for the rest of the slate. Zero vectors come last, by
    score, and their score is their gain.
    """
    return choose(masked(scores, available), vectors.log_lengths, vectors, k, Volume)


def entropy_greedy(scores: ArrayLike, vectors: ItemVectors, available: ArrayLike, k: int, entropy: Entropy) -> Choice:
    """C²UCB's greedy: gain_i = score_i + weight·½ log(noise² + ρ_i²), ρ_i² the variance of i left after the chosen."""
    if not (entropy.weight >= 0.0 and entropy.noise > 0.0):
        raise ValueError(f"entropy is {entropy}; give a weight of 0 or more and a noise above 0")
    bound = 0.5 * entropy.weight * np.log(entropy.noise**2 + vectors.squared_lengths)
    kept = masked(scores, available)
    return choose(kept, bound, vectors, k, lambda part, n_rows: Variance(part, n_rows, entropy))


def _repeat(left: Floats, k: int, pick: Callable[[int], Integers]) -> Choice:
    """Choose k times by `pick`, which sees what is left; overwrites it."""
    chosen, rows = nothing(len(left), k), np.arange(len(left))
    for position in range(k):
        picks = pick(position)
        record(chosen, position, picks, left[rows, picks])
        left[rows, picks] = -np.inf
    return chosen
