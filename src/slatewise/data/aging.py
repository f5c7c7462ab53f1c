"""Tables of interactions in which old rows count less."""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from slatewise.data.errors import DataError
from slatewise.data.tables import read_table, require_columns, times

SECONDS_PER_DAY = 86_400.0
COLUMNS = ("user_id", "item_id", "rating", "timestamp")


def read_tables(files: Sequence[Path], half_life: float | None = None, seed: int = 0) -> pl.DataFrame:
    """Read tables of interactions as one.

    With a half-life in days, a row of that age is kept with probability ½, one of twice that age with ¼, and so on,
    drawn by the seed; ages count up to now, in seconds since 1970 or dates. Every table must have timestamps then.
    """
    frames = [_aged(read_table(path), str(path), half_life, seed) for path in files]
    kinds = {frame["item_id"].dtype for frame in frames} | {frame["user_id"].dtype for frame in frames}
    if len(kinds) > 1:
        text = pl.col("user_id", "item_id").cast(pl.String)
        frames = [frame.with_columns(text) for frame in frames]
    return pl.concat(frames, how="diagonal_relaxed")


def _aged(frame: pl.DataFrame, label: str, half_life: float | None, seed: int) -> pl.DataFrame:
    require_columns(frame, COLUMNS[:2], label)
    if frame.is_empty():
        raise DataError(f"{label} has no rows")
    known = frame.select([name for name in COLUMNS if name in frame.columns])
    if half_life is None:
        return known
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
    return known.filter(kept)
