"""The outermost layer: every request gets an id, safe headers, a line in the log and its place in the metrics."""

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slatewise.service.exchange import PLACE, Exchange, route_of
from slatewise.service.problems import INTERNAL, ProblemError, of_exception
from slatewise.service.running import SERVICE, Service

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
METHODS = {"GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS"}


class Observing:
    """Watches requests; what nobody foresaw becomes a plain 500, and its place in the code goes to the log."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request and note what became of it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = scope[PLACE] = Exchange()
        scope[SERVICE] = self.service

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", exchange.request_id.encode()), *HEADERS]
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        except Exception as error:  # noqa: BLE001
            await self._answer(of_exception(error), error, scope, receive, send_with_headers)
        finally:
            self._note(scope, exchange)

    async def _answer(
        self, problem: ProblemError, error: Exception, scope: Scope, receive: Receive, send: Send
    ) -> None:
        exchange: Exchange = scope[PLACE]
        if problem.kind is INTERNAL:
            self.service.log.failure(exchange.request_id, error)
        if not exchange.status:
            await problem.response(scope)(scope, receive, send)

    def _note(self, scope: Scope, exchange: Exchange) -> None:
        seconds = time.perf_counter() - exchange.started
        method, route = scope["method"] if scope["method"] in METHODS else "other", route_of(scope)
        self.service.metrics.request(exchange, method, route, seconds)
        self.service.latencies.add(route, seconds)
        self.service.log.request(exchange, method, route, seconds)
