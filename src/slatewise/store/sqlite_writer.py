"""The one thread that writes to a SQLite store: whatever is queued is committed together, then acknowledged."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

import apsw

from slatewise.store.protocol import Result, StoreError, StoreUnavailableError, Transaction
from slatewise.store.rows import Values
from slatewise.store.sql import SqlTransaction
from slatewise.store.sqlite_connection import BUSY_MILLISECONDS, store_error

MAX_BATCH = 256
MAX_QUEUE = 10_000
CHECKPOINT_PAGES = 2_000
"""Pages in the WAL from which on they are copied into the database."""
RESTART_PAGES = 16_000
"""Pages in the WAL from which on the writer waits a moment for readers, so that the WAL can start over."""
RESTART_MILLISECONDS = 50
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
"""Seconds between attempts that a long reader keeps from finishing; they double up to the longest."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job waiting to be committed, or maintenance that runs between commits, and the future of its result."""

    run: Callable[[Any], Any]
    future: Future[Any]
    is_maintenance: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a job, or its error."""

    job: Job
    result: Any = None
    error: BaseException | None = None

    def deliver(self) -> None:
        """Set the future of the job."""
        if self.error is None:
            self.job.future.set_result(self.result)
        else:
            self.job.future.set_exception(self.error)


class SqliteWriter:
    """Runs jobs in batches, one transaction per batch; a job that fails undoes only itself."""

    def __init__(self, connection: apsw.Connection, checkpoints: "Checkpoints") -> None:
        self.connection = connection
        self.checkpoints = checkpoints
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._submit_lock = threading.Lock()
        self._is_closed = False
        self._wal_pages = 0
        self._next_restart, self._restart_pause = 0.0, FIRST_PAUSE
        connection.set_wal_hook(self._note_wal_pages)
        self._thread = threading.Thread(target=self._serve, name="slatewise-writer", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[Transaction], Result]) -> Future[Result]:
        """Queue a job; its future is set after the commit."""
        return self._enqueue(Job(job, Future()))

    def between_commits(self, maintenance: Callable[[apsw.Connection], Result]) -> Future[Result]:
        """Queue what must run outside any transaction."""
        return self._enqueue(Job(maintenance, Future(), is_maintenance=True))

    def backlog(self) -> int:
        """Return the number of queued jobs."""
        return self._queue.qsize()

    def close(self) -> None:
        """Finish the queued jobs, then stop."""
        with self._submit_lock:
            if not self._is_closed:
                self._is_closed = True
                self._queue.put(None)
        self._thread.join()
        self.checkpoints.close()

    def _enqueue(self, job: Job) -> Future[Any]:
        with self._submit_lock:
            if self._is_closed:
                job.future.set_exception(StoreUnavailableError("the store is closed"))
            elif self._queue.qsize() >= MAX_QUEUE:
                job.future.set_exception(StoreUnavailableError(f"{MAX_QUEUE} writes are queued; try again later"))
            else:
                self._queue.put(job)
        return job.future

    def _serve(self) -> None:
        is_open = True
        while is_open:
            batch, is_open = self._next_batch()
            jobs = [job for job in batch if job.future.set_running_or_notify_cancel()]
            outcomes = self._commit([job for job in jobs if not job.is_maintenance])
            outcomes += [self._maintain(job) for job in jobs if job.is_maintenance]
            for outcome in outcomes:
                outcome.deliver()
            self._shorten_wal()

    def _next_batch(self) -> tuple[list[Job], bool]:
        """Wait for a job and take those queued behind it; also return whether more may come."""
        batch, job = [], self._queue.get()
        with suppress(Empty):
            while job is not None:
                batch.append(job)
                if len(batch) == MAX_BATCH:
                    return batch, True
                job = self._queue.get_nowait()
            return batch, False
        return batch, True

    def _commit(self, jobs: list[Job]) -> list[Outcome]:
        """Run jobs in one transaction; if a job fails after it has written, or there is no space, each gets its own."""
        if not jobs:
            return []
        try:
            self._execute("BEGIN IMMEDIATE")
            outcomes = [self._attempt(job) for job in jobs]
            self._execute("COMMIT")
        except BaseException as error:  # noqa: BLE001
            self._roll_back()
            return [Outcome(jobs[0], error=error)] if len(jobs) == 1 else [self._commit([job])[0] for job in jobs]
        return outcomes

    def _attempt(self, job: Job) -> Outcome:
        """Run a job within the transaction; one that fails before it has written anything harms no other."""
        transaction = SqlTransaction(self._execute)
        try:
            outcome = Outcome(job, job.run(transaction))
            transaction.finish()
        except BaseException as error:
            if transaction.has_written or not self.connection.in_transaction:
                raise
            return Outcome(job, error=error)
        return outcome

    def _roll_back(self) -> None:
        """Roll back unless SQLite already did, as it does on a full disk; if that fails, the next batch tries again."""
        if self.connection.in_transaction:
            with suppress(StoreError):
                self._execute("ROLLBACK")

    def _maintain(self, job: Job) -> Outcome:
        try:
            return Outcome(job, job.run(self.connection))
        except BaseException as error:  # noqa: BLE001
            return Outcome(job, error=error)

    def _execute(self, sql: str, parameters: Values = ()) -> list[Values]:
        try:
            return self.connection.execute(sql, parameters).fetchall()
        except (apsw.Error, UnicodeEncodeError) as error:
            raise store_error(error, self.connection.filename, self.connection.system_errno) from error

    def _shorten_wal(self) -> None:
        """Have a long WAL copied; one that keeps growing is started over, unless a long reader prevents it."""
        if self._wal_pages >= CHECKPOINT_PAGES:
            self.checkpoints.request()
        if self._wal_pages >= RESTART_PAGES and time.monotonic() >= self._next_restart:
            if self._restart_wal():
                self._restart_pause = FIRST_PAUSE
            else:
                self._next_restart = time.monotonic() + self._restart_pause
                self._restart_pause = min(2.0 * self._restart_pause, LONGEST_PAUSE)

    def _restart_wal(self) -> bool:
        self.connection.set_busy_timeout(RESTART_MILLISECONDS)
        try:
            self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        except apsw.Error:
            return False
        finally:
            self.connection.set_busy_timeout(BUSY_MILLISECONDS)
        return True

    def _note_wal_pages(self, _connection: apsw.Connection, _database: str, n_pages: int) -> int:
        self._wal_pages = n_pages
        return apsw.SQLITE_OK


class Checkpoints:
    """A thread that copies a long WAL into the database on a connection of its own; it never makes the writer wait.

    Passive checkpoints skip what a reader still needs. If one could not finish, the next waits a little longer.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self.lag_pages = 0
        """Pages that the last checkpoint had to leave in the WAL."""
        self._connection = connection
        self._requested = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="slatewise-checkpoints", daemon=True)
        self._thread.start()

    def request(self) -> None:
        """Ask for a checkpoint soon."""
        self._requested.set()

    def close(self) -> None:
        """Finish the checkpoint that is running, then stop."""
        self._closing.set()
        self._requested.set()
        self._thread.join()
        self._connection.close()

    def _serve(self) -> None:
        pause = FIRST_PAUSE
        while not self._closing.is_set():
            self._requested.wait()
            self._requested.clear()
            if self._closing.is_set():
                return
            is_complete = self._checkpoint()
            pause = FIRST_PAUSE if is_complete else min(2.0 * pause, LONGEST_PAUSE)
            self._closing.wait(FIRST_PAUSE if is_complete else pause)

    def _checkpoint(self) -> bool:
        try:
            pages, copied = self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error:
            return False
        self.lag_pages = max(pages - copied, 0)
        return self.lag_pages == 0
