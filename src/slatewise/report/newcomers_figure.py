"""Items that come after training: tables and a figure of what is known of them, and of what exploring costs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slatewise.report.document import Comparison, Table
from slatewise.report.plotting import SERIES, Figure, draw_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

Rows = Sequence[Mapping[str, Any]]


def known_table(rows: Rows, dataset: str) -> Table:
    """Format P@10 among new items by what is known of them."""
    lines = tuple((row["known"], Comparison(row["p@10"], sd=row["sd"])) for row in rows if "known" in row)
    return Table("newcomers", f"P@10 among new items on {dataset}.", ("known", "P@10"), lines)


def exploring_table(rows: Rows, dataset: str) -> Table:
    """Format what exploring costs and finds."""
    explored = [row for row in rows if "explore" in row]
    base = explored[0]["p@50"]
    lines = tuple(
        (row["explore"], Comparison(row["p@50"], sd=row["sd"]), round(base - row["p@50"], 4), round(row["found"], 3))
        for row in explored
    )
    columns = ("explore", "P@50", "cost", "good new items found")
    return Table("exploring", f"Exploring on {dataset} while new items arrive.", columns, lines)


def known_figure(rows: Rows, dataset: str) -> Figure:
    """Plot P@10 among new items by what is known of them."""
    values = {str(row["known"]): float(row["p@10"]) for row in rows if "known" in row}
    described = ", ".join(f"{name} {value:.3f}" for name, value in values.items())
    caption = f"P@10 among items that training never saw, on {dataset}, by what is known of them."
    return draw_figure("figure-newcomers", (caption, described), lambda canvas: _draw(canvas, values), (6.0, 2.6))


def _draw(canvas: "Canvas", values: Mapping[str, float]) -> None:
    axes = canvas.subplots()
    heights = [float(height) for height in reversed(range(len(values)))]
    axes.barh(heights, list(values.values()), height=0.6, color=SERIES[0])
    axes.set_yticks(heights, list(values))
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("P@10 among new items")
