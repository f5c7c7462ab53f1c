"""A service that lives: a table of its arms, and a figure of what each of them gains over time."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from slatewise.report.document import Table
from slatewise.report.plotting import INK, MARKERS, SERIES, Figure, draw_figure

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure as Canvas

PARTS = 8
"""The figure shows means over so many groups of people, in the order of their arrival."""
SHOWN_ITEMS = 50

Rows = Sequence[Mapping[str, Any]]


def living_table(rows: Rows, dataset: str) -> Table:
    """Format P@50 by arm, the gain over a frozen catalog, and the share of the oracle's gain."""
    lines = tuple(
        (
            row["arm"],
            round(row["p@50"], 4),
            f"{row['gain']:+.4f} [{row['gain_low']:+.4f}, {row['gain_high']:+.4f}]",
            f"{row['regained']:.0%} [{row['regained_low']:.0%}, {row['regained_high']:.0%}]",
        )
        for row in rows
    )
    caption = f"P@50 on {dataset} of people who come after the start, with 95 % intervals over people"
    return Table("living", caption, ("arm", "P@50", "gain over frozen", "share of the oracle's gain"), lines)


def living_figure(frame: "pl.DataFrame", arms: Sequence[str], dataset: str) -> Figure:
    """Plot the gain of each arm over the frozen catalog, by when people came."""
    table = frame.sort("at").select(arms).to_numpy() / SHOWN_ITEMS
    parts = np.array_split(table - table[:, :1], min(PARTS, len(table)))
    series = {arm: [float(part[:, number].mean()) for part in parts] for number, arm in enumerate(arms) if number}
    described = "; ".join(f"{arm}: " + ", ".join(f"{gain:+.3f}" for gain in gains) for arm, gains in series.items())
    caption = f"Gain in P@50 over a frozen catalog on {dataset}, by when people came."
    return draw_figure("figure-living", (caption, described), lambda canvas: _draw(canvas, series), (7.0, 4.0))


def _draw(canvas: "Canvas", series: Mapping[str, Sequence[float]]) -> None:
    axes = canvas.subplots()
    for number, (arm, gains) in enumerate(series.items()):
        color = SERIES[number] if number < len(SERIES) else INK
        groups = np.arange(1, len(gains) + 1)
        axes.plot(groups, gains, marker=MARKERS[number], color=color, label=arm)
    axes.axhline(0.0, color=INK, alpha=0.4, linewidth=1.0)
    axes.set_xlabel("people in the order of their arrival, in groups of equal size")
    axes.set_ylabel("gain in P@50")
    canvas.legend(loc="outside upper center", ncols=3)
