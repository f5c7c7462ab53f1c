"""Worlds whose θ* is known, the paper's reward, and the learners that play in them.

A world is a user with a θ*. Worlds of one cell share a catalog of unit vectors and form a batch. A shown item i is
clicked with probability p_i = σ(θ*·x_i), which is all a learner sees; the reward, which it never sees, is the paper's
f(S) = ∏ p_i det(L_S) = ∏ p_i r_i^{2α} · det(X_S X_Sᵀ).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from slatewise import belief
from slatewise.policies.protocol import log_sigmoid, pick, sigmoid
from slatewise.randomness import Keys, Streams, user_keys
from slatewise.slates import dpp_greedy, top_k

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

ENUMERABLE = 200_000


@dataclass(frozen=True)
class Cell:
    """One kind of world: θ* ~ N(0, scale²I), shortened to `radius` if it is longer (inf: never).

    `withdraws` removes shown items from the catalog, as Algorithm 1 does; the oracle then chooses from what the
    learner has left.
    """

    dim: int = 5
    size: int = 2
    alpha: float = 1.0
    radius: float = 1.0
    items: int = 30
    rounds: int = 1000
    withdraws: bool = False
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.size <= min(self.dim, self.items):
            raise ValueError(f"size is {self.size}; det(X_S X_Sᵀ) is 0 above dim {self.dim}, so choose 1 to {self.dim}")
        if self.withdraws and self.size * self.rounds > self.items:
            raise ValueError(
                f"{self.rounds} rounds withdraw {self.size * self.rounds} items, but there are {self.items}; add items"
            )
        if self.rounds < 2:
            raise ValueError(f"rounds is {self.rounds}; it must be 2 or more to measure growth")


@dataclass(frozen=True, eq=False)
class Worlds:
    """A cell's catalog of unit vectors (items, dim), the θ* (n_worlds, dim) of its users, and the seed of all draws."""

    cell: Cell
    vectors: Floats
    truths: Floats
    seed: int

    @classmethod
    def draw(cls, cell: Cell, n_worlds: int, seed: int) -> "Worlds":
        """Draw a catalog and users."""
        directions = _streams("item", cell.items, seed, 0).normal(cell.dim)
        truths = cell.scale * _streams("truth", n_worlds, seed, 0).normal(cell.dim)
        lengths = np.linalg.norm(truths, axis=1, keepdims=True)
        shortened = truths * np.minimum(1.0, cell.radius / lengths)
        return cls(cell, directions / np.linalg.norm(directions, axis=1, keepdims=True), shortened, seed)

    @cached_property
    def true_scores(self) -> Floats:
        """The scores for θ*."""
        return self.scores(self.truths)

    def scores(self, thetas: Floats) -> Floats:
        """Return log p_i + 2α log r_i (n_worlds, items): an item's contribution to log f, before diversity."""
        logits = thetas @ self.vectors.T
        scores: Floats = 2.0 * self.cell.alpha * logits + log_sigmoid(logits)
        return scores

    def rewards(self, slates: Integers) -> Floats:
        """Return f_θ*(S) (n_worlds,); the order of the items does not matter."""
        ordered = np.sort(slates, axis=1)
        quality = pick(self.true_scores, ordered).sum(axis=1)
        rewards: Floats = np.exp(quality + _log_volumes(self.vectors[ordered]))
        return rewards

    def best_rewards(self) -> Floats:
        """Return max f_θ*(S) (n_worlds,) over all subsets; NaN if items leave or subsets exceed ENUMERABLE."""
        if self.cell.withdraws or comb(self.cell.items, self.cell.size) > ENUMERABLE:
            return np.full(len(self.truths), np.nan)
        subsets = np.array(list(combinations(range(self.cell.items), self.cell.size)))
        volumes = _log_volumes(self.vectors[subsets])
        best = [(score[subsets].sum(axis=1) + volumes).max() for score in self.true_scores]
        return np.exp(best)


Select = Callable[[Worlds, belief.Beliefs, Booleans, int], Integers]
"""Worlds, beliefs, what is available (n_worlds, items) and the number of the round → slates (n_worlds, size)."""


def greedy(worlds: Worlds, thetas: Floats, available: Booleans) -> Integers:
    """Algorithm 2 for given θ (n_worlds, dim)."""
    return dpp_greedy(worlds.scores(thetas), worlds.vectors, available, worlds.cell.size).items


def sampled(temperature: float) -> Select:
    """Algorithm 1: the greedy slate of θ̂ ~ N(m, τ²Σ); τ = 0 is the posterior mean."""

    def select(worlds: Worlds, beliefs: belief.Beliefs, available: Booleans, number: int) -> Integers:
        normals = _streams("sample", len(worlds.truths), worlds.seed, number).normal(worlds.cell.dim)
        return greedy(worlds, belief.sample(beliefs, normals, temperature), available)

    return select


def any_slate(worlds: Worlds, _beliefs: belief.Beliefs, available: Booleans, number: int) -> Integers:
    """A uniformly drawn slate."""
    draws = _streams("sample", len(worlds.truths), worlds.seed, number).uniform(worlds.cell.items)
    return top_k(draws, available, worlds.cell.size).items


def best_slate(worlds: Worlds, _beliefs: belief.Beliefs, available: Booleans, _number: int) -> Integers:
    """The greedy slate of θ* itself."""
    return greedy(worlds, worlds.truths, available)


@dataclass(frozen=True)
class Learner:
    """A way to choose slates; `push` is the share of the 2α of equation (8) that its belief adds to every label."""

    select: Select
    push: float = 0.0
    learns: bool = True


LEARNERS: dict[str, Learner] = {
    "dc2b": Learner(sampled(1.0), push=1.0),
    "thompson": Learner(sampled(1.0)),
    "posterior-mean": Learner(sampled(0.0)),
    "random": Learner(any_slate, learns=False),
    "never-learns": Learner(sampled(1.0), learns=False),
    "oracle": Learner(best_slate, learns=False),
}
"""`dc2b` is the paper's method as printed, `thompson` the same without the push of (8)."""


def play(worlds: Worlds, learner: Learner) -> tuple[Floats, Floats]:
    """Return the learner's and the greedy oracle's reward, each (n_worlds, rounds)."""
    cell, n_worlds = worlds.cell, len(worlds.truths)
    beliefs = belief.start(n_worlds, np.zeros(cell.dim), cell.scale**2 * np.eye(cell.dim))
    available = np.ones((n_worlds, cell.items), dtype=bool)
    gained, oracle = np.empty((n_worlds, cell.rounds)), np.empty((n_worlds, cell.rounds))
    for number in range(cell.rounds):
        if number == 0 or cell.withdraws:
            possible = worlds.rewards(greedy(worlds, worlds.truths, available))
        slates = learner.select(worlds, beliefs, available, number)
        gained[:, number], oracle[:, number] = worlds.rewards(slates), possible
        if learner.learns:
            beliefs = _learn(worlds, learner, beliefs, slates, number)
        if cell.withdraws:
            np.put_along_axis(available, slates, False, axis=1)
    return gained, oracle


def _learn(worlds: Worlds, learner: Learner, beliefs: belief.Beliefs, slates: Integers, number: int) -> belief.Beliefs:
    """Draw the clicks y_i ~ Bernoulli(p_i) and update by equations (7) to (9)."""
    draws = _streams("click", len(slates), worlds.seed, number).uniform(worlds.cell.size)
    clicks = draws < sigmoid(pick(worlds.truths @ worlds.vectors.T, slates))
    push = learner.push * 2.0 * worlds.cell.alpha
    return belief.update(beliefs, belief.Feedback.of(worlds.vectors[slates], clicks), exposure_push=push)


def _log_volumes(vectors: Floats) -> Floats:
    """Return log det(X_S X_Sᵀ) (n,) for sets of vectors (n, size, dim)."""
    return np.asarray(np.linalg.slogdet(np.matmul(vectors, np.swapaxes(vectors, 1, 2)))[1])


def _streams(purpose: str, count: int, seed: int, step: int) -> Streams:
    """Return a stream per world or item, separate for every purpose, so that all learners get the same draws."""
    return Streams(seed, _keys(purpose, count), step)


@cache
def _keys(purpose: str, count: int) -> Keys:
    return user_keys(f"{purpose} {number}" for number in range(count))
