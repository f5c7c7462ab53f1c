"""Categories as people write them, `"Comedy|Drama"` or lists of names, turned into indicators."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Categories = str | Iterable[str] | None


def indicators(categories: Iterable[Categories]) -> tuple[tuple[str, ...], NDArray[np.bool_]]:
    """Return the sorted category names and the matrix (n_items, n_categories) of who has which."""
    places: dict[frozenset[str], int] = {}
    parsed: dict[str | None, int] = {}
    rows = []
    for one in categories:
        if one is None or isinstance(one, str):
            if one not in parsed:
                parsed[one] = places.setdefault(_names((one or "").split("|")), len(places))
            rows.append(parsed[one])
        else:
            rows.append(places.setdefault(_names(one), len(places)))
    names = tuple(sorted(frozenset().union(*places)))
    distinct = np.array([[name in group for name in names] for group in places], dtype=bool)
    return names, distinct.reshape(len(places), len(names))[rows]


def _names(words: Iterable[str]) -> frozenset[str]:
    return frozenset(word.strip() for word in words) - {""}
