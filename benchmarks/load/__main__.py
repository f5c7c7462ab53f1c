"""`python -m benchmarks.load [load | soak | sweeps | histories | compare | cost | workers]`: the service under load."""

import argparse
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.load import compare, cost, histories, load_test, soak, sweeps, workers
from benchmarks.load.compare import run_loop
from benchmarks.load.load_test import Plan, Row
from benchmarks.load.server import SQLITE, Launch, save_catalog_with
from benchmarks.machine import load_average, machine, warn_if_busy
from benchmarks.measure import SOURCE
from slatewise.report import Table, markdown_table

SAME_MACHINE = "One worker, SQLite with synchronous = FULL; the generator runs on the same cores as the server."

Outcome = tuple[dict[str, Any], Table, bool]
"""Everything for programs, a table for people, and whether every bound is kept."""


def main() -> int:
    """Measure, print, and say by the exit code whether every bound is kept."""
    given = parse()
    warn_if_busy()
    load_before = load_average()
    with tempfile.TemporaryDirectory(prefix="slatewise-load-", dir=given.directory) as folder:
        measured, table, is_met = COMMANDS[given.command](given, Path(folder))
    if given.append is not None:
        with given.append.open("a", encoding="utf-8") as page:
            page.write(_section(table, load_before))
    if given.json:
        about = {"machine": machine(), "load_before": load_before, "same_machine": True, "items": given.items}
        print(json.dumps({**about, **measured}))
    else:
        print(markdown_table(table))
    return 0 if is_met else 1


def _section(table: Table, load_before: float) -> str:
    """Return a table as a section of a page: when, by which command, on what, and how busy that was."""
    about, now = machine(), datetime.now(UTC)
    command = f"python -m benchmarks.load {shlex.join(sys.argv[1:])}"
    origin = f"{about['processor']}, {about['cores']} cores; load average {load_before:.1f} before"
    return f"\n### {now:%-d %B %Y, %H:%M} UTC\n\n`{command}` on {origin}.\n\n{markdown_table(table)}\n"


def _load(given: argparse.Namespace, directory: Path) -> Outcome:
    plan = Plan(given.slates or 300.0, given.feedbacks or 500.0, given.seconds or 20.0, given.runs, given.clients)
    measured = run_loop(load_test.measure(plan, _launch(given, directory), directory, _note))
    return measured, *_table(load_test.verdicts(plan, measured))


def _soak(given: argparse.Namespace, directory: Path) -> Outcome:
    plan = Plan(given.slates or 150.0, given.feedbacks or 250.0, given.seconds or 3600.0 * given.hours or 600.0)
    measured = run_loop(soak.watch(plan, _launch(given, directory), directory, _note))
    return measured.document(), *_table(soak.verdicts(measured))


def _compare(given: argparse.Namespace, directory: Path) -> Outcome:
    plan = Plan(given.slates or 150.0, given.feedbacks or 250.0, given.seconds or 10.0, given.runs, given.clients)
    launches = compare.launches_of(given.source, given.store or [SQLITE], directory, given.items, given.policy)
    runs = compare.compare(plan, launches, directory, _note)
    return {"compare": runs}, compare.comparison_table(plan, runs), True


def _cost(given: argparse.Namespace, directory: Path) -> Outcome:
    launches = compare.launches_of(given.source, [SQLITE], directory, given.items, given.policy)
    runs = cost.compare(Plan(runs=given.runs), launches, directory, _note)
    return {"cost": runs}, cost.cost_table(runs), True


def _sweeps(given: argparse.Namespace, directory: Path) -> Outcome:
    plan = Plan(given.slates or 150.0, given.feedbacks or 15.0, given.seconds or 30.0, given.runs)
    runs = sweeps.compare(plan, _launch(given, directory), directory, given.expired, _note)
    return {"sweeps": runs}, *sweeps.outcome(plan, runs)


def _histories(given: argparse.Namespace, directory: Path) -> Outcome:
    plan = Plan(given.slates or 50.0, seconds=given.seconds or 5.0)
    table = histories.measure(plan, _launch(given, directory), directory, given.history, _note)
    return {"histories": table.rows}, table, True


def _workers(given: argparse.Namespace, directory: Path) -> Outcome:
    plan = Plan(seconds=given.seconds or 10.0, runs=given.runs, clients=given.clients)
    runs = workers.compare(plan, _launch(given, directory), directory, _note)
    return {"workers": runs}, workers.workers_table(plan, runs, sorted(os.sched_getaffinity(0))), True


COMMANDS: dict[str, Callable[[argparse.Namespace, Path], Outcome]] = {
    "load": _load,
    "soak": _soak,
    "sweeps": _sweeps,
    "histories": _histories,
    "compare": _compare,
    "cost": _cost,
    "workers": _workers,
}


def _launch(given: argparse.Namespace, directory: Path) -> Launch:
    _note(f"saving a catalog of {given.items:,} items")
    save_catalog_with(SOURCE, directory / "catalog", given.items)
    return Launch(directory / "catalog", given.policy)


def _table(rows: list[Row]) -> tuple[Table, bool]:
    table = Table("load", SAME_MACHINE, ("figure", "measured", "bound", ""), tuple(row.cells() for row in rows))
    return table, all(row.is_met for row in rows)


def _note(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("command", nargs="?", default="load", choices=list(COMMANDS))
    parser.add_argument("--slates", type=float, help="per second: 300; 150 in soak, sweeps, compare; 50 in histories")
    parser.add_argument("--feedbacks", type=float, help="per second: 500; 250 in soak and compare, 15 in sweeps")
    parser.add_argument(
        "--seconds", type=float, help="of each: load 20, sweeps 30, histories 5, compare, workers 10, soak 600"
    )
    parser.add_argument("--hours", type=float, default=0.0, help="of the soak, instead of --seconds")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--clients", type=int, default=32, help="that send as fast as they can")
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--policy", default="dc2b-calibrated")
    parser.add_argument(
        "--source", type=Path, action="append", help="for compare and cost: a directory that holds slatewise/"
    )
    parser.add_argument(
        "--store", action="append", help="for compare: sqlite, or the URL of a PostgreSQL server that may be filled"
    )
    parser.add_argument("--directory", type=Path, help="where the stores are put; by default where temporary files go")
    parser.add_argument("--expired", type=int, default=75_000, help="for sweeps: slates that expired before the start")
    parser.add_argument("--history", type=int, default=5_000, help="for histories: slates of one person")
    parser.add_argument("--append", type=Path, help="a Markdown file that the result is appended to")
    parser.add_argument("--json", action="store_true", help="print one JSON document with every run")
    given = parser.parse_args(arguments)
    if (given.command in ("compare", "cost")) != bool(given.source):
        parser.error("compare and cost, and nothing else, need --source DIR, once for each source tree")
    return given


if __name__ == "__main__":
    sys.exit(main())
