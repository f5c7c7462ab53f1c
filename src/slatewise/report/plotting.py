"""How figures are plotted: one style and three formats, SVG, PNG and PDF, by matplotlib.

An SVG is meant to be embedded in a page: no background, text and axes in the page's own text color, series in the CSS
variables `--series-1` to `--series-4`, whose defaults are safe for color blindness (after Okabe and Ito). Plotting the
same figure twice yields the same bytes.
"""

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

import polars as pl

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

INK = "#1b1f24"
SERIES = ("#0072b2", "#c65a00", "#00845f", "#a8508f")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h", "p")
INK_PARAMETERS = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "grid.color")
STYLE: Any = {
    "font.size": 12,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.2,
    "legend.frameon": False,
    "legend.fontsize": 11,
    "lines.linewidth": 1.8,
    "lines.markersize": 6.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "slatewise",
    **dict.fromkeys(INK_PARAMETERS, INK),
}
NO_DATE: Any = dict.fromkeys(("CreationDate", "Creator", "Producer"))
NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))
OWN_THEME = (
    "<style>:root{color:#1b1f24;background:#ffffff}@media (prefers-color-scheme:dark){:root{color:#e6e9ed;"
    "background:#14171a;--series-1:#62b5f0;--series-2:#ff9a4d;--series-3:#3fc99c;--series-4:#e49acb}}</style>"
)


@dataclass(frozen=True)
class Figure:
    """A plotted figure: file name, caption, a description for those who cannot see it, and its formats."""

    name: str
    caption: str
    description: str
    svg: str
    png: bytes
    pdf: bytes = b""

    @property
    def standalone_svg(self) -> str:
        """The SVG as a file of its own, with a light and a dark theme."""
        return self.svg.replace(">", f">{OWN_THEME}", 1)


def draw_figure(
    name: str, texts: tuple[str, str], draw: Callable[["Canvas"], None], inches: tuple[float, float]
) -> Figure:
    """Plot a figure with `draw`, which fills an empty canvas; `texts` are the caption and the description."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure as Canvas
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("figures need matplotlib: pip install '.[report]' in the checkout") from error

    with mpl.rc_context(STYLE):
        canvas = Canvas(figsize=inches, layout="constrained")
        draw(canvas)
        svg, png, pdf = io.StringIO(), io.BytesIO(), io.BytesIO()
        canvas.savefig(svg, format="svg", transparent=True, metadata=NO_METADATA)
        canvas.savefig(png, format="png", dpi=160, facecolor="white", metadata={"Software": None})
        canvas.savefig(pdf, format="pdf", metadata=NO_DATE)
    return Figure(name, *texts, _embeddable(svg.getvalue(), name, texts[1]), png.getvalue(), pdf.getvalue())


def draw_line(
    axes: "Axes", points: tuple[pl.Series, pl.Series, pl.Series], series: int, label: str | None = None
) -> None:
    """Plot a series of x, y and the standard deviation of y (null for none) in its own color and marker."""
    x, y, deviation = (column.to_list() for column in points)
    spread = [value or 0.0 for value in deviation]
    color, marker = SERIES[series % len(SERIES)], MARKERS[series % len(MARKERS)]
    axes.errorbar(x, y, yerr=spread if any(spread) else None, color=color, marker=marker, capsize=3.5, label=label)


def over_splits(frame: pl.DataFrame, keys: list[str], metrics: tuple[str, ...]) -> pl.DataFrame:
    """Return the mean (`p@50`) and the standard deviation (`p@50 sd`) of metrics over splits, sorted by the keys."""
    numbers = pl.col(*metrics)
    return frame.group_by(keys).agg(numbers.mean(), numbers.std(ddof=1).name.suffix(" sd")).sort(keys)


def _embeddable(svg: str, name: str, description: str) -> str:
    """Remove what only files need, make ids unique to the figure, and leave colors to the page."""
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = svg.replace(INK, "currentColor")
    for number, color in enumerate(SERIES, start=1):
        svg = svg.replace(color, f"var(--series-{number}, {color})")
    return svg.replace("<svg", f'<svg role="img" aria-label={quoteattr(description)}', 1)
