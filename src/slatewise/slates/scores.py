"""Scores of items in the forms that the greedy choice takes: a table, or a linear function of item features.

A linear form is never worked out for all items in float64. An int8 copy of the features (quantized.py) or, without one,
one float32 pass bounds the items in blocks, wide enough for whatever rounding can lose; only items that come into
question are scored exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slatewise.catalog.mapped_arrays import shared
from slatewise.compiled import compiled
from slatewise.slates.kernels import (
    BLOCK,
    KEPT_VALUES,
    UNIT,
    Blocks,
    Floats,
    Integers,
    allocating,
    inner,
    largest_open,
    linear_bound,
    linear_bounds,
    product,
    quadratic_form,
    read_only,
    squared_lengths,
)
from slatewise.slates.list_copies import ListCopies
from slatewise.slates.quantized import (
    NOT_QUANTIZED,
    Quantized,
    QuantizedArguments,
    QuantizedWeights,
    is_worthwhile,
    limit_blocks,
    quantize,
    quantized_weights,
)

TABLE, LINEAR, LOGISTIC, UPPER_CONFIDENCE = range(4)

LARGEST = 1e37
"""float32 ends at 3e38; sums that may come near are not trusted."""

NO_FEATURES = read_only(np.zeros((0, 0)), np.float32)
NO_OFFSETS = read_only(np.zeros(0), np.float32)
NO_BASE = read_only(np.zeros(0), np.float64)
NO_MATRIX = np.zeros((0, 0, 0))

ScoreArguments = tuple[
    int, Floats, Floats, NDArray[np.float32], NDArray[np.float32], Floats, float, float, float, QuantizedArguments
]

Pass = tuple[int, int, float, NDArray[np.float32], Integers, QuantizedWeights]
"""For one user: number, how many items, rounding error, weights in float32, candidates if not all items are, and
weights for the int8 copy."""


class Scores(NamedTuple):
    """Scores of n_users and n_items.

    kind: which form; values: the table (n_users or 1, n_items), or weights (n_users, dim); factor: α of a form;
    cosine_limit: the largest cosine with the weights that items of blocks not yet read are thought to have, across the
    axis of the int8 copy; 1 is exact.
    """

    kind: int
    values: Floats
    items: LinearItems
    matrix: Floats = NO_MATRIX
    factor: float = 1.0
    cosine_limit: float = 1.0


@dataclass(frozen=True, eq=False)
class LinearItems:
    """What is prepared once per catalog for scores that are linear in features, up to a bound.

    features: (n_items, dim) float32; offsets: (n_items,) float32, such that no gain exceeds w·x_i + o_i by more than
    rounding; base: (n_items,) float64, added to exact scores, or nothing; quantized: an int8 copy, or nothing; lists:
    the copies of lists of items that are asked for again and again.
    """

    features: NDArray[np.float32]
    offsets: NDArray[np.float32]
    base: Floats
    quantized: Quantized = NOT_QUANTIZED
    lists: ListCopies = field(default_factory=ListCopies, init=False, repr=False)

    @classmethod
    def of(
        cls, features: ArrayLike, offsets: ArrayLike, base: ArrayLike | None = None, is_quantized: bool | None = None
    ) -> LinearItems:
        """Round the offsets to float32; features that are float32 by rows are not copied.

        is_quantized: whether there is an int8 copy; by default, in large catalogs. It changes no choice.
        """
        rounded = np.clip(np.asarray(offsets, dtype=np.float64), -10.0 * LARGEST, 10.0 * LARGEST)
        exact = NO_BASE if base is None else read_only(np.asarray(base), np.float64)
        rows, narrow = shared(np.asarray(features, dtype=np.float32)), read_only(rounded, np.float32)
        wanted = is_worthwhile(len(rows)) if is_quantized is None else is_quantized
        return cls(rows, narrow, exact, quantize(rows, narrow) if wanted else NOT_QUANTIZED)

    @cached_property
    def extent(self) -> tuple[float, float]:
        """The length of the longest row and the largest offset, which bound the rounding errors."""
        real = self.offsets[self.offsets > -5.0 * LARGEST]
        longest = np.sqrt(squared_lengths(self.features).max(initial=0.0))
        return float(longest), float(np.abs(real).max(initial=0.0))

    def linear(self, weights: Floats) -> Scores:
        """score_i = w·x_i + base_i."""
        return Scores(LINEAR, np.ascontiguousarray(weights), self)

    def logistic(self, weights: Floats, factor: float) -> Scores:
        """score_i = factor·z_i + log σ(z_i), z_i = w·x_i; the offsets bound what variety adds."""
        return Scores(LOGISTIC, np.ascontiguousarray(weights), self, factor=factor)

    def upper_confidence(self, weights: Floats, matrix: Floats, factor: float) -> Scores:
        """score_i = w·x_i + factor·√(x_iᵀMx_i), M (n_users, dim, dim); the offsets bound the root and variety."""
        return Scores(UPPER_CONFIDENCE, np.ascontiguousarray(weights), self, np.ascontiguousarray(matrix), factor)


NO_ITEMS = LinearItems(NO_FEATURES, NO_OFFSETS, NO_BASE)


def table(values: ArrayLike) -> Scores:
    """Take scores (n_users, n_items), or (1, n_items) if they are the same for all users."""
    scores = np.ascontiguousarray(values, dtype=np.float64)
    if scores.ndim != 2 or scores.shape[1] == 0:
        raise ValueError(f"scores are {scores.shape}; give one row per user and at least one item: (n_users, n_items)")
    return Scores(TABLE, scores, NO_ITEMS)


def boosted(scores: Scores, factors: Floats) -> Scores:
    """Return linear scores as a table, each times the factor of its item (n_items,), or divided by it if below 0."""
    values = linear_scores(scores)
    return table(np.where(values > 0.0, values * factors, values / factors))


def linear_scores(scores: Scores) -> Floats:
    """Return linear scores of all users and items in float64."""
    values = np.empty((len(scores.values), len(scores.items.features)))
    fill_linear_scores(scores.items.features, scores.items.base, scores.values, values)
    return values


@compiled
def fill_linear_scores(features: NDArray[np.float32], base: Floats, weights: Floats, values: Floats) -> None:
    """Fill in w·x_i + base_i for every user and item, in float64."""
    for user in range(values.shape[0]):
        for item in range(values.shape[1]):
            values[user, item] = product(features, item, weights, user) + base[item]


@inner
def exact_score(
    kind: int,
    values: Floats,
    matrix: Floats,
    features: NDArray[np.float32],
    base: Floats,
    factor: float,
    user: int,
    item: int,
) -> float:
    """Return the score of one item in float64; see `Scores` for the arguments."""
    if kind == TABLE:
        return float(values[user if values.shape[0] > 1 else 0, item])
    total = product(features, item, values, user)
    if kind == LINEAR:
        return float(total + base[item])
    if kind == LOGISTIC:
        return float(factor * total + min(total, 0.0) - np.log1p(np.exp(-abs(total))))
    return float(total + factor * np.sqrt(max(quadratic_form(features, item, matrix, user), 0.0)))


@inner
def rounding_error(scores: ScoreArguments, user: int) -> float:
    """Return by how much a gain can exceed a float32 bound; infinity if float32 cannot hold the sums."""
    kind, values, _, features, _, _, factor, longest, highest, _ = scores
    if kind == TABLE:
        return 0.0
    slope = factor if kind == LOGISTIC else 1.0
    size = longest * abs(slope) * np.sqrt(product(values, user, values, user)) + highest
    return UNIT * (features.shape[1] + 3) * size + 1.0 / LARGEST if size < LARGEST else np.inf


@allocating
def narrow_weights(scores: ScoreArguments, user: int) -> NDArray[np.float32]:
    """Return the weights of the bounds in float32; none for a table."""
    kind, values, _, features, _, _, factor, _, _, _ = scores
    slope = factor if kind == LOGISTIC else 1.0
    weights = np.empty(0 if kind == TABLE else features.shape[1], dtype=np.float32)
    for coordinate in range(weights.size):
        weights[coordinate] = slope * values[user, coordinate]
    return weights


@allocating
def int8_weights(scores: ScoreArguments, user: int, error: float, n: int) -> QuantizedWeights:
    """Return the weights for the int8 copy, which is used if it is of the n items in question and float32 holds all."""
    kind, values, _, _, _, _, factor, _, _, copy = scores
    if kind == TABLE or copy[3].size != n or not error < np.inf:
        return False, np.empty(0, dtype=np.int16), 0.0, 0.0, 0.0, 0.0
    return quantized_weights(copy, values, user, factor if kind == LOGISTIC else 1.0)


@inner
def item_at(scores: ScoreArguments, one_pass: Pass, position: int) -> int:
    """Return the item at a position: in the order of the int8 copy, among the candidates, or in the catalog."""
    if one_pass[5][0]:
        return int(scores[9][3][position])
    return int(one_pass[4][position]) if one_pass[4].size > 0 else position


@inner
def bound_blocks(scores: ScoreArguments, one_pass: Pass, values: Floats, out: Blocks) -> bool:
    """Fill in what items can gain, up to the rounding error, and the largest of each block.

    values: of all items if there are at most KEPT_VALUES, else memory for one block. False if the score of an available
    item in a table is not finite.
    """
    _, n, error, weights, candidates, int8 = one_pass
    bounds, closed = out
    if int8[0]:
        limit_blocks(scores[9], int8, bounds)
        return True
    if scores[0] != TABLE and candidates.size == 0 and error < np.inf:
        linear_bounds(scores[3], scores[4], weights, values, out)
        return True
    for block in range(bounds.size):
        shift = 0 if n <= KEPT_VALUES else block * BLOCK
        bound_items(scores, one_pass, block, values, shift)
        first, last = block * BLOCK - shift, min(n, block * BLOCK + BLOCK) - shift
        bounds[block] = largest_open(values, first, last, closed[block])
        if np.isnan(bounds[block]):
            return False
    return True


@inner
def bound_items(scores: ScoreArguments, one_pass: Pass, block: int, values: Floats, shift: int) -> None:
    """Fill in what the items of a block can gain, up to the rounding error.

    Sums that float32 cannot hold bound nothing: their error is infinite, whatever the bound.
    """
    kind, table, _, features, offsets, _, _, _, _, _ = scores
    user, n, error, weights, _, _ = one_pass
    row = user if table.shape[0] > 1 else 0
    for position in range(block * BLOCK, min(n, block * BLOCK + BLOCK)):
        item = item_at(scores, one_pass, position)
        if kind == TABLE:
            values[position - shift] = table[row, item]
        else:
            values[position - shift] = linear_bound(features, offsets, weights, item) if error < np.inf else 0.0
