"""`slatewise store export --for`: the log as Parquet, for the Open Bandit Pipeline, or for Vowpal Wabbit; no pickle."""

import io
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, cast

from slatewise.files import write_whole

if TYPE_CHECKING:
    from slatewise.recommender.log_table import ShownItem


def write_parquet(rows: Iterable["ShownItem"], file: Path) -> int:
    """Write one row for each shown item, with the propensity or null; return how many slates there are."""
    import polars as pl

    from slatewise.recommender.log_table import ShownItem

    columns: dict[str, list[object]] = {name: [] for name in ShownItem._fields}
    for row in rows:
        for name, value in row._asdict().items():
            columns[name].append(str(value) if name == "item" else value)
    frame = pl.DataFrame(columns, schema_overrides={"propensity": pl.Float64})
    content = io.BytesIO()
    frame.write_parquet(content)
    write_whole(file, [content.getvalue()])
    return frame["slate_id"].n_unique()


def write_obp(rows: Iterable["ShownItem"], file: Path) -> int:
    """Write the arrays that OBP's slate estimators take, as .npz; slates without propensities are left out.

    pscore_cascade: of the items down to each place; pscore: of the whole slate; action: the number of the item in
    `items`; position: from 0.
    """
    import numpy as np

    numbers: dict[str, int] = {}
    columns: dict[str, list[float]] = {name: [] for name in OBP_ARRAYS}
    n_slates = 0
    for n_slates, slate in enumerate(_drawn(rows), 1):
        down_to, whole = 1.0, float(np.prod([row.propensity or 0.0 for row in slate]))
        for row in slate:
            down_to *= row.propensity or 0.0
            action = numbers.setdefault(str(row.item), len(numbers))
            values = (n_slates - 1, row.place - 1, action, float(row.clicked), whole, down_to)
            for name, value in zip(OBP_ARRAYS, values, strict=True):
                columns[name].append(value)
    arrays = {name: np.array(values, dtype=OBP_ARRAYS[name]) for name, values in columns.items()}
    content, save = io.BytesIO(), cast(Callable[..., None], np.savez_compressed)
    save(content, items=np.array([*numbers], dtype=np.str_), **arrays)
    write_whole(file, [content.getvalue()])
    return n_slates


OBP_ARRAYS = {
    "slate_id": "int64",
    "position": "int64",
    "action": "int64",
    "reward": "float64",
    "pscore": "float64",
    "pscore_cascade": "float64",
}


def write_vw(rows: Iterable["ShownItem"], file: Path) -> int:
    """Write one line of Vowpal Wabbit's --cb format for each shown item: action:cost:propensity 'tag | features.

    The cost of a click is −1; the features are the place and the items before it; FILE.items.json has the ids of
    actions 1, 2, …. Slates without propensities are left out.
    """
    numbers: dict[str, int] = {}
    n_slates, lines = 0, list[str]()
    for slate in _drawn(rows):
        n_slates, before = n_slates + 1, list[str]()
        for row in slate:
            action = numbers.setdefault(str(row.item), len(numbers) + 1)
            cost, features = -int(row.clicked), " ".join([f"place_{row.place}", *before])
            lines.append(f"{action}:{cost}:{row.propensity!r} '{row.slate_id}|shown {features}\n")
            before.append(f"after_{action}")
    write_whole(file, (line.encode() for line in lines))
    write_whole(file.with_name(file.name + ".items.json"), [json.dumps([*numbers], ensure_ascii=False).encode()])
    return n_slates


def _drawn(rows: Iterable["ShownItem"]) -> Iterator[list["ShownItem"]]:
    """Return the slates that have propensities."""
    for _, slate in groupby(rows, key=lambda row: row.slate_id):
        shown = [*slate]
        if all(row.propensity is not None for row in shown):
            yield shown


FORMATS = {"obp": write_obp, "parquet": write_parquet, "vw": write_vw}
