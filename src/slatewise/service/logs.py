"""The log: one JSON object per line on stderr, without bodies, keys or user ids."""

import hashlib
import json
import logging
import secrets
import sys
import traceback
from collections.abc import MutableMapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import structlog

from slatewise.service.exchange import Exchange


class Log:
    """Writes what happened; users appear as keyed hashes, so that one person's lines can be told to belong together."""

    def __init__(self, salt: bytes | None = None, file: TextIO | None = None) -> None:
        self.salt = hashlib.blake2b(salt).digest() if salt else secrets.token_bytes(32)
        self.writer: Any = structlog.wrap_logger(
            structlog.WriteLogger(file or sys.stderr),
            processors=[_as_line],
            wrapper_class=structlog.BoundLogger,
        ).bind()

    def request(self, exchange: Exchange, method: str, route: str, seconds: float) -> None:
        """Note one answered request."""
        self.writer.info(
            "request",
            id=exchange.request_id,
            method=method,
            route=route,
            status=exchange.status,
            ms=round(seconds * 1000, 2),
            key=exchange.key_id,
            user=None if exchange.user is None else self.hashed(exchange.user),
            refusal=exchange.refusal,
        )

    def failure(self, request_id: str, error: BaseException) -> None:
        """Note an error nobody foresaw: where it happened, not its words, which may hold input."""
        frames = traceback.extract_tb(error.__traceback__)
        at = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
        self.writer.error("failure", id=request_id, kind=type(error).__name__, at=at)

    def event(self, what: str, **details: Any) -> None:
        """Note something that happened to the service itself."""
        self.writer.info(what, **details)

    def hashed(self, user: str) -> str:
        """Return a name for a user that leads back to them only with the key."""
        return hashlib.blake2b(user.encode(), digest_size=8, key=self.salt).hexdigest()


def _as_line(_: Any, level: str, event: MutableMapping[str, Any]) -> str:
    """Write an event as JSON; one step instead of structlog's three, since every request takes it."""
    return json.dumps({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "level": level, **event})


class JsonHandler(logging.Handler):
    """Takes what libraries log into the same stream of JSON."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; the words of an exception stay out of it."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self.log.failure("-", error)
        else:
            self.log.event("library", name=record.name, said=record.getMessage())
