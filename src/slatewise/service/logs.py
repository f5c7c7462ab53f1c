"""The log: one JSON object per line on stderr, without bodies, keys or user ids.

Lines are written by a thread of their own: whoever logs never waits, not even for a reader that stopped reading.
"""

import hashlib
import io
import json
import logging
import os
import secrets
import select
import threading
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic_core import to_json
from starlette.types import Scope

RECORD = "slatewise.record"
"""The key under which the scope of a request holds its record."""
STDERR = 2
MAX_LINES = 10_000
PAUSE = 0.1
"""Seconds in which lines are collected, to be written together."""
CLOSE_TIMEOUT = 2.0
MAX_AT_ONCE = select.PIPE_BUF
"""Bytes that several processes can write to one pipe without getting in between each other's lines."""


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


def write_to_stderr(data: bytes) -> int:
    """Write to the process's standard error, past `sys.stderr`, which is not always it."""
    return os.write(STDERR, data)


class Log:
    """Writes what happens; users appear as keyed hashes, so that the lines of one user can be told to belong together.

    Without a salt, one is drawn at random. `write` takes bytes and returns how many of them it wrote.
    """

    def __init__(self, salt: bytes | None = None, write: Callable[[bytes], int] = write_to_stderr) -> None:
        self.salt = hashlib.blake2b(salt).digest() if salt else secrets.token_bytes(32)
        self.writer = LineWriter(write)

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

    def close(self) -> None:
        """Write what is still to be written, if that can be done soon."""
        self.writer.close()

    def _write(self, level: str, event: str, /, **details: Any) -> None:
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.writer.put(_line({"time": time, "level": level, "event": event, **details}))


def _line(entry: dict[str, Any]) -> bytes:
    try:
        return to_json(entry) + b"\n"
    except ValueError:  # text that is not Unicode, such as the name of a file
        return json.dumps(entry).encode() + b"\n"


class JsonHandler(logging.Handler):
    """Sends what libraries log to the same stream of JSON."""

    def __init__(self, log: Log, level: int = logging.WARNING) -> None:
        super().__init__(level)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a log record, without the message of an exception."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self.log.failure("-", error)
        else:
            self.log.event("library", name=record.name, said=record.getMessage())


class LogStream(io.TextIOBase):
    """Takes the place of `sys.stderr`, whose reader may be slow: what is printed there becomes lines of the log."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.begun = ""

    def write(self, text: str) -> int:
        """Log every line that is complete."""
        *lines, self.begun = (self.begun + text).split("\n")
        for line in lines:
            self.log.event("stderr", said=line)
        return len(text)


class LineWriter:
    """A bounded queue of lines and the thread that writes them; a line that cannot be written is dropped and counted.

    `write` takes bytes and returns how many of them it wrote; it may fail with OSError, and it may take forever.
    `on_drop` is told how many lines were dropped.
    """

    def __init__(self, write: Callable[[bytes], int]) -> None:
        self.on_drop: Callable[[int], object] = lambda number: number
        self._write = write
        self._lines: deque[bytes] = deque()
        self._is_torn = False
        self._writing, self._wake, self._closing = threading.Lock(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._serve, name="slatewise-log", daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> None:
        """Have a line written; it ends with a newline."""
        if len(self._lines) >= MAX_LINES:
            self.on_drop(1)
            return
        self._lines.append(line)
        if not self._wake.is_set():
            self._wake.set()
        if self._closing.is_set() and not self._thread.is_alive():
            self._write_all()

    def close(self) -> None:
        """Write what is queued, if that can be done soon; lines that come later are written at once."""
        self._closing.set()
        self._wake.set()
        self._thread.join(CLOSE_TIMEOUT)

    def _serve(self) -> None:
        while not self._closing.wait(PAUSE):
            self._wake.wait()
            self._wake.clear()
            self._write_all()
        self._write_all()

    def _write_all(self) -> None:
        with self._writing:
            while self._lines:
                self._write_together(self._take())

    def _take(self) -> bytes:
        """Return the next lines that can be written at once; a line that is too long by itself comes alone."""
        taken = bytearray(self._lines.popleft())
        while self._lines and len(taken) + len(self._lines[0]) <= MAX_AT_ONCE:
            taken += self._lines.popleft()
        return bytes(taken)

    def _write_together(self, data: bytes) -> None:
        try:
            if self._is_torn:
                self._write(b"\n")
            while data:
                written = self._write(data)
                self._is_torn = data[written - 1 : written] != b"\n"
                data = data[written:]
        except OSError:
            self.on_drop(data.count(b"\n"))
