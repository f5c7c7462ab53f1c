"""Console output: messages and progress on stderr, results on stdout."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

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

stderr = Console(stderr=True, highlight=False)
stdout = Console(highlight=False)


def tell(message: str) -> None:
    """Print a one-line message on stderr; markup in it is not interpreted."""
    stderr.print(message, markup=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a result as one JSON document on stdout."""
    print(json.dumps(value, ensure_ascii=False, allow_nan=False))


@contextmanager
def steps(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a progress bar of counted steps; yields the function that counts a step."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr) as progress:
        task = progress.add_task(what, total=total)
        yield lambda: progress.advance(task)


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
