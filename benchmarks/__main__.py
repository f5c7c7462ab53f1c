"""`python -m benchmarks`: measure, and print a table or one JSON document."""

import argparse
import json
import shlex
import sys
from pathlib import Path

from benchmarks import report
from benchmarks.machine import warn_if_busy
from benchmarks.runner import GROUPS, NEEDS_DATA, QUICK, SCALE, Results, run
from slatewise.report import markdown_table


def main(arguments: list[str] | None = None) -> None:
    """Measure the groups that were asked for."""
    given = parse(arguments)
    warn_if_busy()
    results = run(_groups(given))
    document = results.document(shlex.join(["python", "-m", "benchmarks", *(arguments or sys.argv[1:])]))
    if given.out is not None:
        report.write(given.out, document)
        _note(f"written to {given.out}")
    if given.json:
        print(json.dumps(document, allow_nan=False))
    else:
        _print_tables(results)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure speed and memory.")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "--all", action="store_true", help="also what needs ml-100k.zip and ml-1m.zip in SLATEWISE_DATA"
    )
    parser.add_argument(
        "--scale", action="store_true", help="ten million items and several workers instead; takes 8 GB and minutes"
    )
    parser.add_argument(
        "--only", action="append", choices=list(GROUPS), metavar="GROUP", help=f"one of {', '.join(GROUPS)}; repeatable"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write results.json and growth.svg there, and the figures of README.md"
    )
    return parser.parse_args(arguments)


def _groups(given: argparse.Namespace) -> tuple[str, ...]:
    """Return the groups to measure, in the order in which they run."""
    if given.only:
        return tuple(group for group in GROUPS if group in given.only)
    if given.scale:
        return SCALE
    return (*QUICK, *NEEDS_DATA) if given.all else QUICK


def _print_tables(results: Results) -> None:
    print(markdown_table(report.table(results.figures, results.missing)))
    if "pyversity_grid" in results.figures:
        print(markdown_table(report.grid_table(results.figures["pyversity_grid"])))
    if "sizes" in results.figures:
        print(markdown_table(report.sizes_table(results.figures["sizes"])))
    if "training" in results.figures:
        print(markdown_table(report.training_table(results.figures)))
    for group, reason in results.missing.items():
        _note(f"{group} was not measured: {reason}")


def _note(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
