"""EASE^R (Steck 2019) refolded after every round: the strongest rival that does not explore."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slatewise.catalog import Catalog
from slatewise.policies.history import (
    add_likes,
    check_reranking,
    make_reranker,
    require_scipy,
    scores_from_weights,
    select_scored,
    start_history,
    training_data,
    with_diversity,
)
from slatewise.policies.protocol import Floats, State, check_positive


@dataclass(frozen=True, eq=False)
class Ease:
    """Popularity until the first click, then clicks @ B with B = I − P / diag(P), P = (G + λI)⁻¹, G the co-likes.

    The catalog must hold the co-likes of its training users: `catalog.with_co_likes(dataset)`.
    """

    catalog: Catalog
    regularisation: float = 300.0
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
        training_data(self.catalog, "co_likes", "ease")
        check_positive("regularisation", self.regularisation)
        check_reranking(self.diversity, self.rerank)

    @cached_property
    def weights(self) -> Floats:
        """Return B (n_items, n_items), its diagonal zero."""
        n_items = self.catalog.n_items
        gram = training_data(self.catalog, "co_likes", "ease").astype(np.float64)
        gram[np.diag_indices(n_items)] += self.regularisation
        inverse = _inverse_of_positive_definite(gram)
        weights: Floats = inverse / -np.diag(inverse)
        weights[np.diag_indices(n_items)] = 0.0
        return weights

    def scores(self, state: State) -> Floats:
        """Add up the rows of B of all that a user liked."""
        return scores_from_weights(self.catalog, state["liked"], self.weights)


def _inverse_of_positive_definite(matrix: Floats) -> Floats:
    """Invert by Cholesky, at a third of the cost of a general inverse; the matrix is overwritten."""
    require_scipy("ease")
    from scipy.linalg import lapack

    root, failed = lapack.dpotrf(matrix.T, lower=True, overwrite_a=True)
    inverse, failed_too = lapack.dpotri(root, lower=True, overwrite_c=True)
    if failed or failed_too:
        raise np.linalg.LinAlgError("co_likes plus regularisation is not positive definite; raise regularisation")
    for row in range(len(inverse)):
        inverse[row, row + 1 :] = inverse[row + 1 :, row]
    return np.asarray(inverse.T)
