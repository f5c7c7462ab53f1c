"""Which files a table consists of, and several files read as one table."""

import glob
from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl

from slatewise.data.column_names import Columns
from slatewise.data.errors import DataError
from slatewise.data.tables import IDENTIFIERS, read_table, require_columns

SUFFIXES = (".parquet", ".pq", ".csv", ".csv.gz", ".tsv", ".tsv.gz")
NUMERIC = ("rating", "timestamp")
INTERACTION_COLUMNS = ("user_id", "item_id", *NUMERIC)
Given = str | Path | Sequence[str | Path]


def table_files(given: Given) -> list[Path]:
    """Return the files that paths, patterns such as `logs/*.csv` and folders stand for, each once.

    Of a folder these are all tables in it and below, by name; what begins with `_` or `.` is left out, as Spark and
    others write their notes under such names.
    """
    paths = [given] if isinstance(given, str | Path) else given
    files = [file for path in paths for file in _files_of(Path(path))]
    return list(dict.fromkeys(files))


def _files_of(path: Path) -> list[Path]:
    if path.is_dir():
        return _in_folder(path)
    if path.exists() or not glob.has_magic(str(path)):
        return [path]
    matches = sorted(Path(name) for name in glob.glob(str(path), recursive=True))  # noqa: PTH207
    if not matches:
        raise DataError(f"no file matches {path}; check the pattern, and quote it so that it arrives as it is")
    return [file for match in matches for file in (_in_folder(match) if match.is_dir() else [match])]


def _in_folder(folder: Path) -> list[Path]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name.lower().endswith(SUFFIXES)]
    files = [file for file in files if not any(part[0] in "_." for part in file.relative_to(folder).parts)]
    if not files:
        raise DataError(f"the folder {folder} has no tables; their names must end in {', '.join(SUFFIXES)}")
    return files


def read_interactions(files: Sequence[Path], columns: Columns | None = None) -> pl.DataFrame:
    """Read tables of interactions as one."""
    if len(files) == 1:
        return read_table(files[0], columns, NUMERIC)
    return stacked([known_columns(read_table(file, columns, NUMERIC), str(file)) for file in files])


def known_columns(frame: pl.DataFrame, label: str) -> pl.DataFrame:
    """Return the columns of a table of interactions that mean something."""
    require_columns(frame, INTERACTION_COLUMNS[:2], label)
    if frame.is_empty():
        raise DataError(f"{label} has no rows")
    return frame.select([name for name in INTERACTION_COLUMNS if name in frame.columns])


def stacked(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return tables as one; ids are integers only if they are in every table."""
    texts = [name for name in IDENTIFIERS if len({frame[name].dtype for frame in frames}) > 1]
    if texts:
        frames = [frame.with_columns(pl.col(*texts).cast(pl.String)) for frame in frames]
    return pl.concat(frames, how="diagonal_relaxed")


def label_of(files: Iterable[Path]) -> str:
    """Name a table by its files, in few words."""
    names = [str(file) for file in files]
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
