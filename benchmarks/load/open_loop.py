"""Requests at a constant rate, whatever the server does; latency counts from the moment a request was due.

A generator that waits for responses before it sends again sends less while the server stalls, and so hides the stall.
Time is read from `perf_counter`: the clock of uvloop stands still within a turn of the loop and counts milliseconds.
"""

import asyncio
import time
from array import array
from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil

from benchmarks.load.connection import Pool, Response

GRACE_SECONDS = 10.0
"""How long responses that are still missing at the end are waited for."""
SHORTEST_SLEEP = 0.001
"""The timers of an event loop count milliseconds; a shorter sleep would spin and take a core from the server."""
NOT_SENT = -1
"""The status of a request that could not be made."""
SHARES = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999, "max_ms": 1.0}


@dataclass(frozen=True)
class Stream:
    """Requests of one kind at a constant rate; one that cannot be made (None) is not sent, and counts as failed."""

    name: str
    rate: float
    request: Callable[[], bytes | None]
    on_response: Callable[[Response], None]


@dataclass
class Record:
    """What became of a stream: when each request was due, seconds from then to its response, failures by status.

    `sent_late` is the longest time by which the generator itself was late to send a request.
    """

    stream: Stream
    seconds: float
    due: MutableSequence[float] = field(default_factory=lambda: array("d"))
    latencies: MutableSequence[float] = field(default_factory=lambda: array("d"))
    failures: dict[int, int] = field(default_factory=dict)
    sent_late: float = 0.0

    def add(self, due: float, started: float, response: Response) -> None:
        """Record one response."""
        if response.is_ok:
            self.due.append(due - started)
            self.latencies.append(time.perf_counter() - due)
        else:
            self.failures[response.status] = self.failures.get(response.status, 0) + 1
        self.stream.on_response(response)

    def summary(self) -> dict[str, float]:
        """Return rates and percentiles, in milliseconds; a request without a response counts as failed.

        `not_sent` is the part of the failed requests that the server has never seen.
        """
        ascending = sorted(self.latencies) or [float("inf")]
        return {
            "rate": self.stream.rate,
            "answered": len(self.latencies),
            "failed": self.wanted - len(self.latencies),
            "not_sent": self.failures.get(NOT_SENT, 0),
            **{name: round(1000 * percentile(ascending, share), 2) for name, share in SHARES.items()},
            "sent_late_ms": round(1000 * self.sent_late, 2),
        }

    @property
    def wanted(self) -> int:
        """How many requests there are."""
        return round(self.stream.rate * self.seconds)

    @property
    def unfinished(self) -> int:
        """How many requests have no outcome yet."""
        return self.wanted - len(self.latencies) - sum(self.failures.values())


def percentile(ascending: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed."""
    return ascending[max(ceil(share * len(ascending)), 1) - 1]


async def run(pool: Pool, streams: Sequence[Stream], seconds: float) -> list[Record]:
    """Send all streams at the same time for so long; return their records."""
    records = [Record(stream, seconds) for stream in streams]
    await fill(pool, records)
    return records


async def fill(pool: Pool, records: Sequence[Record]) -> None:
    """Send the streams of records at the same time; somebody else may look at the records meanwhile."""
    started = time.perf_counter() + 0.1
    await asyncio.gather(*(_send(pool, record, started) for record in records))
    await _finish(records, started + max(record.seconds for record in records) + GRACE_SECONDS)


async def _send(pool: Pool, record: Record, started: float) -> None:
    """Send each request when it is due, or at once if that moment has passed."""
    for number in range(record.wanted):
        due = started + number / record.stream.rate
        while (early := due - time.perf_counter()) > 0:
            await asyncio.sleep(max(early, SHORTEST_SLEEP))
        record.sent_late = max(record.sent_late, -early)
        request, on_response = record.stream.request(), partial(record.add, due, started)
        if request is None:
            on_response(Response(NOT_SENT, b""))
        else:
            pool.send(request, on_response)


async def _finish(records: Sequence[Record], until: float) -> None:
    while time.perf_counter() < until and any(record.unfinished for record in records):
        await asyncio.sleep(0.02)
