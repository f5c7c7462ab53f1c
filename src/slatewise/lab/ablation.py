"""What each part of a method contributes: paired differences over splits, with 95 % intervals."""

from typing import Any

import numpy as np
import polars as pl

from slatewise.report import Table
from slatewise.report.paper import METRICS


def paired_differences(splits: pl.DataFrame, reference: str) -> list[dict[str, Any]]:
    """Return, per policy and metric, the mean difference from the reference over splits and half its 95 % interval."""
    from scipy import stats

    wide = {metric: splits.pivot(on="policy", index="split", values=metric) for metric in METRICS}
    rows = []
    for policy in splits["policy"].unique(maintain_order=True):
        row: dict[str, Any] = {"policy": policy}
        for metric, frame in wide.items():
            differences = (frame[policy] - frame[reference]).to_numpy()
            n = len(differences)
            half = float(stats.t.ppf(0.975, n - 1) * differences.std(ddof=1) / np.sqrt(n)) if n > 1 else None
            row[metric] = {"mean": float(frame[policy].mean()), "difference": float(differences.mean()), "half": half}
        rows.append(row)
    return rows


def ablation_table(document: dict[str, Any]) -> Table:
    """Format the differences as a table; the first row is the reference itself."""
    rows = tuple((str(row["policy"]), *(_format(row[metric]) for metric in METRICS)) for row in document["rows"])
    caption = (
        f"{document['dataset']}, {document['splits']} splits, validation users: difference from the first row, "
        f"mean ± half of the 95 % interval (paired over splits)."
    )
    return Table("ablation", caption, ("variant", *METRICS), rows)


def _format(value: dict[str, float | None]) -> str:
    if value["half"] is None:
        return f"{value['difference']:+.4f}"
    if not value["difference"] and not value["half"]:
        return f"{value['mean']:.4f}"
    return f"{value['difference']:+.4f} ± {value['half']:.4f}"
