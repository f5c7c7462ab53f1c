"""Figures for people: a table with bounds and verdicts, the growth of the simulator, and the page that shows both."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from benchmarks.figures import FIGURES
from benchmarks.growth_figure import figure_growth
from slatewise.files import write_whole
from slatewise.report import Table, markdown_table

COLUMNS = ("figure", "measured", "bound", "")
AXES = {"users": "users", "items": "items", "k": "k", "dim": "dimensions", "dim_dc2b": "dimensions (dc2b)"}
BEGIN, END = "## Figures\n", "## What is compared\n"


def table(figures: Mapping[str, Any], missing: Collection[str] = ()) -> Table:
    """Lay out a row for every figure that was measured, or whose group is missing."""
    rows = [
        (figure.label, number(figures.get(name)), str(figure.bound or ""), figure.verdict(figures.get(name)))
        for name, figure in FIGURES.items()
        if name in figures or figure.group in missing
    ]
    return Table("benchmarks", "One thread, one run", COLUMNS, tuple(rows))


def number(value: float | None) -> str:
    """Write a number with as many digits as it deserves."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) < 0.1 else f"{value:.2f}"


def grid_table(grid: Collection[Mapping[str, Any]]) -> Table:
    """Lay out the speedups over pyversity: a row per number of items, a column per rule and dimension."""
    columns = list(dict.fromkeys((str(cell["rule"]), int(cell["d"])) for cell in grid))
    cells = {(cell["n"], cell["rule"], cell["d"]): _grid_cell(cell) for cell in grid}
    rows = tuple(
        (f"{n:,}", *(cells.get((n, rule, d), "–") for rule, d in columns))
        for n in dict.fromkeys(cell["n"] for cell in grid)
    )
    titles = ("items", *(f"{rule.upper()}, d = {d}" for rule, d in columns))
    notes = ("≠: different items came back. ≈: they differ by ties within float32 rounding.",)
    return Table("pyversity", "pyversity's time over that of `diversify`, 10 items", titles, rows, notes)


def sizes_table(sizes: Collection[Mapping[str, Any]]) -> Table:
    """Lay out what catalogs of several sizes take."""
    columns = {
        "file_mb": "file, MB",
        "load_s": "check and map, s",
        "copy_s": "int8 copy, s",
        "copy_mb": "its memory, MB",
        "resident_mb": "process, MB",
        "peak_mb": "its peak, MB",
    }
    rows = tuple((f"{row['items']:,}", *(number(row[name]) for name in columns)) for row in sizes)
    return Table("sizes", "A process that serves `dc2b-calibrated`, rank 50", ("items", *columns.values()), rows)


def training_table(figures: Mapping[str, Any]) -> Table:
    """Lay out what `train` costs as likes grow, without BPR and with it."""
    with_bpr = {row["likes"]: row for row in figures.get("training_bpr") or ()}
    rows = tuple(
        (f"{row['likes']:,}", *_costs(row), *_costs(with_bpr.get(row["likes"], {}))) for row in figures["training"]
    )
    columns = ("likes", "CPU time, s", "peak memory, MB", "with BPR: CPU time, s", "peak memory, MB")
    return Table("training", "`train --without-bpr`, and `train` as it is by default", columns, rows)


def _costs(row: Mapping[str, Any]) -> tuple[str, str]:
    return number(row.get("cpu_s")), number(row.get("peak_mb"))


def _grid_cell(cell: Mapping[str, Any]) -> str:
    return number(cell["speedup"]) + (" ≈" if cell["tied"] else "" if cell["same"] else " ≠")


def write(folder: Path, document: Mapping[str, Any]) -> None:
    """Write results.json and, if growth was measured, growth.svg; bring the figures of README.md there up to date."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "results.json", [(json.dumps(document, indent=2) + "\n").encode()])
    if document.get("growth"):
        write_whole(folder / "growth.svg", [figure_growth(flat(document)).standalone_svg.encode()])
    page = folder / "README.md"
    if page.exists():
        write_whole(page, [updated(page.read_text(encoding="utf-8"), document).encode()])


def updated(page: str, document: Mapping[str, Any]) -> str:
    """Return a page with the figures of a document between its two headings."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no headings {BEGIN.strip()!r} and {END.strip()!r}; figures go between them")
    return f"{before}{BEGIN}\n{figures_section(document)}\n{END}{after}"


def figures_section(document: Mapping[str, Any]) -> str:
    """Return everything that was measured, as Markdown."""
    measured = {name: value for name, value in flat(document).items() if name in FIGURES}
    parts = [_origin(document), markdown_table(table(measured, document["missing"]))]
    if document.get("pyversity_grid"):
        parts.append(markdown_table(grid_table(document["pyversity_grid"])))
    if document.get("growth"):
        parts.append(_growth(document))
    if document.get("training"):
        parts.append(markdown_table(training_table(document)))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _origin(document: Mapping[str, Any]) -> str:
    about = document["machine"]
    hardware = f"{about['processor']}, {about['cores']} cores, {about['system']}"
    packages = ", ".join(f"{name} {about[name]}" for name in ("numba", "pyversity", "bayesianbandits"))
    software = f"Python {about['python']}, numpy {about['numpy']} with {about['blas']}, {packages}"
    return f"Measured by `{document['command']}` on {hardware}; {software}."


def _growth(document: Mapping[str, Any]) -> str:
    lines = ["How the simulator grows (the other sizes stay at 250 users, 4,000 items, k = 10, 20 dimensions):", ""]
    lines += ["| size | user-rounds per second | exponent of the time |", "| --- | --- | ---: |"]
    for axis, rates in document["growth"].items():
        cells = " · ".join(f"{int(size):,}: {rate:,.0f}" for size, rate in rates.items())
        lines.append(f"| {AXES[axis]} | {cells} | {document['exponents'][axis]:.2f} |")
    return "\n".join([*lines, "", "![Time of the simulator against size, with fitted exponents](growth.svg)"])


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Join nested names by dots."""
    names: dict[str, Any] = {}
    for name, value in tree.items():
        names |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return names
