"""Expired slates are closed in the background: small portions at a steady pace, which nobody notices."""

import threading
import time
from collections.abc import Callable

from slatewise.recommender import Recommender
from slatewise.recommender.expiry import Portion
from slatewise.service.logs import Log
from slatewise.service.metrics import Metrics

INTERVAL = 0.04
"""Seconds from one portion to the next: up to 250 slates per second, more than a process creates in the long run."""
IDLE = 1.0
"""Seconds to the next look if nothing has expired, or if the store failed; no pause is longer."""
START_OVER = 60.0
"""Seconds after which slates that could not be closed are tried again."""


class Sweeper:
    """A thread of its own, so that it takes none from requests; at most one portion of writes is queued at any time.

    Of several processes that share a store, one sweeps at a time; the others look again after a while.
    """

    def __init__(
        self, recommender: Recommender, metrics: Metrics, log: Log, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._expired = recommender.store, recommender.expired_slates()
        self._metrics, self._log, self._clock = metrics, log, clock
        self._next_start = clock() + START_OVER
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="slatewise-sweeper", daemon=True)

    def start(self) -> None:
        """Close expired slates from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the portion that is under way."""
        self._stopping.set()
        self._thread.join()

    def figures(self) -> dict[str, float]:
        """Return how many expired slates wait to be closed, and for how many seconds the oldest has."""
        return {"waiting": self._expired.waiting, "oldest_seconds": self._expired.oldest_seconds()}

    def step(self) -> float:
        """Close a portion; return how many seconds to pause after it."""
        started = self._clock()
        if started >= self._next_start:
            self._expired.start_over()
            self._next_start = started + START_OVER
        try:
            with self._store.sweeping() as is_ours:
                portion = self._expired.close_portion() if is_ours else self._only_count()
        except Exception as error:  # noqa: BLE001
            portion = Portion(0, 0, (error,))
        self._metrics.expired.inc(portion.closed)
        for problem in portion.errors:
            self._log.failure("close_expired", problem)
        return pause(portion.expired, self._clock() - started)

    def _only_count(self) -> Portion:
        self._expired.count()
        return Portion(0, 0, ())

    def _serve(self) -> None:
        seconds = 0.0
        while not self._stopping.wait(seconds):
            seconds = self.step()


def pause(expired: int, seconds: float) -> float:
    """Return the pause after a portion that took so many seconds.

    Most of them are spent waiting behind the writes of requests, so a portion that took longer than usual means that
    the store is busy: then the pause is as long as the portion took.
    """
    return min(max(INTERVAL - seconds, seconds), IDLE) if expired else IDLE
