"""The data every other stage starts from: who liked what, and what the items are."""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from slatewise.categories import indicators
from slatewise.data.interactions import codes, compress, positive_rows
from slatewise.data.item_table import item_table, places
from slatewise.data.tables import (
    DataError,
    as_polars,
    identifiers,
    original_identifiers,
    read_table,
    require_columns,
    same_identifiers,
)

__all__ = ["DataError", "Dataset"]

Array = NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Positive interactions and the items they are about; frozen, arrays included.

    Users and items are numbered from 0 in the order of their ids, so the order of rows in a file never matters.
    Interactions are the parallel arrays `users` and `items`, sorted by user, then item, each pair once.
    """

    name: str
    user_ids: Array
    item_ids: Array
    titles: tuple[str, ...]
    category_names: tuple[str, ...]
    categories: NDArray[np.bool_]
    users: NDArray[np.int32]
    items: NDArray[np.int32]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for array in (self.user_ids, self.item_ids, self.categories, self.users, self.items):
            array.flags.writeable = False

    @classmethod
    def from_files(
        cls,
        interactions: str | Path,
        items: str | Path | None = None,
        *,
        positive: str | None = None,
        keep_unrated: bool = True,
    ) -> Self:
        """Read interactions (`user_id, item_id[, rating, timestamp]`) and items (`item_id[, title, categories]`).

        Files are CSV or Parquet. `positive` says which ratings count: `"> 3"`, `">= 0.5"` or `"all"`.
        """
        frame, item_frame = read_table(interactions), None
        if items is not None:
            item_frame = read_table(items)
            frame, item_frame = same_identifiers(frame, item_frame)
        labels = (str(interactions), str(items))
        return cls._build(frame, item_frame, labels, (positive, keep_unrated, Path(interactions).name))

    @classmethod
    def from_frames(
        cls,
        interactions: Any,
        items: Any = None,
        *,
        positive: str | None = None,
        keep_unrated: bool = True,
        name: str = "your data",
    ) -> Self:
        """Take the same two tables as polars or pandas data frames.

        Items that nobody rated stay in the data set unless `keep_unrated` is false.
        """
        labels = ("interactions", "items")
        item_frame = None if items is None else as_polars(items, labels[1])
        frame = as_polars(interactions, labels[0])
        return cls._build(frame, item_frame, labels, (positive, keep_unrated, name))

    @classmethod
    def _build(
        cls,
        frame: pl.DataFrame,
        item_frame: pl.DataFrame | None,
        labels: tuple[str, str],
        options: tuple[str | None, bool, str],
    ) -> Self:
        positive, keep_unrated, name = options
        require_columns(frame, ("user_id", "item_id"), labels[0])
        if frame.is_empty():
            raise DataError(f"{labels[0]} has no rows")
        users, user_kind = identifiers(frame["user_id"], labels[0])
        items, item_kind = identifiers(frame["item_id"], labels[0])
        user_codes, user_names = codes(users)
        item_codes, item_names = codes(items)
        rows, notes = positive_rows(frame, (user_codes, item_codes), labels[0], positive)
        if rows is not None:
            user_codes, item_codes = user_codes[rows], item_codes[rows]
        distinct_users, user_index = compress(user_codes)
        distinct_items, item_index = compress(item_codes)
        rated = _decode(distinct_items, item_names)
        table, more_notes = item_table(item_frame, (rated, item_kind), labels, keep_unrated)
        if len(table) != len(rated):
            item_index = places(rated, table["item_id"])[item_index]
        category_names, categories = indicators(table["categories"].to_list())
        return cls(
            name=name,
            user_ids=original_identifiers(_decode(distinct_users, user_names), user_kind),
            item_ids=original_identifiers(table["item_id"], item_kind),
            titles=tuple(table["title"].to_list()),
            category_names=category_names,
            categories=categories,
            users=user_index,
            items=item_index,
            notes=(*notes, *more_notes),
        )

    @property
    def n_users(self) -> int:
        """Number of users with at least one positive interaction."""
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        """Number of items in the catalogue."""
        return len(self.item_ids)

    @property
    def n_interactions(self) -> int:
        """Number of distinct positive (user, item) pairs."""
        return len(self.users)

    @property
    def n_categories(self) -> int:
        """Number of categories that some item has."""
        return len(self.category_names)

    @property
    def density(self) -> float:
        """Share of all (user, item) pairs that are positive."""
        return self.n_interactions / (self.n_users * self.n_items)

    @cached_property
    def user_starts(self) -> NDArray[np.int64]:
        """Where each user's interactions begin; one more entry for the end of the last (n_users + 1)."""
        return np.searchsorted(self.users, np.arange(self.n_users + 1))

    @cached_property
    def digest(self) -> str:
        """Sha256 over ids, pairs, titles and categories: the same for any faithful copy of the data."""
        content = hashlib.sha256()
        words = (*map(str, self.user_ids), *map(str, self.item_ids), *self.titles, *self.category_names)
        content.update("\x1f".join(words).encode())
        for array in (self.users, self.items, self.categories):
            content.update(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes())
        return content.hexdigest()

    def take(self, users: ArrayLike) -> Self:
        """Keep only these users (numbers or a boolean mask), renumbered in ascending order; all items stay."""
        kept, wanted = np.zeros(self.n_users, dtype=bool), np.asarray(users)
        if not wanted.size or (wanted.dtype == bool and not wanted.any()):
            raise DataError("take: no users left; give at least one")
        try:
            kept[wanted] = True
        except IndexError as error:
            raise DataError(f"take: {error}; users are numbered 0 to {self.n_users - 1}") from error
        rows = kept[self.users]
        renumbered = np.cumsum(kept, dtype=np.int32) - 1
        return replace(
            self,
            user_ids=self.user_ids[kept],
            users=renumbered[self.users[rows]].astype(np.int32),
            items=self.items[rows],
        )

    def split(self, test_share: float = 0.2, seed: int = 0) -> tuple[Self, Self]:
        """Divide the users at random into a training and a test part."""
        train, test = self.split_users(test_share, seed)
        return self.take(train), self.take(test)

    def split_users(self, test_share: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the numbers of the training and of the test users, each ascending."""
        n_test = round(self.n_users * test_share)
        if not 0 < n_test < self.n_users:
            raise DataError(
                f"split: test_share {test_share} of {self.n_users} users leaves one part empty; choose 0 < share < 1"
            )
        shuffled = np.random.default_rng(seed).permutation(self.n_users)
        return np.sort(shuffled[n_test:]), np.sort(shuffled[:n_test])

    def describe(self) -> dict[str, str | int | float]:
        """Return the row of the paper's Table 1."""
        return {
            "name": self.name,
            "users": self.n_users,
            "items": self.n_items,
            "interactions": self.n_interactions,
            "categories": self.n_categories,
            "density": round(self.density, 4),
        }

    def __repr__(self) -> str:
        return (
            f"Dataset({self.name!r}: {self.n_users:,} users, {self.n_items:,} items, "
            f"{self.n_interactions:,} interactions, {self.n_categories} categories, density {self.density:.2%})"
        )


def _decode(values: NDArray[np.integer[Any]], names: pl.Series | None) -> pl.Series:
    return pl.Series("item_id", values, pl.Int64) if names is None else names.gather(values).alias("item_id")
