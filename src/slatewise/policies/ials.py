"""iALS (Hu, Koren and Volinsky 2008) with the settings of Rendle et al. 2022, and users folded in as they click."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slatewise.belief.linear_algebra import cholesky, solve_lower, solve_upper
from slatewise.catalog import Catalog
from slatewise.compiled import compiled
from slatewise.policies.history import (
    LEAST,
    add_likes,
    check_reranking,
    make_reranker,
    require_scipy,
    select_scored,
    start_history,
    training_data,
    with_diversity,
)
from slatewise.policies.protocol import Floats, Integers, State, check_count, check_positive, sigmoid

DEVIATION = 0.1
SEED = 0

Likes = tuple[Integers, Integers]
"""Where the likes of each row start, and what is liked."""


@dataclass(frozen=True, eq=False)
class Ials:
    """Factors that minimize Σ over likes (p·q − 1)² + α₀ Σ over all (p·q)² + λ Σ (n + α₀m)|·|², by alternating.

    α₀ is `unobserved`, λ is `regularisation`; n is the number of likes of a user or item and m that of the other side
    (ν = 1 in Rendle et al.). A user's factor is the same least squares solution for what was clicked so far; popularity
    until the first click. The catalog must hold the likes of its training users: `catalog.with_likes(dataset)`.
    """

    catalog: Catalog
    dim: int = 32
    regularisation: float = 0.01
    unobserved: float = 0.1
    iterations: int = 16
    diversity: float = 0.0
    rerank: str = "overlap"
    needs = ("likes",)
    one_at_a_time = False
    additive = ("liked",)
    start = start_history
    select = select_scored
    update = add_likes
    prepared = "item_factors"
    reranker = cached_property(make_reranker)
    with_diversity = with_diversity

    def __post_init__(self) -> None:
        training_data(self.catalog, "likes", "ials")
        require_scipy("ials")
        for name in ("dim", "iterations"):
            check_count(name, getattr(self, name))
        for name in ("regularisation", "unobserved"):
            check_positive(name, getattr(self, name))
        check_reranking(self.diversity, self.rerank)

    @cached_property
    def item_factors(self) -> Floats:
        """Return the q_i (n_items, dim)."""
        users, items = training_data(self.catalog, "likes", "ials").astype(np.int64).T
        n_users, n_items = int(users.max(initial=-1)) + 1, self.catalog.n_items
        by_user, by_item = _grouped(users, items, n_users), _grouped(items, users, n_items)
        factors = np.random.default_rng(SEED).normal(0.0, DEVIATION / np.sqrt(self.dim), (n_items, self.dim))
        for _ in range(self.iterations):
            factors = self.fit(self.fit(factors, by_user), by_item)
        return factors

    def scores(self, state: State) -> Floats:
        """Fold the users in: their factors times those of the items; popularity until the first click."""
        users, items = np.nonzero(state["liked"] > LEAST)
        scores = np.tile(sigmoid(self.catalog.log_odds), (len(state["liked"]), 1))
        factors = self.fit(self.item_factors, _grouped(users, items, len(scores)))
        for user in np.unique(users):
            scores[user] = self.item_factors @ factors[user]
        return scores

    def fit(self, others: Floats, likes: Likes) -> Floats:
        """Fit one side, given the factors of the other (n_others, dim) and which of them each row likes."""
        factors = np.zeros((len(likes[0]) - 1, self.dim))
        if not len(others):
            return factors
        sizes = np.diff(likes[0]) + self.unobserved * len(others)
        fit_rows(others, likes, self.unobserved * (others.T @ others), self.regularisation * sizes, factors)
        return factors


def _grouped(keys: Integers, values: Integers, n_keys: int) -> Likes:
    """Return where the values of each key from 0 to n_keys start (n_keys + 1,), and all values by key."""
    starts = np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=n_keys))])
    return starts.astype(np.int64), values[np.argsort(keys, kind="stable")]


@compiled
def fit_rows(others: Floats, likes: Likes, gram: Floats, ridges: Floats, factors: Floats) -> None:
    """Add to each row of zeros the x with (Σ q qᵀ + gram + ridge I) x = Σ q, summed over the q that the row likes."""
    starts, members = likes
    root = np.empty(gram.shape)
    for row in range(len(factors)):
        liked = others[members[starts[row] : starts[row + 1]]]
        matrix = gram + np.dot(liked.T, liked)
        for axis in range(len(gram)):
            matrix[axis, axis] += ridges[row]
        for number in range(len(liked)):
            factors[row] += liked[number]
        cholesky(matrix, root)
        solve_lower(root, factors[row])
        solve_upper(root, factors[row])
