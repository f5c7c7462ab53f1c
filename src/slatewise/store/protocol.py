"""What a store promises: slates, feedback and events are the log; beliefs are a cache that carries a checksum."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from slatewise.store.records import (
    CLOSED,
    OPEN,
    WITHDRAWN,
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

__all__ = [
    "CLOSED",
    "OPEN",
    "START",
    "WITHDRAWN",
    "WRITER_OF_ITEMS",
    "Arrival",
    "BeliefRecord",
    "Choice",
    "EventRecord",
    "FeedbackRecord",
    "FitRecord",
    "ItemId",
    "ItemRate",
    "ItemRecord",
    "ItemTable",
    "PolicyCounts",
    "PolicyTotals",
    "Result",
    "SlateRecord",
    "Store",
    "StoreDamagedError",
    "StoreError",
    "StoreFullError",
    "StoreUnavailableError",
    "StoreUncertainError",
    "Transaction",
    "UserRecord",
]

Result = TypeVar("Result")

Arrival = tuple[float, str]
"""The time at which an event arrived, and its id: events of a user are ordered by these."""
WRITER_OF_ITEMS = ""
"""Who is locked while items are written; no user has this id."""
START: Arrival = (float("-inf"), "")
"""Before anything in a log; (time, "") is before everything that arrived at that time or later."""


class StoreError(Exception):
    """The store could not do what it was asked to do; nothing was written.

    Examples
    --------
    >>> from slatewise import StoreError
    >>> from slatewise.store import open_store
    >>> try:
    ...     open_store("sqlite:///no/such/directory/slates.db")
    ... except StoreError as error:
    ...     print(type(error).__name__)
    StoreUnavailableError
    """


class StoreFullError(StoreError):
    """There is no space left to write; reading goes on, and writing resumes once there is space."""


class StoreDamagedError(StoreError):
    """A row of the log does not match its checksum, or the file is not an intact store."""


class StoreUnavailableError(StoreError):
    """The store cannot be reached, is closed, or belongs to another process."""


class StoreUncertainError(StoreUnavailableError):
    """The connection was lost or the disk failed during COMMIT: the write may or may not be durable.

    Resending an event is safe.
    """


class Transaction(Protocol):
    """Reads and writes that take effect together or not at all."""

    def lock(self, user: str) -> UserRecord:
        """Return a user and make every other writer of this user wait until the transaction ends.

        Inside `Store.read` it only reads.
        """

    def expect_profile(self, user: str) -> None:
        """Say that a user, the belief and the log since then are asked for next; a distant store then asks once."""

    def expect_feedback(self, slate_id: str, user: str | None, event_id: str | None) -> None:
        """Say that a slate, its user and the feedback on it are asked for next, as far as they are known already."""

    def save_user(self, user: UserRecord) -> None:
        """Insert or replace a user."""

    def belief(self, user: str) -> BeliefRecord:
        """Return the cached belief about a user."""

    def save_belief(self, belief: BeliefRecord) -> None:
        """Insert or replace the cached belief about a user."""

    def discard_belief(self, user: str) -> None:
        """Delete the cached belief about a user."""

    def slate(self, slate_id: str) -> SlateRecord | None:
        """Return one slate."""

    def slate_of_request(self, user: str, request_id: str) -> SlateRecord | None:
        """Return the slate that was recorded for a request of a user."""

    def slates_of(self, user: str, first: int = 0, limit: int | None = None) -> list[SlateRecord]:
        """Return the slates of a user by number, from number `first` on, at most so many."""

    def choices_of(self, user: str, first: int = 0, limit: int | None = None) -> dict[int, Choice]:
        """Return how slates of a user were chosen, by number; slates of earlier versions are left out."""

    def add_slate(self, slate: SlateRecord, choice: Choice | None = None) -> None:
        """Record a new slate and how it was chosen."""

    def update_slate(self, slate: SlateRecord) -> None:
        """Record the new status and closing time of a slate."""

    def feedback_on(self, slate: SlateRecord, event_id: str | None = None) -> list[FeedbackRecord]:
        """Return the feedback events on one slate in the order of their arrival.

        With an `event_id`, the event of the same user with that id is among them, even if it is on another slate.
        """

    def feedback_of(self, user: str, after: Arrival = START, limit: int | None = None) -> list[FeedbackRecord]:
        """Return feedback events of a user in the order of their arrival."""

    def add_feedback(self, event: FeedbackRecord) -> None:
        """Record a feedback event; its id must be new to the user."""

    def event(self, user: str, event_id: str) -> EventRecord | None:
        """Return one event from elsewhere."""

    def events_of(self, user: str, after: Arrival = START, limit: int | None = None) -> list[EventRecord]:
        """Return events from elsewhere in the order of their arrival."""

    def add_event(self, event: EventRecord) -> None:
        """Record an event from elsewhere; its id must be new to the user."""

    def position_at(self, user: str, at: float) -> int:
        """Return the number of the user's slates up to the last one that was created at a time or before."""

    def count(self, user: str, policy: str, more: PolicyCounts) -> None:
        """Add to the counts of a user under a policy."""

    def counts_of(self, user: str) -> dict[str, PolicyCounts]:
        """Return the counts of a user by policy."""

    def expired(self, before: float, limit: int, skip: int = 0) -> list[SlateRecord | None]:
        """Return open slates created before a time, oldest first, without the first few; None for a damaged one."""

    def count_expired(self, before: float, limit: int) -> tuple[int, float | None]:
        """Return how many open slates were created before a time, counted up to a limit, and when the oldest was."""

    def totals(self) -> list[PolicyTotals]:
        """Return sums over all users, one per policy, by name."""

    def forget(self, user: str) -> bool:
        """Delete everything about a user; return whether there was anything."""

    def fit(self, name: str) -> FitRecord | None:
        """Return what was last fitted under a name; a damaged fit is as good as none."""

    def save_fit(self, fit: FitRecord) -> None:
        """Insert or replace a fit."""

    def discard_fits(self, names: Sequence[str]) -> None:
        """Delete fits, as far as they exist."""

    def item_table(self) -> ItemTable:
        """Return the version of the item table and its categories; cheap."""

    def put_items(self, items: Sequence[ItemRecord], version: int | None = None) -> int:
        """Insert or replace items; return the version of the table, which grows unless nothing changed.

        It grows by 1, unless it is given, as for a table that is restored. Other writers of items wait until the
        transaction ends.
        """

    def item(self, item: ItemId) -> ItemRecord | None:
        """Return one item of the item table."""

    def items_since(self, after: tuple[int, int], limit: int) -> list[ItemRecord]:
        """Return items by version and number, after a pair of these: what changed since a version comes first."""

    def items_by_number(self, after: int, limit: int) -> list[ItemRecord]:
        """Return items in the order of their first appearance, after a number."""

    def add_rates(self, shard: str, more: Mapping[ItemId, ItemRate]) -> None:
        """Add to what is known about how items do; writers with different shards do not wait for each other."""

    def rates(self, shards: str = "") -> dict[ItemId, ItemRate]:
        """Return how items do, summed over all shards, or over those whose names begin like this."""


class Store(Protocol):
    """Keeps slates, feedback and beliefs."""

    def write(self, job: Callable[[Transaction], Result]) -> Future[Result]:
        """Queue a job that runs in one transaction; the future is set once it is durable, or to the error.

        A job touches one user, or two that it locks in the order of their ids. It is short, may be run again from the
        start, and never waits for another job. If it fails, nothing of it is written.
        """

    def read(self, job: Callable[[Transaction], Result]) -> Result:
        """Run a job that only reads, in the calling thread, on a consistent snapshot of what is durable."""

    def users(self) -> Iterator[str]:
        """Iterate over the ids of all users."""

    def sweeping(self) -> AbstractContextManager[bool]:
        """Return a context in which no other process closes expired slates, or False if another is doing so now."""

    def vacuum(self) -> None:
        """Return unused space to the system and leave no trace of forgotten users."""

    def check(self) -> list[str]:
        """Return what the database itself finds wrong with its files and indexes; it reads all of them."""

    def health(self) -> dict[str, float | str]:
        """Return figures for operators, such as size and backlog; raise StoreError if the store does not answer."""

    def close(self) -> None:
        """Finish the queued jobs and close; writing afterwards fails with StoreUnavailableError."""
