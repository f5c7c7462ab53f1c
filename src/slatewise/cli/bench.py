"""`slatewise bench`: how fast this machine makes slates, beside the bounds and beside peers."""

import json as json_text
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slatewise.bench.figures import QUICK, groups
from slatewise.cli.console import print_json, stdout, steps, tell
from slatewise.cli.dataset_options import Json

if TYPE_CHECKING:
    from slatewise.bench.running import Results

BUSY = 0.7
EXAMPLE = "Example: slatewise bench --only slate --only arms"


def bench(
    only: Annotated[
        list[str] | None, typer.Option(help=f"Measure only this group; may be repeated. Groups: {', '.join(groups())}.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also what needs ml-100k.zip and ml-1m.zip in SLATEWISE_DATA.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Directory for results.json and growth.svg.")] = None,
    json: Json = False,
) -> None:
    """Measure speed and memory, as ratios of one run, and set each figure beside its bound.

    One thread, medians of repeats that take turns; about two minutes, five with --all. A peer or a data set that is
    not on this machine is reported as missing. benchmarks/README.md says exactly what is compared.
    """
    from slatewise.bench.running import run

    wanted = _groups(only, everything)
    _warn_if_busy()
    with steps("measuring", len(wanted)) as one_group:
        results = run(wanted, one_group)
    document = results.document(shlex.join(["slatewise", *sys.argv[1:]]))
    if out is not None:
        _write(out, document, results)
    if json:
        print_json(document)
        return
    _print_table(results)


def _groups(only: list[str] | None, everything: bool) -> tuple[str, ...]:
    """Return the groups that the options name, in the order in which they run."""
    known = groups()
    for name in only or ():
        if name not in known:
            raise typer.BadParameter(f"there is no group {name!r}; choose from {', '.join(known)}", param_hint="--only")
    if only:
        return tuple(name for name in known if name in only)
    return known if everything else QUICK


def _warn_if_busy() -> None:
    """Say when other work would bend the figures: whatever takes longer is interrupted more often."""
    from slatewise.bench.machine import load_average

    load = load_average()
    if load > BUSY:
        tell(f"note: this machine is busy (load average {load:.1f}); the ratios will favour whichever side is quicker")


def _print_table(results: "Results") -> None:
    """Print the figures of the groups that ran, and what was missing."""
    from slatewise.bench.table import table
    from slatewise.report import markdown_table

    stdout.print(markdown_table(table(results.figures, results.missing)), markup=False, soft_wrap=True)
    for group, reason in results.missing.items():
        tell(f"{group}: not measured, because {reason}")


def _write(folder: Path, document: dict[str, Any], results: "Results") -> None:
    """Write the document, and the figure if growth was measured."""
    from slatewise.bench.growth_figure import figure_growth
    from slatewise.files import write_whole

    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "results.json", [(json_text.dumps(document, indent=2) + "\n").encode()])
    if any(name.startswith("growth.") for name in results.figures):
        write_whole(folder / "growth.svg", [figure_growth(results.figures).standalone_svg.encode()])
    tell(f"written to {folder}")
