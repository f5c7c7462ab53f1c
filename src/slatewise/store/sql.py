"""A transaction in SQL, with the same statements for both databases; a row is trusted only with its checksum."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from slatewise.store import statements
from slatewise.store.protocol import (
    BeliefRecord,
    FeedbackRecord,
    PolicyCounts,
    PolicyTotals,
    SlateRecord,
    StoreDamagedError,
    StoreError,
    UserRecord,
)
from slatewise.store.rows import (
    RESTORE,
    Values,
    belief_record,
    belief_values,
    feedback_record,
    feedback_values,
    slate_record,
    slate_values,
    user_record,
    user_values,
)

Execute = Callable[[str, Values], list[Values]]


@dataclass
class _LoadedUser:
    """A user as this transaction sees it, with the number of its rows in the log, so that a lost one is noticed."""

    record: UserRecord
    n_slates: int = 0
    n_feedback: int = 0
    is_changed: bool = False


class SqlTransaction:
    """Reads and writes through `execute`, which takes ? for parameters; a failed statement fails the whole job.

    `select_user` returns the row of a user as `execute` would and makes other writers of that user wait. Users are
    written once, by `finish`: their rows also count the log, so that a row lost from it is noticed. Without
    `select_user` nobody else can write until the transaction ends, so that a slate need not be read twice.
    """

    def __init__(self, execute: Execute, select_user: Callable[[Execute, str], list[Values]] | None = None) -> None:
        self._execute = execute
        self._select_user = select_user or _select_user
        self._is_exclusive = select_user is None
        self._slates_read: dict[str, SlateRecord | None] = {}
        self._locked: set[str] = set()
        self._users: dict[str, _LoadedUser] = {}
        self._failure: Exception | None = None
        self.has_written = False
        """Whether a statement of this transaction may have changed anything."""

    def lock(self, user: str) -> UserRecord:
        """Return a user; make other writers of the user wait."""
        return self._lock(user).record

    def save_user(self, user: UserRecord) -> None:
        """Insert or replace a user."""
        loaded = self._lock(user.user)
        loaded.record, loaded.is_changed = replace(user, damaged=False) if user.damaged else user, True

    def belief(self, user: str) -> BeliefRecord:
        """Return the cached belief about a user."""
        try:
            rows = self._run(statements.FIND_BELIEF, (user,))
            record = belief_record(rows[0]) if rows else BeliefRecord(user)
        except UnicodeDecodeError:
            record = None
        return record if record is not None and record.user == user else BeliefRecord(user, damaged=True)

    def save_belief(self, belief: BeliefRecord) -> None:
        """Insert or replace the cached belief about a user."""
        self._lock(belief.user)
        self._write(statements.SAVE_BELIEF, belief_values(belief))

    def discard_belief(self, user: str, number: int) -> None:
        """Delete the cached belief about a user if it was learned from slate `number`, among others."""
        self._write(statements.DISCARD_BELIEF, (user, number))

    def slate(self, slate_id: str) -> SlateRecord | None:
        """Return one slate."""
        if self._is_exclusive and slate_id in self._slates_read:
            return self._slates_read[slate_id]
        records = self._slates(statements.FIND_SLATE, (slate_id,))
        if records and records[0].slate_id != slate_id:
            raise _unreadable(f"slate {slate_id!r}")
        self._slates_read[slate_id] = records[0] if records else None
        return self._slates_read[slate_id]

    def slates_of(self, user: str) -> list[SlateRecord]:
        """Return all slates of a user by number; fail if one is missing."""
        records = self._slates(statements.SLATES_OF, (user,))
        ids = {record.slate_id for record in records if record.user == user}
        _check_complete(ids, len(records), self._load(user).n_slates)
        return records

    def add_slate(self, slate: SlateRecord) -> None:
        """Record a new slate."""
        loaded = self._lock(slate.user)
        self._write(statements.ADD_SLATE, slate_values(slate))
        loaded.n_slates, loaded.is_changed = loaded.n_slates + 1, True

    def update_slate(self, slate: SlateRecord) -> None:
        """Record the new status and closing time of a slate."""
        self._write(statements.UPDATE_SLATE, (*slate_values(slate)[-3:], slate.slate_id))
        self._slates_read.pop(slate.slate_id, None)

    def feedback(self, event_id: str) -> FeedbackRecord | None:
        """Return one feedback event."""
        records = self._feedback(statements.FIND_FEEDBACK, (event_id,))
        if records and records[0].event_id != event_id:
            raise _unreadable(f"feedback {event_id!r}")
        return records[0] if records else None

    def feedback_on(self, slate: SlateRecord) -> list[FeedbackRecord]:
        """Return the feedback events on one slate in the order of their arrival."""
        return self._feedback(statements.FEEDBACK_ON, (slate.user, slate.slate_id))

    def feedback_of(self, user: str) -> list[FeedbackRecord]:
        """Return all feedback events of a user in the order of their arrival; fail if one is missing."""
        records = self._feedback(statements.FEEDBACK_OF, (user,))
        ids = {record.event_id for record in records if record.user == user}
        _check_complete(ids, len(records), self._load(user).n_feedback)
        return records

    def add_feedback(self, event: FeedbackRecord) -> None:
        """Record a feedback event; its id must be new."""
        loaded = self._lock(event.user)
        self._write(statements.ADD_FEEDBACK, feedback_values(event))
        loaded.n_feedback, loaded.is_changed = loaded.n_feedback + 1, True

    def count(self, user: str, policy: str, more: PolicyCounts) -> None:
        """Add to the counts of a user under a policy."""
        self._write(statements.COUNT, (user, policy, more.slates, more.shown, more.clicks, more.variety))

    def expired(self, before: float, limit: int, skip: int = 0) -> list[SlateRecord | None]:
        """Return open slates created before a time, oldest first, without the first few; None for a damaged one."""
        try:
            return [_slate_or_none(row) for row in self._run(statements.EXPIRED, (before, limit, skip))]
        except UnicodeDecodeError:
            if limit == 1:
                return [None]
        return [record for at in range(skip, skip + limit) for record in self.expired(before, 1, at)]

    def count_expired(self, before: float, limit: int) -> tuple[int, float | None]:
        """Return how many open slates were created before a time, counted up to a limit, and when the oldest was."""
        ((count, oldest),) = self._run(statements.COUNT_EXPIRED, (before, limit))
        return count, oldest

    def totals(self) -> list[PolicyTotals]:
        """Return sums over all users, one per policy, by name."""
        rows = self._run(statements.TOTALS, ())
        return [PolicyTotals(row[0], *map(int, row[1:5]), *map(float, row[5:])) for row in rows]

    def forget(self, user: str) -> bool:
        """Delete everything about a user; return whether there was anything."""
        self.lock(user)
        deleted = [row for statement in statements.FORGET for row in self._write(statement, (user,))]
        self._slates_read.clear()
        self._users[user] = _LoadedUser(UserRecord(user))
        return any(value is not None for (value,) in deleted)

    def users(self) -> list[str]:
        """Return the ids of all users, also of one whose row was lost but who has slates."""
        try:
            return [user for (user,) in self._run(statements.USERS, ())]
        except UnicodeDecodeError:
            raise _unreadable("the id of a user") from None

    def finish(self) -> None:
        """Write the users that changed, leave no row of one who is still unknown; fail if any statement failed."""
        for user, loaded in self._users.items():
            if loaded.is_changed and not loaded.record.damaged:
                counts = (loaded.n_slates, loaded.n_feedback)
                self._write(statements.SAVE_USER, user_values(loaded.record, counts))
            elif user in self._locked and loaded.record == UserRecord(user):
                self._write(statements.RELEASE_USER, (user,))
        if self._failure is not None:
            raise self._failure

    def _load(self, user: str) -> _LoadedUser:
        if user not in self._users:
            self._users[user] = self._read_user(user, _select_user)
        return self._users[user]

    def _lock(self, user: str) -> _LoadedUser:
        if user not in self._locked:
            self._users[user] = self._read_user(user, self._select_user)
            self._locked.add(user)
        return self._users[user]

    def _read_user(self, user: str, select: Callable[[Execute, str], list[Values]]) -> _LoadedUser:
        """Read a user's row; if there is none, or it is damaged, count its slates in the log."""
        try:
            rows = select(self._run, user)
            intact = user_record(rows[0]) if rows else None
        except UnicodeDecodeError:
            rows, intact = [()], None
        if intact is not None and intact[0].user == user and (intact[0].version or any(intact[1])):
            return _LoadedUser(intact[0], *intact[1])
        n_slates = self._run(statements.N_SLATES_OF, (user,))[0][0]
        n_feedback = self._run(statements.N_FEEDBACK_OF, (user,))[0][0]
        is_damaged = bool(n_slates or n_feedback) or (bool(rows) and intact is None)
        return _LoadedUser(UserRecord(user, n_slates=n_slates, damaged=is_damaged), n_slates, n_feedback)

    def _slates(self, sql: str, parameters: Values) -> list[SlateRecord]:
        try:
            return [slate_record(values) for values in self._run(sql, parameters)]
        except UnicodeDecodeError:
            raise _unreadable("a slate") from None

    def _feedback(self, sql: str, parameters: Values) -> list[FeedbackRecord]:
        try:
            return [feedback_record(values) for values in self._run(sql, parameters)]
        except UnicodeDecodeError:
            raise _unreadable("a feedback event") from None

    def _write(self, sql: str, parameters: Values) -> list[Values]:
        self.has_written = True
        return self._run(sql, parameters)

    def _run(self, sql: str, parameters: Values) -> list[Values]:
        if self._failure is not None:
            raise self._failure
        try:
            return self._execute(sql, parameters)
        except StoreError as error:
            self._failure = error
            raise


def _select_user(execute: Execute, user: str) -> list[Values]:
    return execute(statements.FIND_USER, (user,))


def _unreadable(what: str) -> StoreDamagedError:
    return StoreDamagedError(f"{what} cannot be decoded; {RESTORE}")


def _check_complete(ids: set[str], n_rows: int, n_logged: int) -> None:
    """Fail unless there are as many rows as were logged, each once, and all of the user asked for."""
    if not len(ids) == n_rows == n_logged:
        raise StoreDamagedError(f"the log of a user has {len(ids)} rows where {n_logged} were written; {RESTORE}")


def _slate_or_none(values: Values) -> SlateRecord | None:
    try:
        return slate_record(values)
    except StoreDamagedError:
        return None
