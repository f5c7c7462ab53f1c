"""The regret laboratory on paper: how regret grows, how good the oracle is, and where Theorem 1's bound lies."""

from math import ceil, isfinite
from typing import TYPE_CHECKING, Any

import polars as pl

from slatewise.report.document import Cell, Table
from slatewise.report.plotting import INK, MARKERS, SERIES, Figure, draw_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

WORLD = ["dim", "size", "alpha", "radius", "withdraws", "rounds"]
PANELS_PER_ROW = 3
SAMPLER = "thompson"
LOST_SHARES = (0.015, 1.5)


def regret_table(summary: pl.DataFrame) -> Table:
    """Format what each learner lost in each world: `summary` of the regret experiments."""
    caption = "Regret against the greedy oracle: means over worlds, with 95 % bootstrap intervals."
    columns = (
        "world",
        "learner",
        "lost share of the oracle's reward",
        "interval",
        "log-log slope of relative regret",
        "slope interval",
        "slope of regret",
        "regret",
        "regret against the best subset",
    )
    notes = (
        "Slopes are fitted by least squares over the second half of the rounds; a dash means that the mean regret is "
        "not positive: a learner can beat the greedy oracle if greedy does not find the best subset.",
    )
    return Table("regret", caption, columns, tuple(_regret_row(row) for row in summary.to_dicts()), notes)


def bound_table(bounds: pl.DataFrame) -> Table:
    """Format the oracle and Lemma 1's bound for each world: `bounds` of the regret experiments."""
    caption = "The greedy oracle, and Lemma 1's bound with the paper's constants, for each world."
    columns = (
        "world",
        "greedy is the best subset",
        "greedy / best reward",
        "largest reward seen",
        "C is at least",
        "dim_M ≤",
        "β*_T",
        "bound",
        "bound / (T·C)",
        "bound < T·C from T =",
    )
    notes = ("C is 1 in the paper; the column gives a reward that unit vectors and ‖θ‖ ≤ 1 allow.",)
    return Table("regret-bound", caption, columns, tuple(_bound_row(row) for row in bounds.to_dicts()), notes)


def figure_regret(frame: pl.DataFrame) -> Figure:
    """Plot the relative regret per round of each learner on logarithmic axes: a panel for each world."""
    means = _means(frame, "relative_regret").with_columns(lost=pl.col("relative_regret") / pl.col("round"))
    last = means.filter(pl.col("round") == pl.col("rounds")).to_dicts()
    described = "; ".join(f"{_world(row)}: {row['learner']} {_decimals(row['lost'])}" for row in last)
    caption = (
        "Share of the oracle's reward lost so far, mean over worlds. A flat line is linear regret, that is, no "
        "learning; a line parallel to the dashed one is √T."
    )
    n_rows = ceil(means.select(WORLD).n_unique() / PANELS_PER_ROW)
    texts, inches = (caption, described), (9.0, 1.2 + 2.5 * n_rows)
    return draw_figure("figure-regret", texts, lambda canvas: _draw_growth(canvas, means, n_rows), inches)


def figure_bound(frame: pl.DataFrame, curves: pl.DataFrame) -> Figure:
    """Plot Lemma 1's bound (`curves`: dim, size, alpha, round, bound) over T, and what Thompson sampling really lost.

    Measured regret is shown for the worlds that differ from the first only in α, against the best subset.
    """
    band = curves.group_by("round").agg(low=pl.col("bound").min(), high=pl.col("bound").max()).sort("round")
    same = [pl.col(name) == frame[name][0] for name in WORLD if name != "alpha"]
    measured = _means(frame.filter(pl.col("learner") == SAMPLER, *same), "optimum_regret").sort("alpha", "round")
    last = measured.filter(pl.col("round") == pl.col("rounds"))
    described = "; ".join(f"{_world(row)}: measured {_compact(row['optimum_regret'])}" for row in last.to_dicts())
    caption = (
        "Lemma 1's bound over all worlds of the run (band), the line T·C that needs no proof, and the measured regret "
        f"of `{SAMPLER}` against the best subset, by α. The bound is informative only to the right of "
        "where it crosses the line."
    )
    texts = caption, described or f"no measured regret of {SAMPLER}"
    return draw_figure("figure-regret-bound", texts, lambda canvas: _draw_bound(canvas, band, measured), (6.5, 5.0))


def _draw_growth(canvas: "Canvas", means: pl.DataFrame, n_rows: int) -> None:
    panels = canvas.subplots(n_rows, PANELS_PER_ROW, squeeze=False, sharex=True, sharey=True)
    learners = means["learner"].unique(maintain_order=True).to_list()
    worlds = means.partition_by(WORLD, maintain_order=True)
    for axes, part in zip(panels.flat, worlds, strict=False):
        for series, learner in enumerate(learners):
            _draw_learner(axes, part.filter(pl.col("learner") == learner, pl.col("lost") > 0), series)
        rounds = part["rounds"][0]
        axes.plot([1, rounds], [1, rounds**-0.5], color=INK, linestyle="--", linewidth=1.0)
        axes.set(xscale="log", yscale="log", ylim=LOST_SHARES)
        axes.set_title(_world(part.row(0, named=True)), fontsize=10)
    for axes in panels.flat[len(worlds) :]:
        axes.set_visible(False)
    panels[-1, 0].set(xlabel="round", ylabel="lost share so far")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside lower center", ncols=len(labels))


def _draw_learner(axes: "Axes", part: pl.DataFrame, series: int) -> None:
    """Plot one learner; markers of different learners are offset, because their lines may coincide."""
    color, marker = SERIES[series % len(SERIES)], MARKERS[series % len(MARKERS)]
    label = part["learner"][0] if part.height else None
    (line,) = axes.plot(part["round"].to_list(), part["lost"].to_list(), color=color, marker=marker, label=label)
    line.set(markersize=5, markevery=(0.06 * series, 0.24), zorder=9 - series)


def _draw_bound(canvas: "Canvas", band: pl.DataFrame, measured: pl.DataFrame) -> None:
    axes = canvas.subplots()
    rounds = band["round"].to_list()
    axes.fill_between(
        rounds, band["low"].to_list(), band["high"].to_list(), color=SERIES[3], alpha=0.5, label="Lemma 1"
    )
    axes.plot(rounds, rounds, color=INK, linestyle=":", label="T·C with C = 1")
    for series, part in enumerate(measured.partition_by("alpha", maintain_order=True)):
        positive = part.filter(pl.col("optimum_regret") > 0)
        label = f"measured, α = {part['alpha'][0]:g}"
        color, marker = SERIES[series % 3], MARKERS[series % len(MARKERS)]
        x, y = positive["round"].to_list(), positive["optimum_regret"].to_list()
        axes.plot(x, y, color=color, marker=marker, markersize=5, markevery=0.25, label=label)
    axes.set(xscale="log", yscale="log", xlabel="T, the number of rounds", ylabel="regret")
    axes.legend()


def _means(frame: pl.DataFrame, column: str) -> pl.DataFrame:
    """Average a column over worlds, keeping the order in which cells and learners were run."""
    return frame.group_by([*WORLD, "learner", "round"], maintain_order=True).agg(pl.col(column).mean())


def _regret_row(row: dict[str, Any]) -> tuple[Cell, ...]:
    rounds = row["rounds"]
    return (
        _world(row),
        row["learner"],
        _decimals(row["relative_regret"] / rounds),
        _range(row["relative_regret_low"] / rounds, row["relative_regret_high"] / rounds),
        _decimals(row["relative_slope"]),
        _range(row["relative_slope_low"], row["relative_slope_high"]),
        _decimals(row["slope"]),
        _compact(row["regret"]),
        _compact(row["optimum_regret"]),
    )


def _bound_row(row: dict[str, Any]) -> tuple[Cell, ...]:
    return (
        _world(row),
        _decimals(row["greedy_is_optimum"]),
        _decimals(row["greedy_share"]),
        *(_compact(row[name]) for name in ("largest_reward", "least_ceiling", "margin_dimension", "confidence_width")),
        _compact(row["bound"]),
        _compact(row["bound"] / row["trivial_bound"]),
        _compact(row["first_meaningful_round"]),
    )


def _world(row: dict[str, Any]) -> str:
    """Name a world by d, s and α, and by how it departs from the theorem."""
    free = "" if isfinite(row["radius"]) else ", ‖θ*‖ free"
    return f"d = {row['dim']}, s = {row['size']}, α = {row['alpha']:g}{free}{', withdrawn' * row['withdraws']}"


def _decimals(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}".replace("-", "−")


def _range(low: float | None, high: float | None) -> str:
    return "–" if low is None else f"{_decimals(low)} to {_decimals(high)}"


def _compact(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}".replace("-", "−") if abs(value) < 1e5 else f"{value:.2e}"
