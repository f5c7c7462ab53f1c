"""Half the rate for a long time: memory must not grow, the write-ahead log must stay short, latency must not drift."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.figures import at_most
from benchmarks.load import server
from benchmarks.load.load_test import Note, Plan, Row, mixed_streams, prepare, record
from benchmarks.load.open_loop import Record, percentile
from benchmarks.load.server import Launch, Server
from benchmarks.load.visitors import Visitors

EARLY_VISITORS = 2_500
"""Users who come before the soak begins: more than the service caches, so that its cache is full from the start."""
VISITORS = 500
VISITS = 10
WINDOWS = 12
GROWTH = at_most(5.0)
"""Growth of the server's memory over the second half, in percent of what it held in the middle."""
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
        """Return how much a straight line through the second half rises, in percent of where it begins."""
        later = self.resident_mb[len(self.resident_mb) // 2 :]
        slope, start = np.polyfit(np.arange(len(later)), later, 1)
        return float(100.0 * slope * len(later) / start)

    def drift(self) -> float:
        """Return the 99th percentile of the last third over that of the first."""
        third = max(len(self.p99_ms) // 3, 1)
        return median(self.p99_ms[-third:]) / median(self.p99_ms[:third])


async def watch(plan: Plan, launch: Launch, directory: Path, note: Note, early: int = EARLY_VISITORS) -> Soak:
    """Serve visitors who come, stay for ten slates and go, after enough others to fill the service's cache."""
    soak = Soak(plan.seconds)
    with server.service(directory, launch) as running:
        note(f"{early:,} visitors come first, to fill the cache")
        await prepare(running, Visitors(running.host, "early", early, events=0), early)
        visitors = Visitors(running.host, "soak", min(VISITORS, early), VISITS, plan.events)
        await prepare(running, visitors, visitors.number)
        note(f"{plan.slates:g} slates and {plan.feedbacks:g} feedbacks per second for {plan.seconds:g} s")
        watching = asyncio.create_task(_sample(running, soak))
        records = await record(running, mixed_streams(visitors, plan), plan.seconds)
        watching.cancel()
    soak.failed = sum(int(part.summary()["failed"]) for part in records)
    soak.p99_ms = windows(records, plan.seconds)
    return soak


async def _sample(running: Server, soak: Soak) -> None:
    while True:
        soak.resident_mb.append(running.resident_bytes / 1e6)
        soak.wal_mb.append(running.wal_bytes / 1e6)
        await asyncio.sleep(1.0)


def windows(records: Sequence[Record], seconds: float) -> list[float]:
    """Return the 99th percentile, in milliseconds, of the requests due in each twelfth of the time."""
    groups: list[list[float]] = [[] for _ in range(WINDOWS)]
    for part in records:
        for due, latency in zip(part.due, part.latencies, strict=True):
            groups[min(int(WINDOWS * due / seconds), WINDOWS - 1)].append(latency)
    return [1000.0 * percentile(sorted(group), 0.99) for group in groups if group]


def verdicts(soak: Soak) -> list[Row]:
    """Return every figure with its bound."""
    growth, drift, wal = soak.growth(), soak.drift(), max(soak.wal_mb)
    middle = soak.resident_mb[len(soak.resident_mb) // 2]
    rise = f"{growth:.2f} (of {middle:.0f} MB)"
    return [
        Row("memory: rise over the second half, %", rise, GROWTH, GROWTH.is_met(growth)),
        Row("write-ahead log: largest size, MB", f"{wal:.1f}", WAL, WAL.is_met(wal)),
        Row("99th percentile: last third over first third", f"{drift:.2f}", DRIFT, DRIFT.is_met(drift)),
        Row("99th percentile: largest of any twelfth of the time, ms", f"{max(soak.p99_ms):.1f}"),
        Row("requests that failed", str(soak.failed), NONE, NONE.is_met(soak.failed)),
    ]
