"""The paper's two figures from our runs, learning curves, and precision against diversity."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from slatewise.data.tables import DataError, require_columns
from slatewise.report import paper
from slatewise.report.plotting import INK, MARKERS, SERIES, Figure, draw_figure, draw_line, over_splits

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

LINE_STYLES = ("-", "--", "-.", ":")
HIGH, WIDE = (6.0, 5.4), (6.0, 4.0)
AXES = {"p@50": "P@50 (share clicked)", "diversity": "Diversity (mean 1 − Jaccard)"}


@dataclass(frozen=True)
class Point:
    """A result in the plot of precision against diversity; points of one `line` are joined in order."""

    name: str
    precision: float
    diversity: float
    is_published: bool = False
    line: str = ""


def figure_alpha(frame: pl.DataFrame) -> Figure:
    """Plot P@50 and diversity against α, with the standard deviation over splits: the paper's first figure.

    `frame` is `metrics.per_split` with a column `alpha`: one row per split and α.
    """
    require_columns(frame, ("alpha", "split", "p@50", "diversity"), "the results by alpha")
    points = over_splits(frame, ["alpha"], ("p@50", "diversity"))
    described = "; ".join(
        f"α = {alpha:g}: P@50 {precision:.3f}, diversity {diversity:.3f}"
        for alpha, precision, diversity in points.select("alpha", "p@50", "diversity").iter_rows()
    )
    caption = f"DC²B by α: mean and standard deviation over {_splits(frame)}. {paper.ALPHA_STATEMENT}"
    return draw_figure("figure-alpha", (caption, described), lambda canvas: _draw_alpha(canvas, points), HIGH)


def figure_size(frame: pl.DataFrame) -> Figure:
    """Plot the precision of all items shown so far, for each slate size: the paper's second figure.

    `frame` is `metrics.precision_by_interaction` with a column `size`: one row per split, size and interaction.
    """
    require_columns(frame, ("size", "split", "shown", "precision"), "the results by slate size")
    points = over_splits(frame, ["size", "shown"], ("precision",))
    described = "; ".join(
        f"|S| = {size}: precision {precision:.3f} after {shown:g} items"
        for size, shown, precision in points.select("size", "shown", "precision").iter_rows()
    )
    caption = (
        f"DC²B by slate size: mean and standard deviation over {_splits(frame)}; each marker is one interaction. "
        f"{paper.SIZE_STATEMENT}"
    )
    return draw_figure("figure-size", (caption, described), lambda canvas: _draw_size(canvas, points), WIDE)


def figure_learning_curve(frame: pl.DataFrame, name: str, caption: str) -> Figure:
    """Plot the precision of all items shown so far, a line per policy; `frame` is `precision_by_interaction`."""
    require_columns(frame, ("policy", "split", "shown", "precision"), "the learning curves")
    points = over_splits(frame, ["policy", "shown"], ("precision",))
    last = points.group_by("policy", maintain_order=True).last()
    described = "; ".join(f"{row['policy']}: {row['precision']:.3f} after {row['shown']:g}" for row in last.to_dicts())
    return draw_figure(name, (caption, described), lambda canvas: _draw_learning_curve(canvas, points), HIGH)


def scatter_precision_diversity(points: Sequence[Point], name: str, caption: str) -> Figure:
    """Plot P@50 against diversity: our results filled, the paper's hollow, lines joined.

    Each name has one marker and one color, so that a method's run and its published point visibly belong together.
    """
    if not points:
        raise DataError(f"figure {name!r} has no points; pass at least one")
    described = "; ".join(
        f"{point.line} {point.name}".strip()
        + (" in the paper" if point.is_published else "")
        + f": P@50 {point.precision:.3f}, diversity {point.diversity:.3f}"
        for point in points
    )
    return draw_figure(name, (caption, described), lambda canvas: _draw_scatter(canvas, points), HIGH)


def _draw_alpha(canvas: "Canvas", points: pl.DataFrame) -> None:
    panels = canvas.subplots(2, 1, sharex=True)
    for series, (metric, label) in enumerate(AXES.items()):
        axes = panels[series]
        draw_line(axes, (points["alpha"], points[metric], points[f"{metric} sd"]), series)
        axes.axvline(paper.ALPHA, color=INK, linestyle=":", linewidth=1.2)
        axes.set(ylabel=label, xscale="log")
    alphas = points["alpha"].to_list()
    panels[1].set_xticks(alphas, [f"{alpha:g}" for alpha in alphas])
    panels[1].minorticks_off()
    panels[1].set_xlabel("α, the weight of quality in the kernel (log scale)")
    panels[0].set_title("dotted: α = 3, the paper's setting", fontsize=10)


def _draw_size(canvas: "Canvas", points: pl.DataFrame) -> None:
    axes = canvas.subplots()
    for series, ((size,), part) in enumerate(points.group_by(["size"], maintain_order=True)):
        draw_line(axes, (part["shown"], part["precision"], part["precision sd"]), series, f"|S| = {size}")
    axes.set_xlim(left=0)
    axes.set(xlabel="items shown to a user so far", ylabel="precision (share clicked so far)")
    axes.legend()


def _draw_learning_curve(canvas: "Canvas", points: pl.DataFrame) -> None:
    axes = canvas.subplots()
    for series, ((policy,), part) in enumerate(points.group_by(["policy"], maintain_order=True)):
        color, marker = SERIES[series % len(SERIES)], MARKERS[series % len(MARKERS)]
        axes.plot(part["shown"], part["precision"], color=color, marker=marker, markersize=4, label=str(policy))
    axes.set_xlim(left=0)
    axes.set(xlabel="items shown to a user so far", ylabel="precision (share clicked so far)")
    canvas.legend(loc="outside lower center", ncols=3)


def _draw_scatter(canvas: "Canvas", points: Sequence[Point]) -> None:
    axes = canvas.subplots()
    lines = list(dict.fromkeys(point.line for point in points if point.line))
    names = [*lines, *dict.fromkeys(point.name for point in points if not point.line)]
    for line in lines:
        _join(axes, [point for point in points if point.line == line], lines.index(line))
    for point in points:
        if not point.line:
            _mark(axes, point, names.index(point.name))
    axes.set(xlabel=AXES["diversity"], ylabel=AXES["p@50"])
    labeled = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    title = "filled: our runs, hollow: the paper" if any(point.is_published for point in points) else None
    canvas.legend(labeled.values(), labeled.keys(), loc="outside lower center", ncols=2, title=title)


def _join(axes: "Axes", points: list[Point], series: int) -> None:
    """Draw a curve; only the first one has its points named, and later ones are thinner, so that it stands out."""
    color, style = SERIES[series % len(SERIES)], LINE_STYLES[series // len(SERIES) % len(LINE_STYLES)]
    x, y = [point.diversity for point in points], [point.precision for point in points]
    width, marker = (2.6, "o") if series == 0 else (1.3, MARKERS[series % len(MARKERS)])
    axes.plot(x, y, color=color, linestyle=style, linewidth=width, marker=marker, markersize=4, label=points[0].line)
    for point in points if series == 0 else []:
        where = (point.diversity, point.precision)
        axes.annotate(point.name, where, (4, 4), textcoords="offset points", fontsize=9, color=color)


def _mark(axes: "Axes", point: Point, series: int) -> None:
    color = SERIES[series % len(SERIES)]
    face = "none" if point.is_published else color
    (dot,) = axes.plot([point.diversity], [point.precision], color=color, linestyle="none", label=point.name)
    dot.set(marker=MARKERS[series % len(MARKERS)], markersize=8, markerfacecolor=face)


def _splits(frame: pl.DataFrame) -> str:
    count = frame["split"].n_unique()
    return "one split" if count == 1 else f"{count} splits"
