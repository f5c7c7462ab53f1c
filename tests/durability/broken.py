"""Stores that break their promise, each in one way: the checks must catch every one of them."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any
from uuid import uuid4

from slatewise.store import Store, StoreFullError
from slatewise.store.protocol import FeedbackRecord, Ready, Transaction
from slatewise.store.rows import Values
from slatewise.store.sqlite_writer import GroupCommit, Job, Outcome

Work = Callable[[Any], Any]

WRITES = {"save_user", "save_belief", "add_slate", "update_slate", "add_feedback", "count"}
SLOW_DISK = 0.02


class HastyCommit(GroupCommit):
    """Acknowledges each work before the COMMIT of its batch, on a disk that takes its time."""

    def _attempt(self, job: Job) -> Outcome:
        outcome = super()._attempt(job)
        outcome.tell()
        return replace(outcome, job=replace(job, future=Future()))

    def _run(self, sql: str, parameters: Values = ()) -> list[Values]:
        if sql == "COMMIT":
            time.sleep(SLOW_DISK)
        return super()._run(sql, parameters)


class Noted:
    """A transaction that reads, and only notes what should be written."""

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        if name not in WRITES:
            return getattr(self.transaction, name)
        return lambda *given: self.calls.append((name, given))

    def replay(self, transaction: Transaction) -> None:
        """Write what was noted."""
        for name, given in self.calls:
            getattr(transaction, name)(*given)


class Wrapped:
    """A store around another."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Careless(Wrapped):
    """Reads and decides first, and writes in a transaction of its own: somebody else may have written in between."""

    def submit(self, work: Work, ready: Ready | None = None) -> Future[Any]:
        """Run work in two halves."""
        noted, result = self.inner.read(lambda transaction: _noted(work, transaction))
        done: Future[Any] = Future()
        written = self.inner.write(noted.replay, ready)
        written.add_done_callback(lambda one: _pass_on(one, done, result))
        return done


class Forgetful(Wrapped):
    """Does not know that it has heard an event before."""

    def submit(self, work: Work, ready: Ready | None = None) -> Future[Any]:
        """Run work on a transaction that finds every event new."""
        return self.inner.write(lambda transaction: work(_Amnesia(transaction)), ready)


class _Amnesia:
    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transaction, name)

    def answer(self, event_id: str) -> None:
        """Find nothing."""

    def add_feedback(self, row: FeedbackRecord) -> None:
        """Record under a name that is new."""
        self.transaction.add_feedback(replace(row, event_id=f"{row.event_id}#{uuid4()}"))


class Shrugging(Wrapped):
    """Acknowledges what it had no room for."""

    def submit(self, work: Work, ready: Ready | None = None) -> Future[Any]:
        """Run work, and make up its result if there is no room."""
        done: Future[Any] = Future()
        self.inner.write(work, ready).add_done_callback(lambda one: self._shrug(one, work, done))
        return done

    def _shrug(self, attempt: Future[Any], work: Work, done: Future[Any]) -> None:
        if isinstance(attempt.exception(), StoreFullError):
            done.set_result(self.inner.read(lambda transaction: _noted(work, transaction))[1])
        else:
            _pass_on(attempt, done, None if attempt.exception() else attempt.result())


def _noted(work: Work, transaction: Transaction) -> tuple[Noted, Any]:
    noted = Noted(transaction)
    return noted, work(noted)


def _pass_on(attempt: Future[Any], done: Future[Any], result: Any) -> None:
    error = attempt.exception()
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
