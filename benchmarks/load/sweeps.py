"""What closing expired slates in the background costs the others: the same load with sweeps and without, by turns.

Most slates are never answered, and their users come back only after they have expired. A third service starts on a
store in which many slates expired while it was down.
"""

import re
import time
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from benchmarks.figures import Bound, at_most
from benchmarks.load import server
from benchmarks.load.compare import Runs, by_turns, turns_table
from benchmarks.load.connection import get
from benchmarks.load.load_test import (
    FEEDBACKS,
    SLATES,
    Note,
    Plan,
    connected,
    mixed_streams,
    prepare,
    record,
    summaries,
)
from benchmarks.load.server import Launch, Server
from benchmarks.load.visitors import Visitors
from benchmarks.measure import python
from slatewise.report import Table
from slatewise.store import Store, open_store
from slatewise.store.protocol import SlateRecord, Transaction, UserRecord

VISITORS, VISITS = 1_000, 10
NEVER, SOON = 1e7, 5.0
"""Seconds until a slate expires: visitors at 150 slates per second come back after 6.7."""
BOUND: Bound = at_most(1.5)
"""The 99th percentile of slates with sweeps over that without."""
FIGURES = {
    "slates_p99_ms": "slates: 99th percentile, ms",
    "slates_max_ms": "slates: longest, ms",
    "feedback_p99_ms": "feedbacks: 99th percentile, ms",
    "closed_per_second": "slates closed in the background, per second",
    "oldest_seconds": "oldest expired slate still open at the end, seconds overdue",
    "generator_late_ms": "generator: longest delay, ms",
    "failed": "failed",
    "not_sent": "of these not sent, for want of a slate to react to",
}
CLOSED, OLDEST = "slates_expired_total", "expired_oldest_seconds"
FILL = """
import pathlib, sys
from benchmarks.load.sweeps import fill
fill(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
print("filled")
"""


@dataclass(frozen=True)
class Case:
    """When slates expire, and how many are expired in the store when the service starts."""

    reward_wait: float
    expired: int = 0


def cases(expired: int) -> dict[str, Case]:
    """Return what takes turns; the first is what the others are compared with."""
    return {
        "without sweeps": Case(NEVER),
        "with sweeps": Case(SOON),
        f"{expired:,} expired at the start": Case(SOON, expired),
    }


def compare(plan: Plan, launch: Launch, directory: Path, expired: int, note: Note) -> dict[str, list[dict[str, float]]]:
    """Measure every case once per run."""
    compared = cases(expired)
    return by_turns(
        list(compared), plan.runs, directory, lambda name, folder: measure(plan, launch, compared[name], folder), note
    )


async def measure(plan: Plan, launch: Launch, case: Case, directory: Path) -> dict[str, float]:
    """Measure one service, from its start on."""
    if case.expired:
        python(["-c", FILL, str(directory / "slates.db"), str(case.expired)], source=launch.source)
    environment = {**launch.environment, "SLATEWISE_REWARD_WAIT": str(case.reward_wait)}
    with server.service(directory, replace(launch, environment=environment)) as target:
        visitors = Visitors(target.host, "visitor", VISITORS, VISITS, plan.events)
        await prepare(target, visitors, round(2 * plan.slates))
        before, started = await expiry_metrics(target), time.monotonic()
        streams = summaries(await record(target, mixed_streams(visitors, plan), plan.seconds))
        seconds = time.monotonic() - started
        after = await expiry_metrics(target)
    return {
        "slates_p99_ms": streams[SLATES]["p99_ms"],
        "slates_max_ms": streams[SLATES]["max_ms"],
        "feedback_p99_ms": streams[FEEDBACKS]["p99_ms"],
        "closed_per_second": round((after[CLOSED] - before[CLOSED]) / seconds, 1),
        "oldest_seconds": round(after.get(OLDEST, float("nan")), 1),
        "generator_late_ms": max(stream["sent_late_ms"] for stream in streams.values()),
        "failed": sum(stream["failed"] for stream in streams.values()),
        "not_sent": sum(stream["not_sent"] for stream in streams.values()),
    }


async def expiry_metrics(target: Server) -> dict[str, float]:
    """Return what the service says about expired slates."""
    async with connected(target, 1) as pool:
        text = (await pool.fetch(get(target.host, "/metrics"))).body.decode()
    lines = re.findall(r"^slatewise_(\w*expired\w*) (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in lines}


def fill(path: Path, number: int) -> None:
    """Write slates that expired long ago, each of a user of its own, into a new store."""
    store = open_store(f"sqlite:///{path}")
    now = time.time() - 86_400.0
    for first in range(0, number, 5_000):
        writing = [_add(store, user, now + user / number) for user in range(first, min(first + 5_000, number))]
        for future in writing:
            future.result()
    store.close()


def _add(store: Store, number: int, created_at: float) -> Future[None]:
    user = f"gone-{number}"
    slate = SlateRecord(f"slate-{number}", user, 0, created_at, "catalog", "dc2b-calibrated", tuple(range(10)), 0.5)

    def job(transaction: Transaction) -> None:
        transaction.add_slate(slate)
        transaction.save_user(UserRecord(user, "version", 1))

    return store.write(job)


def outcome(plan: Plan, runs: Runs) -> tuple[Table, bool]:
    """Return the table, and whether sweeps cost no more than their bound."""
    caption = f"{plan.slates:g} slates/s, {plan.feedbacks:g} feedbacks/s, by turns; median (all runs)"
    first, *others = ([run["slates_p99_ms"] for run in measured] for measured in runs.values())
    is_met = all(BOUND.is_met(median(values) / median(first)) for values in others)
    failed = sum(run["failed"] for measured in runs.values() for run in measured)
    return turns_table("sweeps", caption, FIGURES, runs), is_met and not failed
