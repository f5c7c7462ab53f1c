"""Likes that need not fit in memory: Parquet tables divided by users into parts, each cleaned up on its own.

All rows of a user are in one part, so that repeated rows and the rule for likes mean the same as in one table. Only
items are numbered over all parts; nobody needs the numbers of users.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slatewise.categories import indicators
from slatewise.data.column_names import Columns
from slatewise.data.dataset import Dataset
from slatewise.data.errors import DataError
from slatewise.data.item_table import item_table, positions
from slatewise.data.table_files import INTERACTION_COLUMNS, label_of
from slatewise.data.tables import IDENTIFIERS, original_identifiers, read_table, require_columns

ROWS_AT_ONCE = 2_000_000
SEED = 0x5EED


@dataclass(frozen=True)
class StoredPart:
    """The likes of some users in two files: items of one user after another, and where those of each user begin."""

    items: Path
    starts: Path

    @classmethod
    def write(cls, folder: Path, number: int, dataset: Dataset) -> "StoredPart":
        """Write the likes of a data set; its items are numbered as in the data set."""
        part = cls(folder / f"part-{number:05d}-items.npy", folder / f"part-{number:05d}-starts.npy")
        np.save(part.items, dataset.items)
        np.save(part.starts, dataset.user_starts.astype(np.int64))
        return part

    def renumber(self, numbers: NDArray[np.int32]) -> NDArray[np.int32]:
        """Give every item another number; return the new numbers."""
        items: NDArray[np.int32] = numbers[np.load(self.items)]
        np.save(self.items, items)
        return items

    def read(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return both arrays."""
        return np.load(self.items), np.load(self.starts)


@dataclass(frozen=True)
class Tables:
    """Parquet files of interactions, a table of items, and how to read them, as `Dataset.from_files` takes them."""

    interactions: Sequence[Path]
    items: Path | None = None
    positive: str | None = None
    keep_unrated: bool = True
    columns: Columns | None = None


@dataclass(frozen=True, eq=False)
class StoredLikes:
    """What a `Dataset` knows about items and how many users like each, with the likes themselves in files."""

    name: str
    item_ids: NDArray[Any]
    titles: tuple[str, ...]
    category_names: tuple[str, ...]
    categories: NDArray[np.bool_]
    available: NDArray[np.bool_] | None
    n_users: int
    counts: NDArray[np.int64]
    parts: tuple[StoredPart, ...]
    digest: str
    notes: tuple[str, ...]

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.item_ids)

    @property
    def n_interactions(self) -> int:
        """Number of likes."""
        return int(self.counts.sum())

    def describe(self) -> dict[str, str | int | float]:
        """Return name and sizes, as `Dataset.describe` does."""
        return {
            "name": self.name,
            "users": self.n_users,
            "items": self.n_items,
            "interactions": self.n_interactions,
            "categories": len(self.category_names),
            "density": round(self.n_interactions / (self.n_users * self.n_items), 4),
        }

    @classmethod
    def from_tables(
        cls, tables: Tables, folder: Path, on_part: Callable[[int, int], None] | None = None
    ) -> "StoredLikes":
        """Read tables into files in a folder; `on_part` gets the number of parts that are done, and of all."""
        rows = _scan(tables)
        n_rows = int(rows.select(pl.len()).collect().item())
        if not n_rows:
            raise DataError(f"{label_of(tables.interactions)} has no rows")
        parts, ids, n_users, digest = [], [], 0, hashlib.sha256()
        n_parts = -(-n_rows // ROWS_AT_ONCE)
        for number, frame in enumerate(_by_users(rows, n_parts, folder)):
            dataset = _cleaned(frame, tables, number)
            parts.append(StoredPart.write(folder, number, dataset))
            ids.append(pl.Series("item_id", dataset.item_ids.tolist()))
            n_users += dataset.n_users
            digest.update(dataset.digest.encode())
            if on_part is not None:
                on_part(number + 1, n_parts)
        table, notes = _items(tables, pl.concat(ids).unique().sort())
        counts = np.zeros(len(table), dtype=np.int64)
        for part, known in zip(parts, ids, strict=True):
            counts += np.bincount(part.renumber(positions(known, table["item_id"])), minlength=len(table))
        if counts.sum() < n_rows:
            notes.insert(0, f"{n_rows - int(counts.sum()):,} rows dropped: repeated, or not positive")
        category_names, categories = indicators(table["categories"].to_list())
        return cls(
            name=label_of(Path(file.name) for file in tables.interactions),
            item_ids=original_identifiers(table["item_id"], "int" if table["item_id"].dtype.is_integer() else "str"),
            titles=tuple(table["title"].to_list()),
            category_names=category_names,
            categories=categories,
            available=None if table["available"].all() else table["available"].to_numpy(),
            n_users=n_users,
            counts=counts,
            parts=tuple(parts),
            digest=digest.hexdigest(),
            notes=tuple(notes),
        )


def _scan(tables: Tables) -> pl.LazyFrame:
    """Return the columns that mean something of all files as one table that is read when needed."""
    frames = [_scan_file(file, tables.columns) for file in tables.interactions]
    kinds = {name: {frame.collect_schema()[name] for frame in frames} for name in IDENTIFIERS}
    for name, types in kinds.items():
        wrong = [kind for kind in types if not (kind.is_integer() or kind in (pl.String, pl.Categorical, pl.Enum))]
        if wrong:
            label = label_of(tables.interactions)
            raise DataError(f"{label}: column {name!r} contains {wrong[0]} values; ids must be integers or text")
        kind = pl.Int64 if all(kind.is_integer() for kind in types) else pl.String
        frames = [frame.with_columns(pl.col(name).cast(kind)) for frame in frames]
    rows = pl.concat(frames, how="diagonal_relaxed")
    missing = rows.select(pl.col(*IDENTIFIERS).null_count()).collect().row(0, named=True)
    for name, count in missing.items():
        if count:
            label = label_of(tables.interactions)
            raise DataError(f"{label}: {name} is missing (rows affected: {count:,}); fill it in or remove the rows")
    return rows


def _scan_file(file: Path, columns: Columns | None) -> pl.LazyFrame:
    try:
        frame = pl.scan_parquet(file)
        present = frame.collect_schema().names()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"{file} cannot be read: {str(error).splitlines()[0]}") from error
    ours = {theirs: name for name, theirs in (columns or {}).items() if theirs in present and theirs != name}
    frame = frame.drop([name for name in ours.values() if name in present]).rename(ours)
    names = frame.collect_schema().names()
    require_columns(pl.DataFrame(schema=names), INTERACTION_COLUMNS[:2], str(file))
    return frame.select([name for name in INTERACTION_COLUMNS if name in names])


def _by_users(rows: pl.LazyFrame, n_parts: int, folder: Path) -> Iterator[pl.DataFrame]:
    """Divide rows among files by a hash of the user, and yield one after the other."""
    if n_parts == 1:
        yield rows.collect()
        return
    part = (pl.col("user_id").hash(SEED) % n_parts).alias("part")
    rows.with_columns(part).sink_parquet(
        pl.PartitionBy(folder / "by-users", key="part", include_key=False), mkdir=True, compression="lz4"
    )
    for directory in sorted((folder / "by-users").iterdir()):
        yield pl.read_parquet(directory / "*.parquet")
        for file in directory.iterdir():
            file.unlink()


def _cleaned(frame: pl.DataFrame, tables: Tables, number: int) -> Dataset:
    try:
        return Dataset.from_frames(frame, positive=tables.positive, name=label_of(tables.interactions))
    except DataError as error:
        raise DataError(f"{label_of(tables.interactions)}, rows of part {number} of the users: {error}") from error


def _items(tables: Tables, rated: pl.Series) -> tuple[pl.DataFrame, list[str]]:
    """Return the table of items, with rows for all that are liked, and what was cleaned up."""
    kind = "int" if rated.dtype.is_integer() else "str"
    frame = None if tables.items is None else read_table(tables.items, tables.columns)
    if frame is not None and kind == "str" and "item_id" in frame.columns:
        frame = frame.with_columns(pl.col("item_id").cast(pl.String))
    labels = (label_of(tables.interactions), str(tables.items))
    return item_table(frame, (rated, kind), labels, tables.keep_unrated)
