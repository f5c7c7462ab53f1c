"""From checked columns to arrays of positive (user, item) pairs: duplicates, the positive rule, dense numbering."""

import operator
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slatewise.data.tables import DataError, numbers, refuse_blank, times, typed_identifiers
from slatewise.plurals import counted

Integers = NDArray[np.integer[Any]]

COMPARISONS: dict[str, Callable[[Any, float], Any]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
}


def parse_rule(rule: str) -> Callable[[Any], Any]:
    """Turn a rule such as `> 3` or `>= 0.5` into a test on an array of ratings."""
    match = re.fullmatch(r"\s*(>=|<=|==|>|<)\s*(-?[0-9]+(?:\.[0-9]+)?)\s*", rule)
    if not match:
        raise DataError(f"cannot parse the rule {rule!r}; use for example '> 3', '>= 0.5' or 'all'")
    compare, threshold = COMPARISONS[match[1]], float(match[2])
    return lambda ratings: compare(ratings, threshold)


def numbered(column: pl.Series, label: str) -> tuple[Integers, pl.Series | None, str]:
    """Check a column of ids; return a number for each row, the names of the numbers, and the kind of ids.

    Integers are their own numbers and need no names; text is numbered in sorted order.
    """
    column, kind = typed_identifiers(column, label)
    if kind == "int":
        return column.to_numpy(), None, kind
    distinct, codes = compress(column.cast(pl.Categorical).to_physical().to_numpy())
    some_row = np.empty(len(distinct), dtype=np.intp)
    some_row[codes] = np.arange(len(codes))
    names = column.gather(some_row)
    refuse_blank(column, names, label)
    order = names.arg_sort().to_numpy()
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order))
    return rank[codes], names.gather(order), kind


def compress(values: Integers) -> tuple[Integers, NDArray[np.int32]]:
    """Return the distinct values in order, and for each value its position among them.

    The same as `np.unique(values, return_inverse=True)`, by lookup table instead of by sorting if the range is small.
    """
    if values.min() < 0 or values.max() > 4 * len(values) + 1_000:
        distinct, positions = np.unique(values, return_inverse=True)
        return distinct, positions.astype(np.int32)
    present = np.bincount(values) > 0
    table = np.cumsum(present, dtype=np.int32) - np.int32(1)
    return np.flatnonzero(present), table.take(values, mode="clip")


def last_of_each_pair(users: Integers, items: Integers, times: pl.Series | None) -> NDArray[np.intp] | None:
    """Return the rows to keep, sorted by user and item, so that each pair is kept once: its latest row.

    Without times the latest row is the last one in the table. None means that every row is kept as it is,
    because the table is already sorted and has no duplicates.
    """
    if _is_sorted(users[:1_000], items[:1_000]) and _is_sorted(users, items):
        return None
    order, is_last = _sorted_rows(users, items)
    if times is not None and not is_last.all():
        _sort_repeated_by_time(order, is_last, times.fill_null(0).to_numpy())
    return order[is_last]


def _is_sorted(users: Integers, items: Integers) -> bool:
    """Return whether the rows are sorted by user, then item, without duplicates."""
    in_order = items[1:] > items[:-1]
    in_order &= users[1:] == users[:-1]
    in_order |= users[1:] > users[:-1]
    return bool(in_order.all())


def _sorted_rows(users: Integers, items: Integers) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the rows sorted by user, then item, then row, and which of them is the last one of its pair.

    The rows are those of `np.lexsort((items, users))`. Where user, item and row fit into 63 bits, one sort of integers
    finds them several times as fast.
    """
    row_bits = len(users).bit_length()
    item_bits, user_bits = ((int(ids.max()) - int(ids.min())).bit_length() for ids in (items, users))
    if row_bits + item_bits + user_bits > 63:
        order = np.lexsort((items, users))
        return order, _ends(users[order]) | _ends(items[order])
    packed: NDArray[np.int64] = (users.astype(np.int64) - users.min()) << item_bits
    packed |= items.astype(np.int64) - items.min()
    packed <<= row_bits
    packed |= np.arange(len(users))
    packed.sort()
    is_last = _ends(packed >> row_bits)
    packed &= (1 << row_bits) - 1
    return packed.astype(np.intp, copy=False), is_last


def _ends(values: Integers) -> NDArray[np.bool_]:
    """Return whether each value is the last before another one, or before the end."""
    is_last = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=is_last[:-1])
    return is_last


def _sort_repeated_by_time(order: NDArray[np.intp], is_last: NDArray[np.bool_], times: NDArray[Any]) -> None:
    """Sort the rows of each pair that occurs more than once by time, in place; rows of equal times stay as they are."""
    repeated = ~is_last
    repeated[1:] |= ~is_last[:-1]
    rows: NDArray[np.intp] = order[repeated]
    pair: NDArray[np.intp] = np.cumsum(is_last)[repeated] - is_last[repeated]
    order[repeated] = rows[np.lexsort((times[rows], pair))]


def positive_rows(
    frame: pl.DataFrame, pairs: tuple[Integers, Integers], label: str, positive: str | None
) -> tuple[NDArray[np.intp] | None, list[str]]:
    """Return the positive rows, each pair once (its latest row), sorted; None for all rows as they are."""
    notes: list[str] = []
    n_rows = len(frame)
    ratings = numbers(frame["rating"], label) if "rating" in frame.columns else None
    timestamps = times(frame["timestamp"], label) if "timestamp" in frame.columns else None
    rows = last_of_each_pair(*pairs, timestamps)
    kept = n_rows if rows is None else len(rows)
    if kept < n_rows:
        notes.append(f"{counted(n_rows - kept, 'duplicate row')} dropped (the latest for each user and item counts)")
    if positive is None or positive == "all":
        if positive is None and ratings is not None:
            notes.append(
                f"all rows count as positive, with ratings from {_range(ratings)}; a rule such as '> 3' selects some"
            )
        return rows, notes
    if ratings is None:
        raise DataError(f"{label} has no column 'rating', so the rule {positive!r} cannot be applied; use 'all'")
    if ratings.null_count():
        notes.append(f"{counted(ratings.null_count(), 'row')} without a rating dropped")
        ratings = ratings.cast(pl.Float64).fill_null(float("nan"))
    is_positive = np.asarray(parse_rule(positive)(ratings.to_numpy()))
    rows = np.flatnonzero(is_positive) if rows is None else rows[is_positive[rows]]
    if not len(rows):
        raise DataError(f"{label}: no rating is {positive} (ratings range from {_range(ratings)}); choose another rule")
    return rows, notes


def _range(ratings: pl.Series) -> str:
    return f"{ratings.min()!s} to {ratings.max()!s}"
