"""The same load on several source trees and stores by turns; each turn has a server and an empty store of its own."""

import asyncio
import gc
import tempfile
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import uvloop

from benchmarks.load import closed_loop, server
from benchmarks.load.load_test import FEEDBACKS, HEALTH, SLATES, Note, Plan, connected, listed, mixed_load
from benchmarks.load.server import Launch, Server
from benchmarks.load.visitors import Visitors
from slatewise.report import Table

Result = TypeVar("Result")

WARM_UP_SECONDS = 6.0
"""A service that has just started also prepares for new items, for two or three seconds."""
FIGURES = {
    "requests_per_second": "requests/s, {clients} clients",
    "cpu_ms": "processor time of all processes of the server per request, ms",
    "slates_p99_ms": "slates: 99th percentile, ms",
    "feedback_p99_ms": "feedbacks: 99th percentile, ms",
    "health_p99_ms": "/health/live: 99th percentile, ms",
    "health_max_ms": "/health/live: longest, ms",
    "generator_late_ms": "generator: longest delay, ms",
    "failed": "failed",
    "not_sent": "feedbacks not sent: their slates were late",
}

Runs = Mapping[str, Sequence[Mapping[str, float]]]
Measured = Callable[[str, Path], Coroutine[Any, Any, dict[str, float]]]
"""Measures what has a name, in an empty directory."""


def compare(
    plan: Plan, launches: Mapping[str, Launch], directory: Path, note: Note
) -> dict[str, list[dict[str, float]]]:
    """Measure each launch once per run."""
    return by_turns(
        list(launches), plan.runs, directory, lambda name, folder: measure(plan, launches[name], folder), note
    )


def by_turns(
    names: Sequence[str], n_runs: int, directory: Path, measured: Measured, note: Note
) -> dict[str, list[dict[str, float]]]:
    """Measure everything once per run; every other run goes backwards, so that no one always comes first."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for number in range(n_runs):
        for name in names[:: -1 if number % 2 else 1]:
            with tempfile.TemporaryDirectory(dir=directory) as folder:
                figures = run_loop(measured(name, Path(folder)))
            runs[name].append(figures)
            note(f"run {number + 1} of {n_runs}, {name}: {figures}")
    return runs


async def measure(plan: Plan, launch: Launch, directory: Path) -> dict[str, float]:
    """Measure one server: as many requests as it takes after a warm-up, then the mixed load at a constant rate."""
    with server.service(directory, launch) as target:
        throughput, seconds = await _throughput(target, plan)
        mixed = await mixed_load(target, plan, "mixed")
    streams = [mixed[name] for name in (SLATES, FEEDBACKS, HEALTH)]
    return {
        "requests_per_second": round(throughput.requests_per_second, 1),
        "cpu_ms": round(2000.0 * seconds / (throughput.requests_per_second * plan.seconds), 2),
        "slates_p99_ms": mixed[SLATES]["p99_ms"],
        "feedback_p99_ms": mixed[FEEDBACKS]["p99_ms"],
        "health_p99_ms": mixed[HEALTH]["p99_ms"],
        "health_max_ms": mixed[HEALTH]["max_ms"],
        "generator_late_ms": max(stream["sent_late_ms"] for stream in streams),
        "failed": throughput.failed + sum(stream["failed"] for stream in streams) - mixed[FEEDBACKS]["not_sent"],
        "not_sent": mixed[FEEDBACKS]["not_sent"],
    }


async def _throughput(target: Server, plan: Plan) -> tuple[closed_loop.Throughput, float]:
    """Return how many requests were served in half of the time, and the processor time that it took."""
    visitors = Visitors(target.host, "throughput", events=1)
    async with connected(target, plan.clients) as pool:
        await closed_loop.throughput(pool, visitors, plan.clients, WARM_UP_SECONDS)
        before = target.cpu_seconds
        return await closed_loop.throughput(pool, visitors, plan.clients, plan.seconds / 2), target.cpu_seconds - before


def run_loop(task: Coroutine[Any, Any, Result]) -> Result:
    """Run the generator on the fastest event loop there is, collecting its garbage only afterwards."""
    gc.collect()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(task)
    finally:
        gc.enable()


def launches_of(
    sources: Sequence[Path], stores: Sequence[str], directory: Path, n_items: int, policy: str
) -> dict[str, Launch]:
    """Return how each source tree is served on each store; each one saves the same catalog in its own format."""
    launches = {}
    for number, source in enumerate(map(server.check_source, sources)):
        catalog = directory / f"catalog-{number}"
        server.save_catalog_with(source, catalog, n_items)
        for store in stores:
            launches[f"{source} on {store.partition(':')[0]}"] = Launch(catalog, policy, source, store=store)
    return launches


def comparison_table(plan: Plan, runs: Runs) -> Table:
    """Lay out the figures of source trees."""
    caption = f"{plan.slates:g} slates/s and {plan.feedbacks:g} feedbacks/s, by turns; median (all runs)"
    labels = {figure: label.format(clients=plan.clients) for figure, label in FIGURES.items()}
    return turns_table("compare", caption, labels, runs)


def turns_table(name: str, caption: str, labels: Mapping[str, str], runs: Runs) -> Table:
    """Lay out the median and all runs of everything that took turns, and the ratio of medians to the first one."""
    names = list(runs)
    rows = []
    for figure, label in labels.items():
        values = {one: [run[figure] for run in runs[one]] for one in names}
        ratios = [_ratio(values[one], values[names[0]]) for one in names[1:]]
        rows.append((label, *(listed(values[one]) for one in names), *ratios))
    columns = ("figure", *names, *(f"{one} over the first" for one in names[1:]))
    return Table(name, caption, columns, tuple(rows))


def _ratio(values: Sequence[float], first: Sequence[float]) -> str:
    return f"{median(values) / median(first):.2f}" if median(first) else "–"
