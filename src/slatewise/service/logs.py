"""The log: one JSON object per line on stderr, without bodies, keys or user ids."""

import asyncio
import hashlib
import json
import logging
import secrets
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from slatewise.service.exchange import Exchange


class Log:
    """Writes what happened; users appear as keyed hashes, so that one person's lines can be told to belong together.

    Requests answered in one turn of the event loop are written together at its end, with the time of the first;
    anything else is written at once.
    """

    def __init__(self, salt: bytes | None = None, file: TextIO | None = None) -> None:
        self.salt = hashlib.blake2b(salt).digest() if salt else secrets.token_bytes(32)
        self.file = file or sys.stderr
        self.waiting: list[str] = []
        self.turn = ""

    def request(self, exchange: Exchange, method: str, route: str, seconds: float) -> None:
        """Note one answered request."""
        user = "null" if exchange.user is None else f'"{self.hashed(exchange.user)}"'
        if not self.waiting:
            self.turn = _now()
            asyncio.get_running_loop().call_soon(self._write_waiting)
        self.waiting.append(
            f'{{"time": "{self.turn}", "level": "info", "event": "request", "id": "{exchange.request_id}", '
            f'"method": "{method}", "route": "{route}", "status": {exchange.status}, "ms": {seconds * 1000:.2f}, '
            f'"key": {_text(exchange.key_id)}, "user": {user}, '
            f'"refusal": {_text(exchange.refusal)}}}\n'
        )

    def failure(self, request_id: str, error: BaseException) -> None:
        """Note an error nobody foresaw: where it happened, not its words, which may hold input."""
        frames = traceback.extract_tb(error.__traceback__)
        at = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
        self._note("error", "failure", id=request_id, kind=type(error).__name__, at=at)

    def event(self, what: str, **details: Any) -> None:
        """Note something that happened to the service itself."""
        self._note("info", what, **details)

    def hashed(self, user: str) -> str:
        """Return a name for a user that leads back to them only with the key."""
        return hashlib.blake2b(user.encode(), digest_size=8, key=self.salt).hexdigest()

    def _note(self, level: str, event: str, **details: Any) -> None:
        self._write(json.dumps({"time": _now(), "level": level, "event": event, **details}) + "\n")

    def _write_waiting(self) -> None:
        lines, self.waiting = self.waiting, []
        self._write("".join(lines))

    def _write(self, lines: str) -> None:
        self.file.write(lines)
        self.file.flush()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _text(value: str | None) -> str:
    return "null" if value is None else json.dumps(value)


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
