"""The data every other stage starts from: who liked what, and what the items are."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from slatewise.categories import indicators
from slatewise.data.column_names import check_columns
from slatewise.data.errors import DataError
from slatewise.data.interactions import compress, numbered, positive_rows
from slatewise.data.item_table import item_table, listed_only, positions
from slatewise.data.table_files import label_of, read_interactions, table_files
from slatewise.data.tables import (
    as_polars,
    original_identifiers,
    read_table,
    require_columns,
    same_identifiers,
)
from slatewise.plurals import counted

__all__ = ["DataError", "Dataset"]

Array = NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Positive interactions and the items they refer to; frozen, arrays included.

    Users and items are numbered from 0 in the order of their ids, so the row order of a file never matters.
    `from_files` and `from_frames` create data sets; the constructor takes the parts themselves.

    Parameters
    ----------
    name : str
        Names the data set in reports and records.
    user_ids, item_ids : arrays (n_users,) and (n_items,)
        Sorted ids: int64, or objects that are all str or all UUID.
    titles : tuple of str
        One title per item.
    category_names : tuple of str
        The names of the categories, sorted.
    categories : array (n_items, n_categories) of bool
        Which item has which category.
    users, items : arrays (n_interactions,) of int32
        Who liked what: pairs of numbers, sorted by user, then item, each pair once.
    notes : tuple of str
        What was cleaned up while reading, in words.
    available : array (n_items,) of bool, optional
        Which items may be offered; all by default.

    Examples
    --------
    >>> import polars as pl
    >>> from slatewise import Dataset
    >>> likes = pl.DataFrame({"user_id": ["ann", "ann", "bob"], "item_id": ["tea", "coffee", "tea"]})
    >>> dataset = Dataset.from_frames(likes, name="drinks")
    >>> dataset
    Dataset('drinks': 2 users, 2 items, 3 interactions, 0 categories, density 75.00%)
    >>> dataset.item_ids.tolist(), dataset.users.tolist(), dataset.items.tolist()
    (['coffee', 'tea'], [0, 0, 1], [0, 1, 1])
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
    available: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        for array in (self.user_ids, self.item_ids, self.categories, self.users, self.items):
            array.flags.writeable = False

    @classmethod
    def from_files(
        cls,
        interactions: str | Path | Sequence[str | Path],
        items: str | Path | None = None,
        *,
        positive: str | None = None,
        keep_unrated: bool = True,
        only_listed: bool = False,
        columns: Mapping[str, str] | None = None,
    ) -> Self:
        r"""Read a table of interactions and, optionally, a table of items from CSV or Parquet files.

        Parameters
        ----------
        interactions : str or Path, or several
            Columns `user_id` and `item_id`, optionally `rating` and `timestamp`. A file, a pattern such as
            `"logs/*.csv"`, or a folder of CSV or Parquet files.
        items : str or Path, optional
            Column `item_id`, optionally `title`, `categories` (names separated by `|`) and `available` (true or false;
            what is not available is learned from but not offered).
        positive : str, optional
            Which ratings count as likes: `"> 3"`, `">= 0.5"` or `"all"`; all by default.
        keep_unrated : bool
            Whether items that nobody liked stay in the data set.
        only_listed : bool
            Whether to leave out items that are not in the table of items, with their interactions.
        columns : mapping, optional
            Our names of columns to those of the tables: `{"user_id": "customer", "item_id": "sku"}`.

        Returns
        -------
        Dataset

        Raises
        ------
        DataError
            If a file cannot be used; the message names the file, the line or column, and how to fix it.

        Examples
        --------
        >>> from pathlib import Path
        >>> from slatewise import Dataset
        >>> _ = Path("likes.csv").write_text("user_id,item_id,rating\nann,tea,5\nann,coffee,1\nbob,tea,4\n")
        >>> Dataset.from_files("likes.csv", positive="> 3").n_interactions
        2
        """
        files = table_files(interactions)
        mapping = check_columns(columns or {})
        frame, item_frame = read_interactions(files, mapping), None
        if items is not None:
            item_frame = read_table(items, mapping)
            frame, item_frame = same_identifiers(frame, item_frame)
        labels = (label_of(files), str(items))
        _require_mapped(mapping, (frame, item_frame), labels)
        if only_listed:
            frame = listed_only(frame, item_frame, labels)
        name = " and ".join(file.name for file in files[:2]) + (f" and {len(files) - 2} more" if len(files) > 2 else "")
        return cls._build(frame, item_frame, labels, (positive, keep_unrated, name))

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

        Parameters
        ----------
        interactions : DataFrame
            Columns `user_id` and `item_id`, optionally `rating` and `timestamp`.
        items : DataFrame, optional
            Column `item_id`, optionally `title` and `categories` (names separated by `|`, or lists of names).
        positive : str, optional
            Which ratings count as likes: `"> 3"`, `">= 0.5"` or `"all"`; all by default.
        keep_unrated : bool
            Whether items that nobody liked stay in the data set.
        name : str
            Names the data set in reports and records.

        Returns
        -------
        Dataset

        Raises
        ------
        DataError
            If a table cannot be used.

        Examples
        --------
        >>> import polars as pl
        >>> from slatewise import Dataset
        >>> likes = pl.DataFrame({"user_id": [1, 2], "item_id": ["tea", "coffee"]})
        >>> items = pl.DataFrame({"item_id": ["tea", "coffee", "cocoa"], "categories": ["Hot", "Hot|Bitter", "Sweet"]})
        >>> Dataset.from_frames(likes, items, keep_unrated=False).category_names
        ('Bitter', 'Hot')
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
        user_codes, user_names, user_kind = numbered(frame["user_id"], labels[0])
        item_codes, item_names, item_kind = numbered(frame["item_id"], labels[0])
        rows, notes = positive_rows(frame, (user_codes, item_codes), labels[0], positive)
        if rows is not None:
            user_codes, item_codes = user_codes[rows], item_codes[rows]
        distinct_users, user_index = compress(user_codes)
        distinct_items, item_index = compress(item_codes)
        rated = _decode(distinct_items, item_names)
        table, more_notes = item_table(item_frame, (rated, item_kind), labels, keep_unrated)
        if len(table) != len(rated):
            item_index = positions(rated, table["item_id"])[item_index]
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
            available=None if table["available"].all() else table["available"].to_numpy(),
        )

    @property
    def n_users(self) -> int:
        """Number of users with at least one positive interaction."""
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.item_ids)

    @property
    def n_interactions(self) -> int:
        """Number of distinct positive (user, item) pairs."""
        return len(self.users)

    @property
    def n_categories(self) -> int:
        """Number of categories that at least one item has."""
        return len(self.category_names)

    @property
    def density(self) -> float:
        """Share of all (user, item) pairs that are positive."""
        return self.n_interactions / (self.n_users * self.n_items)

    @cached_property
    def user_starts(self) -> NDArray[np.int64]:
        """Where each user's interactions begin, and the end of the last user's: an array (n_users + 1,)."""
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
        """Keep only some of the users, renumbered in ascending order; all items stay.

        Parameters
        ----------
        users : array-like
            The numbers of the users to keep, or a boolean mask (n_users,).

        Returns
        -------
        Dataset

        Examples
        --------
        >>> from slatewise.data.sources import load
        >>> load("synthetic").take([3, 5, 8]).user_ids.tolist()
        [3, 5, 8]
        """
        kept, wanted = np.zeros(self.n_users, dtype=bool), np.asarray(users)
        if not wanted.size or (wanted.dtype == bool and not wanted.any()):
            raise DataError("take: no users are left; keep at least one")
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
        """Split the users at random into a training set and a test set.

        Parameters
        ----------
        test_share : float
            The share of users in the test set, between 0 and 1.
        seed : int
            The same seed gives the same split.

        Returns
        -------
        tuple of Dataset
            The training set and the test set; both have all items.

        Examples
        --------
        >>> from slatewise.data.sources import load
        >>> training, test = load("synthetic").split(0.2, seed=1)
        >>> training.n_users, test.n_users
        (640, 160)
        """
        train, test = self.split_users(test_share, seed)
        return self.take(train), self.take(test)

    def split_users(self, test_share: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return which users `split` would put into the training set and the test set.

        Parameters
        ----------
        test_share : float
            The share of users in the test set, between 0 and 1.
        seed : int
            The same seed gives the same split.

        Returns
        -------
        tuple of arrays of int64
            The numbers of the training users and of the test users, each ascending.

        Examples
        --------
        >>> from slatewise.data.sources import load
        >>> training, test = load("synthetic").split_users(0.2, seed=1)
        >>> len(training), len(test)
        (640, 160)
        """
        n_test = round(self.n_users * test_share)
        if not 0 < n_test < self.n_users:
            raise DataError(
                f"split: test_share {test_share} of {self.n_users} users leaves one set empty; choose 0 < share < 1"
            )
        shuffled = np.random.default_rng(seed).permutation(self.n_users)
        return np.sort(shuffled[n_test:]), np.sort(shuffled[:n_test])

    def describe(self) -> dict[str, str | int | float]:
        """Return the data set's row of the paper's Table 1.

        Returns
        -------
        dict
            `name`, `users`, `items`, `interactions`, `categories` and `density`.

        Examples
        --------
        >>> from slatewise.data.sources import load
        >>> load("synthetic").describe()["items"]
        400
        """
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
            f"Dataset({self.name!r}: {counted(self.n_users, 'user')}, {counted(self.n_items, 'item')}, "
            f"{counted(self.n_interactions, 'interaction')}, {counted(self.n_categories, 'category')}, "
            f"density {self.density:.2%})"
        )


def _require_mapped(
    columns: Mapping[str, str], frames: tuple[pl.DataFrame, pl.DataFrame | None], labels: tuple[str, str]
) -> None:
    """Refuse a mapping from a column that neither table has: it would go unnoticed where the column is optional."""
    present = {name for frame in frames if frame is not None for name in frame.columns}
    for ours, theirs in columns.items():
        if ours not in present:
            tables = labels[0] if frames[1] is None else f"{labels[0]} and {labels[1]}"
            names = ", ".join(sorted(present))
            raise DataError(f"there is no column {theirs!r} to be {ours!r} in {tables} (columns: {names}); correct it")


def _decode(values: NDArray[np.integer[Any]], names: pl.Series | None) -> pl.Series:
    return pl.Series("item_id", values, pl.Int64) if names is None else names.gather(values).alias("item_id")
