"""EASE^R (Steck 2019) refolded after every round: the strongest rival that does not explore."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slatewise.catalog import Catalog, CatalogError
from slatewise.evidence import Evidence
from slatewise.policies.protocol import Booleans, Floats, Slates, State, check_positive, sigmoid
from slatewise.randomness import Streams
from slatewise.slates import Available, top_k


@dataclass(frozen=True, eq=False)
class Ease:
    """Popularity until the first click, then clicks @ B with B = I − P / diag(P), P = (G + λI)⁻¹, G the co-likes.

    The catalog must hold the co-likes of its training users: `catalog.with_co_likes(dataset)`.
    """

    catalog: Catalog
    regularisation: float = 300.0
    one_at_a_time = False
    additive = ("folded",)

    def __post_init__(self) -> None:
        if self.catalog.co_likes is None:
            raise CatalogError(
                "ease needs co-likes, which this catalog does not hold; use catalog.with_co_likes(dataset)"
            )
        check_positive("regularisation", self.regularisation)

    @cached_property
    def weights(self) -> Floats:
        """Return B (n_items, n_items), its diagonal zero."""
        n_items = self.catalog.n_items
        gram = np.asarray(self.catalog.co_likes, dtype=np.float64).copy()
        gram[np.diag_indices(n_items)] += self.regularisation
        inverse = _inverse_of_positive_definite(gram)
        weights: Floats = inverse / -np.diag(inverse)
        weights[np.diag_indices(n_items)] = 0.0
        return weights

    def start(self, n_users: int) -> State:
        """Nothing has been clicked."""
        return {"folded": np.zeros((n_users, self.catalog.n_items)), "clicks": np.zeros(n_users, dtype=np.int64)}

    def select(self, state: State, available: Booleans | Available, k: int, random: Streams) -> Slates:
        """Choose the k best scores."""
        del random
        rates = sigmoid(self.catalog.log_odds)
        scores = np.where(state["clicks"][:, None] > 0, state["folded"], rates)
        choice = top_k(scores, available, k)
        unknown = np.full(choice.items.shape, np.nan)
        return Slates(choice.items, unknown, unknown, np.zeros(choice.items.shape))

    def update(self, state: State, evidence: Evidence) -> State:
        """Add the row of B of every liked item; what was not liked is not told apart from what was not shown."""
        weight = evidence.weight * evidence.liked
        folded = state["folded"].copy()
        for position in range(weight.shape[1]):
            users = np.flatnonzero(weight[:, position])
            folded[users] += weight[users, position, None] * self.weights[evidence.items[users, position]]
        clicks = state["clicks"] + np.sign(weight).astype(np.int64).sum(axis=1)
        return {"folded": folded, "clicks": clicks}


def _inverse_of_positive_definite(matrix: Floats) -> Floats:
    """Invert by Cholesky, at a third of the cost of a general inverse."""
    try:
        from scipy.linalg import lapack
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("ease needs scipy: pip install 'slatewise[train]'") from error
    root, failed = lapack.dpotrf(matrix, lower=True)
    inverse, failed_too = lapack.dpotri(root, lower=True)
    if failed or failed_too:
        raise np.linalg.LinAlgError("co_likes plus regularisation is not positive definite; regularise more")
    lower = np.tril(inverse)
    return np.asarray(lower + np.tril(lower, -1).T)
