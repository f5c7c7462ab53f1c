"""How much each caller may ask: a token bucket per key, or per address where no keys are needed."""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

MOST_CALLERS = 10_000


@dataclass
class Bucket:
    """Tokens left at a time."""

    tokens: float
    at: float


class Buckets:
    """Buckets that fill at a rate up to a burst; the callers longest silent are dropped when there are too many."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.burst, self.clock = rate, burst, clock
        self.callers: OrderedDict[str, Bucket] = OrderedDict()

    def take(self, caller: str, tokens: float = 1.0) -> float:
        """Take tokens, and return 0; or take none, and return the seconds after which they will be there."""
        if self.rate <= 0:
            return 0.0
        bucket = self._filled(caller)
        if bucket.tokens >= tokens:
            bucket.tokens -= tokens
            return 0.0
        return (tokens - bucket.tokens) / self.rate

    def _filled(self, caller: str) -> Bucket:
        now = self.clock()
        bucket = self.callers.get(caller)
        if bucket is None:
            bucket = self.callers[caller] = Bucket(self.burst, now)
            if len(self.callers) > MOST_CALLERS:
                self.callers.popitem(last=False)
            return bucket
        self.callers.move_to_end(caller)
        bucket.tokens = min(self.burst, bucket.tokens + (now - bucket.at) * self.rate)
        bucket.at = now
        return bucket
