"""Errors as clients see them: problem+json (RFC 9457) with the request's id, and nothing of the input or the inside."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from slatewise.recommender.views import ConflictError, RequestError, UnknownSlateError
from slatewise.service.exchange import exchange_of
from slatewise.service.models import FIELDS
from slatewise.store.protocol import (
    StoreDamagedError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
    StoreUncertainError,
)

MOST_ERRORS = 20


@dataclass(frozen=True)
class Kind:
    """A kind of error: its status, its name in `type`, and a title."""

    status: int
    name: str
    title: str


MALFORMED = Kind(400, "malformed", "The request is malformed")
HOST = Kind(400, "host", "The service is not known by this name")
UNAUTHENTICATED = Kind(401, "unauthenticated", "A valid API key is needed")
FORBIDDEN = Kind(403, "forbidden", "The key does not have the scope for this")
NOT_FOUND = Kind(404, "not-found", "There is no such thing")
UNKNOWN_SLATE = Kind(404, "unknown-slate", "There is no such slate")
NOT_ALLOWED = Kind(405, "method-not-allowed", "The method is not allowed here")
TIMEOUT = Kind(408, "timeout", "The request took too long to arrive")
CONFLICT = Kind(409, "conflict", "The event came before with other content")
DAMAGED_CATALOG = Kind(409, "damaged-catalogue", "The catalogue cannot be used")
TOO_LARGE = Kind(413, "too-large", "The body is too large")
MEDIA_TYPE = Kind(415, "media-type", "The body must be plain JSON")
INVALID = Kind(422, "invalid", "The request cannot be served as it is")
RATE = Kind(429, "rate", "Too many requests")
INTERNAL = Kind(500, "internal", "Something went wrong inside")
DAMAGED_STORE = Kind(500, "damaged-store", "What is stored does not match its checksum")
UNAVAILABLE = Kind(503, "unavailable", "The store cannot be reached or is too busy")
FULL = Kind(507, "full", "There is no room to store more")

BY_STATUS = {kind.status: kind for kind in (MALFORMED, FORBIDDEN, NOT_FOUND, NOT_ALLOWED, TOO_LARGE, INVALID)}

RETRY = {"retry-after": "1"}


class ProblemError(Exception):
    """An error on its way to the client."""

    def __init__(
        self,
        kind: Kind,
        detail: str,
        headers: Mapping[str, str] | None = None,
        errors: list[dict[str, str]] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.headers, self.errors = kind, detail, headers or {}, errors

    def view(self, scope: Scope) -> dict[str, Any]:
        """Return the problem as plain data; the kind is noted for log and metrics."""
        exchange = exchange_of(scope)
        exchange.refusal = self.kind.name
        found: dict[str, Any] = {
            "type": f"urn:slatewise:problem:{self.kind.name}",
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
            "request_id": exchange.request_id,
        }
        return found if self.errors is None else {**found, "errors": self.errors}

    def response(self, scope: Scope) -> Response:
        """Return the problem as a response."""
        headers = {"cache-control": "no-store", **self.headers}
        body = json.dumps(self.view(scope))
        return Response(body, self.kind.status, headers, media_type="application/problem+json")


def invalid(errors: Iterable[Mapping[str, Any]]) -> ProblemError:
    """Say where a body or a query is wrong, without repeating what it holds."""
    found: dict[str, list[str]] = {}
    for error in errors:
        found.setdefault(_where(error["loc"]), []).append(str(error["msg"]))
    places = [{"where": where, "problem": " or ".join(dict.fromkeys(words))} for where, words in found.items()]
    return ProblemError(INVALID, "{where}: {problem}".format(**places[0]), errors=places[:MOST_ERRORS])


def _where(place: Iterable[str | int]) -> str:
    """Point to the part that is wrong by numbers and known names; the name of an unknown field is input."""
    return "/" + "/".join(str(part) for part in place if isinstance(part, int) or part in FIELDS)


def of_exception(error: Exception) -> ProblemError:
    """Translate whatever was raised; what is not foreseen stays inside."""
    for kind, translate in TRANSLATIONS.items():
        if isinstance(error, kind):
            found: ProblemError = translate(error)
            return found
    return ProblemError(INTERNAL, "The request failed inside the service; the log knows it by its request_id.")


def _of_http(error: HTTPException) -> ProblemError:
    kind = BY_STATUS.get(error.status_code, INTERNAL)
    return ProblemError(kind, f"{kind.title}; /openapi.json lists what there is.", error.headers)


TRANSLATIONS: dict[type[Exception], Any] = {
    ProblemError: lambda error: error,
    RequestValidationError: lambda error: invalid([{**one, "loc": one["loc"][1:]} for one in error.errors()]),
    HTTPException: _of_http,
    UnknownSlateError: lambda error: ProblemError(UNKNOWN_SLATE, str(error)),
    ConflictError: lambda error: ProblemError(CONFLICT, str(error)),
    RequestError: lambda error: ProblemError(INVALID, str(error)),
    StoreFullError: lambda _: ProblemError(FULL, "Nothing was recorded; reading goes on, and so will writing.", RETRY),
    StoreUncertainError: lambda _: ProblemError(
        UNAVAILABLE,
        "It may have been recorded; sending the same event again is safe.",
        RETRY,
    ),
    StoreUnavailableError: lambda _: ProblemError(UNAVAILABLE, "Nothing was recorded; try again.", RETRY),
    StoreDamagedError: lambda _: ProblemError(
        DAMAGED_STORE, "Nothing was recorded; `slatewise store verify` says more."
    ),
    StoreError: lambda _: ProblemError(UNAVAILABLE, "Nothing was recorded; try again.", RETRY),
}
"""How errors become problems, the more special ones first."""


async def handle(request: Request, error: Exception) -> Response:
    """Answer an exception."""
    return of_exception(error).response(request.scope)
