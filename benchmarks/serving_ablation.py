"""What each serving mechanism of commit 4c27cee brings: the service with and without it, by turns in one run.

`python -m benchmarks.serving_ablation SOURCE [--runs 3] [--out FILE]`: SOURCE is a checkout of that commit. Each
variant is a copy of its sources with one mechanism taken out by the edits below. serving_ablation.md has the figures.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.load import compare
from benchmarks.load.load_test import Plan
from benchmarks.load.server import Launch, check_source, save_catalog_with
from benchmarks.machine import warn_if_busy
from slatewise.report import markdown_table

CHOOSER = "SLATEWISE_CHOOSER"


@dataclass(frozen=True)
class Edit:
    """A piece of a file of the package, and what takes its place."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Variant:
    """The service without one mechanism: edits of its sources, and settings."""

    edits: tuple[Edit, ...] = ()
    environment: dict[str, str] = field(default_factory=lambda: {CHOOSER: "true"})


VARIANTS: dict[str, Variant] = {
    "everything": Variant(),
    "no second process": Variant(environment={CHOOSER: "false"}),
    "no jobs on the event loop": Variant(
        (Edit("service/app.py", "store.work_in(asyncio.get_running_loop().call_soon_threadsafe)", "pass"),)
    ),
    "routing by FastAPI": Variant(
        (
            Edit(
                "service/app.py",
                "Limits(Directly(create_api(service)), settings)",
                "Limits(create_api(service), settings)",
            ),
            Edit("service/scoped.py", "if self.takes_body:\n            self.app", "if False:\n            self.app"),
        )
    ),
    "asyncio.wrap_future": Variant(
        (
            Edit(
                "service/waiting.py",
                "    if not future.done():\n        loop,",
                "    return await asyncio.wrap_future(future)\n    if not future.done():\n        loop,",
            ),
        )
    ),
    "asyncio.timeout": Variant(
        (
            Edit(
                "service/reading.py",
                "    task, is_late = cast",
                "    try:\n        async with asyncio.timeout(seconds):\n"
                "            return await _received(receive, largest)\n"
                "    except TimeoutError:\n        raise ProblemError(TIMEOUT, 'late', CLOSE) from None\n"
                "    task, is_late = cast",
            ),
        )
    ),
    "starlette's Response": Variant(
        (
            Edit(
                "service/replies.py",
                "return Json(_writers[kind].dump_json(view), status)",
                "return Response(_writers[kind].dump_json(view), status, NEVER_KEPT, 'application/json')",
            ),
        )
    ),
    "dataclasses.replace": Variant(
        (
            Edit(
                "frozen.py",
                "    instance = object.__new__(kind)\n    instance.__dict__.update(fields)\n    return instance",
                "    return kind(**fields)",
            ),
            Edit(
                "frozen.py",
                "    copy = object.__new__(type(instance))\n"
                "    copy.__dict__.update(instance.__dict__, **changes)\n    return copy",
                "    import dataclasses\n    return dataclasses.replace(instance, **changes)",
            ),
        )
    ),
    "snapshot after every slate": Variant((Edit("recommender/people.py", "SAVED_EVERY = 8", "SAVED_EVERY = 1"),)),
    "no grouping by category sets": Variant(
        (
            Edit(
                "policies/calibrated.py",
                "return rules.SetGroups.of(self.catalog.categories, self.catalog.taste_vectors, self.rates)",
                "return None",
            ),
        )
    ),
}


def main() -> None:
    """Measure every variant by turns, and print a table."""
    given = _parse()
    warn_if_busy()
    plan = Plan(150.0, 250.0, given.seconds, given.runs)
    with tempfile.TemporaryDirectory(prefix="slatewise-ablation-") as folder:
        directory = Path(folder)
        launches = _launches(given.source, directory, ["everything", *(given.only or VARIANTS)])
        runs = compare.compare(plan, launches, directory, lambda words: print(words, file=sys.stderr, flush=True))
    if given.out is not None:
        given.out.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")
    print(markdown_table(compare.comparison_table(plan, runs)))


def _launches(source: Path, directory: Path, names: Sequence[str]) -> dict[str, Launch]:
    """Write variants and one catalog for them; return how each is served."""
    catalog = directory / "catalog"
    save_catalog_with(check_source(source / "src"), catalog, 10_000)
    launches = {}
    for number, name in enumerate(dict.fromkeys(names)):
        package = write_variant(source, directory / f"variant-{number}", VARIANTS[name].edits)
        launches[name] = Launch(catalog, source=package, environment=VARIANTS[name].environment)
    return launches


def write_variant(source: Path, target: Path, edits: tuple[Edit, ...]) -> Path:
    """Copy the sources of a checkout and edit the copy; return the directory that holds the package."""
    shutil.copytree(source / "src", target)
    for edit in edits:
        path = target / "slatewise" / edit.file
        text = path.read_text(encoding="utf-8")
        if edit.old not in text:
            raise ValueError(f"{edit.file} does not contain {edit.old!r}; SOURCE must be a checkout of 4c27cee")
        path.write_text(text.replace(edit.old, edit.new), encoding="utf-8")
    return target


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving_ablation", description=__doc__)
    parser.add_argument("source", type=Path, help="a checkout of 4c27cee")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", action="append", choices=list(VARIANTS), help="compared with everything; repeatable")
    parser.add_argument("--seconds", type=float, default=10.0, help="of the mixed load; half for requests per second")
    parser.add_argument("--out", type=Path, help="file for all runs as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
