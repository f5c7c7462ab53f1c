"""Console output: messages and progress on stderr, results on stdout."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import rich.table
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

if TYPE_CHECKING:
    from slatewise.report import Table

stderr = Console(stderr=True, highlight=False)
stdout = Console(highlight=False)


def tell(message: str) -> None:
    """Print a one-line message on stderr; markup in it is not interpreted."""
    stderr.print(message, markup=False, soft_wrap=True)


def warn_of_password(store: str) -> str:
    """Return the URL of a store; warn if it came as an argument and holds a password, which the process list shows."""
    parts = urlsplit(store)
    has_password = parts.password or "password" in parse_qs(parts.query)
    if has_password and any(argument.endswith(store) for argument in sys.argv):
        tell(
            "warning: every user of this machine can read the password in --store from the process list; "
            "set SLATEWISE_STORE instead, or leave the password out and use PGPASSFILE"
        )
    return store


def print_table(table: "Table") -> None:
    """Print a table of a report: drawn on a terminal, as Markdown into a file or a pipe."""
    from slatewise.report import markdown_table
    from slatewise.report.document import Comparison, plain

    if not stdout.is_terminal:
        stdout.print(f"\n{markdown_table(table)}", markup=False, soft_wrap=True)
        return
    drawn = rich.table.Table(title=table.caption, title_justify="left", caption="\n".join(table.notes) or None)
    for number, name in enumerate(table.columns):
        drawn.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in table.rows:
        texts = (cell.ours_text if isinstance(cell, Comparison) else plain(cell) for cell in row)
        drawn.add_row(*map(Text, texts))
    stdout.print(drawn)


def print_json(value: Any) -> None:
    """Print a result as one JSON document on stdout."""
    print(json.dumps(value, ensure_ascii=False, allow_nan=False))


@contextmanager
def steps(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a progress bar of counted steps; yields the function that counts a step."""
    with amounts(what, total) as count:
        yield lambda: count(1)


@contextmanager
def amounts(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar of counted things; yields the function that counts so many."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr) as progress:
        task = progress.add_task(what, total=total)
        yield lambda number: progress.advance(task, number)


@contextmanager
def parts_done(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar of parts whose number is known once the first is done; yields what takes (done, total)."""
    with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=stderr) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def transfer(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show a progress bar of bytes once the first arrive; yields the function that takes (done, total)."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    progress = Progress(*columns, console=stderr)
    task = progress.add_task(what, total=None)

    def show(done: int, total: int | None) -> None:
        progress.start()
        progress.update(task, completed=done, total=total)

    try:
        yield show
    finally:
        progress.stop()
