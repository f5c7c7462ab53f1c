"""Half the rate for a long time: memory must not grow, the write-ahead log must stay short, latency must not drift."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from slatewise.bench.figures import at_most
from slatewise.bench.load import served
from slatewise.bench.load.measuring import Plan, Row, Say, mixture, prepare, recorded
from slatewise.bench.load.open_loop import Record
from slatewise.bench.load.served import Served
from slatewise.bench.load.traffic import Crowd
from slatewise.recommender import PEOPLE_AT_HAND
from slatewise.service.live import percentile

PEOPLE = 500
VISITS = 10
WINDOWS = 12
GROWTH = at_most(5.0)
"""Growth of the server's memory over the second half, in per cent of what it held in the middle."""
WAL = at_most(96.0)
"""Size of the write-ahead log in MB: the store shortens it at 16,000 pages of 4 KB, after the batch that got there."""
DRIFT = at_most(1.5)
"""The 99th percentile in the last third of the time over that in the first third."""

NONE = at_most(0.0)


@dataclass
class Soak:
    """What was seen: memory and write-ahead log once a second, and percentiles of each window of the time."""

    seconds: float
    failed: int = 0
    resident_mb: list[float] = field(default_factory=list)
    wal_mb: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return everything for programs."""
        return {"soak": {**asdict(self), "growth_percent": self.growth(), "drift": self.drift()}}

    def growth(self) -> float:
        """Return how much a straight line through the second half rises, in per cent of where it begins."""
        later = self.resident_mb[len(self.resident_mb) // 2 :]
        slope, start = np.polyfit(np.arange(len(later)), later, 1)
        return float(100.0 * slope * len(later) / start)

    def drift(self) -> float:
        """Return by how much the 99th percentile of the last third exceeds that of the first."""
        third = max(len(self.p99_ms) // 3, 1)
        return median(self.p99_ms[-third:]) / median(self.p99_ms[:third])


async def watch(plan: Plan, catalog: Path, directory: Path, say: Say, early: int = PEOPLE_AT_HAND) -> Soak:
    """Serve people who come, stay for ten slates and go, after as many as the server keeps at hand have been there."""
    seen = Soak(plan.seconds)
    with served.slatewise(directory, catalog, plan.policy) as server:
        say(f"{early:,} people come first, as many as are kept at hand")
        await prepare(server, Crowd(server.host, "early", early, events=0), early)
        crowd = Crowd(server.host, "soak", min(PEOPLE, early), VISITS, plan.events)
        await prepare(server, crowd, crowd.people)
        say(f"{plan.slates:g} slates and {plan.feedbacks:g} feedbacks per second for {plan.seconds:g} s")
        watching = asyncio.create_task(_look(server, seen))
        records = await recorded(server, mixture(crowd, plan.slates, plan.feedbacks), plan.seconds)
        watching.cancel()
    seen.failed = sum(int(record.summary()["failed"]) for record in records)
    seen.p99_ms = windows(records, plan.seconds)
    return seen


async def _look(server: Served, seen: Soak) -> None:
    while True:
        seen.resident_mb.append(server.resident_bytes / 1e6)
        seen.wal_mb.append(server.wal_bytes / 1e6)
        await asyncio.sleep(1.0)


def windows(records: Sequence[Record], seconds: float) -> list[float]:
    """Return the 99th percentile, in milliseconds, of the requests due in each twelfth of the time."""
    groups: list[list[float]] = [[] for _ in range(WINDOWS)]
    for record in records:
        for due, latency in zip(record.due, record.latencies, strict=True):
            groups[min(int(WINDOWS * due / seconds), WINDOWS - 1)].append(latency)
    return [1000.0 * percentile(sorted(group), 0.99) for group in groups if group]


def verdicts(seen: Soak) -> list[Row]:
    """Return every figure beside its bound."""
    growth, drift, wal = seen.growth(), seen.drift(), max(seen.wal_mb)
    middle = seen.resident_mb[len(seen.resident_mb) // 2]
    return [
        Row(
            "memory: rise over the second half, %", f"{growth:.2f} (of {middle:.0f} MB)", GROWTH, GROWTH.is_met(growth)
        ),
        Row("write-ahead log: largest size, MB", f"{wal:.1f}", WAL, WAL.is_met(wal)),
        Row("99th percentile: last third over first third", f"{drift:.2f}", DRIFT, DRIFT.is_met(drift)),
        Row("99th percentile: largest of any twelfth of the time, ms", f"{max(seen.p99_ms):.1f}"),
        Row("requests that failed", str(seen.failed), NONE, NONE.is_met(seen.failed)),
    ]
