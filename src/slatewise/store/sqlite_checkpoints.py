"""Checkpoints: a thread copies the WAL of a SQLite store into the database, and never makes the writer wait."""

import threading
import time
from collections.abc import Callable

import apsw

from slatewise.store.protocol import StoreError
from slatewise.store.sqlite_connection import BUSY_MILLISECONDS

RESTART_PAGES = 16_000
"""Pages in the WAL from which on the writer looks for a moment without readers, to start the WAL over."""
MAX_PAGES_AT_RESTART = 4_000
"""Pages that the writer itself copies at most to start the WAL over; the rest was copied by the thread."""
RESTART_MILLISECONDS = 50
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
"""Seconds between attempts that a long reader keeps from finishing; they double up to the longest."""


class Backoff:
    """Pauses between attempts, which double while these fail."""

    def __init__(self) -> None:
        self.pause = FIRST_PAUSE
        self._next = 0.0

    def is_due(self) -> bool:
        """Return whether it is time for the next attempt."""
        return time.monotonic() >= self._next

    def note(self, *, succeeded: bool) -> None:
        """Note how an attempt went."""
        self._next = 0.0 if succeeded else time.monotonic() + self.pause
        self.pause = FIRST_PAUSE if succeeded else min(2.0 * self.pause, LONGEST_PAUSE)


class Checkpoints:
    """Passive checkpoints on a connection of their own; they skip what a reader still needs.

    `check` fails if the database must not be written to.

    Under constant writing the WAL never ends on its own: there are always new pages behind those just copied. So once
    nearly everything is copied, the writer copies the last pages between two commits and starts the WAL over.
    """

    def __init__(self, connection: apsw.Connection, check: Callable[[], None]) -> None:
        self._check = check
        self.lag_pages = 0
        """Pages that the last checkpoint had to leave in the WAL."""
        self._connection = connection
        self._wal_pages = self._copied_pages = 0
        self._restarts = Backoff()
        self._requested = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="slatewise-checkpoints", daemon=True)
        self._thread.start()

    def shorten_wal(self, writer: apsw.Connection, wal_pages: int) -> None:
        """Have a WAL of so many pages copied; start it over if only little is left to copy.

        To be called by the writer between commits.
        """
        self._copied_pages = 0 if wal_pages < self._wal_pages else self._copied_pages
        self._wal_pages = wal_pages
        self._requested.set()
        n_left = wal_pages - self._copied_pages
        if wal_pages >= RESTART_PAGES and n_left <= MAX_PAGES_AT_RESTART and self._restarts.is_due():
            self._restarts.note(succeeded=_restart(writer))

    def close(self) -> None:
        """Finish the checkpoint that is running, then stop."""
        self._closing.set()
        self._requested.set()
        self._thread.join()
        self._connection.close()

    def _serve(self) -> None:
        backoff = Backoff()
        while not self._closing.is_set():
            self._requested.wait()
            self._requested.clear()
            if self._closing.is_set():
                return
            backoff.note(succeeded=self._checkpoint())
            self._closing.wait(backoff.pause)

    def _checkpoint(self) -> bool:
        try:
            self._check()
            pages, copied = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except (apsw.Error, StoreError):
            self.lag_pages = self._wal_pages
            return False
        self._copied_pages = copied
        self.lag_pages = max(pages - copied, 0)
        return self.lag_pages == 0


def _restart(writer: apsw.Connection) -> bool:
    writer.set_busy_timeout(RESTART_MILLISECONDS)
    try:
        writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
    except apsw.Error:
        return False
    finally:
        writer.set_busy_timeout(BUSY_MILLISECONDS)
    return True
