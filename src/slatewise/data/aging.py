"""Tables of interactions in which old rows count less."""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from slatewise.data.column_names import Columns
from slatewise.data.errors import DataError
from slatewise.data.table_files import known_columns, stacked
from slatewise.data.tables import read_table, times

SECONDS_PER_DAY = 86_400.0


def read_aged_interactions(
    files: Sequence[Path], half_life: float, seed: int = 0, columns: Columns | None = None
) -> pl.DataFrame:
    """Read tables of interactions as one, in which old rows are left out more often.

    A row that is as old as the half-life, in days, is kept with probability ½, one of twice that age with ¼, and so on,
    drawn by the seed; ages count up to now, in seconds since 1970 or dates. Every table must have timestamps.
    """
    tables = [(known_columns(read_table(path, columns), str(path)), str(path)) for path in files]
    return stacked([_aged(frame, label, half_life, seed) for frame, label in tables])


def _aged(frame: pl.DataFrame, label: str, half_life: float, seed: int) -> pl.DataFrame:
    if "timestamp" not in frame.columns:
        raise DataError(
            f"{label} has no column 'timestamp', so its rows have no age; add one, or leave out --half-life"
        )
    column = frame["timestamp"]
    seconds = times(column, label).cast(pl.Float64).to_numpy()
    seconds = seconds / 1e6 if column.dtype.is_temporal() or seconds.max(initial=0.0) > 1e12 else seconds
    share = np.exp2(-np.maximum(time.time() - seconds, 0.0) / (SECONDS_PER_DAY * half_life))
    kept = np.random.default_rng(seed).random(len(share)) < np.nan_to_num(share, nan=1.0)
    if not kept.any():
        raise DataError(
            f"{label}: all rows are much older than the half-life of {half_life:g} days; choose a longer one"
        )
    return frame.filter(kept)
