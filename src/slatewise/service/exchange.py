"""What is noted about a request while it is answered, for the log and the metrics."""

import secrets
import time
from dataclasses import dataclass, field
from itertools import count

from starlette.types import Scope

PLACE = "slatewise.exchange"
PROCESS = secrets.token_hex(4)
NUMBERS = count(1)
"""A request's id is the name of its process and a number; it is no secret."""


@dataclass
class Exchange:
    """One request and its answer; `user` never leaves the process unhashed."""

    request_id: str = field(default_factory=lambda: f"{PROCESS}-{next(NUMBERS):x}")
    started: float = field(default_factory=time.perf_counter)
    status: int = 0
    key_id: str | None = None
    user: str | None = None
    refusal: str | None = None


def exchange_of(scope: Scope) -> Exchange:
    """Return the exchange of a request."""
    found: Exchange = scope[PLACE]
    return found


def route_of(scope: Scope) -> str:
    """Return the template of the route that answered, never the path itself."""
    return getattr(scope.get("route"), "path", "files" if "endpoint" in scope else "unmatched")
