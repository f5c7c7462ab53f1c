"""A transaction on PostgreSQL as jobs see it."""

import secrets
from typing import Protocol

from slatewise.store.rows import Execute, SelectUser
from slatewise.store.sql import SqlTransaction

NOBODY = secrets.token_hex(200)
"""The id of a user who cannot exist, because it is too long; another one in every process."""
SIZE = (
    "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class"
    " WHERE relnamespace = 'slatewise'::regnamespace AND relkind = 'r'"
)


class Ahead(Protocol):
    """Sends what a job will ask for before it does."""

    def expect_profile(self, user: str) -> None:
        """See `Transaction.expect_profile`."""

    def expect_feedback(self, slate_id: str, user: str | None, event_id: str | None) -> None:
        """See `Transaction.expect_feedback`."""


class PostgresTransaction(SqlTransaction):
    """A transaction that sends ahead what is expected, and can also say how large the tables are."""

    def __init__(self, execute: Execute, ahead: Ahead, select_user: SelectUser | None = None) -> None:
        super().__init__(execute, select_user)
        self._ahead = ahead

    def expect_profile(self, user: str) -> None:
        """Send what is needed of a user."""
        self._ahead.expect_profile(user)

    def expect_feedback(self, slate_id: str, user: str | None, event_id: str | None) -> None:
        """Send what is needed of a slate."""
        self._ahead.expect_feedback(slate_id, user, event_id)

    def size(self) -> int:
        """Return the bytes that all tables take, with their indexes."""
        return int(self._run(SIZE, ())[0][0])


def measure_by_writing(transaction: PostgresTransaction) -> int:
    """Write the row of a user who cannot exist, delete it again, and return the size of the tables."""
    transaction.lock(NOBODY)
    return transaction.size()
