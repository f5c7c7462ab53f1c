"""What the service responds, as frozen dataclasses; fields that a newer service adds are ignored."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from slatewise.client.errors import ServiceError

ItemId = int | str
Json = Mapping[str, Any]
Kind = TypeVar("Kind")


@dataclass(frozen=True)
class SlateItem:
    """One item of a slate and why it is there; see the page on serving for the meaning of each field."""

    id: ItemId
    title: str
    categories: tuple[str, ...]
    probability: float | None
    deviation: float | None
    diversity_gain: float
    reason: str
    because: ItemId | None = None
    because_title: str | None = None
    distance: float | None = None


@dataclass(frozen=True)
class UnmetRule:
    """A rule that a slate does not meet: its kind, its number among those of its kind, from 0, and why."""

    rule: str
    number: int
    reason: str


@dataclass(frozen=True)
class Slate:
    """A recorded list of items to show; feedback names its `slate_id`."""

    slate_id: str
    user: str
    number: int
    policy: str
    variety: float | None
    items: tuple[SlateItem, ...]
    unmet: tuple[UnmetRule, ...] = ()


@dataclass(frozen=True)
class Preview:
    """The slate that would be chosen now; nothing was recorded."""

    user: str
    number: int
    policy: str
    variety: float | None
    items: tuple[SlateItem, ...]
    unmet: tuple[UnmetRule, ...] = ()


@dataclass(frozen=True)
class Receipt:
    """What became of feedback; a `duplicate` had arrived before, perhaps in an attempt whose response was lost."""

    slate_id: str
    event_id: str
    duplicate: bool
    closed: bool
    late: bool


@dataclass(frozen=True)
class EventReceipt:
    """What became of an event; `known` says whether the catalog has the item."""

    user: str
    event_id: str
    duplicate: bool
    known: bool


@dataclass(frozen=True)
class MergeReceipt:
    """How much moved from `merged` to `user`."""

    user: str
    merged: str
    slates: int
    feedback: int
    events: int


@dataclass(frozen=True)
class Ranked:
    """A candidate at its new rank: its index in the request, its score, and its gain when it was chosen."""

    index: int
    score: float
    gain: float
    id: ItemId | None = None


@dataclass(frozen=True)
class Item:
    """What is known about an item."""

    id: ItemId
    title: str
    categories: tuple[str, ...]
    available: bool
    attributes: dict[str, Any] | None = None
    published_at: float | None = None
    trained: bool | None = None
    updated_at: float | None = None


@dataclass(frozen=True)
class BatchResult:
    """What became of the events of a batch, in their order: a receipt, or the error of one that was refused."""

    results: tuple[EventReceipt | ServiceError, ...]

    @property
    def failed(self) -> tuple[ServiceError, ...]:
        """The errors among the results."""
        return tuple(result for result in self.results if isinstance(result, ServiceError))


def read_slate(response: Json) -> Slate:
    """Read a recorded slate."""
    return _filled(Slate, response, items=_items(response), unmet=_unmet(response))


def read_preview(response: Json) -> Preview:
    """Read a preview."""
    return _filled(Preview, response, items=_items(response), unmet=_unmet(response))


def read_receipt(response: Json) -> Receipt:
    """Read what became of feedback."""
    return _filled(Receipt, response)


def read_event_receipt(response: Json) -> EventReceipt:
    """Read what became of an event."""
    return _filled(EventReceipt, response)


def read_batch(response: Json) -> BatchResult:
    """Read what became of a batch of events."""
    return BatchResult(tuple(_outcome(result) for result in response["results"]))


def read_merge(response: Json) -> MergeReceipt:
    """Read what was moved."""
    return _filled(MergeReceipt, response)


def read_ranking(response: Json) -> tuple[Ranked, ...]:
    """Read reranked candidates, best first."""
    return tuple(_filled(Ranked, candidate) for candidate in response["results"])


def read_item(response: Json) -> Item:
    """Read an item."""
    return _filled(Item, response, categories=tuple(response["categories"]))


def read_items(response: Json) -> tuple[Item, ...]:
    """Read a page of items."""
    return tuple(read_item(item) for item in response["items"])


def _outcome(result: Json) -> EventReceipt | ServiceError:
    error = result.get("error")
    return read_event_receipt(result) if error is None else ServiceError(error["status"], error)


def _items(response: Json) -> tuple[SlateItem, ...]:
    return tuple(_filled(SlateItem, item, categories=tuple(item["categories"])) for item in response["items"])


def _unmet(response: Json) -> tuple[UnmetRule, ...]:
    return tuple(_filled(UnmetRule, rule) for rule in response.get("unmet", ()))


def _filled(kind: type[Kind], response: Json, **ready: Any) -> Kind:
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: response[name] for name in names if name in response} | ready)
