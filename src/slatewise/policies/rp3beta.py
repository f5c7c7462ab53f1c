"""RP3β (Paudel et al. 2017): a random walk of three steps over who likes what, with popular items held down."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slatewise.catalog import Catalog
from slatewise.policies.history import (
    add_likes,
    check_reranking,
    keep_largest,
    make_reranker,
    require_scipy,
    scores_from_weights,
    select_scored,
    start_history,
    training_data,
    with_diversity,
)
from slatewise.policies.protocol import Floats, State, check_count, check_not_negative, check_positive


@dataclass(frozen=True, eq=False)
class Rp3Beta:
    """W_ij = Σ_u (a_ui / d_i)^α (a_uj / d_u)^α / d_j^β, d the number of likes of an item or user; scores: clicks @ W.

    From each item the `neighbors` likeliest walks are kept. The catalog must hold the likes of its training users:
    `catalog.with_likes(dataset)`.
    """

    catalog: Catalog
    alpha: float = 1.0
    beta: float = 0.6
    neighbors: int = 100
    diversity: float = 0.0
    rerank: str = "overlap"
    needs = ("likes",)
    one_at_a_time = False
    additive = ("liked",)
    start = start_history
    select = select_scored
    update = add_likes
    prepared = "weights"
    reranker = cached_property(make_reranker)
    with_diversity = with_diversity

    def __post_init__(self) -> None:
        training_data(self.catalog, "likes", "rp3beta")
        check_positive("alpha", self.alpha)
        check_not_negative("beta", self.beta)
        check_count("neighbors", self.neighbors)
        check_reranking(self.diversity, self.rerank)

    @cached_property
    def weights(self) -> Floats:
        """Return W (n_items, n_items), its diagonal zero."""
        require_scipy("rp3beta")
        from scipy.sparse import csr_matrix

        users, items = training_data(self.catalog, "likes", "rp3beta").T
        n_users, n_items = int(users.max(initial=-1)) + 1, self.catalog.n_items
        by_user, by_item = np.bincount(users, minlength=n_users), np.bincount(items, minlength=n_items)
        shape = (n_users, n_items)
        to_user = csr_matrix((by_item[items].astype(np.float64) ** -self.alpha, (users, items)), shape)
        to_item = csr_matrix((by_user[users].astype(np.float64) ** -self.alpha, (users, items)), shape)
        walks = (to_user.T @ to_item).toarray() / np.maximum(by_item, 1.0) ** self.beta
        np.fill_diagonal(walks, 0.0)
        return np.ascontiguousarray(keep_largest(walks.T, self.neighbors).T)

    def scores(self, state: State) -> Floats:
        """Walk from all that a user liked."""
        return scores_from_weights(self.catalog, state["liked"], self.weights)
