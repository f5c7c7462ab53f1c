"""Hours at a constant rate: memory, write-ahead log and latency must not grow, and expired slates must be closed."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.figures import at_least, at_most
from benchmarks.load import open_loop, server
from benchmarks.load.load_test import CONNECTIONS, Note, Plan, Row, connected, mixed_streams, prepare
from benchmarks.load.open_loop import Record, percentile
from benchmarks.load.server import Launch, Server
from benchmarks.load.sweeps import CLOSED, OLDEST, expiry_metrics
from benchmarks.load.visitors import Visitors
from benchmarks.machine import stolen_seconds

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
P99 = at_most(60.0)
"""The 99th percentile in milliseconds, on a quiet machine."""
SOME, OVERDUE = at_least(1.0), at_most(10.0)
"""Slates closed by sweeps per second, and for how long the oldest one left may be overdue."""
NONE = at_most(0.0)
NOTE_SECONDS = 60
SECONDS_TO_CLICK = 0.5
"""How long after a slate its feedback comes."""


@dataclass
class Soak:
    """What was seen: memory and write-ahead log once a second, and percentiles of each window and of the whole time.

    not_sent: the part of the failed requests that the server never got, because there was no slate to react to yet.
    """

    seconds: float
    failed: int = 0
    not_sent: int = 0
    resident_mb: list[float] = field(default_factory=list)
    wal_mb: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    overall_p99_ms: float = 0.0
    closed_per_second: float = 0.0
    oldest_seconds: float = 0.0
    store_mb: float = 0.0
    server_percent: float = 0.0
    stolen_percent: float = 0.0

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
    """Serve visitors who come, stay for ten slates and go, after enough others to fill the service's cache.

    Every second slate is ignored, and expires before its visitor comes back.
    """
    soak, number = Soak(plan.seconds), min(VISITORS, early)
    expiring = {**launch.environment, "SLATEWISE_REWARD_WAIT": str(0.8 * number / plan.slates)}
    with server.service(directory, replace(launch, environment=expiring)) as running:
        note(f"{early:,} visitors come first, to fill the cache")
        await prepare(running, Visitors(running.host, "early", early, events=0), early)
        visitors = Visitors(running.host, "soak", number, VISITS, plan.events, ignored=1)
        await prepare(running, visitors, number)
        visitors.skip_feedback(leave=round(SECONDS_TO_CLICK * plan.feedbacks))
        note(f"{plan.slates:g} slates and {plan.feedbacks:g} feedbacks per second for {plan.seconds:g} s")
        records = [Record(stream, plan.seconds) for stream in mixed_streams(visitors, plan)]
        before, used, stolen = await expiry_metrics(running), running.cpu_seconds, stolen_seconds()
        await load_and_watch(running, records, soak, note)
        soak.server_percent = 100.0 * (running.cpu_seconds - used) / plan.seconds
        soak.stolen_percent = 100.0 * (stolen_seconds() - stolen) / plan.seconds
        after = await expiry_metrics(running)
        soak.store_mb = running.store_bytes / 1e6
    soak.failed, soak.not_sent = (sum(int(part.summary()[name]) for part in records) for name in ("failed", "not_sent"))
    soak.p99_ms = windows(records, plan.seconds)
    soak.overall_p99_ms = 1000.0 * percentile(sorted(latency for part in records for latency in part.latencies), 0.99)
    soak.closed_per_second = (after[CLOSED] - before[CLOSED]) / plan.seconds
    soak.oldest_seconds = after[OLDEST]
    return soak


async def load_and_watch(running: Server, records: Sequence[Record], soak: Soak, note: Note) -> None:
    """Send everything and watch the server meanwhile; end at once if it died."""
    async with connected(running, CONNECTIONS) as pool:
        loading = asyncio.create_task(open_loop.fill(pool, records))
        watching = asyncio.create_task(_sample(running, soak, records, note))
        await asyncio.wait({loading, watching}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            loading.cancel()
            watching.result()
        watching.cancel()
        loading.result()


async def _sample(running: Server, soak: Soak, records: Sequence[Record], note: Note) -> None:
    """Look at the server every second; say every minute how it goes."""
    for second in count(1):
        await asyncio.sleep(1.0)
        if running.process.poll() is not None:
            raise ChildProcessError(f"the server exited with {running.process.returncode}; see its log")
        soak.resident_mb.append(running.resident_bytes / 1e6)
        soak.wal_mb.append(running.wal_bytes / 1e6)
        if second % NOTE_SECONDS == 0:
            note(_progress(second, soak, records))


def _progress(second: int, soak: Soak, records: Sequence[Record]) -> str:
    recent = sorted(latency for part in records for latency in part.latencies[-NOTE_SECONDS * int(part.stream.rate) :])
    p99 = 1000.0 * percentile(recent or [float("inf")], 0.99)
    failed = sum(sum(part.failures.values()) for part in records)
    return (
        f"{second / 60:.0f} of {soak.seconds / 60:.0f} minutes: 99th percentile {p99:.0f} ms in the last one, memory "
        f"{soak.resident_mb[-1]:.0f} MB, write-ahead log {soak.wal_mb[-1]:.1f} MB, {failed} failed"
    )


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
    closed, oldest, overall = soak.closed_per_second, soak.oldest_seconds, soak.overall_p99_ms
    return [
        Row("memory: rise over the second half, %", rise, GROWTH, GROWTH.is_met(growth)),
        Row("write-ahead log: largest size, MB", f"{wal:.1f}", WAL, WAL.is_met(wal)),
        Row("99th percentile: last third over first third", f"{drift:.2f}", DRIFT, DRIFT.is_met(drift)),
        Row("99th percentile of all requests, ms", f"{overall:.1f}", P99, P99.is_met(overall)),
        Row("99th percentile: median of the twelfths of the time, ms", f"{median(soak.p99_ms):.1f}"),
        Row("99th percentile: largest of any twelfth of the time, ms", f"{max(soak.p99_ms):.1f}"),
        Row("expired slates closed in the background, per second", f"{closed:.0f}", SOME, SOME.is_met(closed)),
        Row(
            "oldest expired slate still open at the end, seconds overdue",
            f"{oldest:.1f}",
            OVERDUE,
            OVERDUE.is_met(oldest),
        ),
        Row("store at the end, MB", f"{soak.store_mb:,.0f}"),
        Row("processor time of the server, % of one core", f"{soak.server_percent:.0f}"),
        Row("time that other virtual machines took, % of one core", f"{soak.stolen_percent:.0f}"),
        Row("requests that failed", str(soak.failed), NONE, NONE.is_met(soak.failed)),
        Row("of these not sent, for want of a slate to react to", str(soak.not_sent)),
    ]
