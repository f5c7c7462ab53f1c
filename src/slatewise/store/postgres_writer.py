"""The threads that write to a PostgreSQL store: whatever is queued is committed together, then acknowledged.

They never wait for a user whom somebody else is writing about: jobs about such a user are handed to other threads.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from slatewise.store.postgres_batch import Lock, Outcome, commit_jobs, lock_if_free, lock_patiently
from slatewise.store.postgres_errors import ConnectionLostError, RetryError, ServerAwayError, UserLockedError
from slatewise.store.postgres_pool import ConnectionPool
from slatewise.store.postgres_transaction import PostgresTransaction
from slatewise.store.protocol import Result, StoreUnavailableError, StoreUncertainError

N_WRITERS = 2
"""While one waits for the server, the other has the interpreter."""
MAX_BATCH = 64
MAX_QUEUE = 10_000
MAX_ATTEMPTS = 4
MAX_LOCKED_USERS = 4
"""Users to wait for at the same time, each in a thread."""
MAX_WAIT = 5.0
"""Seconds after which a job is not begun any more, because of those that wait for a user before it."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job waiting to be committed, since when, and the future of its result."""

    run: Callable[[Any], Any]
    future: Future[Any] = field(default_factory=Future)
    since: float = field(default_factory=time.monotonic)


class PostgresWriter:
    """Runs jobs in batches, one transaction per batch; a job that fails undoes only itself."""

    def __init__(self, pool: ConnectionPool) -> None:
        self.wrote_at = float("-inf")
        """When something was last committed, on the monotonic clock."""
        self._pool = pool
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._is_closed = False
        self._waiting: dict[str, list[Job]] = {}
        self._waiters = ThreadPoolExecutor(MAX_LOCKED_USERS, "slatewise-waiting-writer")
        self._threads = [
            threading.Thread(target=self._serve, name="slatewise-writer", daemon=True) for _ in range(N_WRITERS)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, run: Callable[[PostgresTransaction], Result]) -> Future[Result]:
        """Queue a job; its future is set after the commit."""
        job = Job(run)
        with self._lock:
            if self._is_closed:
                job.future.set_exception(StoreUnavailableError("the store is closed"))
            elif self.backlog() >= MAX_QUEUE:
                job.future.set_exception(StoreUnavailableError(f"{MAX_QUEUE} writes are queued; try again later"))
            else:
                self._queue.put(job)
        return job.future

    def backlog(self) -> int:
        """Return the number of queued jobs."""
        return self._queue.qsize() + sum(map(len, list(self._waiting.values())))

    def close(self) -> None:
        """Finish the queued jobs, then stop."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                for _ in self._threads:
                    self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._waiters.shutdown(wait=True)

    def _serve(self) -> None:
        is_open = True
        while is_open:
            batch, is_open = self._next_batch()
            jobs = [job for job in batch if job.future.set_running_or_notify_cancel()]
            for job, outcome in zip(jobs, self.commit(jobs, lock_if_free), strict=True):
                if isinstance(outcome.error, UserLockedError) and outcome.error.user is not None:
                    self._wait_for(outcome.error.user, job)
                else:
                    outcome.deliver(job.future)

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

    def commit(self, jobs: list[Job], lock: Lock) -> list[Outcome]:
        """Commit jobs together; if that fails because of one of them, each gets a transaction of its own."""
        failure: BaseException
        for _ in range(MAX_ATTEMPTS):
            try:
                return self.commit_once(jobs, lock)
            except (ServerAwayError, StoreUncertainError) as error:
                return [Outcome(error=error) for _ in jobs]
            except BaseException as error:  # noqa: BLE001
                failure = error
            if isinstance(failure, UserLockedError) and lock is lock_patiently:
                break
            if len(jobs) > 1 and not isinstance(failure, ConnectionLostError):
                return [outcome for job in jobs for outcome in self.commit([job], lock)]
            if not isinstance(failure, RetryError):
                break
        return [Outcome(error=failure) for _ in jobs]

    def commit_once(self, jobs: list[Job], lock: Lock) -> list[Outcome]:
        """Run jobs in one transaction; fail if it does."""
        with self._pool.session() as session:
            outcomes = commit_jobs(session, self._pool.address.where, [job.run for job in jobs], lock)
        if any(outcome.has_written for outcome in outcomes):
            self.wrote_at = time.monotonic()
        return outcomes

    def _wait_for(self, user: str, job: Job) -> None:
        """Run a job once nobody else writes about its user; one thread serves all jobs of a user."""
        with self._lock:
            if user not in self._waiting:
                self._waiting[user] = []
                self._waiters.submit(self._serve_user, user)
            self._waiting[user].append(job)

    def _serve_user(self, user: str) -> None:
        while jobs := self._jobs_of(user):
            is_late = time.monotonic() > jobs[0].since + MAX_WAIT
            late = Outcome(error=StoreUnavailableError("too many users are held by other writers; try again later"))
            outcomes = [late] * len(jobs) if is_late else self.commit(jobs, lock_patiently)
            for job, outcome in zip(jobs, outcomes, strict=True):
                outcome.deliver(job.future)

    def _jobs_of(self, user: str) -> list[Job]:
        with self._lock:
            jobs = self._waiting.pop(user)
            if jobs:
                self._waiting[user] = []
            return jobs
