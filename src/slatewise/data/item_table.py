"""The table of items: one row per item in the order of ids, with titles and categories cleaned up."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slatewise.data.tables import DataError, align, booleans, identifiers, require_columns
from slatewise.plurals import counted


def positions(part: pl.Series, whole: pl.Series) -> NDArray[np.int32]:
    """Return, for each id of a sorted part, its position in the sorted whole."""
    return whole.search_sorted(part).to_numpy().astype(np.int32)


def item_table(
    frame: pl.DataFrame | None, rated: tuple[pl.Series, str], labels: tuple[str, str], keep_unrated: bool
) -> tuple[pl.DataFrame, list[str]]:
    """Return one row per item in the order of ids (item_id, title, categories, available), and what was cleaned up."""
    ids = pl.DataFrame({"item_id": rated[0]})
    if frame is None:
        blank = ids.with_columns(title=pl.col("item_id").cast(pl.String), categories=pl.lit(None, pl.String))
        return blank.with_columns(available=pl.lit(True)), []
    require_columns(frame, ("item_id",), labels[1])
    column = identifiers(frame["item_id"], labels[1])
    align(rated, column, labels)
    known = pl.DataFrame([column[0].cast(rated[0].dtype), *(_text(frame, name) for name in ("title", "categories"))])
    if "available" in frame.columns:
        known = known.with_columns(booleans(frame["available"], labels[1]))
    repeated = len(known) - known["item_id"].n_unique()
    unique = known.unique("item_id", keep="first", maintain_order=True) if repeated else known
    is_rated = unique["item_id"].is_in(rated[0].implode())
    if keep_unrated:
        ids = pl.concat([ids, unique.filter(~is_rated).select("item_id")]).sort("item_id")
    table = ids.join(unique, on="item_id", how="left", maintain_order="left")
    available = table["available"].fill_null(True) if "available" in table.columns else pl.lit(True)
    table = table.with_columns(
        pl.col("title").fill_null(pl.col("item_id").cast(pl.String)), available.alias("available")
    )
    counts = {
        f"listed more than once in {labels[1]} (the first row counts)": repeated,
        f"without a row in {labels[1]} (the id serves as the title)": len(rated[0]) - int(is_rated.sum()),
        "not available": int((~table["available"]).sum()),
        "that nobody liked " + ("kept" if keep_unrated else "dropped"): len(unique) - int(is_rated.sum()),
    }
    return table, [f"{counted(count, 'item')} {what}" for what, count in counts.items() if count]


def listed_only(frame: pl.DataFrame, items: pl.DataFrame | None, labels: tuple[str, str]) -> pl.DataFrame:
    """Return the interactions with items that are listed."""
    if items is None:
        raise DataError("only listed items are wanted, but there is no table of items; give one")
    for table, label in zip((frame, items), labels, strict=True):
        require_columns(table, ("item_id",), label)
    listed = frame.filter(frame["item_id"].is_in(items["item_id"].implode()))
    if listed.is_empty():
        raise DataError(f"no item of {labels[0]} is listed in {labels[1]}; check the ids")
    return listed


def _text(frame: pl.DataFrame, name: str) -> pl.Series:
    if name not in frame.columns:
        return pl.Series(name, [None] * len(frame), dtype=pl.String)
    column = frame[name]
    if isinstance(column.dtype, pl.List | pl.Array):
        column = column.cast(pl.List(pl.String)).list.join("|")
    return column.cast(pl.String).str.strip_chars().replace("", None)
