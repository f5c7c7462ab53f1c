"""The item table as a frame of polars, in the order of the catalog."""

import json
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slatewise.catalog import Catalog
from slatewise.catalog.identifiers import PackedText
from slatewise.recommender.attributes import BOOLEAN, LIST, NUMBER, TEXT, TIME, kind_of

TYPES: dict[str, pl.DataType] = {
    TEXT: pl.String(),
    NUMBER: pl.Float64(),
    BOOLEAN: pl.Boolean(),
    LIST: pl.List(pl.String()),
    TIME: pl.Datetime("us", "UTC"),
}
"""The type of a column by the kind of its attribute."""
ROWS_AT_ONCE = 50_000
NUMBER_OF_ROW = "number of the item"


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
    def attributes(self) -> PackedText:
        """The attributes of each item as JSON, empty without any."""

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of each attribute."""


def item_frame(items: Items) -> pl.DataFrame:
    """Return one row per item of the catalog, null where an item does not have an attribute."""
    n_items = items.catalog.n_items
    starts = range(0, n_items, ROWS_AT_ONCE)
    return pl.concat([_rows(items, range(start, min(start + ROWS_AT_ONCE, n_items))) for start in starts])


def changed_frame(frame: pl.DataFrame, items: Items, changed: Sequence[int]) -> pl.DataFrame:
    """Return the frame after a change of some items, and with new ones at its end."""
    part = _rows(items, changed).with_columns(pl.Series(NUMBER_OF_ROW, changed, pl.Int64))
    numbered = frame.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(NUMBER_OF_ROW))
    kept = numbered.filter(~pl.col(NUMBER_OF_ROW).is_in(list(changed)))
    return pl.concat([kept, part], how="diagonal").sort(NUMBER_OF_ROW).drop(NUMBER_OF_ROW)


def _rows(items: Items, numbers: Sequence[int]) -> pl.DataFrame:
    """Return the rows of some items."""
    catalog, rows = items.catalog, np.array(numbers, dtype=np.int64)
    ids, names = [catalog.item_ids[row] for row in numbers], catalog.category_names
    fixed = {
        "id": pl.Series(ids if catalog.item_ids.kind == "int" else [*map(str, ids)]),
        "title": pl.Series([catalog.titles[row] for row in numbers], dtype=pl.String),
        "categories": pl.Series(
            [[names[column] for column in row.nonzero()[0]] for row in catalog.categories[rows]],
            dtype=pl.List(pl.String),
        ),
        "available": pl.Series(items.available[rows]),
        "published_at": _times(pl.Series(items.published_at[rows], dtype=pl.Float64).fill_nan(None)),
    }
    attributes = _attributes([items.attributes[row] or "{}" for row in numbers], items.kinds)
    return pl.DataFrame({**fixed, **attributes})


def _attributes(texts: list[str], kinds: dict[str, str]) -> dict[str, pl.Series]:
    """Return the attributes of some items by name; a value of another kind than the column's is null."""
    if not kinds:
        return {}
    rows = [json.loads(text) for text in texts]
    return {name: _column([row.get(name) for row in rows], kind) for name, kind in kinds.items()}


def _column(values: list[Any], kind: str) -> pl.Series:
    fitting = [value if value is not None and kind_of(value) == kind else None for value in values]
    if kind == TIME:
        return _times(pl.Series([None if value is None else value["time"] for value in fitting], dtype=pl.Float64))
    return pl.Series(fitting, dtype=TYPES[kind])


def _times(seconds: pl.Series) -> pl.Series:
    return (seconds * 1e6).round().cast(pl.Int64).cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
