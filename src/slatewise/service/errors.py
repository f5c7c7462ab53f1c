"""Errors as clients see them: problem+json (RFC 9457) with the request's id, and nothing of the input or internals."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from slatewise.recommender.types import (
    ConflictError,
    NothingToShowError,
    RequestError,
    RuleError,
    UnknownEventError,
    UnknownItemError,
    UnknownSlateError,
)
from slatewise.service.logs import record_of
from slatewise.service.schemas import FIELDS
from slatewise.service.validation_words import in_words
from slatewise.store.protocol import (
    StoreDamagedError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
    StoreUncertainError,
)

MAX_ERRORS = 20
NO_STORE = {"cache-control": "no-store"}
RETRY = {"retry-after": "1"}
FIELD_NAME = re.compile(r"[A-Za-z_]{1,40}")
"""Names of unknown fields that errors repeat, misspelled ones as a rule; anything else is input and stays out."""


@dataclass(frozen=True)
class Kind:
    """A kind of error: its status, its name in `type`, and a title."""

    status: int
    name: str
    title: str


MALFORMED = Kind(400, "malformed", "The request is malformed")
HOST = Kind(400, "host", "The service is not known by this host name")
UNAUTHENTICATED = Kind(401, "unauthenticated", "A valid API key is required")
FORBIDDEN = Kind(403, "forbidden", "The key lacks the required scope")
NOT_FOUND = Kind(404, "not-found", "Not found")
UNKNOWN_SLATE = Kind(404, "unknown-slate", "There is no such slate")
UNKNOWN_ITEM = Kind(404, "unknown-item", "There is no such item")
UNKNOWN_EVENT = Kind(404, "unknown-event", "There is no such event")
NOT_ALLOWED = Kind(405, "method-not-allowed", "The method is not allowed here")
TIMEOUT = Kind(408, "timeout", "The request took too long to arrive")
CONFLICT = Kind(409, "conflict", "The id was used before with different content")
NO_VERSION = Kind(409, "no-version", "There is no such version of the catalog")
DAMAGED_CATALOG = Kind(409, "damaged-catalog", "The catalog cannot be used")
TOO_LARGE = Kind(413, "too-large", "The body is too large")
MEDIA_TYPE = Kind(415, "media-type", "The body must be uncompressed JSON")
INVALID = Kind(422, "invalid", "The request is invalid")
NOTHING_TO_SHOW = Kind(422, "nothing-to-show", "No item may be shown")
RATE = Kind(429, "rate", "Too many requests")
INTERNAL = Kind(500, "internal", "Internal error")
DAMAGED_STORE = Kind(500, "damaged-store", "Stored data does not match its checksum")
BUSY = Kind(503, "busy", "Too many connections")
UNAVAILABLE = Kind(503, "unavailable", "The store is unreachable or too busy")
FULL = Kind(507, "full", "The store is full")

BY_STATUS = {kind.status: kind for kind in (MALFORMED, FORBIDDEN, NOT_FOUND, NOT_ALLOWED, TOO_LARGE, INVALID)}


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
        """Return the problem as plain data, and note its kind for the log and the metrics."""
        record = record_of(scope)
        record.rejection = self.kind.name
        view: dict[str, Any] = {
            "type": f"urn:slatewise:problem:{self.kind.name}",
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
            "request_id": record.request_id,
        }
        return view if self.errors is None else {**view, "errors": self.errors}

    def response(self, scope: Scope) -> Response:
        """Return the problem as a response."""
        body = json.dumps(self.view(scope))
        return Response(body, self.kind.status, {**NO_STORE, **self.headers}, media_type="application/problem+json")


def invalid(errors: Iterable[Mapping[str, Any]]) -> ProblemError:
    """Say where a body or a query is wrong, in the words of JSON and without repeating what it contains."""
    messages: dict[str, list[str]] = {}
    for error in errors:
        messages.setdefault(_pointer(error), []).append(in_words(error))
    listed = [{"where": where, "problem": " or ".join(dict.fromkeys(texts))} for where, texts in messages.items()]
    return ProblemError(INVALID, "{where}: {problem}".format(**listed[0]), errors=listed[:MAX_ERRORS])


def _pointer(error: Mapping[str, Any]) -> str:
    """Point to the part that is wrong by indices and known names, and to an unknown field if its name could be one."""
    location = error["loc"]
    named = [part for part in location if isinstance(part, int) or part in FIELDS]
    if error["type"] == "extra_forbidden" and location[-1] not in FIELDS and FIELD_NAME.fullmatch(str(location[-1])):
        named.append(location[-1])
    return "/" + "/".join(map(str, named))


def problem_of(error: Exception) -> ProblemError:
    """Translate any exception; the details of an unexpected one stay inside."""
    for kind in type(error).__mro__:
        if kind in TRANSLATIONS:
            return TRANSLATIONS[kind](error)
    return ProblemError(INTERNAL, "The request failed inside the service; its request_id is in the log.")


def _of_http(error: HTTPException) -> ProblemError:
    kind = BY_STATUS.get(error.status_code, INTERNAL)
    return ProblemError(kind, f"{kind.title}; /openapi.json lists all routes.", error.headers)


TRANSLATIONS: dict[type, Callable[[Any], ProblemError]] = {
    ProblemError: lambda error: error,
    HTTPException: _of_http,
    UnknownSlateError: lambda error: ProblemError(UNKNOWN_SLATE, str(error)),
    UnknownItemError: lambda error: ProblemError(UNKNOWN_ITEM, str(error)),
    UnknownEventError: lambda error: ProblemError(UNKNOWN_EVENT, str(error)),
    NothingToShowError: lambda error: ProblemError(NOTHING_TO_SHOW, str(error)),
    ConflictError: lambda error: ProblemError(CONFLICT, str(error)),
    RequestError: lambda error: ProblemError(INVALID, str(error)),
    RuleError: lambda error: ProblemError(
        INVALID, str(error), errors=[{"where": f"/{error.where}", "problem": error.reason}]
    ),
    StoreFullError: lambda _: ProblemError(
        FULL, "Nothing was recorded; reads still work, and writes resume once there is space.", RETRY
    ),
    StoreUncertainError: lambda _: ProblemError(
        UNAVAILABLE,
        "It may have been recorded. Feedback and events count once however often they are sent; a slate that is asked "
        "for again is the same one only with its request_id.",
        RETRY,
    ),
    StoreUnavailableError: lambda _: ProblemError(UNAVAILABLE, "Nothing was recorded; try again.", RETRY),
    StoreDamagedError: lambda _: ProblemError(
        DAMAGED_STORE, "Nothing was recorded; `slatewise store verify` says more."
    ),
    StoreError: lambda _: ProblemError(UNAVAILABLE, "Nothing was recorded; try again.", RETRY),
}
"""How exceptions become problems, by class; the most specific class wins."""
