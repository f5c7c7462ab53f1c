"""A transaction in SQL, with the same statements for both databases; a row is trusted only with its checksum."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from slatewise.store import statements
from slatewise.store.protocol import START, WRITER_OF_ITEMS, Arrival, StoreDamagedError, StoreError
from slatewise.store.records import (
    BeliefRecord,
    Choice,
    EventRecord,
    FeedbackRecord,
    FitRecord,
    ItemId,
    ItemRate,
    ItemRecord,
    ItemTable,
    PolicyCounts,
    PolicyTotals,
    SlateRecord,
    UserRecord,
)
from slatewise.store.rows import (
    RESTORE,
    Execute,
    SelectUser,
    SqlUsers,
    Values,
    belief_record,
    belief_values,
    choice_of,
    choice_text,
    event_record,
    event_values,
    feedback_record,
    feedback_values,
    fit_record,
    fit_values,
    slate_record,
    slate_values,
)
from slatewise.store.sql_items import SqlItems

Record = TypeVar("Record", SlateRecord, FeedbackRecord, EventRecord)

NO_LIMIT = 2**62


class SqlTransaction:
    """Reads and writes through `execute`, which takes ? for parameters; a failed statement fails the whole job.

    `select_user` returns the row of a user as `execute` would and makes other writers of that user wait. Users are
    written once, by `finish`: their rows also count the log, so that a row lost from it is noticed. Without
    `select_user` nobody else can write until the transaction ends, so that a slate need not be read twice.
    """

    def __init__(self, execute: Execute, select_user: SelectUser | None = None) -> None:
        self.execute = execute
        """Runs a statement, whatever it is; what it changes is not noted in `has_written`."""
        self._users = SqlUsers(self._run, select_user)
        self._is_exclusive = select_user is None
        self._slates_read: dict[str, SlateRecord | None] = {}
        self._failure: Exception | None = None
        self.has_written = False
        """Whether a statement of this transaction may have changed anything."""

    def lock(self, user: str) -> UserRecord:
        """Return a user; make other writers of the user wait."""
        return self._users.lock(user).record

    def expect_profile(self, user: str) -> None:
        """Do nothing: the database is near."""

    def expect_feedback(self, slate_id: str, user: str | None, event_id: str | None) -> None:
        """Do nothing: the database is near."""

    def save_user(self, user: UserRecord) -> None:
        """Insert or replace a user."""
        loaded = self._users.lock(user.user)
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
        self._users.lock(belief.user)
        self._write(statements.SAVE_BELIEF, belief_values(belief))

    def discard_belief(self, user: str) -> None:
        """Delete the cached belief about a user."""
        self._write(statements.DISCARD_BELIEF, (user,))

    def slate(self, slate_id: str) -> SlateRecord | None:
        """Return one slate."""
        if self._is_exclusive and slate_id in self._slates_read:
            return self._slates_read[slate_id]
        records = self._rows(slate_record, statements.FIND_SLATE, (slate_id,))
        if records and records[0].slate_id != slate_id:
            raise _unreadable(f"slate {slate_id!r}")
        self._slates_read[slate_id] = records[0] if records else None
        return self._slates_read[slate_id]

    def slate_of_request(self, user: str, request_id: str) -> SlateRecord | None:
        """Return the slate that was recorded for a request of a user."""
        records = self._rows(slate_record, statements.FIND_SLATE_OF_REQUEST, (user, request_id))
        return records[0] if records else None

    def slates_of(self, user: str, first: int = 0, limit: int | None = None) -> list[SlateRecord]:
        """Return the slates of a user by number; fail if one is missing."""
        records = self._rows(slate_record, statements.SLATES_OF, (user, first, limit or NO_LIMIT))
        ids = {record.slate_id for record in records if record.user == user}
        n_logged = self._users.load(user).n_slates
        _check_complete(ids, len(records), min(max(n_logged - first, 0), limit or NO_LIMIT))
        return records

    def choices_of(self, user: str, first: int = 0, limit: int | None = None) -> dict[int, Choice]:
        """Return how slates of a user were chosen, by number; slates of earlier versions are left out."""
        try:
            rows = self._run(statements.CHOICES_OF, (user, first, limit or NO_LIMIT))
        except UnicodeDecodeError:
            raise _unreadable("the choice of a slate") from None
        return {number: choice_of(text, user, number) for number, text in rows}

    def add_slate(self, slate: SlateRecord, choice: Choice | None = None) -> None:
        """Record a new slate and how it was chosen."""
        loaded = self._users.lock(slate.user)
        self._write(statements.ADD_SLATE, (*slate_values(slate), choice_text(choice, slate.user, slate.number)))
        loaded.n_slates, loaded.is_changed = loaded.n_slates + 1, True

    def update_slate(self, slate: SlateRecord) -> None:
        """Record the new status and closing time of a slate."""
        *_, status, closed_at, _, checksum = slate_values(slate)
        self._write(statements.UPDATE_SLATE, (status, closed_at, checksum, slate.user, slate.number))
        self._slates_read.pop(slate.slate_id, None)

    def feedback_on(self, slate: SlateRecord, event_id: str | None = None) -> list[FeedbackRecord]:
        """Return the feedback events on one slate by arrival, and the user's event with an id, if one is given."""
        on_slate = (slate.user, slate.slate_id)
        if event_id is None:
            records = self._rows(feedback_record, statements.FEEDBACK_ON, on_slate)
        else:
            wanted = (*on_slate, slate.user, event_id, slate.slate_id)
            records = self._rows(feedback_record, statements.FEEDBACK_ON_OR_WITH_ID, wanted)
        if any(
            (row.user, row.slate_id) != on_slate and (row.user, row.event_id) != (slate.user, event_id)
            for row in records
        ):
            raise StoreDamagedError(f"an index leads to feedback on another slate; {RESTORE}")
        return records

    def feedback_of(self, user: str, after: Arrival = START, limit: int | None = None) -> list[FeedbackRecord]:
        """Return feedback events of a user by arrival; fail if one is missing of all."""
        records = self._rows(feedback_record, statements.FEEDBACK_OF, (user, *after, limit or NO_LIMIT))
        if after == START and limit is None:
            ids = {record.event_id for record in records if record.user == user}
            _check_complete(ids, len(records), self._users.load(user).n_feedback)
        return records

    def add_feedback(self, event: FeedbackRecord) -> None:
        """Record a feedback event; its id must be new to the user."""
        loaded = self._users.lock(event.user)
        self._write(statements.ADD_FEEDBACK, feedback_values(event))
        loaded.n_feedback, loaded.is_changed = loaded.n_feedback + 1, True

    def event(self, user: str, event_id: str) -> EventRecord | None:
        """Return one event from elsewhere."""
        records = self._rows(event_record, statements.FIND_EVENT, (user, event_id))
        return records[0] if records else None

    def events_of(self, user: str, after: Arrival = START, limit: int | None = None) -> list[EventRecord]:
        """Return events from elsewhere by arrival; fail if one is missing of all."""
        records = self._rows(event_record, statements.EVENTS_OF, (user, *after, limit or NO_LIMIT))
        if after == START and limit is None:
            ids = {record.event_id for record in records if record.user == user}
            _check_complete(ids, len(records), self._users.load(user).n_events)
        return records

    def add_event(self, event: EventRecord) -> None:
        """Record an event from elsewhere; its id must be new to the user."""
        loaded = self._users.lock(event.user)
        self._write(statements.ADD_EVENT, event_values(event))
        loaded.n_events, loaded.is_changed = loaded.n_events + 1, True

    def position_at(self, user: str, at: float) -> int:
        """Return the number of the user's slates up to the last one that was created at a time or before.

        Slates are searched from the latest, and not at all for what happened before the first.
        """
        first = self._run(statements.FIRST_SLATE_AT, (user,))
        if not first or first[0][0] > at:
            return 0
        rows = self._run(statements.POSITION_AT, (user, at))
        return int(rows[0][0]) + 1 if rows else 0

    def count(self, user: str, policy: str, more: PolicyCounts) -> None:
        """Add to the counts of a user under a policy."""
        counts = (more.slates, more.shown, more.clicks, more.variety, more.varied)
        self._write(statements.COUNT, (user, policy, *counts))

    def counts_of(self, user: str) -> dict[str, PolicyCounts]:
        """Return the counts of a user by policy."""
        return {row[0]: PolicyCounts(*row[1:]) for row in self._run(statements.COUNTS_OF, (user,))}

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
        self._users.forget(user)
        return any(value is not None for (value,) in deleted)

    def fit(self, name: str) -> FitRecord | None:
        """Return what was last fitted under a name; a damaged fit is as good as none."""
        try:
            rows = self._run(statements.FIND_FIT, (name,))
        except UnicodeDecodeError:
            return None
        return fit_record(rows[0]) if rows else None

    def save_fit(self, fit: FitRecord) -> None:
        """Insert or replace a fit."""
        self._write(statements.SAVE_FIT, fit_values(fit))

    def discard_fits(self, names: Sequence[str]) -> None:
        """Delete fits, as far as they exist."""
        for name in names:
            self._write(statements.DISCARD_FIT, (name,))

    def item_table(self) -> ItemTable:
        """Return the version of the item table and its categories."""
        return self._items().table()

    def put_items(self, items: Sequence[ItemRecord], version: int | None = None) -> int:
        """Insert or replace items; return the version of the table, which grows unless nothing changed."""
        return self._items().put(items, version)

    def item(self, item: ItemId) -> ItemRecord | None:
        """Return one item of the item table."""
        return self._items().find(item)

    def items_since(self, after: tuple[int, int], limit: int) -> list[ItemRecord]:
        """Return items by version and number, after a pair of these."""
        return self._items().since(after, limit)

    def items_by_number(self, after: int, limit: int) -> list[ItemRecord]:
        """Return items in the order of their first appearance, after a number."""
        return self._items().by_number(after, limit)

    def add_rates(self, shard: str, more: Mapping[ItemId, ItemRate]) -> None:
        """Add to what is known about how items do."""
        self._items().add_rates(shard, more)

    def rates(self, shards: str = "") -> dict[ItemId, ItemRate]:
        """Return how items do, summed over some shards."""
        return self._items().rates(shards)

    def users(self, after: str = "", limit: int | None = None) -> list[str]:
        """Return the ids of users in order, also of one whose row was lost but who has slates."""
        try:
            return [user for (user,) in self._run(statements.USERS, (after, after, after, limit or NO_LIMIT))]
        except UnicodeDecodeError:
            raise _unreadable("the id of a user") from None

    def finish(self) -> None:
        """Write the users that changed, leave no row of one who is still unknown; fail if any statement failed."""
        for sql, parameters in self._users.changes():
            self._write(sql, parameters)
        if self._failure is not None:
            raise self._failure

    def _items(self) -> SqlItems:
        return SqlItems(self._run, self._write, lambda: self._users.lock(WRITER_OF_ITEMS))

    def _rows(self, to_record: Callable[[Values], Record], sql: str, parameters: Values) -> list[Record]:
        try:
            return [to_record(values) for values in self._run(sql, parameters)]
        except UnicodeDecodeError:
            raise _unreadable("a row of the log") from None

    def _write(self, sql: str, parameters: Values) -> list[Values]:
        self.has_written = True
        return self._run(sql, parameters)

    def _run(self, sql: str, parameters: Values) -> list[Values]:
        if self._failure is not None:
            raise self._failure
        try:
            return self.execute(sql, parameters)
        except StoreError as error:
            self._failure = error
            raise


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
