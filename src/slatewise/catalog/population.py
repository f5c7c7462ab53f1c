"""The population of users: how often each item is liked, and how users' vectors are distributed."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from slatewise.catalog.likes import Likes, Products

Floats = NDArray[np.float64]

RIDGE = 1.0
VANISHED = 1e-10
"""A part of a squared length below this is rounding."""


def like_rates(counts: NDArray[np.integer[Any]], n_users: int) -> Floats:
    """Share of users who like each item, with half a user added on both sides."""
    return np.asarray((counts + 0.5) / (n_users + 1.0), dtype=np.float64)


def item_log_odds(counts: NDArray[np.integer[Any]], n_users: int) -> Floats:
    """Log-odds that a user likes each item, with half a user added on both sides, so that they are finite."""
    odds: Floats = np.log((counts + 0.5) / (n_users - counts + 0.5))
    return odds


def item_scale(item_vectors: Floats) -> float:
    """Factor that gives item vectors a root mean square length of one; user vectors are divided by it.

    BPR fixes only the inner products: (c P, Q / c) is the same model for every c. One stated scale makes
    a prior such as the paper's N(m, λI) mean the same thing on every data set.
    """
    length = float(np.sqrt(np.square(item_vectors).sum() / max(len(item_vectors), 1)))
    return 1.0 / length if length > 0 else 1.0


def without_popularity(vectors: NDArray[np.float32], popular: Floats) -> NDArray[np.float32]:
    """Return x − (x·a / a·a) a (n_items, dim), a the direction of popular items: their sum by rates.

    Vectors trained on likes without a bias per item say how popular an item is along a direction that all popular items
    share, so that any two of these look alike; what is left says what they have in common beyond that. What is left of
    a vector that says nothing else is zero.
    """
    known, length = vectors.astype(np.float64), float(popular @ popular)
    along = (known * popular).sum(axis=1)  # of each row the same, whatever the others are
    left = known - np.outer(along / length, popular) if length > 0.0 else known
    says_more = np.square(left).sum(axis=1) > VANISHED * np.square(known).sum(axis=1)
    return np.asarray(left * says_more[:, None], dtype=np.float32)


def mean_and_covariance(user_vectors: Floats) -> tuple[Floats, Floats]:
    """Mean and covariance of the users' vectors; a single user has covariance zero."""
    mean = user_vectors.mean(axis=0)
    deviations = user_vectors - mean
    return mean, deviations.T @ deviations / max(len(user_vectors) - 1, 1)


def fit_population(vectors: Floats, log_odds: Floats, likes: Likes, products: Products) -> tuple[Floats, Floats]:
    """Mean and covariance of users' vectors for given item vectors, estimated from who liked what.

    One Newton step of logistic regression from the population's log-odds o, with ridge 1. With the information
    H = Σ p(1-p) x xᵀ + I, p = σ(o): the mean is the weighted fit of o by m·x, and each user's deviation is H⁻¹ times
    the sum s of x over liked items, less a constant. So the covariance is H⁻¹ Cov(s) H⁻¹, where Σ ssᵀ over users is
    Xᵀ(LᵀL)X.
    """
    shares = 1.0 / (1.0 + np.exp(-log_odds))
    weighted = vectors * (shares * (1.0 - shares))[:, None]
    information = weighted.T @ vectors + RIDGE * np.eye(vectors.shape[1])
    total = likes.counts @ vectors
    scatter = vectors.T @ likes.product(vectors, products) - np.outer(total, total) / likes.n_users
    half = np.linalg.solve(information, scatter / max(likes.n_users - 1, 1))
    covariance = np.linalg.solve(information, half.T)
    mean = np.asarray(np.linalg.solve(information, weighted.T @ log_odds), dtype=np.float64)
    return mean, (covariance + covariance.T) / 2.0
