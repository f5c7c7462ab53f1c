"""Taste vectors: how likes vary together, beyond what chance alone would show.

Likes are y_i = μ_i + θ·t_i + noise with θ ~ N(0, I), so t_i·t_j is the covariance of liking i and j. The vectors are
the leading eigenvectors of the covariance of the training users' likes. A sample of n users shows eigenvalues of about
(√(Σv / n) + √(Σv² / Σv))² by chance alone (the edge of Marchenko and Pastur for variances v that taste does not
explain); that much is subtracted from each eigenvalue, and directions below it are dropped.

The eigenvectors come from subspace iteration (Halko, Martinsson and Tropp 2011) on products with the matrix of likes,
which is read in parts (`slatewise.catalog.likes`); what is held grows with items, not with users.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from slatewise.catalog.likes import Likes, Products, in_threads
from slatewise.catalog.population import like_rates

if TYPE_CHECKING:
    from slatewise.catalog.catalog import Catalog
    from slatewise.data.dataset import Dataset

Floats = NDArray[np.float64]

LARGEST_RANK = 50
OVERSAMPLING = 20
PASSES = 7
ROUNDS = 10
SMALLEST_SHARE = 1e-9


def taste_vectors(
    likes: "Dataset | Likes",
    largest_rank: int = LARGEST_RANK,
    seed: int = 0,
    products: Products = in_threads,
    on_pass: Callable[[], None] | None = None,
) -> Floats:
    """Return t_i (n_items, rank): the covariance of likes beyond chance; the rank is at least 1.

    The likes are read PASSES + 1 times, by `products` wherever these are computed; `on_pass` is called after each.
    """
    likes = likes if isinstance(likes, Likes) else Likes.of(likes)
    directions = _leading_directions(_Covariance(likes, products, on_pass), largest_rank, seed)
    shares = shares_beyond_chance(directions, likes)
    kept = shares > 0.0
    kept[0] = True
    return np.asarray(directions[:, kept] * np.sqrt(np.maximum(shares[kept], SMALLEST_SHARE)))


def linearized_taste(vectors: Floats, log_odds: Floats, covariance: Floats) -> Floats:
    """Return t_i for given item vectors: the slope p(1 − p) of σ times x_i, for θ ~ N(0, covariance).

    Of more than LARGEST_RANK dimensions, those in which items differ most are kept.
    """
    rates = 1.0 / (1.0 + np.exp(-log_odds))
    eigenvalues, basis = np.linalg.eigh(covariance)
    root = basis * np.sqrt(np.maximum(eigenvalues, 0.0))
    tastes = (rates * (1.0 - rates))[:, None] * (vectors @ root)
    if tastes.shape[1] > LARGEST_RANK:
        _, _, directions = np.linalg.svd(tastes.T @ tastes)
        tastes = tastes @ directions[:LARGEST_RANK].T
    return np.asarray(tastes)


def taste_columns(trained: "Catalog") -> NDArray[np.int64]:
    """Return the categories that tastes have a column for: those of trained items, and of many those with the most."""
    counts = trained.categories[: trained.item_ids.n_sorted].sum(axis=0)
    common = np.argsort(-counts, kind="stable")[:LARGEST_RANK]
    return np.sort(common[counts[common] > 0])


def taste_categories(catalog: "Catalog", items: NDArray[np.int64] | None = None) -> NDArray[np.bool_]:
    """Return the categories that tastes have a column for, of some items or of all (n_items, n_columns).

    An item that was trained keeps the categories of the training whatever an item table says later, one that came later
    has those of its content. So no column changes when items come or get other categories, and beliefs remain valid.
    """
    trained = catalog.trained
    kept, numbers = trained.taste_columns, np.arange(catalog.n_items) if items is None else items
    categories = catalog.categories[np.ix_(numbers, kept)]
    is_trained = numbers < trained.n_items
    categories[is_trained] = trained.categories[np.ix_(numbers[is_trained], kept)]
    return np.asarray(categories)


def category_columns(categories: NDArray[np.bool_], rates: Floats, weight: float) -> Floats:
    """Return weight·√(μ(1 − μ))·g_i/|g_i| (n_items, n_columns), g_i the categories of an item as zeros and ones.

    As further columns of t they say that a share weight² of the variance of liking an item is a taste for its
    categories, those of `taste_categories`.
    """
    lengths = np.sqrt(np.maximum(categories.sum(axis=1), 1.0))
    return np.asarray((weight * np.sqrt(rates * (1.0 - rates)) / lengths)[:, None] * categories)


def co_likes(dataset: "Dataset") -> NDArray[np.float32]:
    """Return how many users like both of two items (n_items, n_items)."""
    from scipy.sparse import csr_matrix

    shape = (dataset.n_users, dataset.n_items)
    likes = csr_matrix((np.ones(dataset.n_interactions), (dataset.users, dataset.items)), shape=shape)
    return np.asarray((likes.T @ likes).toarray(order="C"), dtype=np.float32)


@dataclass(frozen=True, eq=False)
class _Covariance:
    """The covariance of likes as an operator: (LᵀL − n·mean·meanᵀ) / (n − 1)."""

    likes: Likes
    products: Products
    on_pass: Callable[[], None] | None

    def __matmul__(self, block: Floats) -> Floats:
        counts, n_users = self.likes.counts.astype(np.float64), self.likes.n_users
        result = self.likes.product(block, self.products)
        result -= np.outer(counts / n_users, counts @ block)
        result /= max(n_users - 1, 1)
        if self.on_pass is not None:
            self.on_pass()
        return result


def _leading_directions(covariance: _Covariance, largest_rank: int, seed: int) -> Floats:
    """Eigenvectors of the covariance, scaled by the roots of their eigenvalues; by subspace iteration.

    The largest entry of each is positive, so that they do not depend on the library that decomposes a small matrix.
    """
    n_users, n_items = covariance.likes.n_users, len(covariance.likes.counts)
    width = max(1, min(largest_rank + OVERSAMPLING, n_users - 1, n_items))
    basis = np.random.default_rng(seed).standard_normal((n_items, width))
    for _ in range(PASSES):
        basis, _ = np.linalg.qr(covariance @ basis)
    eigenvalues, rotation = np.linalg.eigh(basis.T @ (covariance @ basis))
    largest = slice(None, -largest_rank - 1, -1)
    directions = basis @ rotation[:, largest]
    signs = np.sign(directions[np.abs(directions).argmax(axis=0), np.arange(directions.shape[1])])
    return np.asarray(directions * (signs * np.sqrt(np.maximum(eigenvalues[largest], 0.0))))


def shares_beyond_chance(directions: Floats, likes: Likes) -> Floats:
    """Return the share of each eigenvalue that is taste; what taste explains and the edge of chance are alternated."""
    rates = like_rates(likes.counts, likes.n_users)
    variances, squares = rates * (1.0 - rates), np.square(directions)
    eigenvalues = np.maximum(squares.sum(axis=0), 1e-300)
    shares = np.zeros(len(eigenvalues))
    for _ in range(ROUNDS):
        unexplained = np.maximum(variances - squares @ shares, 0.0)
        edge = _edge_of_chance(unexplained, likes.n_users)
        shares = np.maximum(eigenvalues - edge, 0.0) / eigenvalues
    return shares


def _edge_of_chance(variances: Floats, n_users: int) -> float:
    total = max(float(variances.sum()), 1e-12)
    return float((np.sqrt(total / n_users) + np.sqrt(np.square(variances).sum() / total)) ** 2)
