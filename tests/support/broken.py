"""Stores that break what they guarantee, each in one way: the checks must catch every one of them."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any
from uuid import uuid4

from slatewise.store import StoreFullError
from slatewise.store.protocol import FeedbackRecord, SlateRecord, Transaction
from slatewise.store.rows import Values
from slatewise.store.sqlite_writer import Job, Outcome, SqliteWriter
from tests.support.recommending import WrappedStore

Run = Callable[[Any], Any]

WRITES = {
    "save_user",
    "save_belief",
    "discard_belief",
    "add_slate",
    "update_slate",
    "add_feedback",
    "add_event",
    "count",
}
SLOW_DISK = 0.02


class HastyWriter(SqliteWriter):
    """Acknowledges each job before the COMMIT of its batch, on a slow disk."""

    def attempt(self, job: Job) -> Outcome:
        outcome = super().attempt(job)
        outcome.deliver()
        return replace(outcome, job=replace(job, future=Future()))

    def execute(self, sql: str, parameters: Values = ()) -> list[Values]:
        if sql == "COMMIT":
            time.sleep(SLOW_DISK)
        return super().execute(sql, parameters)


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


class Careless(WrappedStore):
    """Reads and decides first, and writes in another transaction: somebody else may have written in between."""

    def write(self, job: Run) -> Future[Any]:
        """Run a job in two halves."""
        noted, result = self.inner.read(lambda transaction: _noted(job, transaction))
        done: Future[Any] = Future()
        self.inner.write(noted.replay).add_done_callback(lambda written: _pass_on(written, done, result))
        return done


class Forgetful(WrappedStore):
    """Does not know that it has recorded an event before."""

    def write(self, job: Run) -> Future[Any]:
        """Run a job on a transaction to which every event is new."""
        return self.inner.write(lambda transaction: job(_Amnesia(transaction)))


class _Amnesia:
    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transaction, name)

    def feedback_on(self, slate: SlateRecord, event_id: str | None = None) -> list[FeedbackRecord]:
        """Know nothing of the event."""
        known = self.transaction.feedback_on(slate)
        return [one for one in known if one.event_id.partition("#")[0] != event_id]

    def add_feedback(self, event: FeedbackRecord) -> None:
        """Record under an id that is new."""
        self.transaction.add_feedback(replace(event, event_id=f"{event.event_id}#{uuid4()}"))


class Shrugging(WrappedStore):
    """Acknowledges what it had no space for."""

    def write(self, job: Run) -> Future[Any]:
        """Run a job, and make up its result if there is no space."""
        done: Future[Any] = Future()
        self.inner.write(job).add_done_callback(lambda written: self._shrug(written, job, done))
        return done

    def _shrug(self, written: Future[Any], job: Run, done: Future[Any]) -> None:
        if isinstance(written.exception(), StoreFullError):
            done.set_result(self.inner.read(lambda transaction: _noted(job, transaction))[1])
        else:
            _pass_on(written, done, None if written.exception() else written.result())


def _noted(job: Run, transaction: Transaction) -> tuple[Noted, Any]:
    noted = Noted(transaction)
    return noted, job(noted)


def _pass_on(written: Future[Any], done: Future[Any], result: Any) -> None:
    error = written.exception()
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
