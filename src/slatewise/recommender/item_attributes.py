"""The attributes of a catalog's items at one version of the item table: which items meet a condition, or share a value.

Whatever is looked up is remembered; there is a new object for every version.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slatewise.catalog import Catalog
from slatewise.recommender.conditions import matching
from slatewise.recommender.slate_rules import CATEGORY, NO_RULES, Boost, SlateRules
from slatewise.recommender.types import RequestError, RuleError
from slatewise.slates import pack_closed
from slatewise.slates.available import NO_KEY, NO_WORDS, list_key

Booleans = NDArray[np.bool_]
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

REMEMBERED = 32
FEW = 0.75
"""Up to n to this power of n items, those that meet a condition are listed; above, the others are closed.

A list takes time for each of its items, closing the others for blocks that are read in vain. Which is faster was
measured on random items and on items like those of ML-1M: both alike at 2 and 4 % of 1,000,000, the list up to a
larger share of fewer (over 10 % of 10,000) and a smaller one of more (1 and 4 % of 4,000,000).
"""
COPIED_SHARE = 1 / 4
"""Up to this share of the items, those that meet a condition get an int8 copy of their own if they are often asked for
(`slatewise.slates.list_copies`), which is faster than either. Above, closing the others costs little."""
NO_VALUE = -1


class Selection(NamedTuple):
    """The items that meet a condition: which, how many, and either their numbers (ascending) or the others' bits.

    key: as `Available` takes it, if a copy of these items is worth its memory.
    """

    is_met: Booleans
    n_items: int
    numbers: Integers | None
    closed: Words
    key: bytes


class ItemAttributes:
    """Attributes by item number: a frame of one row per item; conditions give times in UTC, without a zone."""

    def __init__(self, catalog: Catalog, frame: pl.DataFrame) -> None:
        self._catalog = catalog
        self._frame = frame.with_columns(
            pl.col(pl.Datetime(time_zone="*")).dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        )
        self.select = lru_cache(REMEMBERED)(partial(select, self._frame))
        self.factors = lru_cache(REMEMBERED)(partial(boost_factors, len(frame), self.select))
        self._values = lru_cache(REMEMBERED)(partial(value_numbers, self._frame))

    def check(self, rules: SlateRules, checked: SlateRules = NO_RULES) -> None:
        """Refuse rules about what items do not have, or with conditions that are none, and say which.

        Those that were checked already come first in each list; the others are counted without them.
        """
        boosts, at_least = rules.boost[len(checked.boost) :], rules.at_least[len(checked.at_least) :]
        conditions = [("filter", condition) for condition in rules.filters[len(checked.filters) :]]
        conditions += [(f"boost/{position}/where", rule.where) for position, rule in enumerate(boosts)]
        conditions += [(f"at_least/{position}/where", rule.where) for position, rule in enumerate(at_least)]
        counted = [
            (f"at_most/{position}/per", rule.per) for position, rule in enumerate(rules.at_most[len(checked.at_most) :])
        ]
        for look_up, named in ((self.select, conditions), (self._values, counted)):
            for where, text in named:
                try:
                    look_up(text)
                except RequestError as error:
                    raise RuleError(where, str(error)) from error

    def groups_of(self, number: int, per: str) -> tuple[int, ...]:
        """Return the values that an item has of an attribute, by number; none if it has no value."""
        if per == CATEGORY:
            return tuple(np.flatnonzero(self._catalog.categories[number]).tolist())
        value = int(self._values(per)[number])
        return () if value == NO_VALUE else (value,)

    def members(self, per: str, group: int) -> Integers:
        """Return the numbers of all items with a value of an attribute."""
        column = self._catalog.categories[:, group] if per == CATEGORY else self._values(per) == group
        return np.flatnonzero(column)


def select(frame: pl.DataFrame, *conditions: str) -> Selection:
    """Return the items that meet all conditions."""
    is_met = np.logical_and.reduce([matching(frame, condition) for condition in conditions])
    count = int(is_met.sum())
    key = list_key(is_met) if count <= COPIED_SHARE * len(is_met) else NO_KEY
    if count <= len(is_met) ** FEW:
        return Selection(is_met, count, np.flatnonzero(is_met), NO_WORDS, key)
    return Selection(is_met, count, None, pack_closed(is_met), key)


def boost_factors(n_items: int, select: Callable[[str], Selection], boosts: Sequence[Boost]) -> Floats:
    """Return the product of the factors that apply to each item."""
    factors = np.ones(n_items)
    for boost in boosts:
        factors[select(boost.where).is_met] *= boost.factor
    return factors


def value_numbers(frame: pl.DataFrame, per: str) -> Integers:
    """Return the number of each item's value of an attribute; of none if it is about categories."""
    if per == CATEGORY:
        return np.empty(0, dtype=np.int64)
    if per not in frame.columns:
        known = ", ".join([CATEGORY, *sorted(frame.columns)])
        raise RequestError(f"there is no such attribute; items have {known}")
    column = frame[per]
    if column.dtype.is_nested():
        raise RequestError(f"this attribute is a list; at_most takes {CATEGORY} or attributes with one value")
    return column.rank("dense").cast(pl.Int64).fill_null(NO_VALUE).to_numpy()
