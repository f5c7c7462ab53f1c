"""What other workers, or commands, changed is served soon: a thread looks at the item table and the experiment."""

import threading
import time

from slatewise.recommender import Recommender
from slatewise.service.cpu_affinity import unpin
from slatewise.service.logs import Log

INTERVAL = 0.25
"""Seconds between two looks; more after a change that took longer to take in."""


class ItemFollower:
    """A thread of its own, so that it takes none from requests; while the store is away, the items stay as they are."""

    def __init__(self, recommender: Recommender, log: Log) -> None:
        self._recommender, self._log = recommender, log
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="slatewise-items", daemon=True)
        self._has_failed = False

    def start(self) -> None:
        """Follow changes from now on."""
        self.expect_new_items()
        self._thread.start()

    def expect_new_items(self) -> None:
        """Begin to learn what the first new item of a catalog would wait for; changes are followed meanwhile."""
        threading.Thread(target=self._expect_new_items, name="slatewise-new-items", daemon=True).start()

    def _expect_new_items(self) -> None:
        """Compute for some seconds, on another core than the one that requests are served on, if there is one."""
        unpin(threading.get_native_id())
        self._recommender.expect_new_items()

    def stop(self) -> None:
        """Stop after the change that is being taken in."""
        self._stopping.set()
        self._thread.join()

    def step(self) -> float:
        """Take in what changed; return how many seconds to pause after it."""
        started = time.monotonic()
        try:
            if self._recommender.follow_items():
                self._log.event("items changed", version=self._recommender.snapshot.version)
            if self._recommender.follow_experiment():
                self._log.event("experiment switched")
            self._has_failed = False
        except Exception as error:  # noqa: BLE001
            if not self._has_failed:
                self._log.failure("follow_items", error)
            self._has_failed = True
        return max(INTERVAL, time.monotonic() - started)

    def _serve(self) -> None:
        seconds = INTERVAL
        while not self._stopping.wait(seconds):
            seconds = self.step()
