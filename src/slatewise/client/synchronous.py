"""The client for ordinary code."""

import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self, Unpack

import httpx

from slatewise.client import calls
from slatewise.client.calls import Call, EventOptions, Reaction, RerankOptions, Result, SlateOptions
from slatewise.client.connection import (
    Patience,
    http_options,
    http_request,
    is_worth_retrying,
    last_error,
    pause_after,
    read_response,
)
from slatewise.client.errors import ServiceError
from slatewise.client.responses import (
    BatchResult,
    EventReceipt,
    Item,
    ItemId,
    MergeReceipt,
    Preview,
    Ranked,
    Receipt,
    Slate,
)


class Client:
    """Calls the service; may be shared by threads.

    Every call that records something carries an id of its own from the first attempt on, so that a retry after a lost
    response counts once.

    Parameters
    ----------
    url : str, optional
        Address of the service; otherwise the environment variable SLATEWISE_URL, or http://127.0.0.1:8000.
    key : str, optional
        API key; otherwise SLATEWISE_KEY.
    timeout : float
        Seconds for each attempt.
    attempts : int
        How often a call is tried while the service does not respond, is busy or asks to wait.
    transport : httpx.BaseTransport, optional
        Of httpx, for proxies, certificates or tests.

    Raises
    ------
    UnreachableError
        By every method, if no attempt brought a response.
    ServiceError
        By every method, if the service refused; the message says why.

    Examples
    --------
    >>> import httpx
    >>> from slatewise.client import Client
    >>> receipt = {"user": "ann", "item": "tea", "event_id": "e1", "duplicate": False, "known": True}
    >>> service = httpx.MockTransport(lambda request: httpx.Response(200, json=receipt))  # instead of a running one
    >>> with Client("http://shop.example", transport=service) as client:
    ...     client.event("ann", "tea", "purchase").known
    True
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = 5.0,
        attempts: int = 5,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._patience = Patience(timeout, attempts)
        self._http = httpx.Client(**http_options(url, key, self._patience), transport=transport)

    def slate(self, user: str, k: int = 10, **options: Unpack[SlateOptions]) -> Slate:
        """Choose a slate for a user and record it; retries get the same slate.

        Parameters
        ----------
        user : str
            Whom the slate is for.
        k : int
            How many items.
        **options
            `diversity`, `candidates`, `exclude`, `categories`, `policy`, `replaces`, `request_id`, `scenario`, and the
            rules `filter`, `boost`, `pin`, `at_most`, `at_least`, `min_probability`, `exclude_owned`.

        Returns
        -------
        Slate
        """
        return self._send(calls.slate(user, k, options))

    def preview(self, user: str, k: int = 10, **options: Unpack[SlateOptions]) -> Preview:
        """Return what `slate` would choose now; nothing is recorded."""
        return self._send(calls.preview(user, k, options))

    def feedback(self, slate_id: str, clicked: Iterable[ItemId] = (), **reaction: Unpack[Reaction]) -> Receipt:
        """Record how somebody reacted to a slate; it counts once however often it is sent.

        Parameters
        ----------
        slate_id : str
            Of the slate.
        clicked : iterable
            The ids of the items that were clicked.
        **reaction
            `seen` (items, or how many from the top), `values`, `disliked`, `retracted`, `final`, `user`, and an
            `event_id` of your own.

        Returns
        -------
        Receipt
        """
        return self._send(calls.feedback(slate_id, clicked, reaction))

    def event(self, user: str, item: ItemId, kind: str, **options: Unpack[EventOptions]) -> EventReceipt:
        """Record what somebody did with an item anywhere: `like`, `purchase`, `rating`, `view`, `hide` or `owned`."""
        return self._send(calls.event(user, item, kind, options))

    def wish(self, user: str, category: str, kind: str, **options: Unpack[EventOptions]) -> EventReceipt:
        """Record that somebody wants `more` or `less` of a category."""
        return self._send(calls.wish(user, category, kind, options))

    def retract(self, user: str, event_id: str) -> EventReceipt:
        """Take an event back, as if it had never been sent; its id is in its receipt."""
        return self._send(calls.retract(user, event_id))

    def events(self, several: Iterable[Mapping[str, Any]]) -> BatchResult:
        """Record up to 100 events, each a mapping of user, item, kind and perhaps value, at, event_id."""
        return self._send(calls.events(several))

    def rerank(self, scores: Iterable[float], **options: Unpack[RerankOptions]) -> tuple[Ranked, ...]:
        """Choose a varied top k of candidates that you have scored yourself; nothing is recorded."""
        return self._send(calls.rerank(scores, options))

    def merge(self, user: str, session: str) -> MergeReceipt:
        """Move everything known about a session to a user."""
        return self._send(calls.merge(user, session))

    def user(self, user: str) -> dict[str, Any]:
        """Return what is believed about a user."""
        return self._send(calls.user(user))

    def forget(self, user: str) -> None:
        """Forget a user; the key needs the scope admin."""
        self._send(calls.forget(user))

    def items(self, **query: str | int | bool) -> tuple[Item, ...]:
        """List items by `query`, `category` and `available`, most liked first; `offset` and `limit` choose a page."""
        return self._send(calls.items(query))

    def item(self, identifier: ItemId) -> Item:
        """Return what is known about an item."""
        return self._send(calls.item(identifier))

    def put_items(self, several: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Add or replace up to 1,000 items together; the key needs the scope items."""
        return self._send(calls.put_items(several))

    def change_item(self, identifier: ItemId, **changes: Any) -> Item:
        """Change some of what was said about an item; the key needs the scope items."""
        return self._send(calls.change_item(identifier, changes))

    def withdraw_item(self, identifier: ItemId) -> None:
        """Stop offering an item; the key needs the scope items."""
        self._send(calls.withdraw_item(identifier))

    def catalog(self) -> dict[str, Any]:
        """Return size, categories and origin of the catalog."""
        return self._send(calls.catalog())

    def _send(self, call: Call[Result]) -> Result:
        """Send a call until there is a response, or attempts run out."""
        for attempt in range(1, self._patience.attempts + 1):
            response = None
            try:
                response = self._http.request(**http_request(call))
                return read_response(call, response, attempt)
            except (httpx.TransportError, ServiceError) as error:
                if attempt == self._patience.attempts or not is_worth_retrying(error):
                    raise last_error(error, attempt) from error
                pause = pause_after(error, attempt, response)
            time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
