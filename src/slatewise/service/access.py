"""Who may do what: a key with the right scope, and not too often."""

import math

from starlette.types import Scope

from slatewise.service.exchange import exchange_of
from slatewise.service.keys import Key, KeyRing
from slatewise.service.problems import FORBIDDEN, RATE, UNAUTHENTICATED, ProblemError
from slatewise.service.rate import Buckets

PUBLIC: tuple[str, ...] = ()
"""The scopes of a route that needs no key."""


class Gate:
    """Lets requests in; without a key ring (on loopback only) everyone has every scope."""

    def __init__(self, ring: KeyRing | None, buckets: Buckets) -> None:
        self.ring, self.buckets = ring, buckets

    def admit(self, scope: Scope, scopes: tuple[str, ...]) -> None:
        """Refuse a request without an active key that has one of the scopes, or that comes too often."""
        if scopes == PUBLIC:
            return
        key = None if self.ring is None else self._key(scope, self.ring)
        if key is not None:
            exchange_of(scope).key_id = key.id
        self.charge(scope)
        if key is not None and not set(scopes) & set(key.scopes):
            raise ProblemError(FORBIDDEN, f"This needs a key with the scope {' or '.join(scopes)}.")

    def charge(self, scope: Scope, tokens: int = 1) -> None:
        """Count a request, or several events of one, against its key or address."""
        seconds = self.buckets.take(exchange_of(scope).key_id or _address(scope), tokens)
        if seconds > 0:
            raise ProblemError(RATE, "Wait as long as Retry-After says.", {"retry-after": str(math.ceil(seconds))})

    def _key(self, scope: Scope, ring: KeyRing) -> Key:
        given = _credentials(scope)
        key = ring.find(given) if given else None
        if key is None:
            self.charge(scope)
            detail = "Send an active key as Authorization: Bearer … or X-API-Key."
            raise ProblemError(UNAUTHENTICATED, detail, {"www-authenticate": "Bearer"})
        return key


def _credentials(scope: Scope) -> str | None:
    """Return the key that was sent; several that differ are none."""
    found = set()
    for name, value in scope["headers"]:
        if name == b"x-api-key":
            found.add(value)
        elif name == b"authorization":
            found.add(value[7:].strip() if value[:7].lower() == b"bearer " else b"")
    return found.pop().decode("latin-1") if len(found) == 1 else None


def _address(scope: Scope) -> str:
    """Return where a request came from: the connection's address, whatever its headers claim."""
    client = scope.get("client")
    return f"address {client[0]}" if client else "address unknown"
