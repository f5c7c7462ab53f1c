"""What is prepared for choosing slates, after a change of some items: only they are prepared again.

In the int8 copy they stay where they stand, and new ones come to its end. Blocks are bounded by what is in them, so a
copy whose items are no longer all sorted is as exact, but lets more blocks be read.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from slatewise.catalog.versioned_arrays import claim_spare_rows, next_version, with_rows
from slatewise.slates.kernels import BLOCK, Floats, Integers, Vectors, read_only, squared_lengths
from slatewise.slates.quantized import LARGEST_CODE, NOT_QUANTIZED, SAFETY, SHORTEST_SCALE, TRUSTED_LENGTHS, Quantized
from slatewise.slates.rules import CategorySets, pack_sets
from slatewise.slates.scores import LARGEST, LinearItems

MOST_CHANGED = 1_000
"""For more changed items, a new copy costs less."""
MOST_ADDED = 1 / 8
"""When more than this share of the items was added after the copy was sorted, a new one is made."""


def changed_items(before: LinearItems, after: tuple[Vectors, Floats], changed: Integers) -> LinearItems:
    """Return items with other features and offsets, which are also their base, that differ for some items only.

    What is after may have more items at its end, all of them among the changed.
    """
    features, base = after
    lengths = np.sqrt(squared_lengths(features, changed))
    if _is_worth_a_new_copy(before.quantized, len(features), lengths):
        return LinearItems.of(features, base, base)
    rows, numbers = read_only(features, np.float32), np.clip(base[changed], -10.0 * LARGEST, 10.0 * LARGEST)
    offsets = read_only(with_rows(before.offsets, len(rows), changed, numbers), np.float32)
    copy = requantize(before.quantized, rows, offsets, changed)
    items = LinearItems(rows, offsets, read_only(base, np.float64), copy)
    longest, highest = float(lengths.max()), float(np.abs(offsets[changed]).max())
    vars(items)["lists"] = before.lists.changed(partial(_changed_list, (rows, offsets), changed))
    vars(items)["extent"] = (max(before.extent[0], longest), max(before.extent[1], highest))
    return items


def _changed_list(
    after: tuple[NDArray[np.float32], NDArray[np.float32]], changed: Integers, copy: Quantized
) -> Quantized:
    """Return the copy of a list of items, some of which may be among those that changed."""
    members = changed[_positions_of(changed, copy.items) >= 0]
    return requantize(copy, *after, members) if len(members) else copy


def _is_worth_a_new_copy(copy: Quantized, n_items: int, lengths: Floats) -> bool:
    """Return whether to make a new, sorted copy after a change of some items with these lengths."""
    if copy is NOT_QUANTIZED or not 1 <= len(lengths) <= MOST_CHANGED or lengths.max() > TRUSTED_LENGTHS[1]:
        return True
    n_added = np.count_nonzero(copy.items == np.arange(len(copy.items))) + n_items - len(copy.items)
    return bool(n_added > MOST_ADDED * n_items)


def changed_sets(sets: CategorySets, indicators: NDArray[np.bool_], n_items: int, changed: Integers) -> CategorySets:
    """Return the category sets of so many items after some changed, whose categories are given (n_changed, n_members).

    Categories may have been added after those that there were.
    """
    fresh, width = pack_sets(indicators), max(sets.words.shape[1], -(-indicators.shape[1] // BLOCK))
    words = np.pad(sets.words, ((0, 0), (0, width - sets.words.shape[1])))
    numbers = np.empty(len(fresh.words), dtype=np.int64)
    for index, word in enumerate(np.pad(fresh.words, ((0, 0), (0, width - fresh.words.shape[1])))):
        known = np.flatnonzero((words == word).all(axis=1))
        numbers[index] = known[0] if len(known) else len(words)
        words = words if len(known) else np.concatenate([words, word[None]])
    of_item = with_rows(sets.of_item, n_items, changed, numbers[fresh.of_item])
    return CategorySets(read_only(words, np.uint64), read_only(of_item, np.int64))


def requantize(
    copy: Quantized, features: NDArray[np.float32], offsets: NDArray[np.float32], changed: Integers
) -> Quantized:
    """Return the copy of features of which only some items differ from those that it was made of.

    An item that it did not have comes to the position of its number, behind the end. Limits of blocks become wider,
    never narrower, so that nothing is read of items that stay as they are.
    """
    positions = _positions_of(changed, copy.items)
    is_new = positions < 0
    n_items = len(copy.items) + int(is_new.sum())
    n_blocks, positions = -(-n_items // BLOCK), np.where(is_new, changed, positions)
    codes, (scales, copied_offsets, limits) = _codes(copy, n_items, positions), _empty_positions(n_blocks)
    scales[: len(copy.scales)], copied_offsets[: len(copy.offsets)] = copy.scales, copy.offsets
    limits[:, : copy.limits.shape[1]] = copy.limits
    items = with_rows(copy.items, n_items, positions, changed)
    rows = features[changed].astype(np.float64)
    shortest = SHORTEST_SCALE * LARGEST_CODE * max(float(copy.scales.max()), float(np.abs(rows).max()))
    scales[positions] = np.maximum(np.abs(rows).max(axis=1) / LARGEST_CODE, shortest)
    exact = rows / scales[positions].astype(np.float64)[:, None]
    rounded = np.clip(np.rint(exact), -LARGEST_CODE, LARGEST_CODE)
    codes[positions // BLOCK, : rows.shape[1], positions % BLOCK] = rounded
    copied_offsets[positions] = offsets[changed]
    _widen(limits, positions // BLOCK, offsets[changed], rows, copy.axis)
    residual, longest = (float(np.sqrt(np.square(part).sum(axis=1)).max()) for part in (exact - rounded, rounded))
    return Quantized(
        read_only(codes, np.int8),
        read_only(scales, np.float32),
        read_only(copied_offsets, np.float32),
        read_only(items, np.int64),
        read_only(limits, np.float64),
        max(copy.residual, residual * SAFETY),
        max(copy.longest, longest * SAFETY),
        copy.axis,
        read_only(copy.signed | (rows < 0.0).any(axis=0), np.bool_),
    )


def _codes(copy: Quantized, n_items: int, positions: Integers) -> NDArray[np.int8]:
    """Return the codes of so many items, to be filled in at some positions.

    A position behind the end is filled in the same memory: whoever has the copy as it was knows no scale for it.
    """
    n_before, n_blocks = len(copy.items), -(-n_items // BLOCK)
    room = claim_spare_rows(copy.codes, n_blocks, (n_before, n_items)) if (positions >= n_before).all() else None
    if room is None:
        room = next_version(copy.codes, n_blocks, positions // BLOCK, n_items)
    room[len(copy.codes) : n_blocks] = 0
    return room[:n_blocks]


def _empty_positions(n_blocks: int) -> tuple[NDArray[np.float32], NDArray[np.float32], Floats]:
    """Return scales and offsets of positions that no item has, and limits of their blocks."""
    n_positions, limits = n_blocks * BLOCK, np.repeat([[-np.inf], [0.0], [np.inf], [-np.inf]], n_blocks, axis=1)
    return np.zeros(n_positions, np.float32), np.full(n_positions, -np.inf, np.float32), limits


def _widen(limits: Floats, blocks: Integers, offsets: NDArray[np.float32], rows: Floats, axis: int) -> None:
    """Let the limits of blocks hold for more rows, one in each of the blocks given, with their offsets."""
    across = np.sqrt(np.square(np.delete(rows, axis, axis=1)).sum(axis=1)) * SAFETY
    np.maximum.at(limits[0], blocks, offsets)
    np.maximum.at(limits[1], blocks, across)
    np.minimum.at(limits[2], blocks, rows[:, axis])
    np.maximum.at(limits[3], blocks, rows[:, axis])


def _positions_of(wanted: Integers, items: Integers) -> Integers:
    """Return the positions of some items, −1 for those that have none."""
    positions = np.flatnonzero(np.isin(items, wanted, kind="table"))
    order = np.argsort(items[positions])
    known = items[positions][order]
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[at] == wanted, positions[order][at], -1) if len(known) else np.full(len(wanted), -1)
