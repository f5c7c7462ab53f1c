"""A transaction in SQL, the same statements for every database; what a row says is believed only with its checksum."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from slatewise.store.protocol import AnswerRow, Counts, PolicyTotals, SlateRow, StoreDamagedError, StoreError, UserRow
from slatewise.store.rows import (
    WAY_OUT,
    Values,
    answer_row,
    answer_values,
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

    `claim` returns the rows of a user as `execute` would, and keeps other writers of the user waiting.

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

    def slate(self, slate_id: str) -> SlateRow | None:
        """Return one slate."""
        rows = self._slates("SELECT * FROM slates WHERE slate_id = ?", (slate_id,), f"slate {slate_id!r}")
        if rows and rows[0].slate_id != slate_id:
            raise _damaged(f"slate {slate_id!r}")
        return rows[0] if rows else None

    def slates_of(self, user: str) -> list[SlateRow]:
        """Return all slates of a user by number; fail if one is missing."""
        what = f"the log of user {user!r}"
        rows = self._slates("SELECT * FROM slates WHERE user_id = ? ORDER BY number", (user,), what)
        _check_all({row.slate_id for row in rows if row.user == user}, len(rows), self._know(user).n_slates, what)
        return rows

    def add_slate(self, row: SlateRow) -> None:
        """Record a new slate."""
        known = self._lock(row.user)
        self._run("INSERT INTO slates VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", slate_values(row))
        known.n_slates, known.is_changed = known.n_slates + 1, True

    def change_slate(self, row: SlateRow) -> None:
        """Record the new status and closing time of a slate."""
        values = slate_values(row)
        self._run(
            "UPDATE slates SET status = ?, closed_at = ?, checksum = ? WHERE slate_id = ?", (*values[-3:], values[0])
        )

    def answer(self, event_id: str) -> AnswerRow | None:
        """Return one feedback event."""
        what = f"answer {event_id!r}"
        rows = self._answers(
            "SELECT event_id, slate_id, user_id, clicked, retracted, final, received_at, checksum FROM answers"
            " WHERE event_id = ?",
            (event_id,),
            what,
        )
        if rows and rows[0].event_id != event_id:
            raise _damaged(what)
        return rows[0] if rows else None

    def answers_to(self, slate_id: str) -> list[AnswerRow]:
        """Return the feedback events on one slate, in the order they were recorded."""
        return self._answers(
            "SELECT event_id, slate_id, user_id, clicked, retracted, final, received_at, checksum FROM answers"
            " WHERE user_id = (SELECT user_id FROM slates WHERE slate_id = ?) AND slate_id = ? ORDER BY arrival",
            (slate_id, slate_id),
            f"an answer to slate {slate_id!r}",
        )

    def answers_of(self, user: str) -> list[AnswerRow]:
        """Return all feedback events of a user, in the order they were recorded; fail if one is missing."""
        what = f"the log of user {user!r}"
        rows = self._answers(
            "SELECT event_id, slate_id, user_id, clicked, retracted, final, received_at, checksum FROM answers"
            " WHERE user_id = ? ORDER BY arrival",
            (user,),
            what,
        )
        _check_all({row.event_id for row in rows if row.user == user}, len(rows), self._know(user).n_answers, what)
        return rows

    def add_answer(self, row: AnswerRow) -> None:
        """Record a feedback event; its id must be new."""
        known = self._lock(row.user)
        self._run(
            "INSERT INTO answers (event_id, slate_id, user_id, clicked, retracted, final, received_at, checksum)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            answer_values(row),
        )
        known.n_answers, known.is_changed = known.n_answers + 1, True

    def count(self, user: str, policy: str, more: Counts) -> None:
        """Add to what happened to a user under a policy."""
        self._run(
            "INSERT INTO counts VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (user_id, policy) DO UPDATE SET"
            " slates = counts.slates + excluded.slates, shown = counts.shown + excluded.shown,"
            " clicks = counts.clicks + excluded.clicks, variety = counts.variety + excluded.variety",
            (user, policy, more.slates, more.shown, more.clicks, more.variety),
        )

    def expired(self, before: float, limit: int) -> list[SlateRow]:
        """Return open slates created before a time, oldest first; one that is damaged does not hold up the others."""
        sql = "SELECT * FROM slates WHERE status = 'open' AND created_at < ? ORDER BY created_at LIMIT ? OFFSET ?"
        try:
            return [row for row in map(_slate_or_none, self._run(sql, (before, limit, 0))) if row is not None]
        except UnicodeDecodeError:
            return [row for offset in range(limit) for row in self._readable(sql, (before, 1, offset))]

    def totals(self) -> list[PolicyTotals]:
        """Return sums over all users, one per policy, by name."""
        found = self._run(
            "SELECT policy, count(*), sum(slates), sum(shown), sum(clicks), sum(variety), sum(1.0 * shown * shown),"
            " sum(1.0 * clicks * clicks), sum(1.0 * clicks * shown), sum(1.0 * slates * slates),"
            " sum(variety * variety), sum(variety * slates) FROM counts GROUP BY policy ORDER BY policy",
            (),
        )
        return [PolicyTotals(one[0], *map(int, one[1:5]), *map(float, one[5:])) for one in found]

    def forget(self, user: str) -> bool:
        """Remove everything about a user; say whether there was anything."""
        self.lock(user)
        removed = [
            self._run("DELETE FROM slates WHERE user_id = ? RETURNING 1", (user,)),
            self._run("DELETE FROM answers WHERE user_id = ? RETURNING 1", (user,)),
            self._run("DELETE FROM counts WHERE user_id = ? RETURNING 1", (user,)),
            [row for row in self._run("DELETE FROM users WHERE user_id = ? RETURNING stamp <> ''", (user,)) if row[0]],
        ]
        self._known[user] = Known(UserRow(user))
        return any(removed)

    def users(self) -> list[str]:
        """Name all users, also one whose row was lost but who has slates."""
        sql = "SELECT user_id FROM users WHERE stamp <> '' UNION SELECT user_id FROM slates ORDER BY user_id"
        try:
            return [user for (user,) in self._run(sql, ())]
        except UnicodeDecodeError:
            raise _damaged("the name of a user") from None

    def finish(self) -> None:
        """Write the users that changed; fail if any statement did, even if the work did not mind."""
        for known in self._known.values():
            if known.is_changed and not known.row.damaged:
                self._run(
                    "INSERT INTO users VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (user_id) DO UPDATE SET"
                    " stamp = excluded.stamp, n_slates = excluded.n_slates, space = excluded.space,"
                    " logged_slates = excluded.logged_slates, logged_answers = excluded.logged_answers,"
                    " belief = excluded.belief, checksum = excluded.checksum",
                    user_values(known.row, (known.n_slates, known.n_answers)),
                )
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
        n_slates = self._run("SELECT count(*) FROM slates WHERE user_id = ?", (user,))[0][0]
        n_answers = self._run("SELECT count(*) FROM answers WHERE user_id = ?", (user,))[0][0]
        is_damaged = bool(n_slates or n_answers) or (bool(found) and whole is None)
        return Known(UserRow(user, n_slates=n_slates, damaged=is_damaged), n_slates, n_answers)

    def _readable(self, sql: str, parameters: Values) -> list[SlateRow]:
        try:
            return self._slates(sql, parameters, "a slate")
        except StoreDamagedError:
            return []

    def _slates(self, sql: str, parameters: Values, what: str) -> list[SlateRow]:
        try:
            return [slate_row(values) for values in self._run(sql, parameters)]
        except UnicodeDecodeError:
            raise _damaged(what) from None

    def _answers(self, sql: str, parameters: Values, what: str) -> list[AnswerRow]:
        try:
            return [answer_row(values) for values in self._run(sql, parameters)]
        except UnicodeDecodeError:
            raise _damaged(what) from None

    def _run(self, sql: str, parameters: Values) -> list[Values]:
        if self._failure is not None:
            raise self._failure
        try:
            return self._execute(sql, parameters)
        except StoreError as error:
            self._failure = error
            raise


def _find(execute: Execute, user: str) -> list[Values]:
    return execute("SELECT * FROM users WHERE user_id = ?", (user,))


def _damaged(what: str) -> StoreDamagedError:
    return StoreDamagedError(f"{what} cannot be read whole; {WAY_OUT}")


def _check_all(ids: set[str], n_rows: int, n_logged: int, what: str) -> None:
    """Fail unless the rows are as many as were logged, each once, and all of the user asked for."""
    if not len(ids) == n_rows == n_logged:
        raise StoreDamagedError(f"{what} has {len(ids)} rows where {n_logged} were written; {WAY_OUT}")


def _slate_or_none(values: Values) -> SlateRow | None:
    try:
        return slate_row(values)
    except StoreDamagedError:
        return None
