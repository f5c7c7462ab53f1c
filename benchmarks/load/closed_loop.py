"""As many requests as the server takes: clients that send the next one as soon as they get a response."""

import asyncio
import time
from dataclasses import dataclass

from benchmarks.load.connection import Pool
from benchmarks.load.visitors import Visitors


@dataclass(frozen=True)
class Throughput:
    """Successful requests per second, and how many failed."""

    requests_per_second: float
    failed: int


@dataclass
class Tally:
    """Requests that succeeded, and that failed."""

    succeeded: int = 0
    failed: int = 0

    def add(self, is_ok: bool) -> None:
        """Count one request."""
        self.succeeded += is_ok
        self.failed += not is_ok


async def prepare(pool: Pool, visitors: Visitors, slates: int, clients: int = 16) -> None:
    """Give visitors slates, before anything is measured."""
    tally = Tally()

    async def client() -> None:
        while visitors.requested < slates:
            response = await pool.fetch(visitors.next_slate())
            tally.add(response.is_ok)
            visitors.receive(response)

    await asyncio.gather(*(client() for _ in range(clients)))
    if tally.failed:
        raise ChildProcessError(f"{tally.failed} of {slates} slates were refused while preparing; see the server's log")


async def throughput(pool: Pool, visitors: Visitors, clients: int, seconds: float) -> Throughput:
    """Measure clients that get a slate and send feedback on it, over and over."""
    tally, started = Tally(), time.perf_counter()

    async def client() -> None:
        while time.perf_counter() < started + seconds:
            response = await pool.fetch(visitors.next_slate())
            visitors.receive(response)
            tally.add(response.is_ok)
            feedback = visitors.next_feedback()
            if feedback is not None:
                tally.add((await pool.fetch(feedback)).is_ok)

    await asyncio.gather(*(client() for _ in range(clients)))
    return Throughput(tally.succeeded / (time.perf_counter() - started), tally.failed)
