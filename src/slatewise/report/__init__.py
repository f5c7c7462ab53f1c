"""From tables and figures to a directory with CSV files, images and an HTML report that documents its origin."""

import os
import platform
import re
from html import unescape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from slatewise.data.tables import DataError
from slatewise.files import write_whole
from slatewise.report.document import Comparison, Report, Section, Table, csv_text, markdown_table
from slatewise.report.html import origin_tags, page
from slatewise.report.latex import latex_table
from slatewise.report.plotting import Figure
from slatewise.report.tables import table1, table1_rows, table2, table2_json, table3, table3_rows
from slatewise.version import __version__

__all__ = [
    "Comparison",
    "Figure",
    "Report",
    "Section",
    "Table",
    "latex_table",
    "machine",
    "markdown_table",
    "refuse_to_overwrite",
    "table1",
    "table1_rows",
    "table2",
    "table2_json",
    "table3",
    "table3_rows",
    "versions",
    "write_report",
]

FILE_NAME = re.compile(r"[\w.-]+", re.ASCII)


def write_report(directory: str | Path, report: Report, overwrite: bool = False) -> Path:
    """Write CSV and LaTeX per table, PNG, SVG and PDF per figure and, last, `report.html`; return the path of that.

    A directory with the report of another command or of other data is refused unless `overwrite` is set.
    """
    directory = Path(directory)
    target = directory / "report.html"
    if not overwrite:
        refuse_to_overwrite(directory, report)
    _check_names([*(table.name for table in report.tables), *(figure.name for figure in report.figures)])
    directory.mkdir(parents=True, exist_ok=True)
    for table in report.tables:
        _write(directory / f"{table.name}.csv", csv_text(table).encode())
        _write(directory / f"{table.name}.tex", latex_table(table).encode())
    for figure in report.figures:
        _write(directory / f"{figure.name}.svg", figure.standalone_svg.encode())
        _write(directory / f"{figure.name}.png", figure.png)
        _write(directory / f"{figure.name}.pdf", figure.pdf)
    _write(target, page(report).encode())
    return target


def versions() -> dict[str, str]:
    """Return the versions that results depend on; packages that are not installed are left out."""
    installed = {"slatewise": __version__, "python": platform.python_version()}
    for name in ("numpy", "polars", "scipy", "cornac", "matplotlib"):
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed


def machine() -> str:
    """Describe this machine by system, processor, cores and memory, without its name."""
    processor = _processor() or platform.processor() or platform.machine()
    parts = [f"{platform.system()} {platform.machine()}", processor, f"{os.cpu_count()} cores"]
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        gigabytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
        parts.append(f"{gigabytes:.0f} GB")
    return ", ".join(parts)


def _processor() -> str | None:
    information = Path("/proc/cpuinfo")
    match = re.search(r"^model name\s*:\s*(.+)$", information.read_text(), re.M) if information.exists() else None
    return match.group(1) if match else None


def _check_names(names: list[str]) -> None:
    for name in names:
        if not FILE_NAME.fullmatch(name) or names.count(name) > 1:
            raise DataError(
                f"{name!r} cannot name a table or figure: names become files, so each must be unique and "
                f"contain only letters, digits, '_', '-' and '.'"
            )


def refuse_to_overwrite(directory: Path, report: Report) -> None:
    """Refuse a directory with the report of another command or of other data."""
    target = directory / "report.html"
    if not target.exists():
        return
    text = target.read_text(encoding="utf-8", errors="replace")
    if origin_tags(report) in text:
        return
    command = re.search(r'<meta name="slatewise-command" content="([^"]*)">', text)
    origin = f"`{unescape(command.group(1))}`" if command else "something else"
    raise DataError(
        f"{target} was written by {origin}, from other data or settings; "
        f"choose another directory, or overwrite it with --force"
    )


def _write(path: Path, content: bytes) -> None:
    write_whole(path, [content])
