"""The log: one JSON object per line on stderr, without bodies, keys or user ids."""

import hashlib
import json
import logging
import secrets
import sys
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from starlette.types import Scope

RECORD = "slatewise.record"
"""The key under which the scope of a request holds its record."""


@dataclass
class RequestRecord:
    """What is noted about a request while it is served, for the log and the metrics; `user` is only logged hashed."""

    request_id: str
    started: float
    status: int = 0
    key_id: str | None = None
    user: str | None = None
    rejection: str | None = None


def record_of(scope: Scope) -> RequestRecord:
    """Return the record of a request."""
    record: RequestRecord = scope[RECORD]
    return record


class Log:
    """Writes what happens; users appear as keyed hashes, so that the lines of one user can be told to belong together.

    Without a salt, one is drawn at random.
    """

    def __init__(self, salt: bytes | None = None, file: TextIO | None = None) -> None:
        self.salt = hashlib.blake2b(salt).digest() if salt else secrets.token_bytes(32)
        self.file = file or sys.stderr

    def request(self, record: RequestRecord, method: str, route: str, seconds: float) -> None:
        """Log a request that was answered."""
        self._write(
            "info",
            "request",
            id=record.request_id,
            method=method,
            route=route,
            status=record.status,
            ms=round(1000.0 * seconds, 2),
            key=record.key_id,
            user=None if record.user is None else self.hashed(record.user),
            refusal=record.rejection,
        )

    def failure(self, request_id: str, error: BaseException) -> None:
        """Log an unexpected error: where it happened, not its message, which may contain input."""
        frames = traceback.extract_tb(error.__traceback__)
        at = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
        self._write("error", "failure", id=request_id, kind=type(error).__name__, at=at)

    def event(self, event: str, /, **details: Any) -> None:
        """Log something that happened to the service itself."""
        self._write("info", event, **details)

    def hashed(self, user: str) -> str:
        """Return a name for a user that can be traced back to them only with the salt."""
        return hashlib.blake2b(user.encode(), digest_size=8, key=self.salt).hexdigest()

    def _write(self, level: str, event: str, /, **details: Any) -> None:
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.file.write(json.dumps({"time": time, "level": level, "event": event, **details}) + "\n")
        self.file.flush()


class JsonHandler(logging.Handler):
    """Sends what libraries log to the same stream of JSON."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a log record, without the message of an exception."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self.log.failure("-", error)
        else:
            self.log.event("library", name=record.name, said=record.getMessage())
