"""Why an item is on a slate, in three short reasons."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from slatewise.catalog import Catalog
from slatewise.recommender.views import CLOSE, CROWD, EXPLORING, REASONS
from slatewise.slates import squared_lengths

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FAVOURITE_SHARE = 0.1
CLOSE_COSINE = 0.5


class Reasons:
    """Close to something clicked, else a favourite of the crowd (the upper tenth), else something new."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    @cached_property
    def favourite(self) -> float:
        """The log-odds from which an item counts as a favourite of the crowd."""
        return float(np.quantile(self.catalog.log_odds, 1.0 - FAVOURITE_SHARE))

    @cached_property
    def lengths(self) -> Floats:
        """The lengths of the taste vectors, 1 for those without direction."""
        lengths = np.sqrt(squared_lengths(self.catalog.taste_vectors))
        return np.where(lengths > 0.0, lengths, 1.0)

    def of(self, numbers: Integers, liked: tuple[int, ...]) -> tuple[Integers, Integers]:
        """Return for each item the place of its reason in REASONS, and the liked item that it is close to, or −1."""
        closest, cosine = self._closest(numbers, liked)
        is_close = cosine >= CLOSE_COSINE
        popular = self.catalog.log_odds[numbers] >= self.favourite
        crowd_or_new = np.where(popular, REASONS.index(CROWD), REASONS.index(EXPLORING))
        return np.where(is_close, REASONS.index(CLOSE), crowd_or_new), np.where(is_close, closest, -1)

    def _closest(self, numbers: Integers, liked: tuple[int, ...]) -> tuple[Integers, Floats]:
        """Return the liked item with the largest cosine of taste vectors to each item, and that cosine."""
        if not liked or not len(numbers):
            return np.full(len(numbers), -1), np.full(len(numbers), -1.0)
        vectors, known = self.catalog.taste_vectors, np.array(liked)
        cosines = vectors[numbers] @ vectors[known].T / self.lengths[known]
        best = cosines.argmax(axis=1)
        return known[best], cosines[np.arange(len(numbers)), best] / self.lengths[numbers]
