"""Read and check tables of interactions and items, from files or from data frames.

Every problem in a table is either a `DataError` that names the file, the line or column and the fix, or it is
cleaned up, counted and reported. Ids keep their type: text stays text, integers stay integers.
"""

import re
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from slatewise.data.column_names import Columns, suggestion
from slatewise.data.csv_files import plain_integers, read_csv
from slatewise.data.errors import DataError

__all__ = [
    "DataError",
    "align",
    "as_polars",
    "booleans",
    "identifiers",
    "numbers",
    "original_identifiers",
    "read_table",
    "require_columns",
    "same_identifiers",
    "times",
]

IDENTIFIERS = ("user_id", "item_id")
PARQUET_SUFFIXES = {".parquet", ".pq"}
BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def read_table(path: str | Path, columns: Columns | None = None, numeric: tuple[str, ...] = ()) -> pl.DataFrame:
    """Read a CSV (separated by commas, tabs, semicolons or bars; UTF-8; possibly gzipped) or Parquet file.

    `columns` maps our names of columns to those of the file, where it has them. Columns of a CSV file come back as
    text, except id columns with plain integers only: `7` becomes an integer, but a column with `007` in it stays text.
    Columns named in `numeric` are parsed while reading if they look like numbers; if some value is none, they are text.
    """
    path = Path(path)
    try:
        if path.suffix.lower() in PARQUET_SUFFIXES:
            return _renamed(pl.read_parquet(path), columns)
        return _integers_where_plain(_renamed(read_csv(path, _theirs(numeric, columns)), columns))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{path} cannot be read: {_first_line(error)}") from error


def as_polars(frame: Any, label: str) -> pl.DataFrame:
    """Turn a polars or pandas data frame into a polars one, without pyarrow."""
    if isinstance(frame, pl.DataFrame):
        return frame
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    if type(frame).__module__.split(".")[0] != "pandas":
        kind = type(frame).__name__
        raise DataError(f"{label} is a {kind}; pass a polars or pandas DataFrame, or use from_files for files")
    return pl.DataFrame([_from_pandas(frame[name], str(name)) for name in frame.columns])


def require_columns(frame: pl.DataFrame, required: tuple[str, ...], label: str) -> None:
    """Refuse a table without the columns it must have."""
    absent = [name for name in required if name not in frame.columns]
    if absent:
        present = ", ".join(frame.columns) or "none"
        guess = suggestion(absent, frame.columns)
        fix = f"did you mean {guess}?" if guess else "rename the columns accordingly"
        raise DataError(f"{label} has no column {' and '.join(map(repr, absent))} (its columns: {present}); {fix}")


def identifiers(column: pl.Series, label: str) -> tuple[pl.Series, str]:
    """Check an id column; return it as integers or text together with its kind: `int`, `str` or `uuid`."""
    column, kind = typed_identifiers(column, label)
    if kind != "int":
        refuse_blank(column, column.unique(), label)
    return column, kind


def typed_identifiers(column: pl.Series, label: str) -> tuple[pl.Series, str]:
    """Return what `identifiers` returns, without a look at each text: it may still stand for a missing id."""
    if column.dtype == pl.Object:
        column, kind = _object_identifiers(column, label)
    elif column.dtype.is_integer():
        column, kind = _signed(column, label), "int"
    elif column.dtype in (pl.String, pl.Categorical, pl.Enum):
        column, kind = column.cast(pl.String), "str"
    else:
        _refuse_missing(column.is_null() | _is_nan(column), column.name, label)
        raise DataError(
            f"{label}: column {column.name!r} contains {column.dtype} values; ids must be integers, text or UUIDs"
        )
    if column.null_count():
        _refuse_missing(_is_blank(column) if kind == "str" else column.is_null(), column.name, label)
    return column, kind


def refuse_blank(column: pl.Series, distinct: pl.Series, label: str) -> None:
    """Refuse text that stands for a missing id; `distinct` are the texts of the column, each once."""
    if _is_blank(distinct).any():
        _refuse_missing(_is_blank(column), column.name, label)


def _is_blank(column: pl.Series) -> pl.Series:
    return column.is_null() | column.str.strip_chars().str.to_lowercase().is_in(["", "nan"])


def _signed(column: pl.Series, label: str) -> pl.Series:
    if column.dtype == pl.Int32:
        return column
    try:
        return column.cast(pl.Int64)
    except pl.exceptions.PolarsError as error:
        raise DataError(
            f"{label}: column {column.name!r} contains integers beyond 64 bits; convert them to text"
        ) from error


def numbers(column: pl.Series, label: str) -> pl.Series:
    """Check a column of numbers; text is parsed, missing values stay null."""
    if column.dtype.is_temporal():
        return column.to_physical()
    if column.dtype.is_integer():
        return column
    parsed = column.cast(pl.Float64, strict=False) if column.dtype != pl.Object else column
    if column.dtype == pl.String and parsed.null_count() > column.null_count():
        parsed = column.str.strip_chars().cast(pl.Float64, strict=False)
    wrong = (parsed.is_null() & column.is_not_null()) | parsed.is_infinite().fill_null(False)
    if column.dtype in (pl.Object, pl.Boolean):
        raise DataError(f"{label}: column {column.name!r} contains {column.dtype} values; it must contain numbers")
    if wrong.any():
        row = int(wrong.arg_max() or 0)
        raise DataError(f"{label}, {_line(row)}: {column.name} {str(column[row])!r} {_what_is_wrong(column[row])}")
    return parsed.fill_nan(None)


def _what_is_wrong(value: object) -> str:
    if re.fullmatch(r"\s*[-+]?[0-9]+,[0-9]+\s*", str(value)):
        return f"has a decimal comma; write {str(value).strip().replace(',', '.')}, here and in the whole column"
    return "is not a finite number; correct it"


def booleans(column: pl.Series, label: str) -> pl.Series:
    """Check a column of booleans, which may be text or 0 and 1; missing values stay null."""
    if column.dtype == pl.Boolean:
        return column
    text = column.cast(pl.String).str.strip_chars().str.to_lowercase().replace("", None)
    wrong = ~text.is_in([*BOOLEANS]) & text.is_not_null()
    if wrong.any():
        row = int(wrong.arg_max() or 0)
        raise DataError(f"{label}, {_line(row)}: {column.name} {column[row]!r} is not true or false; correct it")
    return text.replace_strict(BOOLEANS, default=None, return_dtype=pl.Boolean)


def times(column: pl.Series, label: str) -> pl.Series:
    """Check a column of timestamps: numbers, dates, or text that contains either (2020-01-31, 2020-01-31T12:00:00)."""
    if column.dtype == pl.String and column.cast(pl.Float64, strict=False).null_count() > column.null_count():
        with suppress(pl.exceptions.PolarsError):
            parsed = column.str.to_datetime(strict=False, time_unit="us").to_physical()
            if parsed.null_count() == column.null_count():
                return parsed
    return numbers(column, label)


def align(first: tuple[pl.Series, str], second: tuple[pl.Series, str], labels: tuple[str, str]) -> str:
    """Return the common kind of two id columns, or refuse columns that could never match."""
    if first[1] != second[1]:
        raise DataError(
            f"{first[0].name} is {first[1]} in {labels[0]} but {second[1]} in {labels[1]}, "
            f"so nothing would match; use the same type in both"
        )
    return first[1]


def same_identifiers(interactions: pl.DataFrame, items: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Make the item ids of two files comparable: integers only if both files have plain integers."""
    kinds = {frame["item_id"].dtype for frame in (interactions, items) if "item_id" in frame.columns}
    if kinds == {pl.Int64(), pl.String()}:
        text = pl.col("item_id").cast(pl.String)
        return interactions.with_columns(text), items.with_columns(text)
    return interactions, items


def _theirs(names: tuple[str, ...], columns: Columns | None) -> set[str]:
    return {(columns or {}).get(name, name) for name in names}


def _renamed(frame: pl.DataFrame, columns: Columns | None) -> pl.DataFrame:
    """Give the columns of a table our names; one that already has such a name makes way."""
    ours = {theirs: name for name, theirs in (columns or {}).items() if theirs in frame.columns and theirs != name}
    return frame.drop(name for name in ours.values() if name in frame.columns).rename(ours)


def _integers_where_plain(frame: pl.DataFrame) -> pl.DataFrame:
    for name in IDENTIFIERS:
        if name in frame.columns and (integers := plain_integers(frame[name])) is not None:
            frame = frame.with_columns(integers)
    return frame


def _from_pandas(column: Any, name: str) -> pl.Series:
    if column.dtype.kind in "iufbM":
        return pl.Series(name, column.to_numpy())
    values = column.astype(object).to_numpy(copy=True)
    values[column.isna().to_numpy()] = None
    if any(isinstance(value, uuid.UUID) for value in values):
        return pl.Series(name, values.tolist(), dtype=pl.Object)
    try:
        return pl.Series(name, values.tolist())
    except TypeError:
        return pl.Series(name, values.tolist(), dtype=pl.Object)


def _object_identifiers(column: pl.Series, label: str) -> tuple[pl.Series, str]:
    values = column.to_list()
    types = {type(value).__name__ for value in values if value is not None}
    if types - {"UUID"}:
        raise DataError(
            f"{label}: column {column.name!r} mixes {', '.join(sorted(types))}; ids must all be integers, text or UUIDs"
        )
    return pl.Series(column.name, [None if value is None else str(value) for value in values], pl.String), "uuid"


def _is_nan(column: pl.Series) -> pl.Series:
    return column.is_nan().fill_null(False) if column.dtype.is_float() else column.is_null()


def _refuse_missing(absent: pl.Series, name: str, label: str) -> None:
    if absent.any():
        row = int(absent.arg_max() or 0)
        count = int(absent.sum())
        raise DataError(
            f"{label}, {_line(row)}: {name} is missing (rows affected: {count:,}); fill it in or remove the row"
        )


def _line(row: int) -> str:
    return f"line {row + 2} (row {row + 1})"


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def original_identifiers(values: pl.Series, kind: str) -> np.ndarray[Any, np.dtype[Any]]:
    """Return ids in their original type: an int64 array, or an object array of str or UUID."""
    if kind == "int":
        return values.to_numpy().astype(np.int64)
    converted = [uuid.UUID(value) for value in values] if kind == "uuid" else values.to_list()
    result = np.empty(len(converted), dtype=object)
    result[:] = converted
    return result
