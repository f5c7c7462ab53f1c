"""Tables of items: item_id, optionally title, categories, available, published_at, vector; the rest are attributes.

In CSV files, attributes are numbers or booleans if all of their values are, else text; `name:list` (separated by |),
`name:time`, `name:text`, `name:number` and `name:boolean` as the name of a column say what it is.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import polars as pl

from slatewise.catalog import Catalog
from slatewise.data.tables import DataError, booleans, identifiers, numbers, read_table, require_columns
from slatewise.recommender.attributes import (
    BOOLEAN,
    LIST,
    MAX_LIST,
    MAX_TEXT,
    NAME,
    NUMBER,
    RESERVED,
    TEXT,
    TIME,
    kind_of,
)
from slatewise.recommender.items import catalog_id
from slatewise.recommender.recommend import MAX_ID_LENGTH
from slatewise.recommender.served_catalog import label_of
from slatewise.store.records import ItemRecord

ROWS_AT_ONCE = 5_000
JSON_SUFFIXES = {".jsonl", ".ndjson"}
OWN = ("item_id", "title", "categories", "available", "published_at", "vector")


def read_items(path: Path) -> pl.DataFrame:
    """Read a table and check every row; return its columns as `items_in` takes them."""
    frame, label = _read(path), str(path)
    require_columns(frame, ("item_id",), label)
    ids, kind = identifiers(frame["item_id"], label)
    if ids.is_duplicated().any():
        raise DataError(f"{label}: item {ids.filter(ids.is_duplicated())[0]!r} has several rows; keep one")
    own = {
        "item_id": ids if kind == "int" else _texts(ids, label, MAX_ID_LENGTH),
        "title": _optional(frame, "title", lambda column: _texts(column, label, MAX_TEXT)),
        "categories": _optional(frame, "categories", lambda column: _category_sets(column, label)),
        "available": _optional(frame, "available", lambda column: booleans(column, label)).fill_null(True),
        "published_at": _optional(frame, "published_at", lambda column: _seconds(column, label)),
        "vector": _optional(frame, "vector", lambda column: _vectors(column, label)),
    }
    attributes = [_attribute(frame[name], label) for name in frame.columns if name not in OWN]
    return pl.DataFrame(own).hstack(sorted(attributes, key=lambda column: column.name))


def items_in(frame: pl.DataFrame, at: float) -> Iterator[list[ItemRecord]]:
    """Yield the items of such a table in portions, changed at a time."""
    for start in range(0, len(frame), ROWS_AT_ONCE):
        part = frame.slice(start, ROWS_AT_ONCE)
        item, title, _, available, published_at, vector = (part[name].to_list() for name in OWN)
        content = (_categories(part["categories"]), _attributes(part), map(_tuple, vector))
        columns: list[Iterable[Any]] = [item, title, *content, available, published_at, repeat(at, len(part))]
        yield [*map(ItemRecord, *columns)]


def check_ids(frame: pl.DataFrame, label: str, known: Catalog | ItemRecord | None) -> None:
    """Refuse ids of another type than those of a catalog, or than that of an item of the item table."""
    if known is None or (isinstance(known, Catalog) and not known.n_items):
        return
    example = label_of(known, 0)[0] if isinstance(known, Catalog) else known.item
    for row, item in enumerate(frame["item_id"].to_list()):
        is_usable = type(item) is type(example)
        if isinstance(known, Catalog):
            is_usable = catalog_id(known, item) is not None
        if not is_usable:
            raise DataError(
                f"{label}, row {row + 1}: the id {item!r} is of another type than those of other items, such as "
                f"{example!r}, and nothing was imported (Parquet and JSON lines files say which ids are text)"
            )


def check_kinds(frame: pl.DataFrame, label: str, known: Iterable[ItemRecord]) -> None:
    """Refuse an attribute of another kind than it has in the items that such a table leaves as they are."""
    columns = [column for column in frame[:, len(OWN) :] if column.null_count() < len(column)]
    kinds = {column.name: kind_of(_values(column.drop_nulls().head(1))[0]) for column in columns}
    replaced = set(frame["item_id"].to_list() if kinds else ())
    for record in known if kinds else ():
        for name, value in record.attributes.items():
            if kinds.get(name, kind_of(value)) != kind_of(value) and record.item not in replaced:
                raise DataError(f"{label}, {_first(frame[name], kinds[name])}, {_other_kind(record, name)}")


def _first(column: pl.Series, kind: str) -> str:
    """Say which row has the first value of a column."""
    row = int(column.is_not_null().arg_max() or 0)
    return f"row {row + 1}: {column.name} is a {kind}, {_values(column)[row]!r:.80}"


def _other_kind(record: ItemRecord, name: str) -> str:
    value = record.attributes[name]
    return (
        f"but of item {record.item!r} a {kind_of(value)}, {value!r:.80}, and nothing was imported; an attribute has "
        "one kind, so give all items that have it in one table, or use another name"
    )


def _categories(column: pl.Series) -> list[tuple[str, ...] | None]:
    """Return the categories of items; a table has few different sets of them."""
    joined = column.cast(pl.List(pl.String)).list.join("|").to_list()
    known = {text: None if text is None else tuple(filter(None, text.split("|"))) for text in set(joined)}
    return [known[text] for text in joined]


def _attributes(part: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the attributes that items have, by name."""
    names = part.columns[len(OWN) :]
    columns = [_values(part[name]) for name in names]
    if not any(part[name].null_count() for name in names):
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)] or [{}] * len(part)
    pairs = ((zip(names, row, strict=True)) for row in zip(*columns, strict=True))
    return [{name: value for name, value in row if value is not None} for row in pairs]


def _values(column: pl.Series) -> list[Any]:
    if column.dtype != TIMES:
        return column.to_list()
    return [None if time is None else {"time": time} for time in (column.to_physical() / 1e6).to_list()]


def _tuple(vector: list[float] | None) -> tuple[float, ...] | None:
    return None if vector is None else tuple(vector)


def _read(path: Path) -> pl.DataFrame:
    if path.suffix.lower() not in JSON_SUFFIXES:
        return read_table(path)
    try:
        return pl.read_ndjson(path, infer_schema_length=None)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error


def _optional(frame: pl.DataFrame, name: str, read: Callable[[pl.Series], pl.Series]) -> pl.Series:
    """Return a column as it is read; nulls if the table has none."""
    return read(frame[name]) if name in frame.columns else pl.Series(name, [None] * len(frame), pl.Boolean)


def _attribute(column: pl.Series, label: str) -> pl.Series:
    """Return an attribute, under its name and in the order of names."""
    name, _, declared = column.name.partition(":")
    if not NAME.fullmatch(name) or name in RESERVED:
        raise DataError(f"{label}: {column.name!r} is no name of an attribute; use letters, digits and underscores")
    kind = declared or _kind(column, label)
    if kind not in READERS:
        raise DataError(f"{label}: {column.name!r} has no known kind; use one of {', '.join(READERS)}")
    return READERS[kind](column, label).rename(name)


def _kind(column: pl.Series, label: str) -> str:
    """Return the kind of a column by its type; text may be that of numbers or booleans."""
    if column.dtype == pl.String:
        values = column.drop_nulls()
        if len(values) and values.str.to_lowercase().is_in(["true", "false"]).all():
            return BOOLEAN
        return NUMBER if len(values) and values.str.contains(PLAIN_NUMBER).all() else TEXT
    for kind, is_one in TYPES.items():
        if is_one(column.dtype):
            return kind
    raise DataError(f"{label}: column {column.name!r} contains {column.dtype} values, which cannot be attributes")


def _texts(column: pl.Series, label: str, longest: int = MAX_TEXT) -> pl.Series:
    texts = column.cast(pl.String)
    wrong = (texts.str.len_chars() > longest) | texts.str.contains("\0", literal=True)
    return _unless(wrong, texts, label, f"text has at most {longest} characters, none of them NUL")


def _lists(column: pl.Series, label: str) -> pl.Series:
    lists = column if isinstance(column.dtype, pl.List) else column.cast(pl.String).str.split("|")
    entry = pl.element().str.strip_chars()
    lists = lists.cast(pl.List(pl.String)).list.eval(entry.filter(entry != ""))
    longest = lists.list.eval(pl.element().str.len_chars()).list.max()
    wrong = (lists.list.len() > MAX_LIST) | (longest > MAX_ID_LENGTH)
    return _unless(wrong, lists, label, f"a list has at most {MAX_LIST} entries of at most {MAX_ID_LENGTH} characters")


def _category_sets(column: pl.Series, label: str) -> pl.Series:
    sets = _lists(column, label).list.unique(maintain_order=True)
    wrong = sets.list.eval(pl.element().str.contains("|", literal=True)).list.any()
    return _unless(wrong, sets, label, "the name of a category must not contain |")


def _seconds(column: pl.Series, label: str) -> pl.Series:
    return _moments(column, label).to_physical() / 1e6


def _moments(column: pl.Series, label: str) -> pl.Series:
    """Return times in UTC, which is also what those without a time zone are in; numbers are seconds since 1970."""
    if column.dtype == pl.String and not column.drop_nulls().str.contains(PLAIN_NUMBER).all():
        parsed = column.str.to_datetime(strict=False, time_unit="us", time_zone="UTC")
        wrong = parsed.is_null() & column.is_not_null()
        _unless(wrong, column, label, "write 2026-01-31T12:00:00 or seconds since 1970")
        return parsed
    if column.dtype.is_temporal():
        return column.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    return (numbers(column, label).cast(pl.Float64) * 1e6).round().cast(pl.Int64).cast(pl.Datetime("us")).cast(TIMES)


def _vectors(column: pl.Series, label: str) -> pl.Series:
    if not isinstance(column.dtype, pl.List | pl.Array):
        raise DataError(f"{label}: vectors must be lists of numbers; use a Parquet or a JSON lines file")
    return column.cast(pl.List(pl.Float32)).cast(pl.List(pl.Float64))


def _unless(wrong: pl.Series, column: pl.Series, label: str, advice: str) -> pl.Series:
    """Return a column; refuse it for the first of its rows that is wrong."""
    if wrong.any():
        row = int(wrong.arg_max() or 0)
        raise DataError(f"{label}, row {row + 1}: {column.name} {column[row]!r:.80}; {advice}")
    return column


PLAIN_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$"
TIMES = pl.Datetime("us", "UTC")
READERS: dict[str, Callable[[pl.Series, str], pl.Series]] = {
    TEXT: _texts,
    NUMBER: lambda column, label: numbers(column, label).cast(pl.Float64),
    BOOLEAN: booleans,
    LIST: _lists,
    TIME: _moments,
}
"""How a column is read, by the kind of its attribute."""
TYPES: dict[str, Callable[[Any], bool]] = {
    BOOLEAN: lambda kind: kind == pl.Boolean,
    NUMBER: lambda kind: kind.is_numeric(),
    TIME: lambda kind: kind.is_temporal(),
    LIST: lambda kind: isinstance(kind, pl.List),
    TEXT: lambda kind: kind in (pl.Categorical, pl.Enum, pl.Null),
}
"""The kind of a column by the type that its file gives it."""
