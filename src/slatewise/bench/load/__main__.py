"""`python -m slatewise.bench.load [load | soak]`: the service under load, against its bounds."""

import argparse
import asyncio
import gc
import json
import sys
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from slatewise.bench.load import soak
from slatewise.bench.load.measuring import Plan, Row, measure, verdicts
from slatewise.bench.load.served import save_catalog
from slatewise.bench.machine import machine
from slatewise.report import Table, markdown_table

Result = TypeVar("Result")

SAME_MACHINE = "One worker, SQLite with synchronous = FULL; the generator runs on the same cores as the server."


def main() -> int:
    """Measure, print, and say by the exit code whether every bound is kept."""
    given = _arguments()
    with tempfile.TemporaryDirectory(prefix="slatewise-load-", dir=given.directory) as name:
        directory = Path(name)
        _say(f"a catalogue of {given.items:,} items")
        save_catalog(directory / "catalog", given.items)
        what = _soak if given.what == "soak" else _load
        measured, rows = what(given, directory)
    document = {"machine": machine(), "same_machine": True, "items": given.items, **measured}
    if given.json:
        print(json.dumps(document))
    else:
        table = Table("load", SAME_MACHINE, ("figure", "measured", "bound", ""), tuple(row.cells() for row in rows))
        print(markdown_table(table))
    return 0 if all(row.is_met for row in rows) else 1


def _load(given: argparse.Namespace, directory: Path) -> tuple[dict[str, Any], list[Row]]:
    plan = Plan(given.slates, given.feedbacks, given.seconds or 20.0, given.runs, given.clients, given.policy)
    measured = _run(measure(plan, directory / "catalog", directory, _say))
    return measured, verdicts(plan, measured)


def _soak(given: argparse.Namespace, directory: Path) -> tuple[dict[str, Any], list[Row]]:
    plan = Plan(given.slates / 2, given.feedbacks / 2, given.seconds or 600.0, policy=given.policy)
    measured = _run(soak.watch(plan, directory / "catalog", directory, _say))
    return measured.document(), soak.verdicts(measured)


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run the generator on the fastest event loop there is, and without pauses for garbage, which it hardly makes."""
    gc.disable()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m slatewise.bench.load", description=__doc__)
    parser.add_argument("what", nargs="?", default="load", choices=["load", "soak"])
    parser.add_argument("--slates", type=float, default=300.0, help="slates per second; a soak takes half")
    parser.add_argument("--feedbacks", type=float, default=500.0, help="feedbacks per second; a soak takes half")
    parser.add_argument("--seconds", type=float, help="of each measurement (20), or of the soak (600)")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--clients", type=int, default=32, help="that ask as fast as they can")
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--policy", default="dc2b-calibrated")
    parser.add_argument(
        "--directory", type=Path, help="where the store is put; by default the directory for temporary files"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document with every run")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
