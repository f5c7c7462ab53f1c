"""As much as the server takes: clients that ask again as soon as they are answered."""

import asyncio
from dataclasses import dataclass

from slatewise.bench.load.connection import Pool
from slatewise.bench.load.traffic import Crowd


@dataclass
class Tally:
    """Requests answered, and refused."""

    good: int = 0
    failed: int = 0


async def prepare(pool: Pool, crowd: Crowd, slates: int, clients: int = 16) -> None:
    """Let people get slates, before anything is measured."""
    tally = Tally()

    async def client() -> None:
        while crowd.asked < slates:
            answer = await pool.answer_to(crowd.ask())
            tally.failed += not answer.is_good
            crowd.took(answer)

    await asyncio.gather(*(client() for _ in range(clients)))
    if tally.failed:
        raise ChildProcessError(f"{tally.failed} of {slates} slates were refused while preparing; see the server's log")


async def throughput(pool: Pool, crowd: Crowd, clients: int, seconds: float) -> float:
    """Return requests per second of clients that take a slate and answer it, over and over."""
    loop, tally = asyncio.get_running_loop(), Tally()
    started = loop.time()

    async def client() -> None:
        while loop.time() < started + seconds:
            answer = await pool.answer_to(crowd.ask())
            crowd.took(answer)
            tally.good += answer.is_good
            feedback = crowd.answer()
            if feedback is not None:
                receipt = await pool.answer_to(feedback)
                tally.good += receipt.is_good

    await asyncio.gather(*(client() for _ in range(clients)))
    return tally.good / (loop.time() - started)
