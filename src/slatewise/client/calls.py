"""Every call as data: method, path, body, and how to read the response. Both clients send the same calls.

A call that records something has an id before it is first sent, so that each attempt carries the same one and the
service counts it once.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypedDict, TypeVar
from urllib.parse import quote
from uuid import uuid4

from slatewise.client import responses
from slatewise.client.responses import ItemId

Result = TypeVar("Result")


class SlateOptions(TypedDict, total=False):
    """What a request for a slate may say besides user and k."""

    diversity: float
    candidates: Iterable[ItemId]
    exclude: Iterable[ItemId]
    categories: Iterable[str]
    policy: str
    replaces: str
    request_id: str
    scenario: str
    filter: str
    boost: list[dict[str, Any]]
    pin: list[dict[str, Any]]
    at_most: list[dict[str, Any]]
    at_least: list[dict[str, Any]]
    min_probability: float
    exclude_owned: bool


class Reaction(TypedDict, total=False):
    """What feedback may say besides slate_id and clicked items."""

    retracted: Iterable[ItemId]
    seen: Iterable[ItemId] | int
    values: Iterable[tuple[ItemId, float]]
    disliked: Iterable[ItemId]
    event_id: str
    final: bool
    user: str


class EventOptions(TypedDict, total=False):
    """What an event may say besides user, item and kind."""

    value: float
    at: float
    event_id: str


class RerankOptions(TypedDict, total=False):
    """What a request to rerank may say besides scores."""

    items: Iterable[ItemId]
    vectors: Iterable[Iterable[float]]
    categories: Iterable[Iterable[str]]
    k: int
    diversity: float
    method: str


@dataclass(frozen=True)
class Call(Generic[Result]):
    """One call; `absent_is_done` says that 404 in a second attempt means that the first one succeeded."""

    method: str
    path: str
    read: Callable[[Any], Result]
    body: Mapping[str, Any] | None = None
    query: Mapping[str, Any] | None = None
    absent_is_done: bool = False


def slate(user: str, k: int, options: SlateOptions) -> Call[responses.Slate]:
    """Ask for a slate that is recorded."""
    body = {"user": user, "k": k, "request_id": _new_id(), **_plain(options)}
    return Call("POST", "/v1/slates", responses.read_slate, body)


def preview(user: str, k: int, options: SlateOptions) -> Call[responses.Preview]:
    """Ask what a slate would be."""
    body = {"user": user, "k": k, "preview": True, **_plain(options)}
    return Call("POST", "/v1/slates", responses.read_preview, body)


def feedback(slate_id: str, clicked: Iterable[ItemId], reaction: Reaction) -> Call[responses.Receipt]:
    """Say how somebody reacted to a slate."""
    body = {"slate_id": slate_id, "clicked": list(clicked), "event_id": _new_id(), **_plain(reaction)}
    return Call("POST", "/v1/feedback", responses.read_receipt, body)


def event(user: str, item: ItemId, kind: str, options: EventOptions) -> Call[responses.EventReceipt]:
    """Say what somebody did with an item anywhere."""
    body = {"user": user, "item": item, "kind": kind, "event_id": _new_id(), **_plain(options)}
    return Call("POST", "/v1/events", responses.read_event_receipt, body)


def wish(user: str, category: str, kind: str, options: EventOptions) -> Call[responses.EventReceipt]:
    """Say that somebody wants more or less of a category."""
    body = {"user": user, "category": category, "kind": kind, "event_id": _new_id(), **_plain(options)}
    return Call("POST", "/v1/events", responses.read_event_receipt, body)


def retract(user: str, event_id: str) -> Call[responses.EventReceipt]:
    """Take an event back."""
    body = {"user": user, "retracts": event_id, "kind": "retract", "event_id": _new_id()}
    return Call("POST", "/v1/events", responses.read_event_receipt, body)


def events(several: Iterable[Mapping[str, Any]]) -> Call[responses.BatchResult]:
    """Send up to 100 events together."""
    body = {"events": [{"event_id": _new_id(), **_plain(event)} for event in several]}
    return Call("POST", "/v1/events", responses.read_batch, body)


def rerank(scores: Iterable[float], options: RerankOptions) -> Call[tuple[responses.Ranked, ...]]:
    """Choose a varied top k of scored candidates."""
    return Call("POST", "/v1/rerank", responses.read_ranking, {"scores": list(scores), **_plain(options)})


def merge(user: str, session: str) -> Call[responses.MergeReceipt]:
    """Move what is known about a session to a user."""
    return Call("POST", f"/v1/users/{_segment(user)}/merge", responses.read_merge, {"from": session})


def user(user: str) -> Call[dict[str, Any]]:
    """Ask what is believed about a user."""
    return Call("GET", f"/v1/users/{_segment(user)}", dict)


def forget(user: str) -> Call[None]:
    """Forget a user."""
    return Call("DELETE", f"/v1/users/{_segment(user)}", _nothing, absent_is_done=True)


def items(query: Mapping[str, Any]) -> Call[tuple[responses.Item, ...]]:
    """List items."""
    return Call("GET", "/v1/items", responses.read_items, query=query)


def item(identifier: ItemId) -> Call[responses.Item]:
    """Ask what is known about an item."""
    return Call("GET", f"/v1/items/{_segment(identifier)}", responses.read_item)


def put_items(several: Iterable[Mapping[str, Any]]) -> Call[dict[str, Any]]:
    """Add or replace items together."""
    return Call("POST", "/v1/items", dict, {"items": [_plain(item) for item in several]})


def change_item(identifier: ItemId, changes: Mapping[str, Any]) -> Call[responses.Item]:
    """Change some of what was said about an item."""
    return Call("PATCH", f"/v1/items/{_segment(identifier)}", responses.read_item, _plain(changes))


def withdraw_item(identifier: ItemId) -> Call[None]:
    """Withdraw an item."""
    return Call("DELETE", f"/v1/items/{_segment(identifier)}", _nothing, absent_is_done=True)


def catalog() -> Call[dict[str, Any]]:
    """Ask about the catalog."""
    return Call("GET", "/v1/catalog", dict)


def _new_id() -> str:
    return uuid4().hex


def _segment(identifier: ItemId) -> str:
    return quote(str(identifier), safe="")


def _nothing(_: object) -> None:
    return None


def _plain(given: Any) -> dict[str, Any]:
    """Return what was given, with tuples, sets and other iterables as lists."""
    return {name: _listed(value) for name, value in given.items() if value is not None}


def _listed(value: Any) -> Any:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        return value
    return [_listed(part) for part in value]
