"""CSV files as people have them: separators, gzip, encodings, and columns that hold numbers only."""

import gzip
import io
import zlib
from pathlib import Path

import numpy as np
import polars as pl

from slatewise.data.errors import DataError

SEPARATORS = ",\t;|"
GZIP = b"\x1f\x8b"
LARGEST_TABLE = 8 << 30
CANONICAL_INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"
NINETEEN_DIGITS = 10**18


def read_csv(path: Path, numeric: set[str]) -> pl.DataFrame:
    """Read a table as text, separated by whatever its first line is; columns in `numeric` are parsed if they can be."""
    content = path.read_bytes()
    if content.startswith(GZIP):
        content = _decompressed(content, path)
    try:
        return _parsed_csv(content, path, numeric)
    except (UnicodeDecodeError, pl.exceptions.PolarsError):
        _refuse_other_encodings(content, path)
        raise


def _parsed_csv(content: bytes, path: Path, numeric: set[str]) -> pl.DataFrame:
    header = content.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0].decode()
    if not header.strip():
        raise DataError(f"{path} is empty; its first line must name the columns")
    separator = max(SEPARATORS, key=header.count)
    frame = _typed_csv(content, separator, numeric) if numeric else _text_csv(content, separator, {})
    return frame.rename({name: name.strip() for name in frame.columns})


def _typed_csv(content: bytes, separator: str, numeric: set[str]) -> pl.DataFrame:
    """Parse columns that begin with numbers as numbers, or all as text where that fails in a later row."""
    first_rows = pl.read_csv(content, separator=separator, infer_schema=False, n_rows=100)
    types = {
        column.name: pl.Float64() for column in first_rows if column.name.strip() in numeric and _is_numeric(column)
    }
    try:
        return _text_csv(content, separator, types)
    except pl.exceptions.PolarsError:
        return _text_csv(content, separator, {})


def _is_numeric(column: pl.Series) -> bool:
    return column.cast(pl.Float64, strict=False).null_count() == column.null_count()


def _text_csv(content: bytes, separator: str, types: dict[str, pl.Float64]) -> pl.DataFrame:
    return pl.read_csv(content, separator=separator, infer_schema=False, schema_overrides=types)


def _refuse_other_encodings(content: bytes, path: Path) -> None:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {line}: not UTF-8 (byte 0x{content[error.start]:02x}); "
            f"save the file as UTF-8, for example: iconv -f {_guess(content)} -t utf-8 {path.name}"
        ) from error


def _guess(content: bytes) -> str:
    return "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "latin1"


def _decompressed(content: bytes, path: Path) -> bytes:
    try:
        with gzip.open(io.BytesIO(content)) as file:
            plain = file.read(LARGEST_TABLE + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is a damaged gzip file ({error}); get a fresh copy") from error
    if len(plain) > LARGEST_TABLE:
        raise DataError(f"{path} unpacks to more than {LARGEST_TABLE:,} bytes; unpack it yourself if that is intended")
    return plain


def plain_integers(column: pl.Series) -> pl.Series | None:
    """Return a column of text as integers if every text is how we would write its integer (CANONICAL_INTEGER).

    Most columns of names are told from it by their first rows.
    """
    if not column.head(100).str.contains(CANONICAL_INTEGER).all():
        return None
    integers = column.cast(pl.Int64, strict=False)
    if integers.null_count() > column.null_count():
        return None
    return integers if _written_length(integers) == column.str.len_bytes().sum() else None


def _written_length(integers: pl.Series) -> int:
    """Return how long integers are in their shortest notation, all together; 0 if one has more than 18 digits.

    Any other notation is longer, so that lengths tell whether all texts of a column are in that notation.
    """
    values = integers.drop_nulls().to_numpy()
    sizes = np.abs(values)
    largest = int(sizes.max(initial=0))
    if values.min(initial=0) <= -NINETEEN_DIGITS or largest >= NINETEEN_DIGITS:
        return 0
    further_digits = sum(np.count_nonzero(sizes >= 10**digits) for digits in range(1, len(str(largest))))
    return len(values) + int(further_digits + np.count_nonzero(values < 0))
