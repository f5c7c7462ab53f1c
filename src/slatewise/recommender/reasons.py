"""Why an item is on a slate, in three short reasons."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from slatewise.catalog import Catalog
from slatewise.recommender.views import CLOSE, CROWD, EXPLORING

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

    def of(self, numbers: Integers, liked: tuple[int, ...]) -> list[tuple[str, int | None]]:
        """Return for each item a reason, and the liked item that it is close to."""
        closest, cosine = self._closest(numbers, liked)
        popular = self.catalog.log_odds[numbers] >= self.favourite
        return [
            (CLOSE, int(near)) if similar >= CLOSE_COSINE else (CROWD if crowd else EXPLORING, None)
            for near, similar, crowd in zip(closest, cosine, popular, strict=True)
        ]

    def _closest(self, numbers: Integers, liked: tuple[int, ...]) -> tuple[Integers, Floats]:
        """Return the liked item with the largest cosine of taste vectors to each item, and that cosine."""
        if not liked or not len(numbers):
            return np.full(len(numbers), -1), np.full(len(numbers), -1.0)
        cosines = self._directions(numbers) @ self._directions(np.array(liked)).T
        best = cosines.argmax(axis=1)
        return np.array(liked)[best], cosines[np.arange(len(numbers)), best]

    def _directions(self, numbers: Integers) -> Floats:
        vectors = self.catalog.taste_vectors[numbers].astype(np.float64)
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        lengths[lengths == 0.0] = 1.0
        vectors /= lengths[:, None]
        return vectors
