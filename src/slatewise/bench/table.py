"""Figures for people: what was measured, the bound, and whether it is kept."""

from collections.abc import Collection, Mapping

from slatewise.bench.figures import FIGURES
from slatewise.report import Table

COLUMNS = ("figure", "measured", "bound", "")


def table(figures: Mapping[str, float], missing: Collection[str] = ()) -> Table:
    """Lay out a row for every figure that was measured, or whose group is missing."""
    rows = [
        (figure.words, written(figures.get(name)), str(figure.bound or ""), figure.verdict(figures.get(name)))
        for name, figure in FIGURES.items()
        if name in figures or figure.group in missing
    ]
    return Table("bench", "One thread, one run", COLUMNS, tuple(rows))


def written(value: float | None) -> str:
    """Write a figure with as many digits as it deserves."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"
