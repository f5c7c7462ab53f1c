"""Who may do what, and how often: API keys with scopes, and a token bucket per caller."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import Scope

from slatewise.service.errors import FORBIDDEN, RATE, UNAUTHENTICATED, ProblemError
from slatewise.service.keys import Key, KeyRing
from slatewise.service.logs import record_of

PUBLIC: tuple[str, ...] = ()
"""The scopes of a route that needs no key."""
MAX_CALLERS = 10_000


class Authorizer:
    """Checks keys and rates; without a key ring (on loopback only) every caller has every scope."""

    def __init__(self, ring: KeyRing | None, limiter: "RateLimiter") -> None:
        self.ring, self.limiter = ring, limiter

    def authorize(self, scope: Scope, scopes: tuple[str, ...]) -> None:
        """Reject a request without an active key that has one of the scopes, or from a caller over its rate."""
        if scopes == PUBLIC:
            return
        key = None if self.ring is None else self._key(scope, self.ring)
        if key is not None:
            record_of(scope).key_id = key.id
        self.charge(scope)
        if key is not None and not set(scopes) & set(key.scopes):
            raise ProblemError(FORBIDDEN, f"This requires a key with the scope {' or '.join(scopes)}.")

    def charge(self, scope: Scope, tokens: int = 1) -> None:
        """Count a request, or several events of one, against its key or address."""
        seconds = self.limiter.take(record_of(scope).key_id or _address(scope), tokens)
        if seconds > 0:
            headers = {"retry-after": str(math.ceil(seconds))}
            raise ProblemError(RATE, "Wait for the number of seconds in Retry-After.", headers)

    def _key(self, scope: Scope, ring: KeyRing) -> Key:
        credentials = _credentials(scope)
        key = ring.find(credentials) if credentials else None
        if key is None:
            self.charge(scope)
            detail = "Send an active key as Authorization: Bearer … or X-API-Key."
            raise ProblemError(UNAUTHENTICATED, detail, {"www-authenticate": "Bearer"})
        return key


def _credentials(scope: Scope) -> str | None:
    """Return the key that was sent; several different ones count as none."""
    sent = set()
    for name, value in scope["headers"]:
        if name == b"x-api-key":
            sent.add(value)
        elif name == b"authorization":
            sent.add(value[7:].strip() if value[:7].lower() == b"bearer " else b"")
    return sent.pop().decode("latin-1") if len(sent) == 1 else None


def _address(scope: Scope) -> str:
    """Return where a request came from: the address of the connection, whatever its headers claim."""
    client = scope.get("client")
    return f"address {client[0]}" if client else "address unknown"


@dataclass
class Bucket:
    """The tokens left at a time."""

    tokens: float
    time: float


class RateLimiter:
    """A token bucket per caller, refilled at `rate` per second up to `burst`; the least recent callers are dropped."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.burst, self.clock = rate, burst, clock
        self.callers: OrderedDict[str, Bucket] = OrderedDict()

    def take(self, caller: str, tokens: float = 1.0) -> float:
        """Take tokens and return 0; or take none, and return the seconds until there are enough."""
        if self.rate <= 0:
            return 0.0
        bucket = self._refilled(caller)
        if bucket.tokens >= tokens:
            bucket.tokens -= tokens
            return 0.0
        return (tokens - bucket.tokens) / self.rate

    def _refilled(self, caller: str) -> Bucket:
        now = self.clock()
        bucket = self.callers.get(caller)
        if bucket is None:
            bucket = self.callers[caller] = Bucket(self.burst, now)
            if len(self.callers) > MAX_CALLERS:
                self.callers.popitem(last=False)
            return bucket
        self.callers.move_to_end(caller)
        bucket.tokens = min(self.burst, bucket.tokens + (now - bucket.time) * self.rate)
        bucket.time = now
        return bucket
