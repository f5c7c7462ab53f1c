"""Checkpoints: a thread copies the WAL of a SQLite store into the database, and never makes the writer wait."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import apsw

from slatewise.store.protocol import StoreError
from slatewise.store.sqlite_connection import BUSY_MILLISECONDS

RESTART_PAGES = 16_000
"""Pages in the WAL from which on the writer tries to start it over."""
RETRY_PAGES = 2_000
"""By how many pages the WAL grows before the writer tries again, if somebody was reading from it."""
MAX_PAGES_AT_RESTART = 4_000
"""Pages that the writer itself copies at most to start the WAL over; the rest was copied by the thread."""
RESTART_MILLISECONDS = 50
"""How long the writer waits for readers when it tries: longer than a request reads."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0
"""Seconds between checkpoints; they double up to the longest while a reader keeps them from copying anything."""


class Checkpoints:
    """Passive checkpoints on a connection of their own; they skip what a reader still needs.

    `check` fails if the database must not be written to.

    Under constant writing the WAL never ends on its own: there are always new pages behind those just copied. So once
    nearly everything is copied, the writer copies the last pages between two commits and starts the WAL over. What a
    failed attempt costs is in proportion to what was written since the one before; and while a long reader keeps many
    pages from being copied, there is none.
    """

    def __init__(self, connection: apsw.Connection, check: Callable[[], None]) -> None:
        self._check = check
        self.lag_pages = 0
        """Pages that the last checkpoint had to leave in the WAL."""
        self._connection = connection
        self._wal_pages = self._copied_pages = 0
        self._retry_at = 0
        self._turn = threading.Lock()
        """Held by whoever makes a checkpoint: SQLite refuses a second one at once, however long it may wait."""
        self._requested = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self.serve, name="slatewise-checkpoints", daemon=True)
        self._thread.start()

    def shorten_wal(self, writer: apsw.Connection, wal_pages: int) -> None:
        """Have a WAL of so many pages copied; start it over if only little is left to copy.

        To be called by the writer between commits.
        """
        if wal_pages < self._wal_pages:
            self._copied_pages = self._retry_at = 0
        self._wal_pages = wal_pages
        is_due = wal_pages >= max(RESTART_PAGES, self._retry_at)
        if is_due and wal_pages - self._copied_pages <= MAX_PAGES_AT_RESTART:
            self._try_restart(writer)
        self._requested.set()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Make no checkpoint until the end of the block: SQLite would call whoever makes another one busy."""
        with self._turn:
            yield

    def is_database_ours(self) -> bool:
        """Return whether the database, whose file has changed, was not overwritten by another one."""
        try:
            self._check()
        except StoreError:
            return False
        return True

    def close(self) -> None:
        """Finish the checkpoint that is running, then stop."""
        self._closing.set()
        self._requested.set()
        self._thread.join()
        self._connection.close()

    def _try_restart(self, writer: apsw.Connection) -> None:
        """Start the WAL over, unless the thread is just copying; then the writer asks again after its next commit."""
        if self._turn.acquire(blocking=False):
            try:
                self._retry_at = 0 if restart_wal(writer) else self._wal_pages + RETRY_PAGES
            finally:
                self._turn.release()

    def serve(self) -> None:
        """Make a checkpoint whenever one is asked for, until closed; this is what the thread runs."""
        pause = FIRST_PAUSE
        while not self._closing.is_set():
            self._requested.wait()
            self._requested.clear()
            if self._closing.is_set():
                return
            with self._turn:
                pause = FIRST_PAUSE if self.checkpoint() else min(2.0 * pause, LONGEST_PAUSE)
            if self.lag_pages:
                self._requested.set()
            self._closing.wait(pause)

    def checkpoint(self) -> bool:
        """Copy what no reader needs; return whether that was anything, or nothing is left."""
        try:
            self._check()
            pages, copied = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except (apsw.Error, StoreError):
            self.lag_pages = self._wal_pages
            return False
        has_moved = copied > self._copied_pages
        self._copied_pages = copied
        self.lag_pages = max(pages - copied, 0)
        return has_moved or self.lag_pages == 0


def restart_wal(writer: apsw.Connection) -> bool:
    """Copy the rest of the WAL and start it over; return False if somebody reads from it for too long."""
    writer.set_busy_timeout(RESTART_MILLISECONDS)
    try:
        writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
    except apsw.Error:
        return False
    finally:
        writer.set_busy_timeout(BUSY_MILLISECONDS)
    return True
