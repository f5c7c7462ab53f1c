"""The one thread that writes to a SQLite store: whatever is queued is committed together, then acknowledged."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

import apsw

from slatewise.store.migrations import MIGRATIONS
from slatewise.store.protocol import Result, StoreError, StoreUnavailableError, StoreUncertainError, Transaction
from slatewise.store.rows import Values
from slatewise.store.sql import SqlTransaction
from slatewise.store.sqlite_checkpoints import Checkpoints
from slatewise.store.sqlite_connection import store_error
from slatewise.store.sqlite_files import OwnedFiles

MAX_BATCH = 256
MAX_QUEUE = 10_000
CHECKPOINT_PAGES = 2_000
"""Pages in the WAL from which on they are copied into the database."""


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

    def __init__(self, connection: apsw.Connection, checkpoints: Checkpoints, files: OwnedFiles) -> None:
        self.connection = connection
        self.checkpoints = checkpoints
        self._files = files
        self._is_in_place = True
        opened = files.written[0][1]
        self._database_state = (opened.st_mtime_ns, opened.st_size)
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._submit_lock = threading.Lock()
        self._is_closed = False
        self._wal_pages = 0
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
            if self._wal_pages >= CHECKPOINT_PAGES:
                self.checkpoints.shorten_wal(self.connection, self._wal_pages)

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
            self._begin()
        except StoreError as error:
            self._roll_back()
            return [Outcome(job, error=error) for job in jobs]
        try:
            outcomes = [self.attempt(job) for job in jobs]
            self._finish()
        except StoreUncertainError as error:
            return [Outcome(job, error=error) for job in jobs]
        except BaseException as error:  # noqa: BLE001
            self._roll_back()
            return [Outcome(jobs[0], error=error)] if len(jobs) == 1 else [self._commit([job])[0] for job in jobs]
        return outcomes

    def _begin(self) -> None:
        if self._files.failure is not None:
            raise self._files.failure
        if not self._is_in_place:
            self._files.check()
        self.execute("BEGIN IMMEDIATE")

    def _finish(self) -> None:
        """Commit; fail if the files are no longer in place, so that nothing is acknowledged that would be lost."""
        try:
            self.execute("COMMIT")
        except StoreError as error:
            self._roll_back()
            if isinstance(error.__cause__, apsw.IOError):
                self.erase_failed_commit(error)
            raise
        self._is_in_place = self.are_files_in_place()
        if not self._is_in_place:
            raise StoreUncertainError(
                f"{self._files.path} was removed or replaced during COMMIT; the write may be lost"
            )

    def are_files_in_place(self) -> bool:
        """Return whether the database and its WAL are still the files that were opened, with our content.

        Only checkpoints write to the database; a file that changed is looked into, as it may have been overwritten.
        """
        try:
            stats = [file.stat() for file, _ in self._files.written]
        except OSError:
            return False
        if not all(map(os.path.samestat, stats, [opened for _, opened in self._files.written])):
            return False
        state = (stats[0].st_mtime_ns, stats[0].st_size)
        if state != self._database_state and not self.checkpoints.is_database_ours():
            return False
        self._database_state = state
        return True

    def erase_failed_commit(self, failure: StoreError) -> None:
        """Overwrite what a failed COMMIT left in the WAL, where the next start would find it and take it for valid.

        SQLite writes the next transaction to the same place, so an empty one is enough: one that sets the version of
        the tables to what it is.
        """
        try:
            self.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        except StoreError as error:
            raise StoreUncertainError(f"{failure}; it happened during COMMIT, so the write may be recorded") from error

    def attempt(self, job: Job) -> Outcome:
        """Run a job within the transaction; one that fails before it has written anything harms no other."""
        transaction = SqlTransaction(self.execute)
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
                self.execute("ROLLBACK")

    def _maintain(self, job: Job) -> Outcome:
        try:
            return Outcome(job, job.run(self.connection))
        except BaseException as error:  # noqa: BLE001
            return Outcome(job, error=error)

    def execute(self, sql: str, parameters: Values = ()) -> list[Values]:
        """Run a statement on the writing connection."""
        try:
            return self.connection.execute(sql, parameters).fetchall()
        except (apsw.Error, UnicodeEncodeError) as error:
            raise store_error(error, self.connection.filename, self.connection.system_errno) from error

    def _note_wal_pages(self, _connection: apsw.Connection, _database: str, n_pages: int) -> int:
        self._wal_pages = n_pages
        return apsw.SQLITE_OK
