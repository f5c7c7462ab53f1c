"""`diversify`: a varied top k of scores that somebody has already, in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slatewise.categories import indicators
from slatewise.compiled import compiled
from slatewise.slates.available import NO_NUMBERS, NO_TABLE, NO_WORDS
from slatewise.slates.greedy import choose_slates, rule_arguments, score_arguments
from slatewise.slates.kernels import Floats, Integers, Vectors, all_finite, read_only
from slatewise.slates.rules import CategorySets, Rule, largest_cosine, overlap, pack_sets, relevance, volume
from slatewise.slates.scores import NO_ITEMS, TABLE, Scores

Method = Literal["overlap", "dpp", "mmr"]

EVERYTHING = (False, NO_TABLE, NO_NUMBERS, NO_NUMBERS, NO_WORDS)
LARGEST_SCORE = 1e30
TINY_SCORES, ENLARGED = 1e-100, 2.0**600
"""Scores whose squares could vanish, and what they are multiplied by before they are standardized."""
FIRST = 1e-6
"""What makes the most relevant item the first one when relevance counts for nothing; above a tie."""

RESCALE = "multiply all vectors by a number, so that their lengths are closer to 1"


@dataclass(frozen=True)
class Diversified:
    """What `diversify` chose: indices into the scores, best first, and what each item gained when it was chosen.

    It can be unpacked: `indices, gains = diversify(...)`.
    """

    indices: Integers
    gains: Floats

    def __iter__(self) -> Iterator[Any]:
        """Yield indices and gains."""
        return iter((self.indices, self.gains))


def diversify(
    scores: ArrayLike,
    *,
    vectors: ArrayLike | None = None,
    categories: Any = None,
    k: int = 10,
    diversity: float = 0.5,
    method: Method | None = None,
) -> Diversified:
    """Choose k items that are relevant and differ from each other, greedily and exactly.

    Parameters
    ----------
    scores : array_like
        How relevant each item is, (n_items,): a list or an array of numbers from −1e30 to 1e30.
    vectors : array_like, optional
        Item vectors (n_items, dim) of any length that float32 can hold, for "dpp" and "mmr"; they are used in float32
        and not copied if they are float32 already.
    categories : sequence, optional
        For "overlap", one entry per item: a list of names, "A|B" or None; or indicators (n_items, n_categories).
    k : int
        How many items to choose; fewer come back if there are fewer.
    diversity : float
        From 0, the best scores whatever the method, to 1, as varied as possible.
    method : {"overlap", "dpp", "mmr"}, optional
        With D for diversity and z for the scores standardized to mean 0 and deviation 1, an item gains

        * "overlap": (1 − D)·z − D·(summed Jaccard similarity of its categories with those of the items chosen before);
        * "dpp": 2(1 − D)·z + log ρ², where ρ is the length of what is left of its unit vector outside the span of the
          items chosen before: the greedy search for the most probable set of a determinantal point process;
        * "mmr": (1 − D)·score − D·(largest cosine with an item chosen before, 0 if all are negative): maximal marginal
          relevance. It takes the scores as they are, so give them on a scale like that of cosines.

        The default is "overlap" if there are categories, else "dpp". Gains that are equal to rounding go to the lowest
        index; zero vectors come last in "dpp" and are similar to nothing in "mmr".

    Returns
    -------
    Diversified
        `indices` (min(k, n_items),), best first, and their `gains`.

    Examples
    --------
    >>> from slatewise.slates import diversify
    >>> scores = [0.9, 0.8, 0.7, 0.1]
    >>> diversify(scores, categories=["Drama", "Drama", "Comedy", "Western"], k=2).indices.tolist()
    [0, 2]
    >>> indices, gains = diversify(scores, vectors=[[1, 0], [1, 0], [0, 1], [1, 1]], k=2, method="mmr")
    >>> indices.tolist(), gains.round(2).tolist()
    ([0, 2], [0.45, 0.35])

    """
    values = _scores(scores)
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise ValueError(f"k is {k!r}; give a whole number of 1 or more")
    if not isinstance(diversity, (int, float, np.number)) or not 0.0 <= diversity <= 1.0:
        raise ValueError(f"diversity is {diversity!r}; give a number from 0 (the best scores) to 1 (most varied)")
    name = method or ("overlap" if categories is not None or vectors is None else "dpp")
    if not isinstance(name, str) or name not in METHODS:
        raise ValueError(f"method is {name!r}; choose one of {', '.join(METHODS)}")
    return METHODS[name](values, vectors, categories, int(k), float(diversity))


def _by_overlap(values: Floats, vectors: Any, categories: Any, k: int, diversity: float) -> Diversified:
    del vectors
    if categories is None:
        raise ValueError("method 'overlap' needs categories; pass categories=, or vectors= with method 'dpp' or 'mmr'")
    sets = _sets(categories, values.size)
    _standardize(values, 1.0 - diversity)
    return _choose(values, overlap(sets, diversity), k)


def _by_volume(values: Floats, vectors: Any, categories: Any, k: int, diversity: float) -> Diversified:
    del categories
    table = _vectors("dpp", vectors, values.size)
    _standardize(values, 2.0 * (1.0 - diversity))
    return _choose(values, volume(table) if diversity > 0.0 else relevance(), k)


def _by_cosine(values: Floats, vectors: Any, categories: Any, k: int, diversity: float) -> Diversified:
    del categories
    table = _vectors("mmr", vectors, values.size)
    best = int(values.argmax()) if diversity == 1.0 else -1
    values *= 1.0 - diversity
    if best >= 0:
        values[best] = FIRST
    chosen = _choose(values, largest_cosine(table, diversity), k)
    if best >= 0:
        chosen.gains[0] = 0.0
    return chosen


METHODS: dict[str, Callable[[Floats, Any, Any, int, float], Diversified]] = {
    "overlap": _by_overlap,
    "dpp": _by_volume,
    "mmr": _by_cosine,
}


def _standardize(values: Floats, scale: float) -> None:
    """Turn scores into scale·z, however small they are."""
    if max(float(values.max()), -float(values.min())) < TINY_SCORES:
        values *= ENLARGED
    standardize(values, scale)


def _choose(values: Floats, rule: Rule, k: int) -> Diversified:
    """Choose for a single row of scores, all of them available."""
    size = min(k, values.size)
    items, gains, own = np.empty((1, size), dtype=np.int64), np.empty((1, size)), np.empty((1, size))
    scores = Scores(TABLE, values[None], NO_ITEMS)
    choose_slates(score_arguments(scores), rule_arguments(rule), EVERYTHING, (items, gains, own))
    return Diversified(items[0], gains[0])


def _scores(scores: ArrayLike) -> Floats:
    """Return a float64 copy of scores whose squares are finite, too."""
    try:
        values = np.array(scores, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("scores are not numbers; give one finite number per item") from None
    except OverflowError:
        raise ValueError("scores hold an integer beyond float64; give numbers from -1e30 to 1e30") from None
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"scores are shaped {values.shape}; give one number per item, at least one: (n_items,)")
    if not all_finite(values):
        raise ValueError(f"score {int(np.argmin(np.isfinite(values)))} is not finite; give a number for every item")
    largest = int(np.argmax(np.abs(values)))
    if abs(values[largest]) > LARGEST_SCORE:
        raise ValueError(f"score {largest} is {values[largest]:g}; give numbers from -1e30 to 1e30")
    return values


def _vectors(method: str, vectors: Any, n_items: int) -> Vectors:
    """Return vectors in float32, which must be able to hold them."""
    if vectors is None:
        raise ValueError(f"method {method!r} needs vectors; pass vectors=, or categories= with method 'overlap'")
    is_exact = getattr(vectors, "dtype", None) == np.float32
    given = np.asarray(vectors) if is_exact else _numbers(vectors, n_items)
    if given.ndim != 2 or len(given) != n_items or given.shape[1] == 0:
        raise ValueError(f"vectors are shaped {given.shape}; give a row for each of the {n_items} scores")
    with np.errstate(over="ignore"):
        table = read_only(given, np.float32)
    _check_cast(given, table)
    return table


def _numbers(vectors: Any, n_items: int) -> Floats:
    try:
        return np.asarray(vectors, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"vectors are not numbers in rows of one length; give ({n_items}, dim)") from None
    except OverflowError:
        raise ValueError(f"vectors hold an integer beyond float64; {RESCALE}") from None


def _check_cast(given: NDArray[Any], table: Vectors) -> None:
    """Refuse a vector that is not finite, or of which float32 leaves nothing, or little: some digits of small ones."""
    if not all_finite(table.reshape(-1)):
        bad = int(np.argmin(np.isfinite(table).all(axis=1)))
        if np.isfinite(given[bad]).all():
            raise ValueError(f"vector {bad} is too large for float32; {RESCALE}")
        raise ValueError(f"vector {bad} holds NaN or infinity; give finite numbers for every item")
    if given.dtype != table.dtype:
        is_small = (np.abs(table).max(axis=1) < np.finfo(np.float32).tiny) & given.any(axis=1)
        if is_small.any():
            raise ValueError(f"vector {int(is_small.argmax())} is too small for float32; {RESCALE}")


def _sets(categories: Any, n_items: int) -> CategorySets:
    """Return category sets, from indicators or from names."""
    if isinstance(categories, str) or not hasattr(categories, "__len__"):
        raise ValueError("categories are not a list; give one entry per item: names, 'A|B' or None, or indicators")
    if len(categories) != n_items:
        raise ValueError(f"there are categories for {len(categories)} items and {n_items} scores; give one per score")
    if isinstance(categories, np.ndarray) and categories.ndim == 2:
        if categories.dtype != np.bool_ and not np.isin(categories, (0, 1)).all():
            raise ValueError("categories hold other numbers than 0 and 1; give indicators (n_items, n_categories)")
        return pack_sets(categories.astype(np.bool_, copy=False))
    try:
        return pack_sets(indicators(categories)[1])
    except (TypeError, AttributeError):
        raise ValueError("categories hold something that is no name; give names, 'A|B' or None per item") from None


@compiled
def standardize(scores: Floats, scale: float) -> None:
    """Turn scores into scale·z, z with mean 0 and deviation 1; equal scores, up to rounding, become 0."""
    total = squares = largest = 0.0
    for item in range(scores.size):
        total += scores[item]
    mean = total / scores.size
    for item in range(scores.size):
        squares += (scores[item] - mean) * (scores[item] - mean)
        largest = max(largest, abs(scores[item]))
    deviation = np.sqrt(squares / scores.size)
    factor = scale / deviation if deviation > 1e-12 * largest else 0.0
    for item in range(scores.size):
        scores[item] = factor * (scores[item] - mean)
