"""One thread that writes: it commits whatever waits together, and answers only when that is on the disk.

An event loop may be the host of the works: Python runs one thread at a time, and works that take turns with a busy loop
at every statement wait most of the time. Then the loop runs a group of them in one go, and this thread commits.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Any

import apsw

from slatewise.store.checkpoints import Checkpoints
from slatewise.store.protocol import Ready, Result, StoreError, StoreUnavailableError, Transaction
from slatewise.store.rows import Values
from slatewise.store.sqlite_file import run
from slatewise.store.transaction import SqlTransaction

LARGEST_BATCH = 256
HOSTED_SECONDS = 0.01
"""After so long an event loop gets a turn for other things, between works."""
READY_SECONDS = 0.01
"""So long is waited for a job that is not ready when there are no others; then others are looked for again."""
LONGEST_QUEUE = 10_000
CHECKPOINT_PAGES = 2_000
"""Pages in the WAL after which they are copied into the database."""
TRUNCATE_PAGES = 16_000
"""Pages in the WAL after which readers are waited for, so that it can start again."""


Step = Callable[[], object]
Host = Callable[[Step], object]


@dataclass(frozen=True, slots=True)
class Job:
    """A work that waits to be committed, or a chore that runs between commits, and who waits for it."""

    work: Callable[[Any], Any]
    future: Future[Any]
    ready: Ready | None = None
    is_chore: bool = False

    def is_ready(self, seconds: float = 0.0) -> bool:
        """Say whether its turn may come, now or within some time; one that fails to say need not wait."""
        try:
            return self.ready is None or self.ready(seconds)
        except Exception:  # noqa: BLE001
            return True


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


@dataclass(slots=True)
class Group:
    """Jobs that are committed together: works, what became of those that ran, and chores for afterwards."""

    works: list[Job] = field(default_factory=list)
    chores: list[Job] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    error: BaseException | None = None

    @property
    def is_through(self) -> bool:
        """Whether all works ran, or the transaction is lost."""
        return self.error is not None or len(self.outcomes) == len(self.works)


class GroupCommit:
    """The only writer on a connection; a work that fails undoes itself and no other.

    One group is under way at a time: its works run with the host, if there is one, else in the writing thread, which
    commits; then all are told, with the host again, and the next group begins.
    """

    def __init__(self, connection: apsw.Connection, checkpoints: Checkpoints) -> None:
        self.connection = connection
        self._checkpoints = checkpoints
        self._entrance = threading.Lock()
        self._queue: deque[Job] = deque()
        self._put_off: list[Job] = []
        self._steps: SimpleQueue[Step | None] = SimpleQueue()
        self._is_idle, self._is_closed = True, False
        self._wal_pages = 0
        self.host: Host | None = None
        connection.set_wal_hook(self._note_pages)
        self._thread = threading.Thread(target=self._serve, name="slatewise-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[Transaction], Result], ready: Ready | None = None) -> Future[Result]:
        """Queue a work; the future is set after its commit."""
        return self._enter(Job(work, Future(), ready))

    def between_commits(self, chore: Callable[[apsw.Connection], Result]) -> Future[Result]:
        """Queue what must run outside any transaction."""
        return self._enter(Job(chore, Future(), is_chore=True))

    def backlog(self) -> int:
        """Return how many jobs wait."""
        return len(self._queue) + len(self._put_off)

    def close(self) -> None:
        """Finish what was submitted, then stop."""
        with self._entrance:
            self._is_closed = True
            if self._is_idle:
                self._steps.put(None)
        self._thread.join()
        self._checkpoints.close()

    def _enter(self, job: Job) -> Future[Any]:
        with self._entrance:
            if self._is_closed:
                job.future.set_exception(StoreUnavailableError("the store is closed"))
            elif self.backlog() >= LONGEST_QUEUE:
                job.future.set_exception(StoreUnavailableError(f"{LONGEST_QUEUE} writes are waiting; try again later"))
            else:
                self._queue.append(job)
                if self._is_idle:
                    self._is_idle = False
                    self._with_host(self._begin)
        return job.future

    def _serve(self) -> None:
        """Take steps, until there are no more."""
        while (step := self._steps.get()) is not None:
            step()

    def _with_host(self, step: Step) -> None:
        """Take a step where the host wants it; without a host, or when it is gone, in the writing thread."""
        try:
            (self.host or self._steps.put)(step)
        except RuntimeError:
            self._steps.put(step)

    def _begin(self) -> None:
        """Start a group, unless nothing waits or nothing that waits is ready."""
        jobs = self._gather()
        if not jobs:
            return
        group, self._put_off = Group(), []
        for job in jobs:
            (self._put_off if not job.is_ready() else group.chores if job.is_chore else group.works).append(job)
        if len(self._put_off) == len(jobs):
            self._steps.put(partial(self._wait_for, jobs[0]))
            return
        if group.works:
            self._do(group, lambda: self._run("BEGIN IMMEDIATE"))
        self._go_on(group)

    def _gather(self) -> list[Job]:
        """Take what waits, within bounds; if that is nothing, rest."""
        batch = self._put_off
        with self._entrance:
            while self._queue and len(batch) < LARGEST_BATCH:
                job = self._queue.popleft()
                if job.future.set_running_or_notify_cancel():
                    batch.append(job)
            if not batch:
                self._is_idle = True
                if self._is_closed:
                    self._steps.put(None)
        return batch

    def _wait_for(self, job: Job) -> None:
        """Wait for a job a little, and see what is ready then."""
        job.is_ready(READY_SECONDS)
        self._with_host(self._begin)

    def _go_on(self, group: Group) -> None:
        """Run works as long as a host may be kept from everything else; after the last, have them committed."""
        end = time.monotonic() + HOSTED_SECONDS
        while not group.is_through and time.monotonic() < end:
            self._do(group, lambda: group.outcomes.append(self._attempt(group.works[len(group.outcomes)])))
        if group.is_through:
            self._steps.put(partial(self._end, group))
        else:
            self._with_host(partial(self._go_on, group))

    @staticmethod
    def _do(group: Group, step: Step) -> None:
        """Take a step in the group's transaction; if that is lost, note why."""
        try:
            step()
        except BaseException as error:  # noqa: BLE001
            group.error = error

    def _end(self, group: Group) -> None:
        """Commit, do the chores, tell, and begin anew."""
        outcomes = self._committed(group) if group.works else []
        outcomes += [self._done(job) for job in group.chores]
        self._shorten_wal()
        self._with_host(partial(self._tell, outcomes))

    def _tell(self, outcomes: list[Outcome]) -> None:
        """Wake all who wait; they get a turn each, and a loop sends what they say, before the next group begins."""
        for outcome in outcomes:
            outcome.tell()
        self._with_host(partial(self._with_host, self._begin))

    def _committed(self, group: Group) -> list[Outcome]:
        """Commit works; if their transaction is lost as a whole (no space), each gets its own, so only some fail."""
        if group.error is None:
            self._do(group, lambda: self._run("COMMIT"))
        if group.error is None:
            return group.outcomes
        self._undo()
        if len(group.works) == 1:
            return [Outcome(group.works[0], error=group.error)]
        return [self._alone(job) for job in group.works]

    def _alone(self, job: Job) -> Outcome:
        """Run and commit one work."""
        try:
            self._run("BEGIN IMMEDIATE")
            outcome = self._attempt(job)
            self._run("COMMIT")
        except BaseException as error:  # noqa: BLE001
            self._undo()
            return Outcome(job, error=error)
        return outcome

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
