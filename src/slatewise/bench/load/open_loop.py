"""Requests at a constant rate, whatever the server does; latency counts from the moment a request was due.

A generator that waits for answers before it asks again sends less while the server stalls, and so hides the stall.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from slatewise.bench.load.connection import LOST, Answer, Pool
from slatewise.service.live import percentile

PATIENCE = 10.0
"""Seconds to wait for answers that are still missing at the end."""


@dataclass(frozen=True)
class Stream:
    """Requests of one kind at a constant rate; a request that cannot be made (None) counts as failed."""

    name: str
    rate: float
    request: Callable[[], bytes | None]
    listener: Callable[[Answer], None]


@dataclass
class Record:
    """What became of a stream: when each request was due, seconds from then to its answer, and failures by status."""

    stream: Stream
    seconds: float
    due: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    failures: dict[int, int] = field(default_factory=dict)

    def note(self, due: float, started: float, answer: Answer) -> None:
        """Note one answer."""
        if answer.is_good:
            self.due.append(due - started)
            self.latencies.append(asyncio.get_running_loop().time() - due)
        else:
            self.failures[answer.status] = self.failures.get(answer.status, 0) + 1
        self.stream.listener(answer)

    def summary(self) -> dict[str, float]:
        """Return rates and percentiles, in milliseconds; what was never answered counts as failed."""
        ascending = sorted(self.latencies) or [float("inf")]
        shares = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999, "max_ms": 1.0}
        wanted = round(self.stream.rate * self.seconds)
        return {
            "rate": self.stream.rate,
            "answered": len(self.latencies),
            "failed": wanted - len(self.latencies),
            **{name: round(1000 * percentile(ascending, share), 2) for name, share in shares.items()},
        }


async def run(pool: Pool, streams: Sequence[Stream], seconds: float) -> list[Record]:
    """Send all streams at the same time for so long; return their records."""
    records = [Record(stream, seconds) for stream in streams]
    started = asyncio.get_running_loop().time() + 0.1
    await asyncio.gather(*(_send(pool, record, started) for record in records))
    await _finish(records, started + seconds + PATIENCE)
    return records


async def _send(pool: Pool, record: Record, started: float) -> None:
    """Send each request when it is due, or at once if that moment has passed."""
    now = asyncio.get_running_loop().time
    for number in range(round(record.stream.rate * record.seconds)):
        due = started + number / record.stream.rate
        while (early := due - now()) > 0:
            await asyncio.sleep(early)
        request = record.stream.request()
        listener = partial(record.note, due, started)
        if request is None:
            listener(Answer(LOST, b""))
        else:
            pool.ask(request, listener)


async def _finish(records: Sequence[Record], until: float) -> None:
    now = asyncio.get_running_loop().time
    while now() < until and any(_missing(record) for record in records):
        await asyncio.sleep(0.02)


def _missing(record: Record) -> int:
    return round(record.stream.rate * record.seconds) - len(record.latencies) - sum(record.failures.values())
