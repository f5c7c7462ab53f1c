"""iALS (Hu, Koren and Volinsky 2008) with the settings of Rendle et al. 2022, and users folded in as they click."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slatewise.catalog import Catalog
from slatewise.policies.history import (
    add_likes,
    check_reranking,
    make_reranker,
    scores_by_user,
    select_scored,
    start_history,
    training_data,
    with_diversity,
)
from slatewise.policies.protocol import Floats, Integers, State, check_positive

DEVIATION = 0.1
SEED = 0


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
        for name in ("dim", "regularisation", "unobserved", "iterations"):
            check_positive(name, getattr(self, name))
        check_reranking(self.diversity, self.rerank)

    @cached_property
    def item_factors(self) -> Floats:
        """Return the q_i (n_items, dim)."""
        users, items = training_data(self.catalog, "likes", "ials").astype(np.int64).T
        n_users = int(users.max(initial=-1)) + 1
        start = np.random.default_rng(SEED).normal(0.0, DEVIATION / np.sqrt(self.dim), (self.catalog.n_items, self.dim))
        by_user, by_item = _groups(users, items, n_users), _groups(items, users, self.catalog.n_items)
        factors: Floats = start
        for _ in range(self.iterations):
            user_factors = self._fit_all(factors, by_user)
            factors = self._fit_all(user_factors, by_item) if n_users else np.zeros_like(start)
        return factors

    def scores(self, state: State) -> Floats:
        """Fold the users in: their factors times those of the items."""
        factors = self.item_factors
        gram = factors.T @ factors

        def row(items: Integers, _amounts: Floats) -> Floats:
            return np.asarray(factors @ self.fit(factors[items], gram, len(factors)))

        return scores_by_user(self.catalog, state["liked"], row)

    def fit(self, liked: Floats, gram: Floats, n_others: int) -> Floats:
        """Return the factor that explains likes of the rows `liked` (n, dim); gram is that of all n_others rows."""
        ridge = self.regularisation * (len(liked) + self.unobserved * n_others)
        matrix = liked.T @ liked + self.unobserved * gram + ridge * np.eye(self.dim)
        return np.asarray(np.linalg.solve(matrix, liked.sum(axis=0)))

    def _fit_all(self, others: Floats, groups: list[Integers]) -> Floats:
        """Fit one side, given the factors of the other and which of them each row liked."""
        gram = others.T @ others
        rows = [self.fit(others[group], gram, len(others)) for group in groups]
        return np.array(rows).reshape(len(groups), self.dim)


def _groups(keys: Integers, values: Integers, n_keys: int) -> list[Integers]:
    """Return the values of each key from 0 to n_keys."""
    order = np.argsort(keys, kind="stable")
    return np.split(values[order], np.cumsum(np.bincount(keys, minlength=n_keys))[:-1]) if n_keys else []
