"""From tables and figures to a directory with CSV files, images and one HTML report that says how it was made."""

import os
import platform
import re
from html import unescape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from slatewise.data.tables import DataError
from slatewise.files import write_whole
from slatewise.report.drawing import Figure
from slatewise.report.html import origin_marks, page
from slatewise.report.parts import Comparison, Report, Section, Table, csv_text, markdown_table
from slatewise.report.tables import table1, table1_rows, table2, table2_json, table3, table3_rows
from slatewise.version import __version__

__all__ = [
    "Comparison",
    "Figure",
    "Report",
    "Section",
    "Table",
    "machine",
    "markdown_table",
    "refuse_another",
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
    """Write a CSV file per table, a PNG and an SVG per figure and, last, `report.html`; return the path of that.

    A directory that holds the report of another command or of other data is refused unless `overwrite` is set.
    """
    directory = Path(directory)
    target = directory / "report.html"
    if not overwrite:
        refuse_another(directory, report)
    _check_names([*(table.name for table in report.tables), *(figure.name for figure in report.figures)])
    directory.mkdir(parents=True, exist_ok=True)
    for table in report.tables:
        _write(directory / f"{table.name}.csv", csv_text(table).encode())
    for figure in report.figures:
        _write(directory / f"{figure.name}.svg", figure.standalone_svg.encode())
        _write(directory / f"{figure.name}.png", figure.png)
    _write(target, page(report).encode())
    return target


def versions() -> dict[str, str]:
    """Return the versions that results depend on; what is not installed is left out."""
    found = {"slatewise": __version__, "python": platform.python_version()}
    for name in ("numpy", "polars", "scipy", "cornac", "matplotlib"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def machine() -> str:
    """Describe this machine by system, processor, cores and memory; its name stays private."""
    processor = _processor() or platform.processor() or platform.machine()
    parts = [f"{platform.system()} {platform.machine()}", processor, f"{os.cpu_count()} cores"]
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        gigabytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
        parts.append(f"{gigabytes:.0f} GB")
    return ", ".join(parts)


def _processor() -> str | None:
    information = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*:\s*(.+)$", information.read_text(), re.M) if information.exists() else None
    return found.group(1) if found else None


def _check_names(names: list[str]) -> None:
    for name in names:
        if not FILE_NAME.fullmatch(name) or names.count(name) > 1:
            raise DataError(
                f"{name!r} cannot name a table or figure: names become files, so each is used once and "
                f"holds only letters, digits, '_', '-' and '.'"
            )


def refuse_another(directory: Path, report: Report) -> None:
    """Refuse a directory that holds the report of another command or of other data."""
    target = directory / "report.html"
    if not target.exists():
        return
    text = target.read_text(encoding="utf-8", errors="replace")
    if origin_marks(report) in text:
        return
    found = re.search(r'<meta name="slatewise-command" content="([^"]*)">', text)
    made_by = f"`{unescape(found.group(1))}`" if found else "something else"
    raise DataError(
        f"{target} was made by {made_by}, from other data or settings; "
        f"choose another directory, or overwrite it on purpose (--force)"
    )


def _write(path: Path, content: bytes) -> None:
    write_whole(path, [content])
