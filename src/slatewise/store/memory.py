"""A store in memory: for tests and first steps; nothing survives the process. The plain twin of the others."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import astuple, dataclass, field
from typing import Any

from slatewise.store.protocol import START, Arrival, Result, StoreError, StoreUnavailableError, Transaction
from slatewise.store.records import (
    OPEN,
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

LOG = ("slates", "feedback", "events")
"""The tables of the log."""


@dataclass
class MemoryTables:
    """Records by key, and how to undo the changes of the running transaction."""

    users: dict[str, UserRecord] = field(default_factory=dict)
    beliefs: dict[str, BeliefRecord] = field(default_factory=dict)
    slates: dict[str, SlateRecord] = field(default_factory=dict)
    choices: dict[tuple[str, int], Choice] = field(default_factory=dict)
    feedback: dict[tuple[str, str], FeedbackRecord] = field(default_factory=dict)
    events: dict[tuple[str, str], EventRecord] = field(default_factory=dict)
    fits: dict[str, FitRecord] = field(default_factory=dict)
    counts: dict[tuple[str, str], PolicyCounts] = field(default_factory=dict)
    items: dict[ItemId, ItemRecord] = field(default_factory=dict)
    state_of_items: dict[str, ItemTable] = field(default_factory=dict)
    item_rates: dict[tuple[ItemId, str], ItemRate] = field(default_factory=dict)
    log_keys: dict[tuple[str, str], tuple[Any, ...]] = field(default_factory=dict)
    """The keys of a user's rows in each table of the log, by table and user, in the order in which they were added."""
    undo: list[Callable[[], Any]] = field(default_factory=list)

    def put(self, table: dict[Any, Any], key: Any, row: Any) -> None:
        """Set a record, or delete it if it is None, so that it can be undone."""
        before = dict(table) if row is None else {key: table.get(key)}
        self.undo.append(lambda: _restore(table, before, whole=row is None))
        table[key] = row
        if row is None:
            del table[key]

    def log(self, name: str, user: str, key: Any, row: Any) -> None:
        """Add a row to a table of the log, and note that it is of this user."""
        self.put(getattr(self, name), key, row)
        self.put(self.log_keys, (name, user), (*self.log_keys.get((name, user), ()), key))

    def logged(self, name: str, user: str) -> list[Any]:
        """Return the rows of a user in a table of the log."""
        table = getattr(self, name)
        return [table[key] for key in self.log_keys.get((name, user), ())]

    def lock(self, user: str) -> UserRecord:
        """Return a user; transactions never overlap here."""
        return self.users.get(user, UserRecord(user))

    def expect_profile(self, user: str) -> None:
        """Do nothing: everything is here."""

    def expect_feedback(self, slate_id: str, user: str | None, event_id: str | None) -> None:
        """Do nothing: everything is here."""

    def save_user(self, user: UserRecord) -> None:
        """Insert or replace a user."""
        self.put(self.users, user.user, user)

    def belief(self, user: str) -> BeliefRecord:
        """Return the cached belief about a user."""
        return self.beliefs.get(user, BeliefRecord(user))

    def save_belief(self, belief: BeliefRecord) -> None:
        """Insert or replace the cached belief about a user."""
        self.put(self.beliefs, belief.user, belief)

    def discard_belief(self, user: str) -> None:
        """Delete the cached belief about a user."""
        if user in self.beliefs:
            self.put(self.beliefs, user, None)

    def slate(self, slate_id: str) -> SlateRecord | None:
        """Return one slate."""
        return self.slates.get(slate_id)

    def slate_of_request(self, user: str, request_id: str) -> SlateRecord | None:
        """Return the slate that was recorded for a request of a user."""
        return next((row for row in self.logged("slates", user) if row.request_id == request_id), None)

    def slates_of(self, user: str, first: int = 0, limit: int | None = None) -> list[SlateRecord]:
        """Return the slates of a user by number, from number `first` on, at most so many."""
        rows = (row for row in self.logged("slates", user) if row.number >= first)
        return sorted(rows, key=lambda row: row.number)[:limit]

    def choices_of(self, user: str, first: int = 0, limit: int | None = None) -> dict[int, Choice]:
        """Return how slates of a user were chosen, by number."""
        known = (row.number for row in self.logged("slates", user) if (user, row.number) in self.choices)
        numbers = sorted(number for number in known if number >= first)
        return {number: self.choices[user, number] for number in numbers[:limit]}

    def add_slate(self, slate: SlateRecord, choice: Choice | None = None) -> None:
        """Record a new slate and how it was chosen."""
        self.log("slates", slate.user, slate.slate_id, slate)
        if choice is not None:
            self.put(self.choices, (slate.user, slate.number), choice)

    def update_slate(self, slate: SlateRecord) -> None:
        """Record the new status and closing time of a slate."""
        self.put(self.slates, slate.slate_id, slate)

    def feedback_on(self, slate: SlateRecord, event_id: str | None = None) -> list[FeedbackRecord]:
        """Return the feedback events on one slate by arrival, and the user's event with an id, if one is given."""
        of_user = self.logged("feedback", slate.user)
        events = (row for row in of_user if slate.slate_id == row.slate_id or event_id == row.event_id)
        return sorted(events, key=_arrival)

    def feedback_of(self, user: str, after: Arrival = START, limit: int | None = None) -> list[FeedbackRecord]:
        """Return feedback events of a user in the order of their arrival."""
        rows = (row for row in self.logged("feedback", user) if _arrival(row) > after)
        return sorted(rows, key=_arrival)[:limit]

    def add_feedback(self, event: FeedbackRecord) -> None:
        """Record a feedback event; its id must be new to the user."""
        self._add("feedback", event)

    def event(self, user: str, event_id: str) -> EventRecord | None:
        """Return one event from elsewhere."""
        return self.events.get((user, event_id))

    def events_of(self, user: str, after: Arrival = START, limit: int | None = None) -> list[EventRecord]:
        """Return events from elsewhere in the order of their arrival."""
        rows = (row for row in self.logged("events", user) if _arrival(row) > after)
        return sorted(rows, key=_arrival)[:limit]

    def add_event(self, event: EventRecord) -> None:
        """Record an event from elsewhere; its id must be new to the user."""
        self._add("events", event)

    def position_at(self, user: str, at: float) -> int:
        """Return the number of the user's slates up to the last one that was created at a time or before."""
        rows = (row.number for row in self.logged("slates", user) if row.created_at <= at)
        return max(rows, default=-1) + 1

    def count(self, user: str, policy: str, more: PolicyCounts) -> None:
        """Add to the counts of a user under a policy."""
        before = self.counts.get((user, policy), PolicyCounts())
        self.put(self.counts, (user, policy), PolicyCounts(*map(sum, zip(astuple(before), astuple(more), strict=True))))

    def counts_of(self, user: str) -> dict[str, PolicyCounts]:
        """Return the counts of a user by policy."""
        return {policy: counts for (owner, policy), counts in sorted(self.counts.items()) if owner == user}

    def expired(self, before: float, limit: int, skip: int = 0) -> list[SlateRecord | None]:
        """Return open slates created before a time, oldest first, without the first few."""
        old = (row for row in self.slates.values() if row.status == OPEN and row.created_at < before)
        return list(sorted(old, key=lambda row: row.created_at)[skip : skip + limit])

    def count_expired(self, before: float, limit: int) -> tuple[int, float | None]:
        """Return how many open slates were created before a time, counted up to a limit, and when the oldest was."""
        old = [row.created_at for row in self.slates.values() if row.status == OPEN and row.created_at < before]
        return min(len(old), limit), min(old, default=None)

    def totals(self) -> list[PolicyTotals]:
        """Return sums over all users, one per policy, by name."""
        policies = sorted({policy for _, policy in self.counts})
        return [
            _totals(name, [counts for (_, policy), counts in self.counts.items() if policy == name])
            for name in policies
        ]

    def forget(self, user: str) -> bool:
        """Delete everything about a user; return whether there was anything."""
        logged = [(name, user) for name in LOG if (name, user) in self.log_keys]
        deleted: list[tuple[dict[Any, Any], Any]] = [
            (getattr(self, name), key) for name, _ in logged for key in self.log_keys[name, user]
        ]
        deleted += [(self.log_keys, key) for key in logged]
        pairs: tuple[dict[Any, Any], ...] = (self.counts, self.choices)
        deleted += [(table, key) for table in pairs for key in table if key[0] == user]
        deleted += [(table, user) for table in (self.users, self.beliefs) if user in table]
        for table, key in deleted:
            self.put(table, key, None)
        return bool(deleted)

    def fit(self, name: str) -> FitRecord | None:
        """Return what was last fitted under a name."""
        return self.fits.get(name)

    def save_fit(self, fit: FitRecord) -> None:
        """Insert or replace a fit."""
        self.put(self.fits, fit.name, fit)

    def discard_fits(self, names: Sequence[str]) -> None:
        """Delete fits, as far as they exist."""
        for name in self.fits.keys() & set(names):
            self.put(self.fits, name, None)

    def item_table(self) -> ItemTable:
        """Return the version of the item table and its categories."""
        return self.state_of_items.get("", ItemTable())

    def put_items(self, items: Sequence[ItemRecord], version: int | None = None) -> int:
        """Insert or replace items; return the version of the table, which grows unless nothing changed."""
        before = self.item_table()
        version = before.version + 1 if version is None else version
        for item in items:
            known = self.items.get(item.item)
            if known is None or not known.has_same_content(item):
                self.put(self.items, item.item, _changed(known, item, len(self.items) + 1, version))
        if all(self.items[item.item].version <= before.version for item in items):
            return before.version
        names = dict.fromkeys([*before.categories, *(name for item in items for name in item.categories or ())])
        self.put(self.state_of_items, "", ItemTable(version, tuple(names)))
        return version

    def item(self, item: ItemId) -> ItemRecord | None:
        """Return one item of the item table."""
        return self.items.get(item)

    def items_since(self, after: tuple[int, int], limit: int) -> list[ItemRecord]:
        """Return items by version and number, after a pair of these."""
        later = (row for row in self.items.values() if (row.version, row.number) > after)
        return sorted(later, key=lambda row: (row.version, row.number))[:limit]

    def items_by_number(self, after: int, limit: int) -> list[ItemRecord]:
        """Return items in the order of their first appearance, after a number."""
        later = (row for row in self.items.values() if row.number > after)
        return sorted(later, key=lambda row: row.number)[:limit]

    def add_rates(self, shard: str, more: Mapping[ItemId, ItemRate]) -> None:
        """Add to what is known about how items do."""
        for item, rate in more.items():
            before = astuple(self.item_rates.get((item, shard), ItemRate()))
            self.put(self.item_rates, (item, shard), ItemRate(*map(sum, zip(before, astuple(rate), strict=True))))

    def rates(self, shards: str = "") -> dict[ItemId, ItemRate]:
        """Return how items do, summed over some shards."""
        totals: dict[ItemId, ItemRate] = {}
        kept = {key: rate for key, rate in self.item_rates.items() if key[1].startswith(shards)}
        for (item, _), rate in kept.items():
            before = astuple(totals.get(item, ItemRate()))
            totals[item] = ItemRate(*map(sum, zip(before, astuple(rate), strict=True)))
        return totals

    def _add(self, name: str, event: FeedbackRecord | EventRecord) -> None:
        key = (event.user, event.event_id)
        if key in getattr(self, name):
            raise StoreError("there is an event of this user with this event_id already")
        self.log(name, event.user, key, event)


class MemoryStore:
    """Transactions one at a time under a lock; a failed one is undone."""

    def __init__(self) -> None:
        self.tables = MemoryTables()
        self.lock = threading.RLock()
        self.is_closed = False

    def write(self, job: Callable[[Transaction], Result]) -> Future[Result]:
        """Run a job at once; undo it if it fails."""
        future: Future[Result] = Future()
        with self.lock:
            try:
                self._refuse_if_closed()
                future.set_result(job(self.tables))
            except BaseException as error:  # noqa: BLE001
                for undo in reversed(self.tables.undo):
                    undo()
                future.set_exception(error)
            self.tables.undo.clear()
        return future

    def read(self, job: Callable[[Transaction], Result]) -> Result:
        """Run a job that only reads."""
        with self.lock:
            self._refuse_if_closed()
            return job(self.tables)

    def users(self) -> Iterator[str]:
        """Iterate over the ids of all users."""
        tables = self.tables
        return iter(self.read(lambda _: _users(tables)))

    def sweeping(self) -> AbstractContextManager[bool]:
        """Return a context: expired slates are always for this process to close, as no other uses the store."""
        return nullcontext(True)

    def vacuum(self) -> None:
        """Do nothing: deleted rows leave no trace in memory."""

    def check(self) -> list[str]:
        """Return nothing: there are no files to check."""
        return []

    def health(self) -> dict[str, float | str]:
        """Return the number of rows."""
        self._refuse_if_closed()
        return {"kind": "memory", "slates": len(self.tables.slates), "feedback": len(self.tables.feedback)}

    def close(self) -> None:
        """Refuse everything from now on."""
        self.is_closed = True

    def _refuse_if_closed(self) -> None:
        if self.is_closed:
            raise StoreUnavailableError("the store is closed")


def _users(tables: MemoryTables) -> list[str]:
    logged = (row.user for table in (tables.slates, tables.events) for row in table.values())
    return sorted({*tables.users, *logged})


def _arrival(row: FeedbackRecord | EventRecord) -> Arrival:
    return row.received_at, row.event_id


def _changed(known: ItemRecord | None, item: ItemRecord, number: int, version: int) -> ItemRecord:
    """Return an item as it is kept after a change that makes this version of the table."""
    if known is None:
        return item._replace(number=number, version=version, content_version=version)
    is_same = (known.title, known.categories, known.vector) == (item.title, item.categories, item.vector)
    content_version = known.content_version if is_same else version
    return item._replace(number=known.number, version=version, content_version=content_version)


def _restore(table: dict[Any, Any], before: dict[Any, Any], whole: bool) -> None:
    """Put rows back; the whole table, in its old order, if one was removed."""
    if whole:
        table.clear()
    for key, row in before.items():
        table.pop(key, None)
        if row is not None:
            table[key] = row


def _totals(policy: str, counts: list[PolicyCounts]) -> PolicyTotals:
    def total(*names: str) -> float:
        values: float = 0.0
        for of_user in counts:
            product = 1.0
            for name in names:
                product *= getattr(of_user, name)
            values += product
        return values

    return PolicyTotals(
        policy=policy,
        users=len(counts),
        slates=int(total("slates")),
        shown=int(total("shown")),
        clicks=int(total("clicks")),
        variety=total("variety"),
        varied=total("varied"),
        shown_squared=total("shown", "shown"),
        clicks_squared=total("clicks", "clicks"),
        clicks_shown=total("clicks", "shown"),
        varied_squared=total("varied", "varied"),
        variety_squared=total("variety", "variety"),
        variety_varied=total("variety", "varied"),
    )
