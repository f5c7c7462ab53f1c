"""Fans of one category: a table and a figure of how much of each slate is of it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from slatewise.report.document import Table
from slatewise.report.plotting import INK, MARKERS, SERIES, Figure, draw_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

AT = 4
"""The figure shows the fifth slate."""
HEAD, ROW, WIDTH = 1.5, 0.32, 7.0
MEAN = "mean of all"

Rows = Sequence[Mapping[str, Any]]


def fans_table(rows: Rows, dataset: str) -> Table:
    """Format the share of the category in each slate, by category and policy, and its means over categories."""
    n_slates = len(rows[0]["share"])
    lines = [
        (row["category"], row["items"], row["policy"], *(round(share, 4) for share in row["share"])) for row in rows
    ]
    for policy in dict.fromkeys(row["policy"] for row in rows):
        lines.append((MEAN, None, policy, *(round(share, 4) for share in _mean(rows, policy, "share"))))
    caption = f"Share of their category in each slate of fans on {dataset}"
    columns = ("category", "items", "policy", *(f"slate {number + 1}" for number in range(n_slates)))
    variety = "; ".join(
        f"{policy} {_mean(rows, policy, 'diversity')[AT]:.3f}"
        for policy in dict.fromkeys(row["policy"] for row in rows)
    )
    return Table("fans", caption, columns, tuple(lines), (f"Diversity of slate {AT + 1}, mean of all: {variety}.",))


def _mean(rows: Rows, policy: str, name: str) -> list[float]:
    """Return the mean over categories by slate; the diversity of a slate of one item is unknown."""
    values = np.array([row[name] for row in rows if row["policy"] == policy], dtype=np.float64)
    return [float(value) for value in np.nanmean(values, axis=0)]


def fans_figure(rows: Rows, dataset: str) -> Figure:
    """Plot the share of the category in the fifth slate of its fan, by category and policy."""
    categories = list(dict.fromkeys(row["category"] for row in rows))
    series = {
        policy: [row["share"][AT] for row in rows if row["policy"] == policy]
        for policy in dict.fromkeys(row["policy"] for row in rows)
    }
    described = "; ".join(
        f"{category}: " + ", ".join(f"{policy} {values[number]:.2f}" for policy, values in series.items())
        for number, category in enumerate(categories)
    )
    caption = f"Share of their category in slate {AT + 1} of fans on {dataset}, largest category first."
    inches = (WIDTH, HEAD + ROW * len(categories))
    return draw_figure("figure-fans", (caption, described), lambda canvas: _draw(canvas, categories, series), inches)


def _draw(canvas: "Canvas", categories: Sequence[str], series: Mapping[str, Sequence[float]]) -> None:
    """Plot one line per category, the first on top."""
    axes = canvas.subplots()
    heights = [float(height) for height in reversed(range(len(categories)))]
    for number, (policy, values) in enumerate(series.items()):
        axes.plot(values, heights, MARKERS[number], color=SERIES[number], linestyle="none", label=policy)
    table = np.array(list(series.values()))
    axes.hlines(heights, table.min(axis=0), table.max(axis=0), color=INK, alpha=0.25, linewidth=1.0, zorder=0)
    axes.set_yticks(heights, categories)
    axes.grid(visible=False, axis="y")
    axes.set_xlim(-0.03, 1.03)
    axes.set_xlabel(f"share of slate {AT + 1} that is of the category")
    canvas.legend(loc="outside upper center", ncols=2)
