"""The parts of a report: comparisons with the paper, tables, sections; and tables as CSV and Markdown."""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slatewise.report.plotting import Figure

if TYPE_CHECKING:
    import polars as pl

MINUS = "−"


@dataclass(frozen=True)
class Format:
    """How a kind of number is formatted, and above which difference it is marked (None: never)."""

    decimals: int = 4
    unit: str = ""
    scale: float = 1.0
    signed: bool = False
    notable: float | None = None

    def write(self, value: float | None, signed: bool | None = None) -> str:
        """Format a number with a true minus sign; a missing value is a dash."""
        if value is None:
            return "–"
        sign = "+" if (self.signed if signed is None else signed) else ""
        text = f"{value * self.scale:{sign},.{self.decimals}f}"
        is_zero = not text.strip("+-0.,")
        return (text.lstrip("+-") if is_zero else text.replace("-", MINUS)) + self.unit


SHARE = Format(notable=0.03)
PERCENT = Format(decimals=2, unit="\u00a0%", signed=True)
COUNT = Format(decimals=0, notable=0)
SAMPLE_COUNT = Format(decimals=0)
DENSITY = Format(decimals=2, unit="\u00a0%", scale=100)


@dataclass(frozen=True)
class Comparison:
    """Our value, its standard deviation over splits, and the paper's value."""

    ours: float | None
    paper: float | None = None
    sd: float | None = None
    format: Format = SHARE

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.ours is None or self.paper is None else round(self.ours - self.paper, 6)

    @property
    def is_notable(self) -> bool:
        """Whether the difference is large enough to be marked."""
        limit, difference = self.format.notable, self.difference
        return limit is not None and difference is not None and abs(difference) > limit

    @property
    def mark(self) -> str:
        """A sign before a notable difference, so that it can be seen without color."""
        return ("▲ " if (self.difference or 0) > 0 else "▼ ") if self.is_notable else ""

    @property
    def ours_text(self) -> str:
        """Our mean, and ± the standard deviation if there is one."""
        spread = "" if self.sd is None else f" ± {self.format.write(self.sd, signed=False)}"
        return self.format.write(self.ours) + spread


Cell = str | int | float | Comparison | None


@dataclass(frozen=True)
class Table:
    """A table with a file name, a caption, column headers and notes; the first column names the rows."""

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    def to_polars(self) -> "pl.DataFrame":
        """Return the table as a frame, with the columns of its CSV file."""
        import polars as pl

        return pl.read_csv(io.StringIO(csv_text(self)), infer_schema_length=None)

    def _repr_html_(self) -> str:
        """Show the table in a notebook."""
        from slatewise.report.html import table_html

        return table_html(self)


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs, then tables, then figures."""

    heading: str
    prose: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True)
class Report:
    """Results with everything needed to reproduce them; nothing in it depends on the time of day."""

    title: str
    command: str
    data: str
    digest: str
    seeds: tuple[int, ...]
    machine: str
    versions: Mapping[str, str] = field(default_factory=dict)
    sections: tuple[Section, ...] = ()

    @property
    def finding(self) -> str:
        """What was found, in a sentence; empty if no section says so."""
        return next((section.prose[0] for section in self.sections if section.prose), "")

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables, in order."""
        return tuple(table for section in self.sections for table in section.tables)

    @property
    def figures(self) -> tuple[Figure, ...]:
        """All figures, in order."""
        return tuple(figure for section in self.sections for figure in section.figures)


def plain(cell: str | float | None) -> str:
    """Format a cell that is not a comparison; a fractional number gets four decimals."""
    if cell is None or isinstance(cell, float):
        return SHARE.write(cell)
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def csv_text(table: Table) -> str:
    """Format a table as CSV: a comparison becomes columns for ours, its deviation, the paper and the difference."""
    columns = [_csv_columns(name, [row[index] for row in table.rows]) for index, name in enumerate(table.columns)]
    flat = [(name, values) for column in columns for name, values in column.items()]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([name for name, _ in flat])
    writer.writerows(zip(*(values for _, values in flat), strict=True))
    return text.getvalue()


def markdown_table(table: Table) -> str:
    """Format a table as Markdown; a comparison reads `ours ± sd (paper, difference)`, notable differences in bold."""
    lines = [_markdown_row(table.columns), _markdown_row(["---", *["---:"] * (len(table.columns) - 1)])]
    lines += [_markdown_row([_markdown_cell(cell) for cell in row]) for row in table.rows]
    notes = [f"\n{note}" for note in table.notes]
    return "\n".join([f"**{table.caption}**\n", *lines, *notes]) + "\n"


def _csv_columns(name: str, cells: list[Cell]) -> dict[str, list[object]]:
    """Return the CSV columns of a table column, without those that would be empty."""
    if not any(isinstance(cell, Comparison) for cell in cells):
        return {name: [_rounded(cell) for cell in cells]}
    pairs = [cell if isinstance(cell, Comparison) else Comparison(None) for cell in cells]
    columns: dict[str, list[object]] = {
        name: [_rounded(pair.ours) for pair in pairs],
        f"{name} sd": [_rounded(pair.sd) for pair in pairs],
        f"{name} paper": [_rounded(pair.paper) for pair in pairs],
        f"{name} difference": [_rounded(pair.difference) for pair in pairs],
    }
    return {key: values for key, values in columns.items() if key == name or any(value != "" for value in values)}


def _rounded(value: object) -> object:
    if value is None:
        return ""
    return round(value, 6) if isinstance(value, float) else value


def _markdown_cell(cell: Cell) -> str:
    if not isinstance(cell, Comparison):
        return plain(cell)
    if cell.paper is None:
        return cell.ours_text
    difference = cell.mark + cell.format.write(cell.difference, signed=True)
    shown = f"**{difference}**" if cell.is_notable else difference
    return f"{cell.ours_text} ({cell.format.write(cell.paper)}, {shown})"


def _markdown_row(cells: tuple[str, ...] | list[str]) -> str:
    escaped = [" ".join(cell.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").split()) for cell in cells]
    return f"| {' | '.join(escaped)} |"
