"""One thread that writes: it commits whatever waits together, and answers only when that is on the disk.

An event loop may be the host of the works: Python runs one thread at a time, and works that take turns with a busy loop
at every statement wait most of the time. Then the loop runs a group of them in one go, and this thread commits.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import apsw

from slatewise.store.checkpoints import Checkpoints
from slatewise.store.protocol import Result, StoreError, StoreUnavailableError, Transaction
from slatewise.store.rows import Values
from slatewise.store.sqlite_file import run
from slatewise.store.transaction import SqlTransaction

LARGEST_BATCH = 256
HOSTED_SECONDS = 0.01
"""After so long an event loop gets a turn for other things, between works."""
LONGEST_QUEUE = 10_000
CHECKPOINT_PAGES = 2_000
"""Pages in the WAL after which they are copied into the database."""
TRUNCATE_PAGES = 16_000
"""Pages in the WAL after which readers are waited for, so that it can start again."""


Host = Callable[[Callable[[], None]], object]


@dataclass(frozen=True, slots=True)
class Job:
    """A work that waits to be committed, or a chore that runs between commits, and who waits for it."""

    work: Callable[[Any], Any]
    future: Future[Any]
    is_chore: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job."""

    job: Job
    result: Any = None
    error: BaseException | None = None

    def tell(self) -> None:
        """Wake who waits."""
        if self.error is None:
            self.job.future.set_result(self.result)
        else:
            self.job.future.set_exception(self.error)


class GroupCommit:
    """The only writer on a connection; a work that fails undoes itself and no other."""

    def __init__(self, connection: apsw.Connection, checkpoints: Checkpoints) -> None:
        self.connection = connection
        self._checkpoints = checkpoints
        self._queue: SimpleQueue[Job] = SimpleQueue()
        self._entrance = threading.Lock()
        self._is_closed = False
        self._wal_pages = 0
        self.host: Host | None = None
        connection.set_wal_hook(self._note_pages)
        self._thread = threading.Thread(target=self._serve, name="slatewise-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[Transaction], Result]) -> Future[Result]:
        """Queue a work; the future is set after its commit."""
        return self._enter(Job(work, Future()))

    def between_commits(self, chore: Callable[[apsw.Connection], Result]) -> Future[Result]:
        """Queue what must run outside any transaction."""
        return self._enter(Job(chore, Future(), is_chore=True))

    def backlog(self) -> int:
        """Return how many jobs wait."""
        return self._queue.qsize()

    def close(self) -> None:
        """Finish what was submitted, then stop."""
        with self._entrance:
            self._is_closed = True
            self._queue.put(Job(lambda _: None, Future()))
        self._thread.join()
        self._checkpoints.close()

    def _enter(self, job: Job) -> Future[Any]:
        with self._entrance:
            if self._is_closed:
                job.future.set_exception(StoreUnavailableError("the store is closed"))
            elif self._queue.qsize() >= LONGEST_QUEUE:
                job.future.set_exception(StoreUnavailableError(f"{LONGEST_QUEUE} writes are waiting; try again later"))
            else:
                self._queue.put(job)
        return job.future

    def _serve(self) -> None:
        while not (self._is_closed and self._queue.empty()):
            jobs = [job for job in self._gather() if job.future.set_running_or_notify_cancel()]
            for outcome in self._committed([job for job in jobs if not job.is_chore]):
                outcome.tell()
            for job in jobs:
                if job.is_chore:
                    self._done(job).tell()
            self._shorten_wal()

    def _gather(self) -> list[Job]:
        """Wait for a job and take what else is there, within bounds."""
        batch = [self._queue.get()]
        while len(batch) < LARGEST_BATCH and not self._queue.empty():
            batch.append(self._queue.get())
        return batch

    def _committed(self, jobs: list[Job]) -> list[Outcome]:
        """Run works in one transaction; if it is lost as a whole (no space), each gets its own, so only some fail."""
        if not jobs:
            return []
        try:
            self._run("BEGIN IMMEDIATE")
            outcomes: list[Outcome] = []
            while len(outcomes) < len(jobs):
                self._hosted(lambda: self._attempt_for_a_while(jobs, outcomes))
            self._run("COMMIT")
        except BaseException as error:  # noqa: BLE001
            self._undo()
            one = [Outcome(job, error=error) for job in jobs]
            return one if len(jobs) == 1 else [outcome for job in jobs for outcome in self._committed([job])]
        return outcomes

    def _attempt_for_a_while(self, jobs: list[Job], outcomes: list[Outcome]) -> None:
        """Run the works that were not yet, as long as a host may be kept from everything else."""
        end = time.monotonic() + HOSTED_SECONDS
        while len(outcomes) < len(jobs) and time.monotonic() < end:
            outcomes.append(self._attempt(jobs[len(outcomes)]))

    def _hosted(self, work: Callable[[], None]) -> None:
        """Do something where the host wants it, and wait; a host that is gone is not waited for."""
        host = self.host
        if host is None:
            work()
            return
        done: Future[None] = Future()

        def run() -> None:
            try:
                work()
                done.set_result(None)
            except BaseException as error:  # noqa: BLE001
                done.set_exception(error)

        try:
            host(run)
        except RuntimeError:
            work()
        else:
            done.result()

    def _attempt(self, job: Job) -> Outcome:
        """Run a work within the transaction, or undo it; fail only if the whole transaction is gone."""
        self._run("SAVEPOINT work")
        try:
            transaction = SqlTransaction(self._run)
            outcome = Outcome(job, job.work(transaction))
            transaction.finish()
        except BaseException as error:
            if not self.connection.in_transaction:
                raise
            self._run("ROLLBACK TO work")
            outcome = Outcome(job, error=error)
        self._run("RELEASE work")
        return outcome

    def _undo(self) -> None:
        """Roll back, unless SQLite did so itself, as it does on a full disk; if that fails, the next one does it."""
        if self.connection.in_transaction:
            with suppress(StoreError):
                self._run("ROLLBACK")

    def _done(self, chore: Job) -> Outcome:
        try:
            return Outcome(chore, chore.work(self.connection))
        except BaseException as error:  # noqa: BLE001
            return Outcome(chore, error=error)

    def _run(self, sql: str, parameters: Values = ()) -> list[Values]:
        return run(self.connection, sql, parameters)

    def _note_pages(self, _connection: apsw.Connection, _database: str, n_pages: int) -> int:
        self._wal_pages = n_pages
        return apsw.SQLITE_OK

    def _shorten_wal(self) -> None:
        """Have a long WAL copied into the database beside the writing; one that grew too long is waited for."""
        if self._wal_pages >= TRUNCATE_PAGES:
            self._wal_pages = 0
            with suppress(apsw.Error):
                self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        elif self._wal_pages >= CHECKPOINT_PAGES:
            self._checkpoints.ask()
