"""What a store keeps and promises: slates and feedback are the log; beliefs are a cache that carries a checksum."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

Result = TypeVar("Result")
ItemId = int | str

OPEN, CLOSED, WITHDRAWN = "open", "closed", "withdrawn"
"""The status of a slate: waiting for feedback, counted, or replaced before anybody clicked in it."""


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


@dataclass(frozen=True)
class SlateRecord:
    """A slate as it was shown, number `number` of its user, counted from 0; items by id as of that day's catalog.

    `variety` is the mean of 1 − Jaccard similarity over its pairs of items. Times are seconds since 1970.
    """

    slate_id: str
    user: str
    number: int
    created_at: float
    catalog: str
    policy: str
    items: tuple[ItemId, ...]
    variety: float
    status: str = OPEN
    closed_at: float | None = None

    def with_status(self, status: str, at: float) -> "SlateRecord":
        """Return the same slate with another status, set at a time."""
        return replace(self, status=status, closed_at=at)


@dataclass(frozen=True)
class FeedbackRecord:
    """One feedback event on a slate; an item counts as clicked if it was clicked more often than retracted."""

    event_id: str
    slate_id: str
    user: str
    clicked: tuple[ItemId, ...]
    retracted: tuple[ItemId, ...]
    final: bool
    received_at: float

    def has_same_content(self, other: "FeedbackRecord") -> bool:
        """Return whether two events differ in nothing but the time of arrival and the order of items."""
        is_same_set = set(self.clicked) == set(other.clicked) and set(self.retracted) == set(other.retracted)
        unordered = replace(self, clicked=other.clicked, retracted=other.retracted, received_at=other.received_at)
        return is_same_set and unordered == other


@dataclass(frozen=True)
class UserRecord:
    """A user; `version` changes with every write and is empty for a user never seen.

    A row that does not match its checksum is returned with damaged = True and n_slates counted from the log.
    """

    user: str
    version: str = ""
    n_slates: int = 0
    damaged: bool = False


@dataclass(frozen=True)
class BeliefRecord:
    """The cached belief about a user, learned from all counted slates with numbers below `covers`.

    `key` identifies the policy, its options and the catalog. Without content there is no belief; one that does not
    match its checksum is returned without content and with damaged = True.
    """

    user: str
    key: str = ""
    covers: int = 0
    content: bytes | None = None
    damaged: bool = False


@dataclass(frozen=True)
class PolicyCounts:
    """What happened to one user under one policy: closed slates, items on them, clicks, summed variety."""

    slates: int = 0
    shown: int = 0
    clicks: int = 0
    variety: float = 0.0


@dataclass(frozen=True)
class PolicyTotals:
    """Sums over the users of a policy: of their counts, and of squares and products for confidence intervals."""

    policy: str
    users: int
    slates: int
    shown: int
    clicks: int
    variety: float
    shown_squared: float
    clicks_squared: float
    clicks_shown: float
    slates_squared: float
    variety_squared: float
    variety_slates: float


class Transaction(Protocol):
    """Reads and writes that take effect together or not at all."""

    def lock(self, user: str) -> UserRecord:
        """Return a user and make every other writer of this user wait until the transaction ends.

        Inside `Store.read` it only reads.
        """

    def save_user(self, user: UserRecord) -> None:
        """Insert or replace a user."""

    def belief(self, user: str) -> BeliefRecord:
        """Return the cached belief about a user."""

    def save_belief(self, belief: BeliefRecord) -> None:
        """Insert or replace the cached belief about a user."""

    def discard_belief(self, user: str, number: int) -> None:
        """Delete the cached belief about a user if it was learned from slate `number`, among others."""

    def slate(self, slate_id: str) -> SlateRecord | None:
        """Return one slate."""

    def slates_of(self, user: str) -> list[SlateRecord]:
        """Return all slates of a user by number."""

    def add_slate(self, slate: SlateRecord) -> None:
        """Record a new slate."""

    def update_slate(self, slate: SlateRecord) -> None:
        """Record the new status and closing time of a slate."""

    def feedback(self, event_id: str) -> FeedbackRecord | None:
        """Return one feedback event."""

    def feedback_on(self, slate: SlateRecord) -> list[FeedbackRecord]:
        """Return the feedback events on one slate in the order of their arrival."""

    def feedback_of(self, user: str) -> list[FeedbackRecord]:
        """Return all feedback events of a user in the order of their arrival."""

    def add_feedback(self, event: FeedbackRecord) -> None:
        """Record a feedback event; its id must be new."""

    def count(self, user: str, policy: str, more: PolicyCounts) -> None:
        """Add to the counts of a user under a policy."""

    def expired(self, before: float, limit: int, skip: int = 0) -> list[SlateRecord | None]:
        """Return open slates created before a time, oldest first, without the first few; None for a damaged one."""

    def count_expired(self, before: float, limit: int) -> tuple[int, float | None]:
        """Return how many open slates were created before a time, counted up to a limit, and when the oldest was."""

    def totals(self) -> list[PolicyTotals]:
        """Return sums over all users, one per policy, by name."""

    def forget(self, user: str) -> bool:
        """Delete everything about a user; return whether there was anything."""


class Store(Protocol):
    """Keeps slates, feedback and beliefs."""

    def write(self, job: Callable[[Transaction], Result]) -> Future[Result]:
        """Queue a job that runs in one transaction; the future is set once it is durable, or to the error.

        A job touches at most one user, is short, may be run again from the start, and never waits for another job.
        If it fails, nothing of it is written.
        """

    def read(self, job: Callable[[Transaction], Result]) -> Result:
        """Run a job that only reads, in the calling thread, on a consistent snapshot of what is durable."""

    def users(self) -> Iterator[str]:
        """Iterate over the ids of all users."""

    def vacuum(self) -> None:
        """Return unused space to the system and leave no trace of forgotten users."""

    def check(self) -> list[str]:
        """Return what the database itself finds wrong with its files and indexes; it reads all of them."""

    def health(self) -> dict[str, float | str]:
        """Return figures for operators, such as size and backlog; raise StoreError if the store does not answer."""

    def close(self) -> None:
        """Finish the queued jobs and close; writing afterwards fails with StoreUnavailableError."""
