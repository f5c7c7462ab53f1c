"""Figures as SVG and PNG, drawn by matplotlib without global state.

An SVG is made to stand inside a page: no background, text and axes in the page's own text colour, series in the CSS
variables `--series-1` to `--series-4` with colour-blind-safe defaults (Okabe and Ito). The same figure drawn twice is
the same bytes.
"""

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from slatewise import paper
from slatewise.tables import require_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

INK = "#1b1f24"
SERIES = ("#0072b2", "#d55e00", "#00906a", "#b3589a")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h", "p")
STYLE: dict[str, Any] = {
    "font.size": 11,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.2,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "lines.linewidth": 1.8,
    "lines.markersize": 6.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "slatewise",
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "grid.color"), INK
    ),
}
NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))


@dataclass(frozen=True)
class Figure:
    """A drawn figure: file name, caption, a description for those who cannot see it, and its two forms."""

    name: str
    caption: str
    description: str
    svg: str
    png: bytes


@dataclass(frozen=True)
class Point:
    """One result in the plane of diversity and precision; points of one `line` are joined in their order."""

    name: str
    precision: float
    diversity: float
    is_published: bool = False
    line: str = ""


def figure_alpha(frame: pl.DataFrame) -> Figure:
    """Draw P@50 and diversity against α, with the standard deviation over splits: the paper's first figure.

    `frame` is `metrics.per_split` with a column `alpha`, one row per split and α.
    """
    require_columns(frame, ("alpha", "p@50", "diversity"), "the results by alpha")
    points = _over_splits(frame, ["alpha"], ("p@50", "diversity"))

    def draw(canvas: "Canvas") -> None:
        panels = canvas.subplots(2, 1, sharex=True)
        for axes, metric, label, series in zip(panels, ("p@50", "diversity"), ("P@50", "Diversity"), (0, 1), strict=True):
            _line(axes, (points["alpha"], points[metric], points[f"{metric} sd"]), series, label)
            axes.set(ylabel=label, xscale="log")
            axes.axvline(paper.ALPHA, color=INK, linestyle=":", linewidth=1.2)
        panels[0].annotate("paper: α = 3", (paper.ALPHA, 1.02), xycoords=("data", "axes fraction"), ha="center")
        panels[1].set(xlabel="α, the weight of quality against variety (log scale)")

    described = "; ".join(f"α {row['alpha']:g}: P@50 {row['p@50']:.3f}, diversity {row['diversity']:.3f}" for row in points.iter_rows(named=True))
    caption = f"DC²B by α: mean and standard deviation over {_n_splits(frame)}. {paper.ALPHA_STATEMENT}"
    return _render("figure-alpha", caption, described, draw, (6.0, 5.4))


def figure_size(frame: pl.DataFrame) -> Figure:
    """Draw the precision of all items shown so far, for each slate size: the paper's second figure.

    `frame` is `metrics.precision_by_interaction` with a column `size`.
    """
    require_columns(frame, ("size", "shown", "precision"), "the results by size of slate")
    points = _over_splits(frame, ["size", "shown"], ("precision",))
    sizes = points["size"].unique().sort().to_list()

    def draw(canvas: "Canvas") -> None:
        axes = canvas.subplots()
        for series, size in enumerate(sizes):
            of_size = points.filter(size=size)
            _line(axes, (of_size["shown"], of_size["precision"], of_size["precision sd"]), series, f"|S| = {size}")
        axes.set(xlabel="items shown to a user so far", ylabel="precision (share clicked so far)")
        axes.legend()

    last = points.group_by("size", maintain_order=True).last()
    described = "; ".join(f"|S| = {row['size']}: precision {row['precision']:.3f} after {row['shown']:g} items" for row in last.iter_rows(named=True))
    caption = f"DC²B by size of slate, mean and standard deviation over {_n_splits(frame)}; each marker is one interaction. {paper.SIZE_STATEMENT}"
    return _render("figure-size", caption, described, draw, (6.0, 4.0))


def scatter_precision_diversity(points: Sequence[Point], name: str, caption: str) -> Figure:
    """Draw results in the plane of diversity and P@50: ours filled, the paper's hollow, lines joined.

    A name has one marker and colour, so that a method's own run and its published point can be told together.
    """
    names = list(dict.fromkeys(point.name for point in points if not point.line))
    lines = list(dict.fromkeys(point.line for point in points if point.line))

    def draw(canvas: "Canvas") -> None:
        axes = canvas.subplots()
        for series, line in enumerate(lines):
            _joined(axes, [point for point in points if point.line == line], series)
        for point in points:
            if not point.line:
                _dot(axes, point, names.index(point.name) + len(lines))
        axes.set(xlabel="Diversity (mean 1 − Jaccard of categories in a slate)", ylabel="P@50")
        _legend_of_names(axes, any(point.is_published for point in points))

    described = "; ".join(f"{point.line} {point.name}{' (paper)' if point.is_published else ''}: P@50 {point.precision:.3f}, diversity {point.diversity:.3f}".strip() for point in points)
    return _render(name, caption, described, draw, (6.4, 5.8))
