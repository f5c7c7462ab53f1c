"""One, two and four workers on PostgreSQL: requests/s, processor time per request, and what the database waits for.

`python -m benchmarks.load workers` starts a throw-away server and, by turns, the service with each number of workers on
an empty database of its own. On a machine with two cores the generator, the database and the workers share them: there
requests/s cannot grow for long, and what says whether workers get in each other's way is processor time per request.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg

from benchmarks.load import closed_loop, server
from benchmarks.load.compare import WARM_UP_SECONDS, Runs, by_turns, turns_table
from benchmarks.load.load_test import Note, Plan, connected
from benchmarks.load.server import Launch, cpu_seconds
from benchmarks.load.visitors import Visitors
from slatewise.report import Table
from tests.support.postgres import Server, throw_away_server

NUMBERS = (1, 2, 4)
SAMPLE_PAUSE = 0.02
WAITS = (
    "SELECT coalesce(wait_event_type, 'CPU') FROM pg_stat_activity WHERE backend_type = 'client backend'"
    " AND state = 'active' AND pid <> pg_backend_pid()"
)
FIGURES = {
    "requests_per_second": "requests/s",
    "service_ms": "processor time per request, service, ms",
    "database_ms": "of the database, ms",
    "generator_ms": "of the generator, ms",
    "failed": "failed",
    "running": "share of active statements that run",
    "waiting_for_rows": "that wait for a lock on a row or table",
    "waiting_for_service": "that wait for more from the service",
    "waiting_for_others": "that wait for anything else, mostly the disk",
}


def compare(plan: Plan, launch: Launch, directory: Path, note: Note) -> dict[str, list[dict[str, float]]]:
    """Measure each number of workers once per run."""
    with throw_away_server() as database:

        async def measured(name: str, folder: Path) -> dict[str, float]:
            workers = replace(launch, environment={"SLATEWISE_WORKERS": name.split()[0]}, store=database.url)
            return await measure(plan, workers, folder, database)

        names = [f"{number} worker{'s' if number > 1 else ''}" for number in NUMBERS]
        return by_turns(names, plan.runs, directory, measured, note)


async def measure(plan: Plan, launch: Launch, directory: Path, database: Server) -> dict[str, float]:
    """Measure one service under as many requests as it takes."""
    with server.service(directory, launch) as target:
        visitors = Visitors(target.host, "workers", events=1)
        owners = [target.process.pid, database.pid, os.getpid()]
        async with connected(target, plan.clients) as pool:
            await closed_loop.throughput(pool, visitors, plan.clients, WARM_UP_SECONDS)
            before = [cpu_seconds(owner) for owner in owners]
            with sampled_waits(database.url) as waits:
                taken = await closed_loop.throughput(pool, visitors, plan.clients, plan.seconds)
            after = [cpu_seconds(owner) for owner in owners]
    n_requests, n_samples = max(1.0, taken.requests_per_second * plan.seconds), max(1, waits.total())
    each = [round(1000.0 * (new - old) / n_requests, 3) for old, new in zip(before, after, strict=True)]
    others = waits.total() - waits["CPU"] - waits["Lock"] - waits["Client"]
    return {
        "requests_per_second": round(taken.requests_per_second, 1),
        **dict(zip(("service_ms", "database_ms", "generator_ms"), each, strict=True)),
        "failed": taken.failed,
        "running": round(waits["CPU"] / n_samples, 3),
        "waiting_for_rows": round(waits["Lock"] / n_samples, 3),
        "waiting_for_service": round(waits["Client"] / n_samples, 3),
        "waiting_for_others": round(others / n_samples, 3),
    }


@contextmanager
def sampled_waits(url: str) -> Iterator[Counter[str]]:
    """Count what the statements that are active are waiting for, again and again."""
    waits, halt = Counter[str](), threading.Event()

    def sample() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not halt.is_set():
                waits.update(kind for (kind,) in connection.execute(WAITS).fetchall())
                time.sleep(SAMPLE_PAUSE)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield waits
    finally:
        halt.set()
        thread.join()


def workers_table(plan: Plan, runs: Runs, cores: Sequence[int]) -> Table:
    """Lay out the figures."""
    caption = (
        f"PostgreSQL, {plan.clients} clients, everything on the same {len(cores)} cores, by turns; median (all runs)"
    )
    return turns_table("workers", caption, FIGURES, runs)
