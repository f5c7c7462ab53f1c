"""Tables 1, 2 and 3 of the paper with our numbers, as data and as tables of a report."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from slatewise.data.tables import DataError
from slatewise.report import paper
from slatewise.report.document import COUNT, DENSITY, PERCENT, SAMPLE_COUNT, Cell, Comparison, Table

COUNTS = ("users", "items", "interactions", "categories")


def table1_rows(descriptions: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Compare `Dataset.describe()` with the paper's Table 1; rows are `{"dataset", …, "sample_of", "paper"}`."""
    rows = []
    for description in descriptions:
        name = str(description["name"])
        column = paper.column_of(name)
        numbers = {key: description[key] for key in (*COUNTS, "density")}
        published = None if column is None else paper.TABLE_1[column]
        rows.append({"dataset": name, **numbers, "sample_of": paper.SAMPLES.get(name), "paper": published})
    return rows


def table1(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Format Table 1: what the data sets contain once only positive ratings are kept."""
    columns = ("Data set", "Users", "Items", "Interactions", "Categories", "Density")
    body = tuple(_table1_row(row) for row in rows)
    notes = ["After each number: the paper's, then ours minus the paper's."]
    notes += [_sample_note(row["dataset"]) for row in rows if row["sample_of"]]
    return Table("table1", "Table 1. Statistics of the data sets", columns, body, tuple(notes))


def table2_json(summary: pl.DataFrame, dataset: str, n_splits: int) -> dict[str, Any]:
    """Return Table 2 of a data set as data: means, `sd` over splits, and `paper`, None if it has no such row."""
    rows_of_dataset = summary.filter(pl.col("dataset") == dataset)
    if rows_of_dataset.is_empty():
        raise DataError(
            f"there are no results for the data set {dataset!r}, only for {', '.join(summary['dataset'].unique())}"
        )
    rows = [
        {
            "policy": row["policy"],
            **{metric: _rounded(row.get(metric)) for metric in paper.METRICS},
            "sd": {metric: _rounded(row.get(f"{metric} sd")) for metric in paper.METRICS},
            "paper": paper.published(dataset, row["policy"]),
        }
        for row in rows_of_dataset.iter_rows(named=True)
    ]
    return {"dataset": dataset, "splits": n_splits, "rows": rows}


def table2(results: Mapping[str, Any]) -> Table:
    """Format what `table2_json` returns."""
    dataset, n_splits = results["dataset"], results["splits"]
    splits = "one split" if n_splits == 1 else f"mean ± standard deviation over {n_splits} splits"
    notes = [
        f"Each cell: ours ({splits}), then the paper's value, then ours minus the paper's.",
        "▲ and ▼ mark differences above 0.03.",
        *_notes_on(dataset, "table2"),
    ]
    caption = f"Table 2. Precision, diversity and F on {paper.title_of(dataset)}"
    columns = ("Policy", *(paper.METRIC_TITLES[metric] for metric in paper.METRICS))
    return Table("table2", caption, columns, tuple(map(_table2_row, results["rows"])), tuple(notes))


def table3_rows(summary: pl.DataFrame, dataset: str) -> list[dict[str, Any]]:
    """Return in percent how much better DC²B is than each other policy, by the means over splits.

    A row is `{"policy", "p@50", "diversity", "f", "paper"}`. A tuned policy is compared with DC²B tuned, and left out
    if that was not run.
    """
    rows = {row["policy"]: row for row in table2_json(summary, dataset, 0)["rows"]}
    if "dc2b" not in rows:
        raise DataError(f"Table 3 compares with 'dc2b', which was not run on {dataset!r}; run it too")
    published = paper.TABLE_3.get(paper.column_of(dataset) or "", {})
    compared = []
    for policy, row in rows.items():
        name = policy.removesuffix(paper.TUNED)
        ours = rows.get("dc2b" + policy[len(name) :])
        if name != "dc2b" and ours is not None:
            gains = {metric: _improvement(ours[metric], row[metric]) for metric in paper.IMPROVED_METRICS}
            compared.append({"policy": policy, **gains, "paper": published.get(name)})
    return compared


def table3(rows: Sequence[Mapping[str, Any]], dataset: str) -> Table:
    """Format what `table3_rows` returns."""
    columns = ("DC²B against", *(paper.METRIC_TITLES[metric] for metric in paper.IMPROVED_METRICS))
    caption = f"Table 3. Relative improvements of DC²B on {paper.title_of(dataset)}"
    notes = (
        "After each number: the paper's, then ours minus the paper's in percentage points.",
        *_notes_on(dataset, "table3"),
    )
    return Table("table3", caption, columns, tuple(map(_table3_row, rows)), notes)


def _table1_row(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    published = row["paper"] or {}
    count = SAMPLE_COUNT if row["sample_of"] else COUNT
    formats = {**dict.fromkeys(COUNTS, count), "density": DENSITY}
    cells = (Comparison(row[key], published.get(key), format=chosen) for key, chosen in formats.items())
    return (paper.title_of(row["dataset"]), *cells)


def _table2_row(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    published = row["paper"] or {}
    cells = (Comparison(row[key], published.get(key), row["sd"][key]) for key in paper.METRICS)
    return (paper.policy_title(row["policy"]), *cells)


def _table3_row(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    published = row["paper"] or {}
    cells = (Comparison(row[key], published.get(key), format=PERCENT) for key in paper.IMPROVED_METRICS)
    return (paper.policy_title(row["policy"]), *cells)


def _notes_on(dataset: str, table: str) -> list[str]:
    notes = [_sample_note(dataset)] if dataset in paper.SAMPLES else []
    misprint = paper.MISPRINTS.get((paper.column_of(dataset) or "", table))
    return [*notes, misprint] if misprint else notes


def _sample_note(dataset: str) -> str:
    full = paper.DATASET_TITLES[paper.SAMPLES[dataset]]
    return f"{dataset} is a sample of {full}; the paper's numbers are for the full set."


def _improvement(ours: float | None, baseline: float | None) -> float | None:
    return round(100 * (ours / baseline - 1), 4) if ours is not None and baseline else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
