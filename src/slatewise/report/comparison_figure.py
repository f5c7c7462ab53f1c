"""Table 2 as figures: our value and the paper's on one line per method."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from slatewise.report import paper
from slatewise.report.plotting import INK, SERIES, Figure, draw_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

METRICS = {"p@50": "P@50 (share clicked)", "diversity": "Diversity (mean 1 − Jaccard)"}
HEAD, ROW, WIDTH = 1.3, 0.31, 6.0


def comparison_figures(results: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Plot P@50 and diversity of what `table2_json` returns, for the methods that the paper has."""
    rows = [row for row in results["rows"] if row["paper"]]
    return tuple(_figure(metric, rows, paper.title_of(results["dataset"])) for metric in METRICS if rows)


def _figure(metric: str, rows: list[Mapping[str, Any]], dataset: str) -> Figure:
    title = paper.METRIC_TITLES[metric]
    described = "; ".join(
        f"{paper.policy_title(row['policy'])}: ours {row[metric]:.3f}, the paper's {row['paper'][metric]:.3f}"
        for row in rows
    )
    caption = f"{title} on {dataset}: our runs and the paper's results."
    if any(row["sd"][metric] for row in rows):
        caption += " Whiskers: standard deviation over splits."
    name = "comparison-" + "".join(character for character in metric if character.isalnum())
    inches = (WIDTH, HEAD + ROW * len(rows))
    return draw_figure(name, (caption, described), lambda canvas: _draw(canvas, metric, rows), inches)


def _draw(canvas: "Canvas", metric: str, rows: list[Mapping[str, Any]]) -> None:
    """Plot one line per method, the first on top; a thin bar joins its two values."""
    axes = canvas.subplots()
    heights = [float(height) for height in reversed(range(len(rows)))]
    ours, published = [row[metric] for row in rows], [row["paper"][metric] for row in rows]
    spread = [row["sd"][metric] or 0.0 for row in rows]
    axes.hlines(heights, ours, published, color=INK, alpha=0.35, linewidth=1.2)
    axes.errorbar(
        ours, heights, xerr=spread if any(spread) else None, color=SERIES[0], fmt="o", capsize=3, label="our runs"
    )
    axes.plot(published, heights, color=INK, marker="D", linestyle="none", markerfacecolor="none", label="the paper")
    axes.set_yticks(heights, [paper.policy_title(row["policy"]) for row in rows])
    axes.locator_params(axis="x", nbins=6)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(METRICS[metric])
    canvas.legend(loc="outside upper center", ncols=2)
