"""Tables of events: user_id, item_id, optionally kind, value or rating, at or timestamp, and event_id."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from slatewise.data.tables import DataError, identifiers, numbers, read_table, require_columns
from slatewise.recommender.event_kinds import EVENT_KINDS, ITEM_KINDS
from slatewise.recommender.events import Event
from slatewise.recommender.recommend import MAX_ID_LENGTH

ROWS_AT_ONCE = 50_000
NAMES = {"kind": ("kind",), "value": ("value", "rating"), "at": ("at", "timestamp"), "event_id": ("event_id",)}
"""What the columns of a table may be called, by their meaning."""
RATING, LIKE = "rating", "like"


@dataclass(frozen=True)
class Meaning:
    """What a table does not say itself: the kind of its events, and the lowest and highest of its ratings."""

    kind: str | None = None
    ratings: tuple[float, float] | None = None


def read_events(path: Path, meaning: Meaning) -> pl.DataFrame:
    """Read a table and check every row; return its columns as `Event` takes them, sorted by user.

    Without a column `kind`, events are of the given kind: by default ratings if there are values, otherwise likes.
    """
    frame, label = read_table(path), str(path)
    require_columns(frame, ("user_id", "item_id"), label)
    kinds, values = _kinds_and_values(frame, label, meaning)
    columns = {
        "user": _text_ids(frame["user_id"], label),
        "item": _item_ids(frame["item_id"], label),
        "kind": kinds,
        "value": values,
        "at": _seconds(_optional(frame, "at"), label),
        "event_id": _event_ids(_optional(frame, "event_id"), label),
    }
    return pl.DataFrame(columns).sort("user", maintain_order=True)


def events_in(frame: pl.DataFrame) -> Iterator[Event]:
    """Yield the events of such a table."""
    for start in range(0, len(frame), ROWS_AT_ONCE):
        for row in frame.slice(start, ROWS_AT_ONCE).rows():
            yield Event(*row)


def _optional(frame: pl.DataFrame, meaning: str) -> pl.Series:
    """Return the column with a meaning; nulls if the table has none."""
    names = [name for name in NAMES[meaning] if name in frame.columns]
    if len(names) > 1:
        raise DataError(f"the columns {' and '.join(map(repr, names))} mean the same; remove one of them")
    return frame[names[0]] if names else pl.Series(NAMES[meaning][0], [None] * len(frame), pl.String)


def _kinds_and_values(frame: pl.DataFrame, label: str, meaning: Meaning) -> tuple[pl.Series, pl.Series]:
    values = numbers(_optional(frame, "value"), label).cast(pl.Float64)
    default = meaning.kind or (LIKE if values.null_count() == len(values) else RATING)
    kinds = _optional(frame, "kind").cast(pl.String).fill_null(default)
    if meaning.ratings is not None:
        low, high = meaning.ratings
        scaled = (2.0 * (values - low) / (high - low) - 1.0).rename(values.name)
        values = scaled.zip_with(kinds == RATING, values)
    _refuse_first(~kinds.is_in(ITEM_KINDS), kinds, label, f"choose one of {', '.join(ITEM_KINDS)}")
    for name in kinds.unique().to_list():
        _check_values(values, kinds == name, name, label)
    return kinds, values


def _check_values(values: pl.Series, of_kind: pl.Series, name: str, label: str) -> None:
    kind = EVENT_KINDS[name]
    if kind.lowest is None:
        wrong, advice = values.is_not_null(), f"a {name} has no value; give --kind, or remove the column"
    else:
        wrong = ~values.is_between(kind.lowest, kind.highest).fill_null(False)
        advice = f"a {name} has a value from {kind.lowest:g} to {kind.highest:g}"
        advice += "; give the range of yours, for example --ratings 1:5" if name == RATING else ""
    _refuse_first(of_kind & wrong, values, label, advice)


def _seconds(column: pl.Series, label: str) -> pl.Series:
    """Return times as seconds since 1970; dates and times without a time zone are UTC."""
    if column.dtype == pl.String and column.cast(pl.Float64, strict=False).null_count() > column.null_count():
        parsed = column.str.to_datetime(strict=False, time_unit="us")
        _refuse_first(parsed.is_null() & column.is_not_null(), column, label, "give seconds since 1970 or 2020-01-31")
        column = parsed
    if column.dtype.is_temporal():
        seconds = column.cast(pl.Datetime("us")).to_physical() / 1e6
    else:
        seconds = numbers(column, label).cast(pl.Float64)
    is_later = (seconds > time.time()).fill_null(False)
    _refuse_first(is_later, seconds, label, "that is in the future; give seconds since 1970, not milliseconds")
    return seconds


def _item_ids(column: pl.Series, label: str) -> pl.Series:
    ids, kind = identifiers(column, label)
    return ids if kind == "int" else _text_ids(ids, label)


def _text_ids(column: pl.Series, label: str) -> pl.Series:
    ids = identifiers(column, label)[0].cast(pl.String)
    wrong = (ids.str.len_chars() > MAX_ID_LENGTH) | ids.str.contains("\0", literal=True)
    _refuse_first(wrong, ids, label, f"ids have at most {MAX_ID_LENGTH} characters, none of them NUL")
    return ids


def _event_ids(column: pl.Series, label: str) -> pl.Series:
    return column if column.null_count() == len(column) else _text_ids(column, label)


def _refuse_first(wrong: pl.Series, column: pl.Series, label: str, advice: str) -> None:
    """Refuse a column for the first of its rows that is wrong."""
    if wrong.any():
        row = int(wrong.arg_max() or 0)
        raise DataError(f"{label}, line {row + 2}: {column.name} {column[row]!r}; {advice}")
