"""What a store keeps, as plain records: the log (slates, feedback, events), users, beliefs, counts, fits, items."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

ItemId = int | str
Choice = Mapping[str, Any]
"""How a slate was chosen, ready for JSON; see `slatewise.recommender.choice`."""

OPEN, CLOSED, WITHDRAWN = "open", "closed", "withdrawn"
"""The status of a slate: waiting for feedback, counted, or replaced before anybody reacted to it."""


@dataclass(frozen=True)
class SlateRecord:
    """A slate as it was shown, number `number` of its user, counted from 0; items by id as of that day's catalog.

    `variety` is the mean of 1 − similarity over its pairs of items, None if unknown. Times are seconds since 1970. A
    client that sent a `request_id` gets the same slate for the same request.
    """

    slate_id: str
    user: str
    number: int
    created_at: float
    catalog: str
    policy: str
    items: tuple[ItemId, ...]
    variety: float | None
    status: str = OPEN
    closed_at: float | None = None
    request_id: str | None = None

    def with_status(self, status: str, at: float) -> "SlateRecord":
        """Return the same slate with another status, set at a time."""
        return replace(self, status=status, closed_at=at)


@dataclass(frozen=True)
class FeedbackRecord:
    """One feedback event on a slate.

    seen: the items that were looked at, None if the client did not say; values: graded items with 0 (refused) to 1
    (liked); disliked: items that are refused for sure.
    """

    event_id: str
    slate_id: str
    user: str
    clicked: tuple[ItemId, ...]
    retracted: tuple[ItemId, ...]
    final: bool
    received_at: float
    seen: tuple[ItemId, ...] | None = None
    values: tuple[tuple[ItemId, float], ...] = ()
    disliked: tuple[ItemId, ...] = ()

    @property
    def reacted(self) -> frozenset[ItemId]:
        """The items that the event says something about, other than that they were seen."""
        return frozenset((*self.clicked, *self.retracted, *self.disliked, *(item for item, _ in self.values)))

    def has_same_content(self, other: "FeedbackRecord") -> bool:
        """Return whether two events differ in nothing but their id, the time of arrival and the order of items."""
        return self._content() == other._content()

    def _content(self) -> tuple[object, ...]:
        seen = None if self.seen is None else frozenset(self.seen)
        lists = map(frozenset, (self.clicked, self.retracted, self.values, self.disliked))
        return (self.slate_id, self.user, self.final, seen, *lists)


@dataclass(frozen=True)
class EventRecord:
    """Something that a user did with an item anywhere, not necessarily in the catalog; `kind` says what.

    `at` is when it happened, not after `received_at`. The event is learned before slate `position` of its user and
    after those with lower numbers.
    """

    event_id: str
    user: str
    item: ItemId
    kind: str
    value: float | None
    at: float
    received_at: float
    position: int

    def has_same_content(self, other: "EventRecord") -> bool:
        """Return whether two events say the same; without a time of its own, an event happened when it arrived."""
        return (self.user, self.item, self.kind, self.value) == (other.user, other.item, other.kind, other.value)


@dataclass(frozen=True)
class UserRecord:
    """A user; `version` changes with every write and is empty for a user never seen.

    Everything about a user that is written has a time of its own, later than `updated_at` of the row before. A row
    that does not match its checksum is returned with damaged = True and n_slates counted from the log.
    """

    user: str
    version: str = ""
    n_slates: int = 0
    updated_at: float = 0.0
    damaged: bool = False


@dataclass(frozen=True)
class BeliefRecord:
    """The cached belief about a user, learned from all counted slates with numbers below `covers`.

    `key` identifies the policy, its options, the catalog and how evidence is weighed. Without content there is no
    belief; one that does not match its checksum is returned without content and with damaged = True.
    """

    user: str
    key: str = ""
    covers: int = 0
    content: bytes | None = None
    damaged: bool = False


@dataclass(frozen=True)
class FitRecord:
    """Something fitted from the log, such as the attention curve, ready for JSON."""

    name: str
    fitted_at: float
    content: Mapping[str, Any]


class ItemRecord(NamedTuple):
    """An item of the item table; where it has no title or no categories, those of the catalog count.

    attributes: text, numbers, booleans, lists and {"time": seconds since 1970}, ready for JSON; vector: of float32
    numbers; published_at: not offered before. The store sets the rest: number orders items by their first appearance,
    version is that of the table after the last change, content_version that after the last change of title, categories
    or vector. A tuple, because a table may have millions.
    """

    item: ItemId
    title: str | None = None
    categories: tuple[str, ...] | None = None
    attributes: Mapping[str, Any] = {}
    vector: tuple[float, ...] | None = None
    available: bool = True
    published_at: float | None = None
    updated_at: float = 0.0
    number: int = 0
    version: int = 0
    content_version: int = 0

    def has_same_content(self, other: "ItemRecord") -> bool:
        """Return whether two records say the same about an item; true and 1.0 are not the same attribute."""
        written = (json.dumps(record.attributes, sort_keys=True) for record in (self, other))
        return self.content() == other.content() and len({*written}) == 1

    def content(self) -> tuple[Any, ...]:
        """Return what a client says about the item."""
        described = (self.title, self.categories, self.attributes, self.vector)
        return (self.item, *described, self.available, self.published_at)


@dataclass(frozen=True)
class ItemTable:
    """The state of the item table: its version grows with each change, its categories are in order of appearance."""

    version: int = 0
    categories: tuple[str, ...] = ()


@dataclass(frozen=True)
class ItemRate:
    """How an item did with everybody who saw it, as sums: how often, how much clicked, how much tastes explain."""

    seen: float = 0.0
    clicked: float = 0.0
    explained: float = 0.0


@dataclass(frozen=True)
class PolicyCounts:
    """What happened to one user under one policy: closed slates, items on them, clicks, summed variety.

    `varied` counts the slates whose variety is known.
    """

    slates: int = 0
    shown: int = 0
    clicks: int = 0
    variety: float = 0.0
    varied: int = 0


@dataclass(frozen=True)
class PolicyTotals:
    """Sums over the users of a policy: of their counts, and of squares and products for confidence intervals."""

    policy: str
    users: int
    slates: int
    shown: int
    clicks: int
    variety: float
    varied: float
    shown_squared: float
    clicks_squared: float
    clicks_shown: float
    varied_squared: float
    variety_squared: float
    variety_varied: float
