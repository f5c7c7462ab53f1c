"""Slate rules on arrays: which k items to show, for one user or a batch, and `diversify` for scores of any origin.

Every rule returns exactly min(k, available) distinct available items per user, best first; gains that are equal to
rounding go to the lowest index. rules.py says what the rules are, greedy.py how they choose.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from slatewise.slates import rules
from slatewise.slates.available import Available, as_table, pack_closed
from slatewise.slates.diversify import Diversified, diversify
from slatewise.slates.exploration import epsilon_greedy
from slatewise.slates.greedy import Choice, choose
from slatewise.slates.kernels import Floats, Vectors, read_only, squared_lengths
from slatewise.slates.rules import CategorySets, Rule, pack_sets
from slatewise.slates.scores import LinearItems, Scores, table

__all__ = [
    "Available",
    "CategorySets",
    "Choice",
    "Diversified",
    "LinearItems",
    "Rule",
    "Scores",
    "as_table",
    "choose",
    "diversify",
    "dpp_greedy",
    "entropy_greedy",
    "epsilon_greedy",
    "item_vectors",
    "mmr",
    "overlap_greedy",
    "pack_closed",
    "pack_sets",
    "rules",
    "squared_lengths",
    "table",
    "top_k",
]


def top_k(scores: ArrayLike, available: Available | ArrayLike, k: int) -> Choice:
    """Choose the k best scores (n_users, n_items) of the available items (n_users or 1, n_items).

    >>> top_k([[0.1, 0.9, 0.5]], [[True, True, True]], k=2).items.tolist()
    [[1, 2]]
    """
    return choose(table(scores), rules.relevance(), available, k)


def mmr(quality: ArrayLike, vectors: ArrayLike, available: Available | ArrayLike, k: int, trade_off: float) -> Choice:
    """Maximal marginal relevance: trade_off·quality − (1 − trade_off)·mean cosine with the items chosen so far.

    quality: (n_users, n_items); vectors: (n_items, dim); trade_off: 0 (only varied) to 1 (only relevant).
    """
    if not 0.0 <= trade_off <= 1.0:
        raise ValueError(f"trade_off is {trade_off}; give 0 (only varied) to 1 (only relevant)")
    scores = trade_off * np.asarray(quality, dtype=np.float64)
    return _choose_from_table(scores, rules.mean_cosine(item_vectors(vectors), 1.0 - trade_off), available, k)


def overlap_greedy(
    scores: ArrayLike, sets: CategorySets, available: Available | ArrayLike, k: int, weight: float
) -> Choice:
    """Choose by score minus weight times the summed Jaccard similarity of category sets with the items chosen so far.

    sets: indicators (n_items, n_categories) packed by `pack_sets`; two items without categories share nothing.
    """
    return _choose_from_table(scores, rules.overlap(sets, weight), available, k)


def dpp_greedy(scores: ArrayLike, vectors: ArrayLike, available: Available | ArrayLike, k: int) -> Choice:
    """Algorithm 2 in the log domain: gain_i = score_i + log ρ_i², with score_i = 2α·logit_i + log p_i from the caller.

    ρ_i² is the squared length of what is left of vector i outside the span of the chosen ones, because
    V_i = r_i^α x_i of equation (2) only scales x_i; see `rules.volume`.
    """
    return _choose_from_table(scores, rules.volume(item_vectors(vectors)), available, k)


def entropy_greedy(
    scores: ArrayLike, vectors: ArrayLike, available: Available | ArrayLike, k: int, regularizer: tuple[float, float]
) -> Choice:
    """C²UCB's greedy: gain_i = score_i + weight·½ log(noise² + ρ_i²), ρ_i² the variance of i left after the chosen.

    regularizer: weight and noise, λ and σ in the paper.
    """
    return _choose_from_table(scores, rules.entropy(item_vectors(vectors), *regularizer), available, k)


def item_vectors(vectors: ArrayLike) -> Vectors:
    """Check vectors (n_items, dim); float32 and float64 by rows are not copied."""
    array = np.asarray(vectors)
    if array.ndim != 2 or array.dtype not in (np.float32, np.float64) or not np.isfinite(array).all():
        raise ValueError(f"vectors are {array.dtype} {array.shape}; give finite floats shaped (n_items, dim)")
    return read_only(array, array.dtype)


def _choose_from_table(scores: ArrayLike, rule: Rule, available: Available | ArrayLike, k: int) -> Choice:
    """Choose by a rule; variety is all of a gain that is not the score."""
    first_gains = rule.first_gains()
    given: Floats = np.asarray(scores, dtype=np.float64)
    if given.ndim != 2 or given.shape[1] != first_gains.size:
        raise ValueError(f"scores are {given.shape} for {first_gains.size} items; give (n_users, n_items)")
    choice = choose(table(given + first_gains), rule, available, k)
    variety = choice.variety + first_gains[np.maximum(choice.items, 0)] * (choice.items >= 0)
    return Choice(choice.items, choice.gains, variety)
