"""SLIM (Ning and Karypis 2011): a sparse item–item regression without negative weights, from co-likes alone."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slatewise.catalog import Catalog
from slatewise.compiled import compiled
from slatewise.policies.history import (
    add_likes,
    check_reranking,
    make_reranker,
    scores_from_weights,
    select_scored,
    start_history,
    training_data,
    with_diversity,
)
from slatewise.policies.protocol import Floats, Integers, State, check_count, check_not_negative, check_positive

SWEEPS = 50
TOLERANCE = 1e-4


@dataclass(frozen=True, eq=False)
class Slim:
    """Column j of W minimizes ½|a_j − A w|² + ½β|w|² + λ|w|₁ with w ≥ 0 and w_j = 0; scores are clicks @ W.

    β is `ridge`, λ is `lasso`. Only the `neighbors` with the most co-likes relative to their popularity may have a
    weight (the authors' fsSLIM). Since G = AᵀA is all that the regression needs, the catalog holds the co-likes.
    """

    catalog: Catalog
    ridge: float = 100.0
    lasso: float = 3.0
    neighbors: int = 150
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
        training_data(self.catalog, "co_likes", "slim")
        check_positive("ridge", self.ridge)
        check_not_negative("lasso", self.lasso)
        check_count("neighbors", self.neighbors)
        check_reranking(self.diversity, self.rerank)

    @cached_property
    def weights(self) -> Floats:
        """Return W (n_items, n_items), its diagonal zero."""
        gram = training_data(self.catalog, "co_likes", "slim").astype(np.float64)
        weights = np.zeros_like(gram)
        n_others = len(gram) - 1
        if n_others:
            regress_columns(gram, _nearest(gram, min(self.neighbors, n_others)), (self.ridge, self.lasso), weights)
        return weights

    def scores(self, state: State) -> Floats:
        """Add up the rows of W of all that a user liked."""
        return scores_from_weights(self.catalog, state["liked"], self.weights)


def _nearest(gram: Floats, number: int) -> Integers:
    """Return the items with the largest cosine to each item, itself left out (number, n_items)."""
    lengths = np.sqrt(np.maximum(np.diag(gram), 1e-12))
    cosine = gram / np.outer(lengths, lengths)
    np.fill_diagonal(cosine, -1.0)
    return np.ascontiguousarray(np.argpartition(-cosine, number - 1, axis=0)[:number].astype(np.int64))


@compiled
def regress_columns(gram: Floats, nearest: Integers, penalties: tuple[float, float], weights: Floats) -> None:
    """Fill in every column of the weights by coordinate descent over the items that may have one."""
    ridge, lasso = penalties
    number = len(nearest)
    inner, left, solution = np.empty((number, number)), np.empty(number), np.empty(number)
    for target in range(len(gram)):
        for neighbor in range(number):
            left[neighbor], solution[neighbor] = gram[nearest[neighbor, target], target], 0.0
            for other in range(number):
                inner[neighbor, other] = gram[nearest[neighbor, target], nearest[other, target]]
        for _ in range(SWEEPS):
            largest = 0.0
            for neighbor in range(number):
                old = solution[neighbor]
                if left[neighbor] + inner[neighbor, neighbor] * old <= lasso and old == 0.0:
                    continue
                new = max(0.0, left[neighbor] + inner[neighbor, neighbor] * old - lasso) / (
                    inner[neighbor, neighbor] + ridge
                )
                change = new - old
                if change != 0.0:
                    solution[neighbor] = new
                    largest = max(largest, abs(change))
                    for other in range(number):
                        left[other] -= change * inner[other, neighbor]
            if largest <= TOLERANCE:
                break
        for neighbor in range(number):
            weights[nearest[neighbor, target], target] = solution[neighbor]
