"""A store that forgets when the process ends: for tests and first steps, and the plain twin of the others."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import astuple, dataclass, field
from typing import Any

from slatewise.store.protocol import (
    OPEN,
    AnswerRow,
    BeliefRow,
    Counts,
    PolicyTotals,
    Ready,
    Result,
    SlateRow,
    StoreError,
    StoreUnavailableError,
    Transaction,
    UserRow,
)


@dataclass
class MemoryTables:
    """Rows by key, and how to undo what the running transaction changed."""

    users: dict[str, UserRow] = field(default_factory=dict)
    beliefs: dict[str, BeliefRow] = field(default_factory=dict)
    slates: dict[str, SlateRow] = field(default_factory=dict)
    answers: dict[str, AnswerRow] = field(default_factory=dict)
    counts: dict[tuple[str, str], Counts] = field(default_factory=dict)
    undo: list[Callable[[], Any]] = field(default_factory=list)

    def put(self, table: dict[Any, Any], key: Any, row: Any) -> None:
        """Set a row, or remove it if it is None, so that it can be undone."""
        before = dict(table) if row is None else {key: table.get(key)}
        self.undo.append(lambda: _restore(table, before, whole=row is None))
        table[key] = row
        if row is None:
            del table[key]

    def lock(self, user: str) -> UserRow:
        """Return a user's row; transactions never overlap here."""
        return self.users.get(user, UserRow(user))

    def save_user(self, row: UserRow) -> None:
        """Insert or replace a user's row."""
        self.put(self.users, row.user, row)

    def belief(self, user: str) -> BeliefRow:
        """Return the cached belief about a user."""
        return self.beliefs.get(user, BeliefRow(user))

    def save_belief(self, row: BeliefRow) -> None:
        """Insert or replace the cached belief about a user."""
        self.put(self.beliefs, row.user, row)

    def slate(self, slate_id: str) -> SlateRow | None:
        """Return one slate."""
        return self.slates.get(slate_id)

    def slates_of(self, user: str) -> list[SlateRow]:
        """Return all slates of a user by number."""
        return sorted((row for row in self.slates.values() if row.user == user), key=lambda row: row.number)

    def add_slate(self, row: SlateRow) -> None:
        """Record a new slate."""
        self.put(self.slates, row.slate_id, row)

    def change_slate(self, row: SlateRow) -> None:
        """Record the new status and closing time of a slate."""
        self.put(self.slates, row.slate_id, row)

    def answer(self, event_id: str) -> AnswerRow | None:
        """Return one feedback event."""
        return self.answers.get(event_id)

    def answers_to(self, slate_id: str) -> list[AnswerRow]:
        """Return the feedback events on one slate, in the order they were recorded."""
        return [row for row in self.answers.values() if row.slate_id == slate_id]

    def answers_of(self, user: str) -> list[AnswerRow]:
        """Return all feedback events of a user, in the order they were recorded."""
        return [row for row in self.answers.values() if row.user == user]

    def add_answer(self, row: AnswerRow) -> None:
        """Record a feedback event."""
        if row.event_id in self.answers:
            raise StoreError("an answer with this event_id is there already")
        self.put(self.answers, row.event_id, row)

    def count(self, user: str, policy: str, more: Counts) -> None:
        """Add to what happened to a user under a policy."""
        before = self.counts.get((user, policy), Counts())
        self.put(self.counts, (user, policy), Counts(*map(sum, zip(astuple(before), astuple(more), strict=True))))

    def expired(self, before: float, limit: int) -> list[SlateRow]:
        """Return open slates created before a time, oldest first."""
        old = (row for row in self.slates.values() if row.status == OPEN and row.created_at < before)
        return sorted(old, key=lambda row: row.created_at)[:limit]

    def totals(self) -> list[PolicyTotals]:
        """Return sums over all users, one per policy, by name."""
        policies = sorted({policy for _, policy in self.counts})
        return [_totals(name, [one for (_, policy), one in self.counts.items() if policy == name]) for name in policies]

    def forget(self, user: str) -> bool:
        """Remove everything about a user."""
        tables: tuple[dict[Any, Any], ...] = (self.slates, self.answers)
        doomed = [(table, key) for table in tables for key, row in table.items() if row.user == user]
        doomed += [(self.counts, key) for key in self.counts if key[0] == user]
        doomed += [(table, user) for table in (self.users, self.beliefs) if user in table]
        for table, key in doomed:
            self.put(table, key, None)
        return bool(doomed)


class MemoryStore:
    """Transactions one at a time under a lock; a failed one is undone."""

    def __init__(self) -> None:
        self.tables = MemoryTables()
        self.turn = threading.RLock()
        self.is_closed = False

    def submit(self, work: Callable[[Transaction], Result], ready: Ready | None = None) -> Future[Result]:  # noqa: ARG002
        """Run work at once; undo it if it fails."""
        future: Future[Result] = Future()
        with self.turn:
            try:
                self._refuse_if_closed()
                future.set_result(work(self.tables))
            except BaseException as error:  # noqa: BLE001
                for undo in reversed(self.tables.undo):
                    undo()
                future.set_exception(error)
            self.tables.undo.clear()
        return future

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Run work that only reads."""
        with self.turn:
            self._refuse_if_closed()
            return work(self.tables)

    def users(self) -> Iterator[str]:
        """Name all users."""
        tables = self.tables
        return iter(self.read(lambda _: sorted({*tables.users, *(row.user for row in tables.slates.values())})))

    def vacuum(self) -> None:
        """Nothing is left behind here."""

    def check(self) -> list[str]:
        """Nothing can go wrong with files here."""
        return []

    def health(self) -> dict[str, float | str]:
        """Return the number of rows."""
        self._refuse_if_closed()
        return {"kind": "memory", "slates": len(self.tables.slates), "answers": len(self.tables.answers)}

    def close(self) -> None:
        """Forget everything."""
        self.is_closed = True

    def _refuse_if_closed(self) -> None:
        if self.is_closed:
            raise StoreUnavailableError("the store is closed")


def _restore(table: dict[Any, Any], before: dict[Any, Any], whole: bool) -> None:
    """Put rows back; the whole table, in its old order, if one was removed."""
    if whole:
        table.clear()
    for key, row in before.items():
        table.pop(key, None)
        if row is not None:
            table[key] = row


def _totals(policy: str, counts: list[Counts]) -> PolicyTotals:
    def total(*names: str) -> float:
        values: float = 0.0
        for one in counts:
            product = 1.0
            for name in names:
                product *= getattr(one, name)
            values += product
        return values

    return PolicyTotals(
        policy=policy,
        users=len(counts),
        slates=int(total("slates")),
        shown=int(total("shown")),
        clicks=int(total("clicks")),
        variety=total("variety"),
        shown_squared=total("shown", "shown"),
        clicks_squared=total("clicks", "clicks"),
        clicks_shown=total("clicks", "shown"),
        slates_squared=total("slates", "slates"),
        variety_squared=total("variety", "variety"),
        variety_slates=total("variety", "slates"),
    )
