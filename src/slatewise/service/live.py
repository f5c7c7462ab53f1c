"""The last minutes, kept in memory: rates of slates and feedback, percentiles of answering times."""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence

from slatewise.service.models import LatencyView

WINDOW = 60
LATENCY_WINDOW = 300.0
LATENCIES_KEPT = 4096


class Rate:
    """Counts per second over the last minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.started = clock, clock()
        self.counts: deque[list[int]] = deque(maxlen=WINDOW + 1)

    def add(self, number: int = 1) -> None:
        """Count something that happened now."""
        second = int(self.clock())
        if self.counts and self.counts[-1][0] == second:
            self.counts[-1][1] += number
        else:
            self.counts.append([second, number])

    def per_second(self) -> float:
        """Return the mean over the last minute, or since the start if that is shorter."""
        now = self.clock()
        recent = sum(number for second, number in self.counts if second > now - WINDOW)
        return recent / min(max(now - self.started, 1.0), WINDOW)


class Latencies:
    """Answering times by route; each route keeps its latest few thousand."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.routes: dict[str, deque[tuple[float, float]]] = {}

    def add(self, route: str, seconds: float) -> None:
        """Note how long an answer took."""
        kept = self.routes.get(route)
        if kept is None:
            kept = self.routes[route] = deque(maxlen=LATENCIES_KEPT)
        kept.append((self.clock(), seconds))

    def views(self) -> list[LatencyView]:
        """Return percentiles of every route that was asked for in the last minutes, by route."""
        since = self.clock() - LATENCY_WINDOW
        recent = {route: sorted(taken for at, taken in kept if at >= since) for route, kept in self.routes.items()}
        return [_view(route, times) for route, times in sorted(recent.items()) if times]


def _view(route: str, times: Sequence[float]) -> LatencyView:
    p50, p95, p99 = (round(1000 * percentile(times, share), 3) for share in (0.50, 0.95, 0.99))
    return LatencyView(route, len(times), p50, p95, p99)


def percentile(ascending: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed."""
    return ascending[max(math.ceil(share * len(ascending)) - 1, 0)]
