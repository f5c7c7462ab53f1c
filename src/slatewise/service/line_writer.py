"""Lines written by a thread of their own: whoever logs never waits, not even for a reader that has stopped reading."""

import select
import threading
from collections import deque
from collections.abc import Callable

MAX_LINES = 10_000
PAUSE = 0.1
"""Seconds in which lines are collected, to be written together."""
CLOSE_TIMEOUT = 2.0
MAX_AT_ONCE = select.PIPE_BUF
"""Bytes that several processes can write to one pipe without getting in between each other's lines."""


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
