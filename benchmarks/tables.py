"""Somebody's own CSV to a `Dataset`, over polars' own read of the same file: `python -m benchmarks.tables [ROWS]`.

CPU seconds of all threads, the least of several repeats by turns, so that a busy machine disturbs it little.
"""

import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.measure import Task
from slatewise.data.dataset import Dataset

ROWS = 1_000_000
REPEATS = 5


def run(n_rows: int = ROWS) -> dict[str, float]:
    """Return the ratio and rows per CPU second, for ids that are integers and for ids that are text."""
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("integers", "text"):
            file = _written(Path(folder) / f"{kind}.csv", kind, n_rows)
            tasks: dict[str, Task] = {
                "polars": partial(pl.read_csv, file),
                "dataset": partial(Dataset.from_files, file, positive="> 3"),
            }
            least = cpu_seconds(tasks)
            figures[f"{kind}_over_polars"] = least["dataset"] / least["polars"]
            figures[f"{kind}_rows_per_cpu_second"] = n_rows / least["dataset"]
    return figures


def cpu_seconds(tasks: dict[str, Task]) -> dict[str, float]:
    """Return the least CPU seconds of each task; the tasks take turns."""
    least = dict.fromkeys(tasks, float("inf"))
    for _ in range(REPEATS):
        for name, task in tasks.items():
            start = time.process_time()
            task()
            least[name] = min(least[name], time.process_time() - start)
    return least


def _written(file: Path, kind: str, n_rows: int) -> Path:
    """Write ratings in no order, of 100 rows per user on average; about one row in a hundred is a duplicate."""
    random = np.random.default_rng(0)
    users, items = random.integers(0, n_rows // 100, n_rows), random.integers(0, 5_000, n_rows)
    ratings, times = random.integers(1, 6, n_rows), random.integers(1_000_000_000, 1_700_000_000, n_rows)
    frame = pl.DataFrame({"user_id": users, "item_id": items, "rating": ratings, "timestamp": times})
    if kind == "text":
        names = [pl.format("user-{}", "user_id").alias("user_id"), pl.format("sku-{}", "item_id").alias("item_id")]
        frame = frame.with_columns(names)
    frame.write_csv(file)
    return file


if __name__ == "__main__":
    for name, value in run(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS).items():
        print(f"{name}: {value:,.2f}")
