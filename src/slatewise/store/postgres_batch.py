"""One transaction on PostgreSQL: several jobs, their statements pipelined, committed together."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from typing import Any

import greenlet
import psycopg

from slatewise.store import statements
from slatewise.store.postgres_connection import translated
from slatewise.store.postgres_errors import RetryError, UserLockedError, explained, is_outcome_unknown
from slatewise.store.postgres_session import Session, Statement
from slatewise.store.postgres_transaction import PostgresTransaction
from slatewise.store.protocol import StoreError, StoreUncertainError
from slatewise.store.records import UserRecord
from slatewise.store.rows import Execute, Values, user_values
from slatewise.store.sql import SqlTransaction

Run = Callable[[Any], Any]
Reads = dict[tuple[str, Values], Statement]
Lock = Callable[[Execute, str], list[Values]]
"""Returns the row of a user, inserted if there is none, and locks it until the transaction ends."""

BEGIN_WRITING = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
LOCK_UNLESS_LOCKED = statements.LOCK_USER + " SKIP LOCKED"
CLAIM_UNLESS_LOCKED = statements.CLAIM_USER.replace("DO UPDATE SET user_id = excluded.user_id", "DO NOTHING")
CLAIMING = {statements.CLAIM_USER, CLAIM_UNLESS_LOCKED}
LOCKING = {statements.LOCK_USER, LOCK_UNLESS_LOCKED, *CLAIMING}
OF_OWNER = "user_id = (SELECT user_id FROM slates WHERE slate_id = ?)"
LOCK_OWNER = LOCK_UNLESS_LOCKED.replace("user_id = ?", OF_OWNER)
FIND_SLATE_OF = statements.FIND_SLATE + " AND user_id = ?"
"""Of many partitions it opens one."""
FEEDBACK_OF_OWNER = statements.FEEDBACK_ON_OR_WITH_ID.replace("user_id = ?", OF_OWNER)
PATIENCE = "SET LOCAL lock_timeout = '3s'"
"""For those who wait for a user; others wait only for another process that is just inserting the same one."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a job, or its error, and whether it changed anything."""

    result: Any = None
    error: BaseException | None = None
    has_written: bool = False

    def deliver(self, future: Future[Any]) -> None:
        """Set the future of the job."""
        if self.error is None:
            future.set_result(self.result)
        else:
            future.set_exception(self.error)


def lock_patiently(execute: Execute, user: str) -> list[Values]:
    """Lock a user; wait for whoever is writing about them."""
    rows = execute(statements.LOCK_USER, (user,))
    return rows or execute(statements.CLAIM_USER, _new_user(user))


def lock_if_free(execute: Execute, user: str) -> list[Values]:
    """Lock a user; fail at once if somebody else is writing about them."""
    try:
        rows = execute(LOCK_UNLESS_LOCKED, (user,)) or execute(CLAIM_UNLESS_LOCKED, _new_user(user))
    except UserLockedError as error:
        error.user = user
        raise
    if not rows:
        raise UserLockedError("another writer holds this user", user)
    return rows


def commit_jobs(session: Session, where: str, jobs: Sequence[Run], lock: Lock) -> list[Outcome]:
    """Run jobs in one transaction; fail as a whole if a job fails after it has written, or a statement fails."""
    is_committing = False
    try:
        session.begin(BEGIN_WRITING)
        if lock is not lock_if_free:
            session.send(PATIENCE)
        outcomes = _Batch(session, where, lock).run(jobs)
        is_committing = True
        done = session.send("COMMIT")
        session.sync()
    except BaseException as error:
        session.roll_back()
        if not isinstance(error, psycopg.Error):
            raise
        if is_committing and is_outcome_unknown(error):
            raise StoreUncertainError(f"{where} was lost while committing; send the same event again") from error
        raise explained(error, where) from error
    if done.command != b"COMMIT":
        raise StoreError(f"{where} rolled the transaction back")
    return outcomes


class _Batch:
    """Jobs side by side in one transaction: while one waits for rows, the others go on, so that all wait together.

    A round trip then serves every job of the batch. Jobs about the same user run one after the other.
    """

    def __init__(self, session: Session, where: str, lock: Lock) -> None:
        self.hub = greenlet.getcurrent()
        self.session = session
        self.where = where
        self.lock = lock
        self.owners: dict[str, greenlet.greenlet] = {}

    def run(self, jobs: Sequence[Run]) -> list[Outcome]:
        """Run all jobs to the end and return their outcomes."""
        tasks = [Task(self, job) for job in jobs]
        running = [greenlet.greenlet(task.run) for task in tasks]
        try:
            while running:
                for runner in running:
                    runner.switch()
                running = [runner for runner in running if not runner.dead]
        finally:
            for runner in running:
                runner.throw()
        return [task.outcome for task in tasks]


class Task:
    """One job of a batch. What it has read before it locks its user is read again with the lock, in one round trip.

    The same goes for what it will ask about a user who was not known before. What is expected of a slate is sent at
    once: its user is locked, unless somebody else holds the lock, then the slate and the feedback on it are read.
    """

    def __init__(self, batch: _Batch, job: Run) -> None:
        self.outcome = Outcome()
        self._batch = batch
        self._job = job
        self._locked: list[str] = []
        self._reads: list[tuple[str, Values]] = []
        self._ahead: Reads = {}
        self._early: tuple[Statement, Reads] | None = None
        """The row of the user of a slate, locked, and what was read about the slate after that."""

    def run(self) -> None:
        """Run the job and keep its outcome; a row that was inserted only to be locked goes if the job failed."""
        self.outcome = _attempt(PostgresTransaction(self._execute, self, self._lock), self._job)
        for user in self._locked if self.outcome.error is not None else ():
            self._batch.session.send(statements.RELEASE_USER, (user,))

    def expect_profile(self, user: str) -> None:
        """Do nothing: while a user is locked, nothing is read that may not be needed."""

    def expect_feedback(self, slate_id: str, user: str | None, event_id: str | None) -> None:
        """Lock the user of a slate and read what there is about it; the order matters.

        A job that waits for users does not lock one before it has read who it is about.
        """
        if self._batch.lock is not lock_if_free:
            return
        with translated(self._batch.where):
            self._early = self._sent(slate_id, user, event_id)

    def _sent(self, slate_id: str, user: str | None, event_id: str | None) -> tuple[Statement, Reads]:
        send, feedback, of_owner = self._batch.session.send, statements.FEEDBACK_ON_OR_WITH_ID, user is None
        owner = slate_id if user is None else user
        locked = send(LOCK_OWNER if of_owner else LOCK_UNLESS_LOCKED, (owner,))
        slate = send(statements.FIND_SLATE, (slate_id,)) if of_owner else send(FIND_SLATE_OF, (slate_id, owner))
        reads: Reads = {(statements.FIND_SLATE, (slate_id,)): slate}
        if event_id is not None:
            asked = (owner, slate_id, owner, event_id, slate_id)
            reads[feedback, asked] = send(FEEDBACK_OF_OWNER if of_owner else feedback, asked)
        return locked, reads

    def _execute(self, sql: str, parameters: Values) -> list[Values]:
        try:
            return self._rows(sql, parameters)
        except (psycopg.Error, UnicodeEncodeError):
            with translated(self._batch.where):
                raise

    def _rows(self, sql: str, parameters: Values) -> list[Values]:
        session = self._batch.session
        known = (self._ahead if self._early is None else self._early[1]).get((sql, parameters))
        statement = known or session.send(sql, parameters)
        if sql in LOCKING:
            counts = [(statements.N_LOGGED, 3 * parameters[:1])] if sql in CLAIMING else []
            self._ahead = {read: session.send(*read) for read in (*self._reads, *counts)}
        elif sql.startswith("SELECT"):
            self._reads.append((sql, parameters))
        else:
            self._ahead.clear()
        if not returns_rows(sql):
            return []
        rows = self._received(statement)
        if known is not None and not rows and sql == statements.FIND_SLATE:  # it may have another user than expected
            return self._received(session.send(sql, parameters))
        return rows

    def _received(self, statement: Statement) -> list[Values]:
        """Return the rows of a statement; other jobs go on until they are here."""
        if statement.result is None:
            self._batch.hub.switch()
        return self._batch.session.rows(statement)

    def _lock(self, execute: Execute, user: str) -> list[Values]:
        is_first = self.wait_for_turn(user)
        early, self._early = self._early, None
        row = self._locked_early(user, *early) if early is not None and is_first else []
        row = row or self._batch.lock(execute, user)
        self._locked.append(user)
        return row

    def _locked_early(self, user: str, locked: Statement, reads: Reads) -> list[Values]:
        """Return the row of a user if it was locked before what is known about a slate was read."""
        with translated(self._batch.where):
            rows = self._received(locked)
        if [row[0] for row in rows] != [user]:
            return []
        self._ahead = {(sql, _of_user(sql, values, user)): read for (sql, values), read in reads.items()}
        return rows

    def wait_for_turn(self, user: str) -> bool:
        """Let the jobs of this batch that locked the same user before come to their end; return whether there was none.

        What was read before they ended may be out of date. A job that finds its slate with another user, because they
        were merged, may lock users in any order; then each job gets a transaction of its own.
        """
        current, owners = greenlet.getcurrent(), self._batch.owners
        is_first = user not in owners
        while not (owner := owners.setdefault(user, current)).dead and owner is not current:
            if any(locked > user for locked in self._locked):
                raise RetryError("two jobs of one transaction wait for each other")
            self._batch.hub.switch()
        owners[user] = current
        return is_first


def _attempt(transaction: SqlTransaction, job: Run) -> Outcome:
    """Run a job; one that fails before it has written anything, and not by the database, harms no other.

    If it has to be run again, the others are as well.
    """
    try:
        result = job(transaction)
        transaction.finish()
    except greenlet.GreenletExit:
        raise
    except BaseException as error:
        if transaction.has_written or isinstance(error, RetryError) or isinstance(error.__cause__, psycopg.Error):
            raise
        return Outcome(error=error)
    return Outcome(result, has_written=transaction.has_written)


@cache
def returns_rows(sql: str) -> bool:
    """Return whether a statement has a result to wait for."""
    return sql.startswith("SELECT") or "RETURNING" in sql


def _of_user(sql: str, values: Values, user: str) -> Values:
    """Return the values of a read that was sent before the user of a slate was known."""
    return (user, values[1], user, *values[3:]) if sql == statements.FEEDBACK_ON_OR_WITH_ID else values


def _new_user(user: str) -> Values:
    return user_values(UserRecord(user), (0, 0, 0))
