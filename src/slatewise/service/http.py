"""HTTP without surprises: bodies within limits, strict JSON, JSON responses, and the endpoints made of these."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from slatewise.service.errors import (
    MALFORMED,
    MEDIA_TYPE,
    NO_STORE,
    TIMEOUT,
    TOO_LARGE,
    ProblemError,
    invalid,
)
from slatewise.service.state import ServiceState

Model = TypeVar("Model")

JSON = b"application/json"


@dataclass(frozen=True, eq=False)
class Endpoint:
    """One row of the table of routes, and the ASGI application that serves it.

    scopes: a key needs one of these, and none means that no key is needed; responses: their types by status, None for
    an empty body; body, query: what is validated and passed to the handler, after the service's state and the request.
    """

    method: str
    path: str
    handler: Callable[..., Awaitable[Response]]
    scopes: tuple[str, ...]
    responses: Mapping[int, Any]
    body: TypeAdapter[Any] | None = None
    query: TypeAdapter[Any] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the key before anything is read, validate what was sent, call the handler, send its response."""
        request = Request(scope, receive)
        state: ServiceState = scope["app"].state.service
        state.auth.authorize(scope, self.scopes)
        if self.method == "POST" or self.body is not None:
            require_json(scope)
        arguments: list[Any] = []
        if self.body is not None:
            largest = state.settings.largest_body
            check_length(scope, largest)
            arguments.append(validate(self.body, parse_json(await read_body(receive, largest))))
        if self.query is not None:
            arguments.append(validate(self.query, dict(request.query_params)))
        response = await self.handler(state, request, *arguments)
        await response(scope, receive, send)


def require_json(scope: Scope) -> None:
    """Reject bodies that a form on another site's page could send."""
    sent = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
    if sent.partition(b";")[0].strip().lower() != JSON:
        raise ProblemError(MEDIA_TYPE, "Send the header Content-Type: application/json.")


def check_length(scope: Scope, largest: int) -> None:
    """Reject a body that is announced as too large before any of it is read."""
    announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    if announced.isdigit() and int(announced[:20]) > largest:
        raise too_large(largest)


def too_large(largest: int) -> ProblemError:
    """Return the error for a body above the limit."""
    return ProblemError(TOO_LARGE, f"A body may have at most {largest} bytes.")


async def read_body(receive: Receive, largest: int) -> bytearray:
    """Return the body, if it is small enough; how long it may take is up to the protocol, which then hangs up."""
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ProblemError(TIMEOUT, "The body did not arrive.")
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > largest:
            raise too_large(largest)
    return body


class NotJsonError(ValueError):
    """Text that is not JSON in the strict sense."""


def parse_json(body: bytes | bytearray) -> Any:
    """Parse JSON: UTF-8 only, no NaN or Infinity, no name twice in an object."""
    try:
        return DECODER.decode(body.decode())
    except RecursionError:
        raise ProblemError(MALFORMED, "The body is nested too deeply.") from None
    except NotJsonError as error:
        raise ProblemError(MALFORMED, str(error)) from None
    except ValueError:
        raise ProblemError(MALFORMED, "The body is not JSON in UTF-8.") from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise NotJsonError("An object in the body has the same name twice.")
    return members


def _reject_constant(_: str) -> NoReturn:
    raise NotJsonError("NaN and Infinity are not JSON.")


DECODER = json.JSONDecoder(object_pairs_hook=_without_duplicates, parse_constant=_reject_constant)


def validate(adapter: TypeAdapter[Model], value: Any) -> Model:
    """Check a parsed value against a type."""
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise invalid(error.errors(include_url=False, include_input=False)) from None


class JsonResponse(Response):
    """A view as JSON, or JSON already written as bytes."""

    media_type = "application/json"

    def __init__(self, content: Any, status_code: int = 200) -> None:
        super().__init__(content, status_code, NO_STORE)

    def render(self, content: Any) -> bytes:
        """Write the view, unless it is written already."""
        return content if isinstance(content, bytes) else to_json(content)


def to_json(view: Any) -> bytes:
    """Write a view as JSON; a number that JSON cannot express becomes null."""
    kind = type(view)
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind].dump_json(view)


_adapters: dict[type, TypeAdapter[Any]] = {}
