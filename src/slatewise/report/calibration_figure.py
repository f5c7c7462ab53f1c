"""Calibration: tables and a figure of what was predicted against what was clicked."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slatewise.report.document import Table
from slatewise.report.plotting import INK, MARKERS, SERIES, Figure, draw_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

Rows = Sequence[Mapping[str, Any]]


def losses_table(rows: Rows, dataset: str) -> Table:
    """Format means, errors and losses."""
    measures = ("said", "clicked", "error", "log_loss")
    lines = tuple((row["evidence"], row["way"], *(round(row[name], 4) for name in measures)) for row in rows)
    columns = ("evidence", "probability", "mean said", "clicked", "mean error", "log-loss")
    return Table("calibration", f"Predictions and clicks on {dataset}, slates after the first", columns, lines)


def calibration_table(rows: Rows, dataset: str) -> Table:
    """Format the curves, one line per bin."""
    lines = tuple(
        (row["evidence"], row["way"], round(entry["said"], 4), round(entry["clicked"], 4), entry["n"])
        for row in rows
        for entry in row["curve"]
    )
    columns = ("evidence", "probability", "said", "clicked", "items")
    return Table(
        "calibration-curve", f"Predictions and clicks on {dataset}, in tenths of what was predicted", columns, lines
    )


def calibration_figure(rows: Rows, dataset: str) -> Figure:
    """Plot the share clicked by what was predicted; what holds is on the diagonal."""
    described = "; ".join(
        f"{_label(row)}: "
        + ", ".join(f"predicted {entry['said']:.2f} clicked {entry['clicked']:.2f}" for entry in row["curve"])
        for row in rows
    )
    caption = f"Share clicked by predicted probability on {dataset}; a probability that holds is on the line."
    return draw_figure("figure-calibration", (caption, described), lambda canvas: _draw(canvas, rows), (6.0, 4.6))


def _draw(canvas: "Canvas", rows: Rows) -> None:
    axes = canvas.subplots()
    axes.plot((0.0, 1.0), (0.0, 1.0), color=INK, alpha=0.4, linewidth=1.0)
    for number, row in enumerate(rows):
        probabilities, clicked = ([entry[name] for entry in row["curve"]] for name in ("said", "clicked"))
        axes.plot(probabilities, clicked, marker=MARKERS[number], color=SERIES[number], label=_label(row))
    axes.set_xlabel("predicted probability")
    axes.set_ylabel("share clicked")
    canvas.legend(loc="outside upper center", ncols=2)


def _label(row: Mapping[str, Any]) -> str:
    return f"{row['evidence']}, {row['way']}"
