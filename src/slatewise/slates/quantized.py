"""An int8 copy of item features whose guaranteed bounds tell the greedy choice which items it need not look at.

A feature vector is x_i = s_i (q_i + r_i): a scale, whole numbers from −127 to 127, and what rounding left, |r_i| ≤ κ.
Weights are w = v p + ρ likewise, so that, with |q_i| ≤ Q (Cauchy-Schwarz),

    w·x_i ≤ s_i (v p·q_i + |ρ| Q + |w| κ),

where p·q_i is a sum of products of whole numbers, exact and fast. All else is worked out in float64. The copy takes one
byte per feature and 16 bytes per item, and changes no choice.

Items are kept by decreasing length |x_i|, bands of them along the axis in which they differ most, and in blocks of 64.
What its block has at most along this axis, in length across it, and as an offset, limits w·x_i as well: a block none
of whose items can be good enough is not read at all. Where most items are short, as those that few people like are,
that is nearly all of them.

Across the axis, weights below 0 count only in coordinates that some item has below 0: elsewhere, as in the columns for
categories, they can only take away.

That limit is met only by an item that lies exactly in the direction of w. In many dimensions none comes near, so the
approximate choice takes the length across the axis times a cosine below 1, and reads far fewer blocks. It loses items
of blocks that are not read and that lie closer to w than that; all else stays exact.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from slatewise.catalog.mapped_arrays import shared
from slatewise.compiled import compiled
from slatewise.slates.kernels import BLOCK, Floats, Integers, allocating, inner, largest_of, read_only, squared_lengths

Booleans = NDArray[np.bool_]

QUANTIZED_FROM = 2_000
"""Catalogs of at least so many items get the copy, unless the environment says otherwise."""
VARIABLE = "SLATEWISE_QUANTIZE_FROM"
NEVER = "never"

LARGEST_CODE = 127
BAND = 64 * BLOCK
"""So many items of similar length are sorted along the axis."""
SHORTEST_SCALE = 1e-12
"""No item's scale is a smaller part of the longest length than this."""
TRUSTED_LENGTHS = (1e-20, 1e20)
"""Where the longest vector has another length than this, float32 cannot be trusted to hold the scales."""
SAFETY = 1.0 + 1e-9
"""More than float64 can lose in a bound."""

QuantizedArguments = tuple[
    NDArray[np.int8],
    NDArray[np.float32],
    NDArray[np.float32],
    NDArray[np.int64],
    Floats,
    float,
    float,
    int,
    Booleans,
    float,
]
"""The fields of `Quantized`, as the kernels take them, and the cosine limit of `Scores`."""

QuantizedWeights = tuple[bool, NDArray[np.int16], float, float, float, float]
"""For one user: whether the copy is used, p, v, |ρ| Q + |w| κ, the weight along the axis, and the factor of the length
across it."""


class Quantized(NamedTuple):
    """The int8 copy; made by `quantize`.

    codes: q (n_blocks, dim, 64), with an even dim; scales, offsets and items: s, offset and number of the item at each
    place; limits: of each block the largest offset, the largest length across the axis, and the smallest and largest
    coordinate along it (4, n_blocks); residual: κ; longest: Q; axis: the coordinate with the largest sum of squares;
    signed: which coordinates (dim,) some item has below 0.
    """

    codes: NDArray[np.int8]
    scales: NDArray[np.float32]
    offsets: NDArray[np.float32]
    items: Integers
    limits: Floats
    residual: float
    longest: float
    axis: int
    signed: Booleans

    @property
    def nbytes(self) -> int:
        """The memory that the copy takes."""
        return sum(part.nbytes for part in self if isinstance(part, np.ndarray))


NOT_QUANTIZED = Quantized(
    read_only(np.zeros((0, 0, BLOCK)), np.int8),
    read_only(np.zeros(0), np.float32),
    read_only(np.zeros(0), np.float32),
    read_only(np.zeros(0), np.int64),
    read_only(np.zeros((4, 0)), np.float64),
    0.0,
    0.0,
    0,
    read_only(np.zeros(0), np.bool_),
)


def is_worthwhile(n_items: int) -> bool:
    """Whether a catalog is large enough for the copy, or what the environment says instead: a number, or `never`."""
    given = os.environ.get(VARIABLE, str(QUANTIZED_FROM))
    if given != NEVER and not given.isdecimal():
        raise ValueError(f"{VARIABLE} is {given!r}; give a number of items, or {NEVER!r}")
    return given != NEVER and n_items >= int(given)


def quantize(features: NDArray[np.float32], offsets: NDArray[np.float32]) -> Quantized:
    """Copy features (n_items, dim); nothing where float32 cannot hold the scales."""
    (n_items, dim), lengths = features.shape, np.sqrt(squared_lengths(features))
    longest = float(lengths.max(initial=0.0))
    if not TRUSTED_LENGTHS[0] < longest < TRUSTED_LENGTHS[1]:
        return NOT_QUANTIZED
    axis, n_blocks = int(np.einsum("ij,ij->j", features, features).argmax()), -(-n_items // BLOCK)
    items, codes = sorted_items(lengths, features[:, axis]), np.zeros((n_blocks, dim + dim % 2, BLOCK), dtype=np.int8)
    scales = np.zeros(n_blocks * BLOCK, dtype=np.float32)
    copied_offsets = np.full(n_blocks * BLOCK, -np.inf, dtype=np.float32)
    limits = np.repeat([[-np.inf], [0.0], [np.inf], [-np.inf]], n_blocks, axis=1)
    signed = np.zeros(dim, dtype=np.bool_)
    parts = codes, scales, copied_offsets, items, limits, signed
    residual, largest = fill_codes(features, offsets, longest * SHORTEST_SCALE, axis, parts)
    tables = shared(codes), shared(scales), shared(copied_offsets), shared(items), shared(limits)
    return Quantized(*tables, residual * SAFETY, largest * SAFETY, axis, read_only(signed, np.bool_))


def sorted_items(lengths: Floats, along: NDArray[np.float32]) -> Integers:
    """Return all items by decreasing length, every band of them by another number."""
    items = np.argsort(-lengths, kind="stable")
    whole = len(items) // BAND * BAND
    for band in (*items[:whole].reshape(-1, BAND), items[whole:]):
        band[:] = band[np.argsort(along[band], kind="stable")]
    return items


@compiled
def fill_codes(
    features: NDArray[np.float32],
    offsets: NDArray[np.float32],
    shortest_scale: float,
    axis: int,
    out: tuple[NDArray[np.int8], NDArray[np.float32], NDArray[np.float32], Integers, Floats, Booleans],
) -> tuple[float, float]:
    """Fill in the copy, except for the items, which say what is where; return κ and Q."""
    codes, scales, copied_offsets, items, limits, signed = out
    residual = longest = 0.0
    for position in range(items.size):
        item, block = items[position], position // BLOCK
        largest = 0.0
        for coordinate in range(features.shape[1]):
            largest = max(largest, abs(np.float64(features[item, coordinate])))
        scales[position] = max(largest / LARGEST_CODE, shortest_scale)
        left = size = across = 0.0
        for coordinate in range(features.shape[1]):
            exact = features[item, coordinate] / np.float64(scales[position])
            code = min(max(np.rint(exact), -LARGEST_CODE), LARGEST_CODE)
            codes[block, coordinate, position % BLOCK] = np.int8(code)
            left += (exact - code) * (exact - code)
            size += code * code
            signed[coordinate] |= features[item, coordinate] < 0.0
            across += np.float64(features[item, coordinate]) ** 2 if coordinate != axis else 0.0
        residual, longest = max(residual, np.sqrt(left)), max(longest, np.sqrt(size))
        copied_offsets[position] = offsets[item]
        limits[0, block] = max(limits[0, block], np.float64(offsets[item]))
        limits[1, block] = max(limits[1, block], np.sqrt(across) * SAFETY)
        limits[2, block] = min(limits[2, block], np.float64(features[item, axis]))
        limits[3, block] = max(limits[3, block], np.float64(features[item, axis]))
    return residual, longest


@allocating
def quantized_weights(copy: QuantizedArguments, weights: Floats, user: int, slope: float) -> QuantizedWeights:
    """Return the weights of a user, times the slope, as whole numbers and what they leave open."""
    codes, _, _, _, _, residual, longest, axis, signed, cosine_limit = copy
    rounded, largest = np.zeros(codes.shape[1], dtype=np.int16), 0.0
    for coordinate in range(weights.shape[1]):
        largest = max(largest, abs(slope * weights[user, coordinate]))
    unit, left, across, adding = largest / LARGEST_CODE, 0.0, 0.0, 0.0
    for coordinate in range(weights.shape[1]):
        exact = slope * weights[user, coordinate]
        code = np.rint(exact / unit) if unit > 0.0 else 0.0
        rounded[coordinate] = np.int16(code)
        left += (exact - unit * code) * (exact - unit * code)
        across += exact * exact if coordinate != axis else 0.0
        adding += exact * exact if coordinate != axis and (exact > 0.0 or signed[coordinate]) else 0.0
    along = slope * weights[user, axis]
    error = np.sqrt(left) * longest + np.sqrt(across + along * along) * residual
    factor = min(np.sqrt(adding), np.sqrt(across) * cosine_limit)
    return True, rounded, unit, error * SAFETY, along, factor * SAFETY


@inner
def limit_blocks(copy: QuantizedArguments, weights: QuantizedWeights, bounds: Floats) -> None:
    """Fill in what the items of each block can gain at most."""
    for block in range(bounds.size):
        bounds[block] = limit_of_block(copy, weights, block)


@inner
def limit_of_block(copy: QuantizedArguments, weights: QuantizedWeights, block: int) -> float:
    """Return what the items of a block can gain at most, by the block's limits."""
    limits, along, across = copy[4], weights[4], weights[5]
    return float(limits[0, block] + across * limits[1, block] + max(along * limits[2, block], along * limits[3, block]))


@inner
def quantized_bounds(
    copy: QuantizedArguments, weights: QuantizedWeights, block: int, sums: NDArray[np.int32], values: Floats
) -> float:
    """Fill in the bounds of a block's items, all 64 at a time, and return the largest.

    Two products fit into 16 bits, 2·127² < 2¹⁵, which processors add up twice as fast as 32. Views of a block's scales
    and offsets can be read in vector registers; indexes that are sums could be negative, for all that LLVM knows.
    """
    codes, scales, offsets, _, _, _, _, _, _, _ = copy
    _, rounded, unit, error, _, _ = weights
    for position in range(BLOCK):
        sums[position] = 0
    for coordinate in range(0, codes.shape[1], 2):
        even, odd = rounded[coordinate], rounded[coordinate + 1]
        for position in range(BLOCK):
            pair = codes[block, coordinate, position] * even + codes[block, coordinate + 1, position] * odd
            sums[position] += np.int32(np.int16(pair))
    first = block * BLOCK
    of_scales, of_offsets = scales[first : first + BLOCK], offsets[first : first + BLOCK]
    for position in range(BLOCK):
        values[position] = np.float64(of_scales[position]) * (unit * sums[position] + error) + np.float64(
            of_offsets[position]
        )
    return largest_of(values)
