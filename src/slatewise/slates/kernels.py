"""Compiled arithmetic on item vectors and category sets: products, float32 bounds of a block, Jaccard similarity."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from slatewise.compiled import Kernel, compiled

Vectors = NDArray[np.float32] | NDArray[np.float64]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Words = NDArray[np.uint64]
Blocks = tuple[Floats, Words]
"""Of each block the bound, and the bits of items that are closed: they may not be chosen, or were looked at already."""

Function = TypeVar("Function", bound=Callable[..., Any])

BLOCK = 64
"""Items are bounded in blocks of this size: one bit per item in a 64-bit word."""

KEPT_VALUES = 1 << 18
"""Bounds of so many items are kept; of more, they are worked out again where a block is opened, to write less."""

PARTS = 4
"""A large table is read in this many places at a time."""

NOTHING_OR_LOWEST = np.array([0.0, -np.inf])
"""What to add to a value, by a bit that says whether it does not count."""

UNIT = 2.0**-23
"""Twice the relative rounding error of float32."""


class _InnerKernel(Kernel):
    """A kernel that only other kernels call: without an entry from Python it compiles faster.

    It becomes part of its callers: a call would pass every field of every array. It makes no arrays but views, so it
    need not count references to them, which numba does wherever one gets a name, at the cost of a third of the time.
    """

    options: ClassVar[dict[str, Any]] = {
        **Kernel.options,
        "_nrt": False,
        "no_cpython_wrapper": True,
        "no_cfunc_wrapper": True,
        "forceinline": True,
    }

    def __call__(self, *arguments: Any) -> Any:
        """Refuse: there is no entry from Python."""
        del arguments
        raise TypeError(f"{self.__wrapped__.__name__} is for other kernels; its `__wrapped__` is plain Python")


class _AllocatingKernel(_InnerKernel):
    """One that makes arrays, and counts who needs them."""

    options: ClassVar[dict[str, Any]] = {**_InnerKernel.options, "_nrt": True}


class _SumKernel(_InnerKernel):
    """One that may add in any order, so that sums run in vector registers; NaN and infinity keep their meaning."""

    options: ClassVar[dict[str, Any]] = {**_InnerKernel.options, "fastmath": {"reassoc", "contract", "nsz"}}


def inner(function: Function) -> Function:
    """Compile a function that only other kernels call."""
    return cast(Function, _InnerKernel(cast(FunctionType, function)))


def allocating(function: Function) -> Function:
    """Compile a function that only other kernels call, and that makes arrays."""
    return cast(Function, _AllocatingKernel(cast(FunctionType, function)))


def sums(function: Function) -> Function:
    """Compile a function that only other kernels call, and whose sums may be added in any order."""
    return cast(Function, _SumKernel(cast(FunctionType, function)))


@sums
def product(vectors: Vectors, item: int, directions: Floats, row: int) -> float:
    """Return the product of one row of each table, summed in float64; equal vectors give equal products.

    Kernels that run for every item take tables and row numbers: a view of a row would be counted and released.
    """
    total = 0.0
    for coordinate in range(directions.shape[1]):
        total += vectors[item, coordinate] * directions[row, coordinate]
    return total


@sums
def narrow_product(vectors: Vectors, item: int, direction: NDArray[np.float32]) -> float:
    """Return the product of a row with a direction, summed in float32."""
    total = np.float32(0.0)
    for coordinate in range(direction.size):
        total += np.float32(vectors[item, coordinate]) * direction[coordinate]
    return float(total)


@sums
def squared_length(vectors: Vectors, item: int) -> float:
    """Return |x_i|², summed in float64."""
    total = 0.0
    for coordinate in range(vectors.shape[1]):
        value = np.float64(vectors[item, coordinate])
        total += value * value
    return total


@compiled
def fill_squared_lengths(vectors: Vectors, items: Integers, squared: Floats) -> None:
    """Fill in |x_i|² of some items."""
    for position in range(items.size):
        squared[position] = squared_length(vectors, items[position])


def squared_lengths(vectors: Vectors, items: Integers | None = None) -> Floats:
    """Return |x_i|² in float64 of some items, shaped as they are, or of all (n_items,); any item stands in for −1."""
    numbers = np.arange(len(vectors)) if items is None else np.maximum(items, 0)
    squared = np.empty(numbers.size)
    fill_squared_lengths(read_only(vectors, vectors.dtype), numbers.ravel(), squared)
    return squared.reshape(numbers.shape)


def read_only(array: NDArray[Any], kind: Any) -> NDArray[Any]:
    """Return a read-only view by rows, a copy only where dtype or order differ: kernels are compiled for no other."""
    view = np.ascontiguousarray(array, dtype=kind).view()
    view.flags.writeable = False
    return view


@sums
def quadratic_form(vectors: Vectors, item: int, matrices: Floats, number: int) -> float:
    """Return x_iᵀ M x_i for one of some matrices (n, dim, dim)."""
    total = 0.0
    for row in range(matrices.shape[1]):
        inner = 0.0
        for column in range(matrices.shape[2]):
            inner += matrices[number, row, column] * vectors[item, column]
        total += inner * vectors[item, row]
    return total


@sums
def linear_bounds(
    features: NDArray[np.float32],
    offsets: NDArray[np.float32],
    weights: NDArray[np.float32],
    values: Floats,
    out: Blocks,
) -> None:
    """Fill in the float32 values w·x_i + o_i, and the largest of each block of 64 rows that are not closed.

    This is the one pass over the catalog. It runs through four parts of it side by side, which memory delivers faster
    than one. values: of all rows if there are at most KEPT_VALUES, else memory for one block of each part.
    """
    (n_rows, dim), (bounds, closed) = features.shape, out
    n_blocks = n_rows // BLOCK // PARTS  # of each part
    apart, kept = n_blocks * BLOCK, n_rows <= KEPT_VALUES
    values_apart = apart if kept else BLOCK
    for block in range(n_blocks):
        first = block * BLOCK
        values_first = first if kept else 0
        a_largest = b_largest = c_largest = d_largest = np.float32(-np.inf)
        for row in range(first, first + BLOCK):
            a = b = c = d = np.float32(0.0)
            for coordinate in range(dim):
                a += features[row, coordinate] * weights[coordinate]
                b += features[row + apart, coordinate] * weights[coordinate]
                c += features[row + 2 * apart, coordinate] * weights[coordinate]
                d += features[row + 3 * apart, coordinate] * weights[coordinate]
            a, b = a + offsets[row], b + offsets[row + apart]
            c, d = c + offsets[row + 2 * apart], d + offsets[row + 3 * apart]
            position = values_first + row - first
            values[position], values[position + values_apart] = a, b
            values[position + 2 * values_apart], values[position + 3 * values_apart] = c, d
            a_largest, b_largest = max(a_largest, a), max(b_largest, b)
            c_largest, d_largest = max(c_largest, c), max(d_largest, d)
        bounds[block], bounds[block + n_blocks] = a_largest, b_largest
        bounds[block + 2 * n_blocks], bounds[block + 3 * n_blocks] = c_largest, d_largest
        for part in range(PARTS):
            if closed[block + part * n_blocks] != 0:
                start = values_first + part * values_apart
                bits = closed[block + part * n_blocks]
                bounds[block + part * n_blocks] = largest_finite_open(values, start, bits)
    for block in range(PARTS * n_blocks, bounds.size):
        first, last = block * BLOCK, min(n_rows, block * BLOCK + BLOCK)
        shift = 0 if kept else first
        for row in range(first, last):
            values[row - shift] = linear_bound(features, offsets, weights, row)
        bounds[block] = largest_open(values, first - shift, last - shift, closed[block])


@sums
def linear_bound(
    features: NDArray[np.float32], offsets: NDArray[np.float32], weights: NDArray[np.float32], item: int
) -> float:
    """Return the float32 value w·x_i + o_i of one item."""
    total = np.float32(0.0)
    for coordinate in range(features.shape[1]):
        total += features[item, coordinate] * weights[coordinate]
    return float(total + offsets[item])


@inner
def largest_of(values: Floats) -> float:
    """Return the largest of some values; four comparisons are under way at a time."""
    a = b = c = d = -np.inf
    for position in range(0, values.size - 3, 4):
        a, b = max(a, values[position]), max(b, values[position + 1])
        c, d = max(c, values[position + 2]), max(d, values[position + 3])
    for position in range(values.size // 4 * 4, values.size):
        a = max(a, values[position])
    return max(max(a, b), max(c, d))


@inner
def largest_open(values: Floats, first: int, last: int, closed: np.uint64) -> float:
    """Return the largest of a block's values whose bit is not set; NaN if one of them is not finite."""
    largest = -np.inf
    for position in range(last - first):
        if (closed >> np.uint64(position)) & np.uint64(1) == np.uint64(0):
            if not abs(values[first + position]) < np.inf:
                return np.nan
            largest = max(largest, values[first + position])
    return largest


@inner
def largest_finite_open(values: Floats, first: int, closed: np.uint64) -> float:
    """Return the largest of a whole block's values, all finite, whose bit is not set.

    There is no branch in it: which bits are set cannot be predicted.
    """
    largest = -np.inf
    for position in range(BLOCK):
        bit = (closed >> np.uint64(position)) & np.uint64(1)
        largest = max(largest, values[first + position] + NOTHING_OR_LOWEST[bit])
    return largest


@inner
def reaching(values: Floats, closed: np.uint64, limit: float) -> tuple[np.uint64, float]:
    """Return the bits of a block's items that are open and reach a limit, and the largest of the other open ones.

    There is no branch in it: whether an item reaches the limit cannot be predicted.
    """
    bits, rest = np.uint64(0), -np.inf
    for position in range(values.size):
        value = values[position]
        is_open = (closed >> np.uint64(position)) & np.uint64(1) == np.uint64(0)
        reaches = value >= limit
        bits |= np.uint64(is_open & reaches) << np.uint64(position)
        rest = max(rest, value if is_open & (not reaches) else -np.inf)
    return bits, rest


@sums
def inverse_lengths(vectors: Vectors, inverse: Floats) -> None:
    """Fill in 1 / |x_i| of some rows in float32 precision; 0 where float32 cannot hold it."""
    for row in range(vectors.shape[0]):
        squared = np.float32(0.0)
        for coordinate in range(vectors.shape[1]):
            squared += np.float32(vectors[row, coordinate]) * np.float32(vectors[row, coordinate])
        inverse[row] = 1.0 / np.sqrt(np.float64(squared)) if 1e-30 < squared < 1e30 else 0.0


@sums
def lower_cosines(vectors: Vectors, inverse: Floats, direction: NDArray[np.float32], cosines: Floats) -> None:
    """Fill in lower bounds of the cosines of some rows with a direction of length one, 0 if negative.

    The sums are float32, for speed, and the bounds allow for their rounding errors; four rows at a time.
    """
    (n_rows, dim), row = vectors.shape, 0
    while row + 4 <= n_rows:
        a = b = c = d = np.float32(0.0)
        for coordinate in range(dim):
            a += np.float32(vectors[row, coordinate]) * direction[coordinate]
            b += np.float32(vectors[row + 1, coordinate]) * direction[coordinate]
            c += np.float32(vectors[row + 2, coordinate]) * direction[coordinate]
            d += np.float32(vectors[row + 3, coordinate]) * direction[coordinate]
        cosines[row], cosines[row + 1], cosines[row + 2], cosines[row + 3] = a, b, c, d
        row += 4
    while row < n_rows:
        a = np.float32(0.0)
        for coordinate in range(dim):
            a += np.float32(vectors[row, coordinate]) * direction[coordinate]
        cosines[row] = a
        row += 1
    error = UNIT * (dim + 4)
    for row in range(n_rows):
        cosines[row] = max(cosines[row] * inverse[row] - error, 0.0)


@inner
def jaccard_of_sets(words: Words, item: int, other: int) -> float:
    """Return the Jaccard similarity of two sets; empty sets share nothing."""
    shared, united = 0, 0
    for word in range(words.shape[1]):
        shared += ones(words[item, word] & words[other, word])
        united += ones(words[item, word] | words[other, word])
    return shared / united if shared > 0 else 0.0


@inner
def is_empty(words: Words, item: int) -> bool:
    """Whether a set has no members."""
    members = np.uint64(0)
    for word in range(words.shape[1]):
        members |= words[item, word]
    return bool(members == np.uint64(0))


@inner
def next_set(bits: np.uint64, first: int) -> int:
    """Return the number of the first bit from `first` on that is set, 64 if there is none."""
    rest = np.uint64(bits) >> np.uint64(first) if first < BLOCK else np.uint64(0)
    return first + ones((rest & (~rest + np.uint64(1))) - np.uint64(1)) if rest != np.uint64(0) else BLOCK


@inner
def ones(word: np.uint64) -> int:
    """Count the ones of a 64-bit word; LLVM knows this pattern and uses the processor's own instruction."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled
def all_finite(values: Vectors) -> bool:
    """Whether no number (n,) is NaN or infinite."""
    n_others = 0
    for position in range(values.size):
        n_others += not abs(values[position]) < np.inf
    return n_others == 0
