"""`slatewise train --without-bpr`: taste vectors only, from Parquet tables that need not fit in memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from slatewise.cli.console import parts_done, steps, tell
from slatewise.cli.dataset_options import OwnTables

if TYPE_CHECKING:
    from slatewise.catalog import Catalog
    from slatewise.catalog.likes import Products
    from slatewise.data.dataset import Dataset
    from slatewise.data.stored_likes import StoredLikes


@dataclass(frozen=True)
class Placement:
    """Where taste vectors are computed: in threads of this process, one per core by default, or on a cluster."""

    workers: int | None = None
    cluster: str | None = None


def readable_in_parts(tables: OwnTables) -> list[Path] | None:
    """Return the files of tables that can be read in parts, None for those that have to be read at once."""
    from slatewise.data.table_files import table_files
    from slatewise.data.tables import PARQUET_SUFFIXES

    files = table_files(tables.interactions or ())
    in_parts = files and not tables.only_listed and all(file.suffix.lower() in PARQUET_SUFFIXES for file in files)
    return files if in_parts else None


def train_from_files(
    files: list[Path], tables: OwnTables, out: Path, settings: tuple[int, int, Placement]
) -> "Catalog":
    """Train from Parquet files; their likes, divided by users, are kept in the directory of the catalog meanwhile."""
    from slatewise.data.column_names import parse_columns
    from slatewise.data.stored_likes import StoredLikes, Tables

    columns = None if tables.columns is None else parse_columns(tables.columns)
    given = Tables(files, tables.items, tables.positive, tables.keep_unrated, columns)
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".training-", dir=out) as folder:
        with parts_done("reading") as show:
            likes = StoredLikes.from_tables(given, Path(folder), show)
        for note in likes.notes:
            tell(f"note: {note}")
        tell(f"training on {likes.n_interactions:,} likes of {likes.n_users:,} users, {likes.n_items:,} items")
        return train_tastes(likes, *settings)


def train_tastes(dataset: "Dataset | StoredLikes", dim: int, seed: int, placement: Placement) -> "Catalog":
    """Train with a progress bar."""
    from slatewise.catalog.without_bpr import READINGS, train_without_bpr

    with _products(placement) as products, steps("training", READINGS) as count:
        return train_without_bpr(dataset, dim, seed, products, count)


@contextmanager
def _products(placement: Placement) -> Iterator["Products"]:
    if placement.cluster is None:
        from slatewise.catalog.likes import in_threads

        yield partial(in_threads, n_threads=placement.workers)
        return
    from slatewise.lab.cluster import Cluster
    from slatewise.lab.taste_on_workers import on_workers

    with Cluster(placement.cluster, lambda: None) as workers:
        yield on_workers(workers)
