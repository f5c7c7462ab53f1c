"""Re-ranking of scores for variety: the same knob for every rule, so that scores of any origin can be compared.

The knob is that of `dc2b-calibrated`: `diversity`² times a unit is what variety weighs, and the first slate gives up
relevance only in the upper half. The unit of probabilities is the mean rate of the ten most popular items, as there; of
scores on a scale of their own, the mean of the user's ten best scores.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slatewise.catalog import Catalog
from slatewise.policies.coverage import Covered, Gains, Members, Variety, choose_by_coverage, sum_of_members
from slatewise.policies.protocol import Booleans, Floats, Integers, State, pick, sigmoid
from slatewise.slates import Available, CategorySets, Choice, Rule, choose, pack_sets, rules, table, top_k
from slatewise.slates.kernels import Vectors, read_only
from slatewise.slates.rules import LARGEST_COSINE, vectors_for_overlap

BEST = 10
LEAST_UNIT = 1e-12
SMOOTHING = 0.01
"""Steck's α: how much of the target is mixed into a slate's categories, so that no logarithm is infinite."""


def knob(diversity: float, rounds: Floats) -> Floats:
    """Return how much variety each user gets (n_users,), from 0 to 1; `rounds` is 0 for a first slate."""
    return np.where(rounds == 0, max(0.0, 2.0 * diversity - 1.0), diversity)


@dataclass(frozen=True, eq=False)
class Reranker:
    """A rule for variety, prepared for a catalog; at a diversity of 0 each rule shows the best scores."""

    catalog: Catalog
    diversity: float
    rule: str
    are_probabilities: bool = False

    @cached_property
    def favorite_rate(self) -> float:
        """The mean rate of the ten items that most users like."""
        return float(np.sort(sigmoid(self.catalog.log_odds))[-BEST:].mean())

    @cached_property
    def sets(self) -> CategorySets:
        """The categories of each item as the slate rules take them."""
        return pack_sets(self.catalog.categories)

    @cached_property
    def vectors(self) -> Vectors:
        """The catalog's vectors as the slate rules take them."""
        return read_only(self.catalog.vectors, np.float32)

    @cached_property
    def shares(self) -> Floats:
        """The categories of each distinct set, as shares that sum to 1 (n_sets, n_categories)."""
        _, first = np.unique(self.sets.of_item, return_index=True)
        members = self.catalog.categories[first].astype(np.float64)
        return np.asarray(members / np.maximum(members.sum(axis=1, keepdims=True), 1.0))

    @cached_property
    def members(self) -> Members:
        """The categories of each distinct set."""
        return Members.of(self.shares)

    @cached_property
    def set_sizes(self) -> tuple[Floats, Integers]:
        """The distinct shares 1 / size of a category, and which of them each set has; any if it has no category."""
        sizes = np.unique(self.shares[self.shares > 0.0])
        return sizes, np.searchsorted(sizes, self.shares.max(axis=1, initial=0.0))

    @cached_property
    def category_popularity(self) -> Floats:
        """The categories of what all users like, as shares (n_categories,)."""
        rates = sigmoid(self.catalog.log_odds)
        return np.asarray(rates @ self.shares[self.sets.of_item] / rates.sum())

    def profile(self, state: State) -> Floats:
        """Return the categories of what each user liked, as shares (n_users, n_categories); popularity is one like."""
        liked = np.maximum(state["liked"], 0.0)
        total = liked.sum(axis=1, keepdims=True) + 1.0
        return np.asarray((liked @ self.shares[self.sets.of_item] + self.category_popularity) / total)

    def choose(self, scores: Floats, state: State, available: Booleans | Available, k: int) -> Choice:
        """Choose k items by scores (n_users, n_items) and variety; who gets no variety gets the best scores."""
        wanted = knob(self.diversity, state["rounds"])
        if isinstance(available, Available) or (wanted > 0.0).all() or not (wanted > 0.0).any():
            return self._choose(scores, (wanted, state), available, k)
        parts = [np.flatnonzero(wanted > 0.0), np.flatnonzero(wanted == 0.0)]
        allowed = np.broadcast_to(available, scores.shape)
        chosen = [
            self._choose(scores[users], (wanted[users], {"liked": state["liked"][users]}), allowed[users], k)
            for users in parts
        ]
        order = np.argsort(np.concatenate(parts))
        items, gains, variety = (
            np.concatenate([getattr(choice, name) for choice in chosen])[order]
            for name in ("items", "gains", "variety")
        )
        return Choice(items, gains, variety)

    def _choose(self, scores: Floats, users: tuple[Floats, State], available: Booleans | Available, k: int) -> Choice:
        """Choose for users who all get variety, or all none: how much they get, and their state."""
        wanted, state = users
        if not wanted.any():
            return top_k(scores, available, k)
        units = np.full(len(scores), self.favorite_rate) if self.are_probabilities else mean_of_best(scores)
        return RERANKERS[self.rule](self, Wanted(scores, wanted, units, state), available, k)


def mean_of_best(scores: Floats) -> Floats:
    """Return the mean of each user's ten best scores (n_users,)."""
    n_best = min(BEST, scores.shape[1])
    best = np.partition(scores, -n_best, axis=1)[:, -n_best:]
    return np.asarray(np.maximum(np.sort(best, axis=1).mean(axis=1), LEAST_UNIT))


@dataclass(frozen=True, eq=False)
class Wanted:
    """Scores (n_users, n_items), how much variety each user gets and its unit (n_users,), and the users' state."""

    scores: Floats
    wanted: Floats
    units: Floats
    state: State

    @property
    def weights(self) -> Floats:
        """What variety weighs, in scores (n_users,)."""
        return np.asarray(np.square(self.wanted) * self.units)

    @property
    def relative(self) -> Floats:
        """Scores in the unit of the knob (n_users, n_items)."""
        return np.asarray(self.scores / self.units[:, None])


Rerank = Callable[[Reranker, Wanted, Booleans | Available, int], Choice]


def _overlap(reranker: Reranker, wanted: Wanted, available: Booleans | Available, k: int) -> Choice:
    """Ours: the score minus the summed similarity with the items chosen so far."""
    vectors = vectors_for_overlap(reranker.sets, reranker.catalog.similarity_vectors)
    return choose(table(wanted.scores), rules.overlap(reranker.sets, wanted.weights, vectors), available, k)


def _mmr(reranker: Reranker, wanted: Wanted, available: Booleans | Available, k: int) -> Choice:
    """Maximal marginal relevance: the score minus the largest cosine with an item chosen so far."""
    rule = Rule(LARGEST_COSINE, wanted.weights, vectors=reranker.vectors)
    return choose(table(wanted.scores), rule, available, k)


def _dpp(reranker: Reranker, wanted: Wanted, available: Booleans | Available, k: int) -> Choice:
    """Chen et al. 2018: the score over its weight plus log ρ² on unit vectors, the greedy MAP of a DPP."""
    scores = wanted.relative / np.square(wanted.wanted)[:, None]
    return choose(table(scores), rules.volume(reranker.vectors), available, k)


def _xquad(reranker: Reranker, wanted: Wanted, available: Booleans | Available, k: int) -> Choice:
    """Santos et al. 2010: (1 − λ)·score + λ Σ_c P(c|u) P(i|c) Π_j (1 − P(j|c)) over chosen j; λ is the knob."""
    profile = reranker.profile(wanted.state)

    def variety(covered: Covered) -> Floats:
        return np.asarray((profile * covered.left) @ reranker.shares.T)

    return _mixed(reranker, wanted, variety, available, k)


def _calibration(reranker: Reranker, wanted: Wanted, available: Booleans | Available, k: int) -> Choice:
    """Steck 2018: (1 − λ)·Σ score − λ·KL(p ‖ q), p the categories of the user's likes, q those of the slate.

    −KL is that of the slate, one place longer, plus what each category of the item changes; a category's share depends
    on the size of the item's set alone.
    """
    profile = np.maximum(reranker.profile(wanted.state), LEAST_UNIT)
    sizes, size_of_set = reranker.set_sizes

    def variety(covered: Covered) -> Floats:
        target, total = profile[:, None, :], covered.total[:, None, :]
        slate = (total + np.concatenate([[0.0], sizes])[:, None]) / (covered.size + 1)
        terms = target * np.log(((1.0 - SMOOTHING) * slate + SMOOTHING * target) / target)
        changes = sum_of_members(reranker.members, size_of_set, terms[:, 1:] - terms[:, :1])
        return np.asarray(terms[:, 0].sum(axis=1, keepdims=True) + changes)

    return _mixed(reranker, wanted, variety, available, k)


def _mixed(reranker: Reranker, wanted: Wanted, variety: Variety, available: Booleans | Available, k: int) -> Choice:
    """Choose by (1 − λ)·score + λ·variety, where variety says what each distinct set of categories is worth."""
    share, of_item = wanted.wanted[:, None], reranker.sets.of_item
    own = (1.0 - share) * wanted.relative
    gains = Gains(
        own, np.ones(len(of_item)), of_item, reranker.shares[of_item], lambda covered: share * variety(covered)
    )
    choice = choose_by_coverage(gains, available, len(own), k)
    return Choice(choice.items, choice.gains, (choice.gains - pick(own, choice.items)) * (choice.items >= 0))


RERANKERS: dict[str, Rerank] = {
    "overlap": _overlap,
    "mmr": _mmr,
    "dpp": _dpp,
    "xquad": _xquad,
    "calibration": _calibration,
}
"""The rules by name."""
