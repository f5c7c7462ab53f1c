"""Which cells our policy wins against the paper's best results and the best tuned rival in our own runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slatewise.report import Figure, Table
from slatewise.report.figures import Point, scatter_precision_diversity
from slatewise.report.paper import METRICS, TABLE_2, TUNED, column_of, policy_title

OURS = "dc2b-calibrated"
CURVE = f"{OURS}, diversity "
FLOOR = ("random",)
"""Not rivals: random slates are the most diverse of all and relevant to nobody."""


@dataclass(frozen=True)
class Cell:
    """One metric on one data set: our mean, the paper's best and the best rival in our own runs."""

    metric: str
    ours: float
    paper: float | None
    rival: str
    rival_value: float
    p_t: float
    p_wilcoxon: float

    def as_dict(self) -> dict[str, Any]:
        """For `--json`; a tie is not a win."""
        return {
            "ours": self.ours,
            "paper_best": self.paper,
            "beats_paper": None if self.paper is None else self.ours > self.paper,
            "rival": self.rival,
            "rival_best": self.rival_value,
            "beats_rival": self.ours > self.rival_value,
            "p_t": self.p_t,
            "p_wilcoxon": self.p_wilcoxon,
        }


def cells(summary: pl.DataFrame, users: pl.DataFrame, dataset: str) -> list[Cell]:
    """Compare our policy with the best rival, metric by metric; significance is paired, user by user."""
    averaged = _with_f(users)
    means = {row["policy"]: row for row in summary.to_dicts()}
    rivals = [name for name in means if not name.startswith(OURS) and name not in FLOOR]
    column = column_of(dataset)
    compared = []
    for metric in METRICS:
        rival = max(rivals, key=lambda name: float(means[name][metric]))
        paper = None if column is None else max(row[metric] for row in TABLE_2[column].values())
        significance = paired_significance(_paired(averaged, metric, rival))
        compared.append(Cell(metric, means[OURS][metric], paper, rival, means[rival][metric], *significance))
    return compared


def paired_significance(differences: NDArray[np.float64]) -> tuple[float, float]:
    """Two-sided p-values of a paired t-test and of Wilcoxon's signed-rank test; 1 if nothing differs."""
    from scipy import stats

    if not np.any(differences):
        return 1.0, 1.0
    t = stats.ttest_1samp(differences, 0.0).pvalue
    return float(t), float(stats.wilcoxon(differences).pvalue)


def cells_table(compared: Sequence[Cell], dataset: str) -> Table:
    """Format the comparison as a table."""
    rows = tuple(
        (
            cell.metric,
            round(cell.ours, 4),
            cell.paper,
            _verdict(cell.ours, cell.paper),
            policy_title(cell.rival),
            round(cell.rival_value, 4),
            _verdict(cell.ours, cell.rival_value),
            f"{cell.p_t:.1e} / {cell.p_wilcoxon:.1e}",
        )
        for cell in compared
    )
    columns = (
        "metric",
        "ours",
        "paper's best",
        "beats paper",
        "best rival",
        "its value",
        "beats rival",
        "p (t / Wilcoxon)",
    )
    caption = f"Cells won on {dataset} by one setting; p-values are paired, user by user, against the best rival."
    return Table("cells", caption, columns, rows)


def pareto_figure(summary: pl.DataFrame, dataset: str) -> Figure:
    """Plot precision against diversity: our curve over the diversity option, the rivals' points and the paper's."""
    ours, others, names = [], [], summary["policy"].to_list()
    for row in summary.sort("diversity").to_dicts():
        name = str(row["policy"])
        if name.startswith(CURVE):
            ours.append(Point(name.removeprefix(CURVE), row["p@50"], row["diversity"], line="ours, by diversity"))
        elif name not in (OURS, "random") and f"{name}{TUNED}" not in names and "(zero" not in name:
            others.append(Point(policy_title(name), row["p@50"], row["diversity"]))
    column = column_of(dataset)
    published = [] if column is None else list(TABLE_2[column].items())
    points = [Point(policy_title(name), row["p@50"], row["diversity"], is_published=True) for name, row in published]
    caption = f"Precision against diversity on {dataset}: up and right is better; numbers are values of `diversity`."
    return scatter_precision_diversity([*ours, *others, *points], "pareto", caption)


def _verdict(ours: float, other: float | None) -> str:
    if other is None:
        return "—"
    return "yes" if ours > other else "tie" if ours == other else "no"


def _with_f(users: pl.DataFrame) -> pl.DataFrame:
    """Add each user's own F, and average users who are test users in several splits."""
    total = pl.col("p@50") + pl.col("diversity")
    f = pl.when(total > 0).then(2 * pl.col("p@50") * pl.col("diversity") / total).otherwise(0.0)
    return users.with_columns(f=f).group_by("policy", "user", maintain_order=True).agg(pl.col(METRICS).mean())


def _paired(users: pl.DataFrame, metric: str, rival: str) -> NDArray[np.float64]:
    """Return our value minus the rival's, user by user."""
    both = users.filter(pl.col("policy").is_in([OURS, rival])).pivot(on="policy", index="user", values=metric)
    return np.asarray((both[OURS] - both[rival]).to_numpy(), dtype=np.float64)
