"""The item table at scale: import into SQLite over polars' own read and bare inserts, and what a served item takes."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import numpy as np
import polars as pl

from benchmarks.inputs import random_catalog
from benchmarks.measure import python, resident_bytes, seconds
from slatewise.cli.item_table import items_in, read_items
from slatewise.cli.items import write_items
from slatewise.store import open_store, statements
from slatewise.store.rows import Values
from slatewise.store.sql_items import item_values
from slatewise.store.sqlite_connection import execute

DIM = 20
ROWS_PER_COMMIT = 5_000
SERVE = """
import json, sys
from benchmarks.measure import resident_bytes
from slatewise.catalog import Catalog
from slatewise.recommender import Recommender

before = resident_bytes()
recommender = Recommender(Catalog.load(sys.argv[1]), store=sys.argv[2])
for _ in range(5):
    recommender.recommend("ann")
print(json.dumps(resident_bytes() - before))
"""


def run(n_items: int = 1_000_000, repeats: int = 1) -> dict[str, float]:
    """Measure the import of a table of items with attributes, and the memory of a service with and without it."""
    resident_bytes()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = folder / "items.parquet"
        random_items(n_items).write_parquet(table)
        rows = [item_values(record, 1) for part in items_in(read_items(table), 0.0) for record in part]
        names = iter(folder / f"{number}.db" for number in range(1_000))
        tasks = {"import": lambda: _import(table, next(names)), "bare": lambda: _insert(table, next(names), rows)}
        times = seconds(tasks, repeats, warm_ups=0)
        memory = _memory(folder, n_items, next(folder.glob("0.db")))
    return {
        "items_per_second": n_items / times["import"],
        "items_over_bare": times["import"] / times["bare"],
        "items_memory_over_catalog": memory,
    }


def random_items(n_items: int) -> pl.DataFrame:
    """Return items with titles, categories and five attributes."""
    draw = np.random.default_rng(0)
    numbers = np.arange(n_items)
    return pl.DataFrame(
        {
            "item_id": numbers,
            "title": [f"The item with the number {number}" for number in numbers],
            "categories": [[f"category {number % 18:02}", f"category {number // 18 % 18:02}"] for number in numbers],
            "brand": [f"brand {number}" for number in draw.integers(0, 1_000, n_items)],
            "price": draw.uniform(1.0, 100.0, n_items).round(2),
            "organic": draw.random(n_items) < 0.5,
            "tags": [[f"tag {number % 50}"] for number in numbers],
            "released": pl.Series(draw.integers(0, 2_000_000_000, n_items) * 1_000_000).cast(pl.Datetime("us")),
        }
    )


def _import(table: Path, path: Path) -> None:
    with closing(open_store(f"sqlite:///{path}")) as store:
        write_items(store, read_items(table))


def _insert(table: Path, path: Path, rows: list[Values]) -> None:
    """Read the table with polars, and insert ready-made rows into the same tables with the same durability."""
    pl.read_parquet(table)
    open_store(f"sqlite:///{path}").close()
    with closing(apsw.Connection(str(path))) as connection:
        execute(connection, "PRAGMA synchronous = FULL")
        for part in _parts(rows):
            with connection:
                connection.executemany(statements.PUT_ITEM, part)


def _parts(rows: list[Values]) -> Iterator[list[Values]]:
    return (rows[start : start + ROWS_PER_COMMIT] for start in range(0, len(rows), ROWS_PER_COMMIT))


def _memory(folder: Path, n_items: int, store: Path) -> float:
    """Return what a service holds with a table about all of its items, over what it holds without one."""
    catalog = folder / "catalog"
    random_catalog(n_items, DIM).save(catalog)
    held = [json.loads(python(["-c", SERVE, str(catalog), url])) for url in ("memory://", f"sqlite:///{store}")]
    return float(held[1] / held[0])
