"""Categories as users write them, `"Comedy|Drama"` or lists of names, turned into indicators."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Categories = str | Iterable[str] | None
NO_CATEGORY = {"", "none", "(no genres listed)"}
"""What people write, in any case, where an item has no category."""


def indicators(categories: Iterable[Categories]) -> tuple[tuple[str, ...], NDArray[np.bool_]]:
    """Return the category names and which item has which category.

    Parameters
    ----------
    categories : iterable
        The categories of each item: a list of names, `"A|B"`, or None.

    Returns
    -------
    tuple of str, array (n_items, n_categories) of bool
        The sorted names, and the indicators.

    Examples
    --------
    >>> from slatewise.categories import indicators
    >>> names, has_category = indicators(["Comedy|Drama", ["Drama"], None])
    >>> names
    ('Comedy', 'Drama')
    >>> has_category.astype(int).tolist()
    [[1, 1], [0, 1], [0, 0]]
    """
    numbers: dict[frozenset[str], int] = {}
    parsed: dict[str | None, int] = {}
    rows = []
    for value in categories:
        if value is None or isinstance(value, str):
            if value not in parsed:
                parsed[value] = numbers.setdefault(_names((value or "").split("|")), len(numbers))
            rows.append(parsed[value])
        else:
            rows.append(numbers.setdefault(_names(value), len(numbers)))
    names = tuple(sorted(frozenset().union(*numbers)))
    distinct = np.array([[name in group for name in names] for group in numbers], dtype=bool)
    return names, distinct.reshape(len(numbers), len(names))[rows]


def _names(words: Iterable[str]) -> frozenset[str]:
    names = frozenset(word.strip() for word in words)
    return frozenset(name for name in names if name.lower() not in NO_CATEGORY)
