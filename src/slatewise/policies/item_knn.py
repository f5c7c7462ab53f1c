"""Item-based nearest neighbors (Sarwar et al. 2001), with the shrunk cosine of Bell and Koren."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slatewise.catalog import Catalog
from slatewise.policies.history import (
    add_likes,
    check_reranking,
    keep_largest,
    make_reranker,
    scores_from_weights,
    select_scored,
    start_history,
    training_data,
    with_diversity,
)
from slatewise.policies.protocol import Floats, State, check_count, check_not_negative


@dataclass(frozen=True, eq=False)
class ItemKnn:
    """An item scores the summed similarity G_ij / (√(G_ii G_jj) + h) of its nearest neighbors that the user liked.

    G are the co-likes of the training users, h the `shrinkage`; popularity until the first click.
    """

    catalog: Catalog
    neighbors: int = 100
    shrinkage: float = 10.0
    diversity: float = 0.0
    rerank: str = "overlap"
    needs = ("co_likes",)
    one_at_a_time = False
    additive = ("liked",)
    start = start_history
    select = select_scored
    update = add_likes
    prepared = "weights"
    reranker = cached_property(make_reranker)
    with_diversity = with_diversity

    def __post_init__(self) -> None:
        training_data(self.catalog, "co_likes", "item-knn")
        check_count("neighbors", self.neighbors)
        check_not_negative("shrinkage", self.shrinkage)
        check_reranking(self.diversity, self.rerank)

    @cached_property
    def weights(self) -> Floats:
        """Return the similarities (n_items, n_items), in each column those of the item's nearest neighbors."""
        gram = training_data(self.catalog, "co_likes", "item-knn").astype(np.float64)
        lengths = np.sqrt(np.diag(gram))
        similarity = gram / np.maximum(np.outer(lengths, lengths) + self.shrinkage, 1e-12)
        np.fill_diagonal(similarity, 0.0)
        return keep_largest(similarity, self.neighbors)

    def scores(self, state: State) -> Floats:
        """Add up the similarities to all that a user liked."""
        return scores_from_weights(self.catalog, state["liked"], self.weights)
