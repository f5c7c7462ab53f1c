"""What happens to every request: an id, safe headers, checks of its head, a line in the log and a place in metrics."""

import ipaddress
import secrets
import time
from functools import lru_cache
from itertools import count
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slatewise.service.connections import ARRIVAL, Arrival
from slatewise.service.errors import BUSY, HOST, INTERNAL, MALFORMED, MEDIA_TYPE, RETRY, ProblemError, problem_of
from slatewise.service.logs import RECORD, RequestRecord
from slatewise.service.settings import Settings
from slatewise.service.state import ServiceState

HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]
CLOSE = (b"connection", b"close")
"""Sent along by whoever responds without having waited for the whole request, or has no room for another one."""
MAX_HOSTS = 1000
WHOLE = Arrival(is_whole=True)
METHODS = {"GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS"}
ENCODED_PATHS = (b"/v1/users/", b"/v1/items/")
"""Below these, paths stay percent-encoded until the handler decodes its part: ids may contain slashes."""

PROCESS = secrets.token_hex(4)
NUMBERS = count(1)
"""A request's id is the name of its process and a number; it is not secret."""


class RequestMiddleware:
    """Wraps every request; errors become problem+json, and where an unexpected one happened goes to the log."""

    def __init__(self, app: ASGIApp, state: ServiceState) -> None:
        self.app, self.state = app, state
        self.head = HeadCheck(state.settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, and note what became of it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        record = scope[RECORD] = RequestRecord(f"{PROCESS}-{next(NUMBERS):x}", time.perf_counter())
        arrival = scope.setdefault(ARRIVAL, WHOLE)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", record.request_id.encode()), *HEADERS]
                if arrival.is_reserved or not arrival.is_whole:
                    message["headers"].append(CLOSE)
            await send(message)

        try:
            problem = self.head.problem(scope)
            await (self.app if problem is None else problem.response(scope))(scope, receive, send_with_headers)
        except Exception as error:  # noqa: BLE001
            problem = problem_of(error)
            if problem.kind is INTERNAL:
                self.state.log.failure(record.request_id, error)
            if not record.status:
                await problem.response(scope)(scope, receive, send_with_headers)
        finally:
            self._note(scope, record)

    def _note(self, scope: Scope, record: RequestRecord) -> None:
        seconds = time.perf_counter() - record.started
        method = scope["method"] if scope["method"] in METHODS else "other"
        route = _route(scope)
        self.state.metrics.count_request(record, method, route, seconds)
        self.state.log.request(record, method, route, seconds)


def _route(scope: Scope) -> str:
    """Return the template of the route that served a request, never the path itself."""
    return getattr(scope.get("endpoint"), "path", "files" if "endpoint" in scope else "unmatched")


class HeadCheck:
    """Rejects foreign Host names (DNS rebinding), compressed bodies, and paths that are not UTF-8."""

    def __init__(self, settings: Settings) -> None:
        self.names = {"localhost", settings.host.lower(), *settings.allowed_hosts}
        self.any_address = not settings.on_loopback
        self.knows = lru_cache(MAX_HOSTS)(self._knows)

    def problem(self, scope: Scope) -> ProblemError | None:
        """Return what is wrong with the head of a request, if anything; health can be asked for in any case."""
        if scope["path"].startswith("/health/"):
            return None
        if scope[ARRIVAL].is_reserved:
            return ProblemError(BUSY, "Nothing was recorded; try again.", RETRY)
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if not (len(hosts) == 1 and self.knows(hosts[0])):
            return ProblemError(HOST, "Add this host to the setting allowed_hosts, or use the service's address.")
        if any(name == b"content-encoding" and value != b"identity" for name, value in scope["headers"]):
            return ProblemError(MEDIA_TYPE, "Send the body without Content-Encoding.")
        return _check_path(scope)

    def _knows(self, host: bytes) -> bool:
        """Whether a Host header names this service; DNS cannot rebind an address, so beyond loopback any will do."""
        name = host.decode("latin-1").lower()
        if name in self.names:
            return True
        name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
        if name in self.names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return self.any_address or address.is_loopback


def _check_path(scope: Scope) -> ProblemError | None:
    """Reject a path that is not UTF-8 or contains NUL; restore the encoded path where ids may contain slashes."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    if b"%" in raw:
        try:
            decoded = unquote_to_bytes(raw).decode()
        except UnicodeDecodeError:
            return ProblemError(MALFORMED, "The path is not UTF-8.")
        if "\0" in decoded:
            return ProblemError(MALFORMED, "The path contains a NUL character.")
    if raw.startswith(ENCODED_PATHS):
        scope["path"] = raw.decode("latin-1")
    return None
