"""Routes that say who may use them: the key is checked before anything of a request is read."""

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, get_type_hints

from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from slatewise.service.reading import parse, read_body, require_json, validate
from slatewise.service.running import service_of

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

SCOPES_KEY = "x-scopes"


class ScopedRoute(APIRoute):
    """A route with scopes; a parameter `body` is parsed strictly here, the rest of a signature is left to FastAPI."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        extra = options.get("openapi_extra") or {}
        if SCOPES_KEY not in extra:
            raise TypeError(f"the route {path} does not say which scopes may use it; use Entry")
        self.scopes: tuple[str, ...] = tuple(extra[SCOPES_KEY])
        super().__init__(path, endpoint, **options)
        self.takes_body = self.body_field is not None
        if self.takes_body:
            self.app = _directly(self._admitting(_with_body(endpoint)))

    def get_route_handler(self) -> Handler:
        """Return the handler that admits a request and then serves it."""
        return self._admitting(super().get_route_handler())

    def _admitting(self, serve: Handler) -> Handler:
        scopes, changes = self.scopes, "POST" in (self.methods or ())

        async def admit_and_serve(request: Request) -> Response:
            service_of(request).gate.admit(request.scope, scopes)
            if changes:
                require_json(request.scope)
            return await serve(request)

        return admit_and_serve


def _with_body(endpoint: Callable[..., Awaitable[Response]]) -> Handler:
    adapter = TypeAdapter(get_type_hints(endpoint, include_extras=True)["body"])

    async def serve(request: Request) -> Response:
        settings = service_of(request).settings
        body = await read_body(request.receive, settings.largest_body, settings.body_timeout)
        return await endpoint(request, validate(adapter, parse(body)))

    return serve


def _directly(handler: Handler) -> ASGIApp:
    """Run a handler without the stacks that FastAPI keeps for dependencies: these routes have none."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        response = await handler(Request(scope, receive, send))
        await response(scope, receive, send)

    return serve


@dataclass(frozen=True)
class Entry:
    """One line of the table of routes: scopes of which a key needs one (none: no key), and answers by status."""

    method: str
    path: str
    endpoint: Callable[..., Any]
    scopes: tuple[str, ...]
    answers: dict[int, Any]

    def options(self) -> dict[str, Any]:
        """Return what FastAPI wants to know for the route and its documentation."""
        first, *others = self.answers
        words = inspect.cleandoc(self.endpoint.__doc__ or "")
        return {
            "methods": [self.method],
            "status_code": first,
            "response_class": PlainTextResponse if self.answers[first] is str else JSONResponse,
            "summary": words.split("\n", 1)[0].rstrip("."),
            "description": words,
            "responses": {status: _described(self.answers[status]) for status in (first, *others)} | PROBLEMS,
            "openapi_extra": {SCOPES_KEY: list(self.scopes)},
        }


def _described(view: Any) -> dict[str, Any]:
    return {"description": "Done."} if view in (None, str) else {"description": "Done.", "model": view}


def _problem(words: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/ProblemView"}
    return {"description": words, "content": {"application/problem+json": {"schema": schema}}}


PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": _problem("The request was refused and changed nothing."),
    "5XX": _problem("The service could not do it now; nothing was recorded."),
}
