"""The simulator's time against size, in logarithms, with the fitted exponents."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from benchmarks.simulation import ROUNDS
from slatewise.report.plotting import INK, MARKERS, SERIES, Figure, draw_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

PANELS = {
    "users": ("users", ("users",), 1.05),
    "items": ("items", ("items",), 1.05),
    "k": ("items in a slate, k", ("k",), 1.2),
    "dim": ("dimensions", ("dim", "dim_dc2b"), None),
}
POLICIES = {"dim_dc2b": "dc2b"}
CAPTION = (
    "Simulator: seconds per thousand user-rounds (for users: total seconds) against size, both in logarithms; "
    "dotted: the steepest growth allowed."
)

Curves = dict[str, dict[int, float]]


def figure_growth(figures: Mapping[str, float]) -> Figure:
    """Draw a panel for each size from the figures `growth.AXIS.VALUE` and `exponents.AXIS`."""
    curves = _curves(figures)
    exponents = {name: figures[f"exponents.{name}"] for name in curves}
    described = "; ".join(f"{name}: exponent {exponents[name]:.2f}" for name in curves)
    return draw_figure(
        "growth", (CAPTION, described), lambda canvas: _draw(canvas, curves, exponents), inches=(9.0, 6.0)
    )


def _curves(figures: Mapping[str, float]) -> Curves:
    """Return seconds per thousand user-rounds by axis and value; total seconds where the number of users varies."""
    curves: Curves = {}
    for name, rate in figures.items():
        first, _, rest = name.partition(".")
        if first == "growth":
            axis, _, value = rest.partition(".")
            curves.setdefault(axis, {})[int(value)] = (ROUNDS * int(value) if axis == "users" else 1_000) / rate
    return curves


def _draw(canvas: "Canvas", curves: Curves, exponents: Mapping[str, float]) -> None:
    from matplotlib.ticker import LogLocator

    for axes, (words, names, steepest) in zip(canvas.subplots(2, 2).flat, PANELS.values(), strict=True):
        for series, name in enumerate(name for name in names if name in curves):
            label = f"{POLICIES.get(name, 'dc2b-calibrated')}: exponent {exponents[name]:.2f}"
            x, y = list(curves[name]), list(curves[name].values())
            axes.plot(x, y, color=SERIES[series], marker=MARKERS[series], label=label)
        if steepest is not None:
            _draw_limit(axes, curves[names[0]], steepest)
        seconds = "total seconds" if "users" in names else "s per 1,000 user-rounds"
        axes.set(xscale="log", yscale="log", xlabel=words, ylabel=seconds)
        axes.set_xticks(x, [f"{value:,}" for value in x])
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.legend()


def _draw_limit(axes: "Axes", curve: dict[int, float], steepest: float) -> None:
    """Draw the steepest growth allowed from the first point."""
    first, start = next(iter(curve.items()))
    limit = [start * (size / first) ** steepest for size in curve]
    axes.plot(list(curve), limit, color=INK, linestyle=":", linewidth=1.2, label=f"exponent {steepest:g}")
