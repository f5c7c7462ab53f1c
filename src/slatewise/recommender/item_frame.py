"""The item table as a frame of polars, in the order of the catalog."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slatewise.catalog import Catalog
from slatewise.catalog.blocked_text import BlockedText
from slatewise.catalog.identifiers import people_title
from slatewise.recommender.attributes import BOOLEAN, LIST, NUMBER, TEXT, TIME, kind_of

TYPES: dict[str, pl.DataType] = {
    TEXT: pl.String(),
    NUMBER: pl.Float64(),
    BOOLEAN: pl.Boolean(),
    LIST: pl.List(pl.String()),
    TIME: pl.Datetime("us", "UTC"),
}
"""The type of a column by the kind of its attribute."""
IN_JSON: dict[str, pl.DataType] = {TIME: pl.Struct({"time": pl.Float64()})}
"""The type of an attribute in JSON, where that is another."""
PART = 8_192
"""Frames are kept in parts of so many rows: a change copies those that it is in, and shares all others."""
ROWS_AT_ONCE = 6 * PART
NOTHING = "{}"

Entry = TypeVar("Entry")


class Items(Protocol):
    """What a frame is made of; see `slatewise.recommender.items.ItemSnapshot`."""

    @property
    def catalog(self) -> Catalog:
        """Ids, titles and categories."""

    @property
    def available(self) -> NDArray[np.bool_]:
        """Which items are available."""

    @property
    def published_at(self) -> NDArray[np.float64]:
        """When items are published, NaN if nobody said."""

    @property
    def attributes(self) -> BlockedText:
        """The attributes of each item as JSON, empty without any."""

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of each attribute."""

    @property
    def mixed(self) -> frozenset[str]:
        """The attributes that had values of several kinds."""


def item_frame(items: Items) -> pl.DataFrame:
    """Return one row per item of the catalog, null where an item does not have an attribute."""
    n_items = items.catalog.n_items
    starts = range(0, n_items, ROWS_AT_ONCE)
    return pl.concat([_rows(items, range(start, min(start + ROWS_AT_ONCE, n_items))) for start in starts])


def changed_frame(frame: pl.DataFrame, items: Items, changed: Sequence[int]) -> pl.DataFrame:
    """Return the frame after a change of some items, and with new ones at its end."""
    numbers, fresh = np.array(changed, dtype=np.int64), _rows(items, changed)
    parts, done = list[pl.DataFrame](), 0
    for part in np.unique(numbers // PART).tolist():
        start, end = part * PART, min((part + 1) * PART, items.catalog.n_items)
        old, is_inside = frame.slice(start, end - start), numbers // PART == part
        rows = np.arange(end - start)
        rows[numbers[is_inside] - start] = len(old) + np.arange(is_inside.sum())
        mixed = pl.concat([old, fresh.filter(is_inside)], how="diagonal")
        parts += [frame.slice(done, start - done), mixed[rows]]
        done = end
    return pl.concat([*parts, frame.slice(done)], how="diagonal")


def _rows(items: Items, numbers: Sequence[int]) -> pl.DataFrame:
    """Return the rows of some items, column by column."""
    catalog, rows = items.catalog, np.array(numbers, dtype=np.int64)
    ids = _take(catalog.item_ids, numbers)
    fixed = {
        "id": pl.Series(ids if catalog.item_ids.kind == "int" else [*map(str, ids)]),
        "title": pl.Series([*map(people_title, _take(catalog.titles, numbers))], dtype=pl.String),
        "categories": _categories(catalog, rows),
        "available": pl.Series(items.available[rows]),
        "published_at": _times(pl.Series(items.published_at[rows], dtype=pl.Float64).fill_nan(None)),
    }
    texts = [text or NOTHING for text in _take(items.attributes, numbers)]
    plain = {name: kind for name, kind in items.kinds.items() if name not in items.mixed}
    attributes = {**_attributes(texts, plain), **_mixed(texts, items.kinds, items.mixed)}
    return pl.DataFrame({**fixed, **{name: attributes[name] for name in items.kinds}})


def _take(values: Sequence[Entry], numbers: Sequence[int]) -> list[Entry]:
    """Return some entries; those of a range together."""
    if isinstance(numbers, range):
        return list(values[numbers.start : numbers.stop])
    return [values[number] for number in numbers]


def _categories(catalog: Catalog, rows: NDArray[np.int64]) -> pl.Series:
    """Return the categories of some items, each a list of names."""
    positions, columns = np.nonzero(catalog.categories[rows])
    names = pl.Series("names", catalog.category_names, pl.String)[columns]
    lists = pl.DataFrame({"row": positions, "names": names}).group_by("row", maintain_order=True).agg("names")
    everything = pl.DataFrame({"row": np.arange(len(rows))})
    joined = everything.join(lists, on="row", how="left", maintain_order="left")["names"]
    return joined.fill_null(pl.Series([[]], dtype=TYPES[LIST]))


def _attributes(texts: list[str], kinds: dict[str, str]) -> dict[str, pl.Series]:
    """Return the attributes of some items by name, decoded by polars; it takes some values of one kind for another."""
    if not kinds:
        return {}
    types = {name: IN_JSON.get(kind, TYPES[kind]) for name, kind in kinds.items()}
    columns = pl.Series(texts, dtype=pl.String).str.json_decode(pl.Struct(types)).struct.unnest()
    return {
        name: _times(columns[name].struct.field("time")) if kind == TIME else columns[name]
        for name, kind in kinds.items()
    }


def _mixed(texts: list[str], kinds: dict[str, str], names: Iterable[str]) -> dict[str, pl.Series]:
    """Return attributes that had values of several kinds: those of another kind than the latest are null."""
    rows = [json.loads(text) for text in texts] if names else []
    return {name: _column([row.get(name) for row in rows], kinds[name]) for name in names}


def _column(values: list[Any], kind: str) -> pl.Series:
    fitting = [value if value is not None and kind_of(value) == kind else None for value in values]
    if kind == TIME:
        return _times(pl.Series([None if value is None else value["time"] for value in fitting], dtype=pl.Float64))
    return pl.Series(fitting, dtype=TYPES[kind])


def _times(seconds: pl.Series) -> pl.Series:
    return (seconds * 1e6).round().cast(pl.Int64).cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
