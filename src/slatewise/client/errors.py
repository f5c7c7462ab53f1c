"""What can go wrong between a client and the service."""

from collections.abc import Mapping
from typing import Any

PASSING = frozenset({408, 429, 502, 503, 504, 507})
"""Statuses after which the same request may succeed later."""


class ClientError(Exception):
    """A call that did not succeed; the base of the two errors below."""


class UnreachableError(ClientError):
    """No complete response came, however often the client tried; whether the service acted on the request is unknown.

    Calling again with the same event_id or request_id is safe.
    """


class ServiceError(ClientError):
    """The service said no (RFC 9457); a request that was refused changed nothing.

    status: of HTTP; kind: the name of the problem, such as `unknown-slate`; detail: what to do; request_id: to look for
    in the log of the service; errors: where a body is wrong.
    """

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        title = str(problem.get("title") or f"the service responded with status {status}")
        self.status = status
        self.kind = str(problem.get("type", "")).rpartition(":")[2]
        self.detail = str(problem.get("detail", ""))
        self.request_id = problem.get("request_id")
        self.errors: list[dict[str, str]] = problem.get("errors") or []
        super().__init__(f"{title}: {self.detail}" if self.detail else title)

    @property
    def is_passing(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in PASSING
