"""Reads from PostgreSQL in one transaction; what will be asked next is sent along, to save round trips."""

import math

from slatewise.store import statements
from slatewise.store.postgres_session import Session, Statement
from slatewise.store.rows import Values
from slatewise.store.sql import NO_LIMIT

IF_UNKNOWN = " WHERE NOT EXISTS (SELECT 1 FROM users WHERE user_id = ? AND version <> '')"
COVERS = "(SELECT covers FROM beliefs WHERE user_id = ?)"
SLATES = statements.SLATE + f" WHERE user_id = ? AND number >= coalesce({COVERS}, 0) ORDER BY number"
SINCE = (
    "CASE WHEN EXISTS (SELECT 1 FROM beliefs WHERE user_id = ?) THEN"  # noqa: S608
    f" coalesce((SELECT created_at FROM slates WHERE user_id = ? AND number = {COVERS}), 'infinity')"
    " ELSE '-infinity' END"
)
"""When the first slate that the belief does not cover was created."""
ARRIVED = f" WHERE user_id = ? AND received_at >= {SINCE} ORDER BY received_at, event_id"
TAILS = {
    statements.FEEDBACK_OF: statements.FEEDBACK + ARRIVED,
    statements.EVENTS_OF: statements.EVENT + ARRIVED,
}
EVENT_ID, CREATED_AT, COVERED, RECEIVED_AT = 0, 3, 2, 6
"""Columns of feedback and events, slates, beliefs, and feedback and events again."""


class Reader:
    """Reads rows; of a profile that is expected, the belief and the log since then come along with the user.

    Mostly the log since then is what arrived since the first slate that the belief does not cover was created. If more
    is asked for, it is read.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._counts: dict[Values, Statement] = {}
        self._ahead: dict[tuple[str, str], Statement] = {}

    def expect_profile(self, user: str) -> None:
        """Send what is needed of a user."""
        asked = {statements.FIND_USER: (statements.FIND_USER, 1), statements.FIND_BELIEF: (statements.FIND_BELIEF, 1)}
        asked |= {statements.SLATES_OF: (SLATES, 2), **{sql: (tail, 4) for sql, tail in TAILS.items()}}
        self._send_counts(user)
        for sql, (sent, n_times) in asked.items():
            self._ahead[sql, user] = self._session.send(sent, (user,) * n_times)

    def expect_feedback(self, slate_id: str, user: str | None, event_id: str | None) -> None:
        """Do nothing: feedback is only expected by those who write."""

    def rows(self, sql: str, parameters: Values) -> list[Values]:
        """Return the rows of a statement."""
        if sql == statements.N_LOGGED and (rows := self._counted(parameters)):
            return rows
        known = self._known(sql, parameters) if parameters and (sql, parameters[0]) in self._ahead else None
        if known is not None:
            return known
        statement = self._session.send(sql, parameters)
        if sql == statements.FIND_USER:
            self._send_counts(parameters[0])
        return self._session.rows(statement)

    def _known(self, sql: str, parameters: Values) -> list[Values] | None:
        """Return the rows of a statement about a user if they came along; None if others are needed."""
        user, *wanted = parameters
        if sql in TAILS:
            after, limit = (wanted[0], wanted[1]), wanted[2]
            if limit != NO_LIMIT or wanted[0] < self.since(user):
                return None
            return [row for row in self._rows_of(sql, user) if (row[RECEIVED_AT], row[EVENT_ID]) > after]
        if sql == statements.SLATES_OF and wanted != [self._covered(user), NO_LIMIT]:
            return None
        return self._rows_of(sql, user)

    def _covered(self, user: str) -> int:
        beliefs = self._rows_of(statements.FIND_BELIEF, user)
        return int(beliefs[0][COVERED]) if beliefs else 0

    def since(self, user: str) -> float:
        """Return the time from which on the log of a user was read ahead."""
        if not self._rows_of(statements.FIND_BELIEF, user):
            return -math.inf
        slates = self._rows_of(statements.SLATES_OF, user)
        return float(slates[0][CREATED_AT]) if slates else math.inf

    def _rows_of(self, sql: str, user: str) -> list[Values]:
        return self._session.rows(self._ahead[sql, user])

    def _send_counts(self, user: str) -> None:
        """Count the rows of the log of a user who is not known."""
        self._counts[(user,) * 3] = self._session.send(statements.N_LOGGED + IF_UNKNOWN, (user,) * 4)

    def _counted(self, parameters: Values) -> list[Values]:
        statement = self._counts.pop(parameters, None)
        return [] if statement is None else self._session.rows(statement)
