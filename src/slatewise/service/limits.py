"""Checks on the head of a request, before any route sees it."""

import ipaddress
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

from slatewise.service.problems import HOST, MALFORMED, MEDIA_TYPE, ProblemError
from slatewise.service.settings import Settings, is_loopback

ENCODED_PATHS = "/v1/users/"
"""Below this, paths stay percent-encoded until the route decodes its part: ids may hold slashes."""


class Limits:
    """Refuses foreign Host names (DNS rebinding), compressed bodies, and paths that are not UTF-8."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.names = {"localhost", settings.host.lower(), *settings.allowed_hosts}
        self.any_address = not settings.on_loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through or answer it."""
        if scope["type"] == "http":
            problem = self._problem(scope)
            if problem is not None:
                await problem.response(scope)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _problem(self, scope: Scope) -> ProblemError | None:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if not scope["path"].startswith("/health/") and not (len(hosts) == 1 and self._known(hosts[0])):
            return ProblemError(
                HOST, "Name this host in the setting allowed_hosts, or call the service by its address."
            )
        if any(name == b"content-encoding" and value != b"identity" for name, value in scope["headers"]):
            return ProblemError(MEDIA_TYPE, "Send the body without Content-Encoding.")
        return _keep_encoded(scope)

    def _known(self, host: bytes) -> bool:
        """Whether a Host header names this service; an address cannot be rebound, so beyond loopback any is known."""
        name = host.decode("latin-1").lower()
        if name in self.names:
            return True
        name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
        if name in self.names or is_loopback(name):
            return True
        return self.any_address and _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _keep_encoded(scope: Scope) -> ProblemError | None:
    """Refuse a path that is not UTF-8 or holds NUL; put the encoded path in place where ids may hold slashes."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    if b"%" in raw:
        try:
            decoded = unquote_to_bytes(raw).decode()
        except UnicodeDecodeError:
            return ProblemError(MALFORMED, "The path is not UTF-8.")
        if "\0" in decoded:
            return ProblemError(MALFORMED, "The path holds a NUL character.")
    if raw.startswith(ENCODED_PATHS.encode()):
        scope["path"] = raw.decode("latin-1")
    return None
