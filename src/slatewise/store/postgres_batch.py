"""One transaction on PostgreSQL: several jobs, their statements pipelined, committed together."""

import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from typing import Any

import greenlet
import psycopg

from slatewise.store import statements
from slatewise.store.postgres_connection import translated
from slatewise.store.postgres_errors import UserLockedError, explained, is_outcome_unknown
from slatewise.store.postgres_session import Session, Statement
from slatewise.store.protocol import StoreError, StoreUncertainError
from slatewise.store.records import UserRecord
from slatewise.store.rows import Execute, Values, user_values
from slatewise.store.sql import SqlTransaction

Run = Callable[[Any], Any]
Lock = Callable[[Execute, str], list[Values]]
"""Returns the row of a user, inserted if there is none, and locks it until the transaction ends."""

BEGIN_WRITING = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
LOCK_UNLESS_LOCKED = statements.LOCK_USER + " SKIP LOCKED"
CLAIM_UNLESS_LOCKED = statements.CLAIM_USER.replace("DO UPDATE SET user_id = excluded.user_id", "DO NOTHING")
CLAIMING = {statements.CLAIM_USER, CLAIM_UNLESS_LOCKED}
LOCKING = {statements.LOCK_USER, LOCK_UNLESS_LOCKED, *CLAIMING}
OWNER = "(SELECT user_id FROM slates WHERE slate_id = ?)"
LOCK_OWNER = LOCK_UNLESS_LOCKED.replace("user_id = ?", f"user_id = {OWNER}")
NOBODY = secrets.token_hex(200)
"""The id of a user who cannot exist, because it is too long; another one in every process."""
SIZE = (
    "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class"
    " WHERE relnamespace = 'slatewise'::regnamespace AND relkind = 'r'"
)
PATIENCE = "SET LOCAL lock_timeout = '3s'"
"""For those who wait for a user; others wait only for another process that is just inserting the same one."""


class PostgresTransaction(SqlTransaction):
    """A transaction that can also say how large the tables are."""

    def size(self) -> int:
        """Return the bytes that all tables take, with their indexes."""
        return int(self._run(SIZE, ())[0][0])


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
        tasks = [_Task(self, job) for job in jobs]
        running = [greenlet.greenlet(task.run) for task in tasks]
        try:
            while running:
                for one in running:
                    one.switch()
                running = [one for one in running if not one.dead]
        finally:
            for one in running:
                one.throw()
        return [task.outcome for task in tasks]


class _Task:
    """One job of a batch. What it has read before it locks its user is read again with the lock, in one round trip.

    The same goes for what it will ask about a user who was not known before. A job that begins by looking for a slate,
    as feedback does, will lock its user and look again; that is sent along, too.
    """

    def __init__(self, batch: _Batch, job: Run) -> None:
        self.outcome = Outcome()
        self._batch = batch
        self._job = job
        self._locked: list[str] = []
        self._reads: list[tuple[str, Values]] = []
        self._ahead: dict[tuple[str, Values], Statement] = {}
        self._early: tuple[Values, Statement, Statement] | None = None
        """The id of a slate, the row of its user, locked, and the slate as it is since then."""

    def run(self) -> None:
        """Run the job and keep its outcome; a row that was inserted only to be locked goes if the job failed."""
        self.outcome = _attempt(PostgresTransaction(self._execute, self._lock), self._job)
        for user in self._locked if self.outcome.error is not None else ():
            self._batch.session.send(statements.RELEASE_USER, (user,))

    def _execute(self, sql: str, parameters: Values) -> list[Values]:
        try:
            return self._rows(sql, parameters)
        except (psycopg.Error, UnicodeEncodeError):
            with translated(self._batch.where):
                raise

    def _rows(self, sql: str, parameters: Values) -> list[Values]:
        session = self._batch.session
        statement = self._ahead.pop((sql, parameters), None) or session.send(sql, parameters)
        if sql == statements.FIND_SLATE and not self._reads and not self._locked:
            self._early = (parameters, session.send(LOCK_OWNER, parameters), session.send(sql, parameters))
        if sql in LOCKING:
            counts = [(statements.N_LOGGED, 3 * parameters[:1])] if sql in CLAIMING else []
            self._ahead = {read: session.send(*read) for read in (*self._reads, *counts)}
        elif sql.startswith("SELECT"):
            self._reads.append((sql, parameters))
        else:
            self._ahead.clear()
        if not returns_rows(sql):
            return []
        if statement.result is None:
            self._batch.hub.switch()
        return session.rows(statement)

    def _lock(self, execute: Execute, user: str) -> list[Values]:
        is_first = self._wait_for_turn(user)
        row = (self._locked_early(user) if is_first else []) or self._batch.lock(execute, user)
        self._locked.append(user)
        return row

    def _locked_early(self, user: str) -> list[Values]:
        """Return the row of a user if it was locked along with the first look for a slate."""
        early, self._early = self._early, None
        if early is None:
            return []
        slate, locked, again = early
        with translated(self._batch.where):
            rows = self._batch.session.rows(locked)
        if [row[0] for row in rows] != [user]:
            return []
        self._ahead = {(statements.FIND_SLATE, slate): again}
        return rows

    def _wait_for_turn(self, user: str) -> bool:
        """Let the jobs of this batch that locked the same user before come to their end; return whether there was none.

        What was read before they ended may be out of date.
        """
        current, owners = greenlet.getcurrent(), self._batch.owners
        is_first = user not in owners
        while not (owner := owners.setdefault(user, current)).dead and owner is not current:
            if any(locked > user for locked in self._locked):
                raise StoreError("a job must lock its users in the order of their ids")
            self._batch.hub.switch()
        owners[user] = current
        return is_first


def _attempt(transaction: SqlTransaction, job: Run) -> Outcome:
    """Run a job; one that fails before it has written anything, and not by the database, harms no other."""
    try:
        result = job(transaction)
        transaction.finish()
    except greenlet.GreenletExit:
        raise
    except BaseException as error:
        if transaction.has_written or isinstance(error.__cause__, psycopg.Error):
            raise
        return Outcome(error=error)
    return Outcome(result, has_written=transaction.has_written)


@cache
def returns_rows(sql: str) -> bool:
    """Return whether a statement has a result to wait for."""
    return sql.startswith("SELECT") or "RETURNING" in sql


def measure_by_writing(transaction: PostgresTransaction) -> int:
    """Write the row of a user who cannot exist, delete it again, and return the size of the tables."""
    transaction.lock(NOBODY)
    return transaction.size()


def _new_user(user: str) -> Values:
    return user_values(UserRecord(user), (0, 0, 0))
