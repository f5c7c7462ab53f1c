"""What a store keeps and promises: slates and answers are the truth, beliefs are caches that carry a checksum."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from slatewise.frozen import changed

Result = TypeVar("Result")
Ready = Callable[[float], bool]
"""Says whether a work can run without waiting for something else, now or within so many seconds."""
ItemId = int | str

OPEN, CLOSED, WITHDRAWN = "open", "closed", "withdrawn"
"""What a slate can be: waiting for answers, counted, or replaced before anyone answered it."""


class StoreError(Exception):
    """The store could not do what it was asked; nothing of it was kept."""


class StoreFullError(StoreError):
    """There is no room to write; reading goes on, and writing resumes when there is room again."""


class StoreDamagedError(StoreError):
    """A row of the log does not match its checksum, or the file is not a whole store."""


class StoreUnavailableError(StoreError):
    """The store cannot be reached, is closed, or belongs to another process."""


class StoreUncertainError(StoreUnavailableError):
    """The connection was lost during COMMIT: it may have been kept or not; sending the same event again is safe."""


@dataclass(frozen=True)
class SlateRow:
    """A slate as it was shown, the `number`-th of its user, from 0; items by id, as the catalogue of the day had them.

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

    def closed(self, at: float) -> "SlateRow":
        """Return the same slate, counted."""
        return changed(self, status=CLOSED, closed_at=at)


@dataclass(frozen=True)
class AnswerRow:
    """One feedback event on a slate; an item counts as clicked if it was clicked more often than retracted."""

    event_id: str
    slate_id: str
    user: str
    clicked: tuple[ItemId, ...]
    retracted: tuple[ItemId, ...]
    final: bool
    received_at: float

    def says_the_same_as(self, other: "AnswerRow") -> bool:
        """Whether two events differ in nothing but the time they came."""
        return replace(self, received_at=other.received_at) == other


@dataclass(frozen=True)
class UserRow:
    """A user: `stamp` changes with every write.

    A user never seen has an empty stamp. A row that did not match its checksum is returned with damaged = True;
    n_slates is then counted anew from the log.
    """

    user: str
    stamp: str = ""
    n_slates: int = 0
    damaged: bool = False


@dataclass(frozen=True)
class BeliefRow:
    """What was learnt about a user, a cache: the fold of all counted slates with numbers below `covers`.

    `space` names the policy and the catalogue that it belongs to. Without content there is none; one that did not
    match its checksum is returned without content and with damaged = True.
    """

    user: str
    space: str = ""
    covers: int = 0
    content: bytes | None = None
    damaged: bool = False


@dataclass(frozen=True)
class Counts:
    """What happened to one user under one policy: closed slates, items in them, clicks, summed variety."""

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
    """Reads and writes that happen together or not at all."""

    def lock(self, user: str) -> UserRow:
        """Return a user's row and keep every other writer of this user waiting until the transaction ends.

        Inside `Store.read` it only reads.
        """

    def save_user(self, row: UserRow) -> None:
        """Insert or replace a user's row."""

    def belief(self, user: str) -> BeliefRow:
        """Return the cached belief about a user."""

    def save_belief(self, row: BeliefRow) -> None:
        """Insert or replace the cached belief about a user."""

    def slate(self, slate_id: str) -> SlateRow | None:
        """Return one slate."""

    def slates_of(self, user: str) -> list[SlateRow]:
        """Return all slates of a user by number."""

    def add_slate(self, row: SlateRow) -> None:
        """Record a new slate."""

    def change_slate(self, row: SlateRow) -> None:
        """Record the new status and closing time of a slate."""

    def answer(self, event_id: str) -> AnswerRow | None:
        """Return one feedback event."""

    def answers_to(self, slate_id: str) -> list[AnswerRow]:
        """Return the feedback events on one slate, in the order they were recorded."""

    def answers_of(self, user: str) -> list[AnswerRow]:
        """Return all feedback events of a user, in the order they were recorded."""

    def add_answer(self, row: AnswerRow) -> None:
        """Record a feedback event; its id must be new."""

    def count(self, user: str, policy: str, more: Counts) -> None:
        """Add to what happened to a user under a policy."""

    def expired(self, before: float, limit: int) -> list[SlateRow]:
        """Return open slates created before a time, oldest first."""

    def totals(self) -> list[PolicyTotals]:
        """Return sums over all users, one per policy, by name."""

    def forget(self, user: str) -> bool:
        """Remove everything about a user; say whether there was anything."""


class Store(Protocol):
    """A place that keeps slates, answers and beliefs."""

    def submit(self, work: Callable[[Transaction], Result], ready: Ready | None = None) -> Future[Result]:
        """Run work in one transaction; the future is set once it is durable, or to the error, when nothing was kept.

        Work must touch one user at most, may be run again from the start, and must not wait for another submission.
        What `ready` says is only advice: a store that runs one work at a time lets others go first until it is true.
        """

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Run work that only reads, in the calling thread, on a consistent snapshot of what is durable."""

    def users(self) -> Iterator[str]:
        """Name all users."""

    def vacuum(self) -> None:
        """Give unused space back and leave no trace of what was forgotten."""

    def check(self) -> list[str]:
        """Return what the database itself finds wrong with its files and indexes; it reads all of them."""

    def health(self) -> dict[str, float | str]:
        """Return figures for operators: size, backlog, and the like; raise StoreError if the store does not answer."""

    def close(self) -> None:
        """Finish what was submitted and let go; submitting afterwards fails with StoreUnavailableError."""
