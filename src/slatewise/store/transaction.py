"""A transaction in SQL, the same statements for every database; what a row says is believed only with its checksum."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from slatewise.store import statements
from slatewise.store.protocol import (
    AnswerRow,
    BeliefRow,
    Counts,
    PolicyTotals,
    SlateRow,
    StoreDamagedError,
    StoreError,
    UserRow,
)
from slatewise.store.rows import (
    WAY_OUT,
    Values,
    answer_row,
    answer_values,
    belief_row,
    belief_values,
    slate_row,
    slate_values,
    user_row,
    user_values,
)

Execute = Callable[[str, Values], list[Values]]


@dataclass
class Known:
    """A user as this transaction sees them, and how many rows of the log are theirs, to notice a lost one."""

    row: UserRow
    n_slates: int = 0
    n_answers: int = 0
    is_changed: bool = False


class SqlTransaction:
    """Reads and writes through `execute`, which takes ? for parameters; a failed statement fails the whole work.

    `claim` returns the row of a user as `execute` would, and keeps other writers of the user waiting.
    Users are written once, by `finish`: their rows also count the log, so that a row lost from it is noticed.
    """

    def __init__(self, execute: Execute, claim: Callable[[Execute, str], list[Values]] | None = None) -> None:
        self._execute = execute
        self._claim = claim or _find
        self._locked: set[str] = set()
        self._known: dict[str, Known] = {}
        self._failure: Exception | None = None

    def lock(self, user: str) -> UserRow:
        """Return a user's row; keep other writers of the user waiting."""
        return self._lock(user).row

    def save_user(self, row: UserRow) -> None:
        """Insert or replace a user's row."""
        known = self._lock(row.user)
        known.row, known.is_changed = replace(row, damaged=False) if row.damaged else row, True

    def belief(self, user: str) -> BeliefRow:
        """Return the cached belief about a user."""
        try:
            found = self._run(statements.FIND_BELIEF, (user,))
            row = belief_row(found[0]) if found else BeliefRow(user)
        except UnicodeDecodeError:
            row = None
        return row if row is not None and row.user == user else BeliefRow(user, damaged=True)

    def save_belief(self, row: BeliefRow) -> None:
        """Insert or replace the cached belief about a user."""
        self._lock(row.user)
        self._run(statements.SAVE_BELIEF, belief_values(row))

    def slate(self, slate_id: str) -> SlateRow | None:
        """Return one slate."""
        rows = self._slates(statements.FIND_SLATE, (slate_id,))
        if rows and rows[0].slate_id != slate_id:
            raise _unreadable(f"slate {slate_id!r}")
        return rows[0] if rows else None

    def slates_of(self, user: str) -> list[SlateRow]:
        """Return all slates of a user by number; fail if one is missing."""
        rows = self._slates(statements.SLATES_OF, (user,))
        _check_all({row.slate_id for row in rows if row.user == user}, len(rows), self._know(user).n_slates)
        return rows

    def add_slate(self, row: SlateRow) -> None:
        """Record a new slate."""
        known = self._lock(row.user)
        self._run(statements.ADD_SLATE, slate_values(row))
        known.n_slates, known.is_changed = known.n_slates + 1, True

    def change_slate(self, row: SlateRow) -> None:
        """Record the new status and closing time of a slate."""
        values = slate_values(row)
        self._run(statements.CHANGE_SLATE, (*values[-3:], row.slate_id))

    def answer(self, event_id: str) -> AnswerRow | None:
        """Return one feedback event."""
        rows = self._answers(statements.FIND_ANSWER, (event_id,))
        if rows and rows[0].event_id != event_id:
            raise _unreadable(f"answer {event_id!r}")
        return rows[0] if rows else None

    def answers_to(self, slate_id: str) -> list[AnswerRow]:
        """Return the feedback events on one slate, in the order they were recorded."""
        return self._answers(statements.ANSWERS_TO, (slate_id, slate_id))

    def answers_of(self, user: str) -> list[AnswerRow]:
        """Return all feedback events of a user, in the order they were recorded; fail if one is missing."""
        rows = self._answers(statements.ANSWERS_OF, (user,))
        _check_all({row.event_id for row in rows if row.user == user}, len(rows), self._know(user).n_answers)
        return rows

    def add_answer(self, row: AnswerRow) -> None:
        """Record a feedback event; its id must be new."""
        known = self._lock(row.user)
        self._run(statements.ADD_ANSWER, answer_values(row))
        known.n_answers, known.is_changed = known.n_answers + 1, True

    def count(self, user: str, policy: str, more: Counts) -> None:
        """Add to what happened to a user under a policy."""
        self._run(statements.COUNT, (user, policy, more.slates, more.shown, more.clicks, more.variety))

    def expired(self, before: float, limit: int) -> list[SlateRow]:
        """Return open slates created before a time, oldest first; one that is damaged does not hold up the others."""
        try:
            found = self._run(statements.EXPIRED, (before, limit, 0))
        except UnicodeDecodeError:
            return [row for at in range(limit) for row in self._readable(statements.EXPIRED, (before, 1, at))]
        return [row for row in map(_slate_or_none, found) if row is not None]

    def totals(self) -> list[PolicyTotals]:
        """Return sums over all users, one per policy, by name."""
        found = self._run(statements.TOTALS, ())
        return [PolicyTotals(one[0], *map(int, one[1:5]), *map(float, one[5:])) for one in found]

    def forget(self, user: str) -> bool:
        """Remove everything about a user; say whether there was anything."""
        self.lock(user)
        removed = [row for statement in statements.FORGET for row in self._run(statement, (user,))]
        self._known[user] = Known(UserRow(user))
        return any(what is not None for (what,) in removed)

    def users(self) -> list[str]:
        """Name all users, also one whose row was lost but who has slates."""
        try:
            return [user for (user,) in self._run(statements.USERS, ())]
        except UnicodeDecodeError:
            raise _unreadable("the name of a user") from None

    def finish(self) -> None:
        """Write the users that changed; fail if any statement did, even if the work did not mind."""
        for known in self._known.values():
            if known.is_changed and not known.row.damaged:
                self._run(statements.SAVE_USER, user_values(known.row, (known.n_slates, known.n_answers)))
        if self._failure is not None:
            raise self._failure

    def _know(self, user: str) -> Known:
        if user not in self._known:
            self._known[user] = self._load(user, _find)
        return self._known[user]

    def _lock(self, user: str) -> Known:
        if user not in self._locked:
            self._known[user] = self._load(user, self._claim)
            self._locked.add(user)
        return self._known[user]

    def _load(self, user: str, find: Callable[[Execute, str], list[Values]]) -> Known:
        """Read a user's row; if there is none, or it is damaged, the log says how many slates there are."""
        try:
            found = find(self._run, user)
            whole = user_row(found[0]) if found else None
        except UnicodeDecodeError:
            found, whole = [()], None
        if whole is not None and whole[0].user == user and (whole[0].stamp or any(whole[1])):
            return Known(whole[0], *whole[1])
        n_slates = self._run(statements.N_SLATES_OF, (user,))[0][0]
        n_answers = self._run(statements.N_ANSWERS_OF, (user,))[0][0]
        is_damaged = bool(n_slates or n_answers) or (bool(found) and whole is None)
        return Known(UserRow(user, n_slates=n_slates, damaged=is_damaged), n_slates, n_answers)

    def _readable(self, sql: str, parameters: Values) -> list[SlateRow]:
        try:
            return self._slates(sql, parameters)
        except StoreDamagedError:
            return []

    def _slates(self, sql: str, parameters: Values) -> list[SlateRow]:
        try:
            return [slate_row(values) for values in self._run(sql, parameters)]
        except UnicodeDecodeError:
            raise _unreadable("a slate") from None

    def _answers(self, sql: str, parameters: Values) -> list[AnswerRow]:
        try:
            return [answer_row(values) for values in self._run(sql, parameters)]
        except UnicodeDecodeError:
            raise _unreadable("an answer") from None

    def _run(self, sql: str, parameters: Values) -> list[Values]:
        if self._failure is not None:
            raise self._failure
        try:
            return self._execute(sql, parameters)
        except StoreError as error:
            self._failure = error
            raise


def _find(execute: Execute, user: str) -> list[Values]:
    return execute(statements.FIND_USER, (user,))


def _unreadable(what: str) -> StoreDamagedError:
    return StoreDamagedError(f"{what} cannot be read whole; {WAY_OUT}")


def _check_all(ids: set[str], n_rows: int, n_logged: int) -> None:
    """Fail unless the rows are as many as were logged, each once, and all of the user asked for."""
    if not len(ids) == n_rows == n_logged:
        raise StoreDamagedError(f"the log of a user has {len(ids)} rows where {n_logged} were written; {WAY_OUT}")


def _slate_or_none(values: Values) -> SlateRow | None:
    try:
        return slate_row(values)
    except StoreDamagedError:
        return None
