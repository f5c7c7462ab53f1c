"""How similar items are, and how varied slates: the similarity that the rule `overlap` counts.

Two items are as similar as the Jaccard index of their categories, if both have some; else as the cosine of their
vectors, not below 0. If there is no vector either, or only zeros, nothing is known about them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slatewise.compiled import compiled
from slatewise.slates.kernels import Floats, Integers, Vectors, inner, read_only
from slatewise.slates.rules import NO_VECTORS


def slate_varieties(
    slates: NDArray[np.integer], categories: NDArray[np.bool_], vectors: Vectors | None = None
) -> Floats:
    """Return the mean distance 1 − similarity over the known pairs of each slate (n_slates,); NaN if there are none.

    slates: item numbers (n_slates, k), −1 for nothing; categories: (n_items, n_categories); vectors: (n_items, dim).

    >>> categories = np.array([[True, True], [True, False], [False, False]])
    >>> slate_varieties(np.array([[0, 1], [0, 2]]), categories, np.array([[0.0, 1.0], [1.0, 0.0], [0.6, 0.8]])).round(2)
    array([0.5, 0.2])
    """
    varieties, numbers = np.empty(len(slates)), np.ascontiguousarray(slates, dtype=np.int64)
    tables = read_only(categories, np.bool_), NO_VECTORS if vectors is None else read_only(vectors, vectors.dtype)
    measure_variety(numbers, *tables, np.empty(slates.shape), varieties)
    return varieties


@compiled
def measure_variety(
    slates: Integers, categories: NDArray[np.bool_], vectors: Vectors, distances: Floats, varieties: Floats
) -> None:
    """Fill in the mean distance of each item from the others (n_slates, k), and that of all pairs of a slate.

    NaN where nothing is known; pairs about which nothing is known are left out.
    """
    n_slates, k = slates.shape
    for slate in range(n_slates):
        counts, all_distances, n_pairs = np.zeros(k), 0.0, 0
        distances[slate, :] = 0.0
        for place in range(k):
            for other in range(place):
                distance = 1.0 - similarity(categories, vectors, slates[slate, place], slates[slate, other])
                if distance >= 0.0:  # NaN is not
                    distances[slate, place] += distance
                    distances[slate, other] += distance
                    counts[place] += 1
                    counts[other] += 1
                    all_distances += distance
                    n_pairs += 1
        for place in range(k):
            distances[slate, place] = distances[slate, place] / counts[place] if counts[place] > 0 else np.nan
        varieties[slate] = all_distances / n_pairs if n_pairs > 0 else np.nan


@inner
def similarity(categories: NDArray[np.bool_], vectors: Vectors, item: int, other: int) -> float:
    """Return how similar two items are, 0 to 1; NaN if that is not known, or one of them is −1."""
    if item < 0 or other < 0:
        return np.nan
    shared = n_own = n_others = 0
    for category in range(categories.shape[1]):
        shared += categories[item, category] & categories[other, category]
        n_own += categories[item, category]
        n_others += categories[other, category]
    if n_own > 0 and n_others > 0:
        return shared / (n_own + n_others - shared)
    return positive_cosine(vectors, item, other) if vectors.shape[0] > 0 else np.nan


@inner
def positive_cosine(vectors: Vectors, item: int, other: int) -> float:
    """Return the cosine of two vectors, not below 0; NaN if one of them is zero."""
    product = own = others = 0.0
    for coordinate in range(vectors.shape[1]):
        left, right = np.float64(vectors[item, coordinate]), np.float64(vectors[other, coordinate])
        product += left * right
        own += left * left
        others += right * right
    if not (own > 0.0 and others > 0.0):
        return np.nan
    return float(min(max(product / (np.sqrt(own) * np.sqrt(others)), 0.0), 1.0))
