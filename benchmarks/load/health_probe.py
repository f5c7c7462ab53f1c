"""How long the server's event loop stalls, seen from outside: /health/live is asked for every five milliseconds.

One request is under way at a time, on a connection of its own. Moments at which it should have been asked, but the
response before was still missing, count as asked then: whoever comes within a stall waits for its end. A slow server
does not pile requests up this way, so that the longest wait is the longest stall.
"""

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field

from benchmarks.load.connection import Pool, get
from benchmarks.load.open_loop import SHORTEST_SLEEP, percentile

INTERVAL = 0.005


@dataclass
class Waits:
    """Seconds from each moment to the next response, how many responses failed, and how late requests were sent."""

    seconds: list[float] = field(default_factory=list)
    failed: int = 0
    sent_late: float = 0.0

    def summary(self) -> dict[str, float]:
        """Return percentiles and the longest wait, in milliseconds."""
        ascending = sorted(self.seconds) or [float("inf")]
        shares = {"p50_ms": 0.5, "p99_ms": 0.99, "max_ms": 1.0}
        return {
            **{name: round(1000 * percentile(ascending, share), 2) for name, share in shares.items()},
            "failed": self.failed,
            "sent_late_ms": round(1000 * self.sent_late, 2),
        }


async def watch(pool: Pool, host: str, seconds: float) -> Waits:
    """Ask for so long; return how long each moment had to wait."""
    waits, started = Waits(), time.perf_counter()
    moments = deque(started + number * INTERVAL for number in range(round(seconds / INTERVAL)))
    while moments:
        while (early := moments[0] - time.perf_counter()) > 0:
            await asyncio.sleep(max(early, SHORTEST_SLEEP))
        waits.sent_late = max(waits.sent_late, -early)
        response = await pool.fetch(get(host, "/health/live"))
        waits.failed += not response.is_ok
        now = time.perf_counter()
        while moments and moments[0] <= now:
            waits.seconds.append(now - moments.popleft())
    return waits
