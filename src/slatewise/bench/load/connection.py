"""HTTP/1.1 with as little work as possible, so that the generator does not measure itself."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

LENGTH = b"content-length:"
LOST = 0
"""The status of an answer that never came, because the connection broke."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said."""

    status: int
    body: bytes

    @property
    def is_good(self) -> bool:
        """Whether the request was done."""
        return 200 <= self.status < 300


Listener = Callable[[Answer], None]


def post(host: str, path: str, body: bytes) -> bytes:
    """Return the bytes of a POST request with JSON."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Connection(asyncio.Protocol):
    """A connection that is kept open and asks one thing at a time."""

    def __init__(self, when_free: Callable[["Connection"], None]) -> None:
        self.when_free = when_free
        self.transport: asyncio.Transport | None = None
        self.listener: Listener | None = None
        self.received = bytearray()
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what bytes are written to."""
        self.transport = cast(asyncio.Transport, transport)

    def ask(self, request: bytes, listener: Listener) -> None:
        """Send a request; the listener hears the answer."""
        self.listener = listener
        if self.transport is None or self.transport.is_closing():
            self._tell(Answer(LOST, b""))
        else:
            self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Collect bytes until the answer is whole."""
        self.received += data
        end = self.received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self.received[:end]).lower()
        size = _length(head)
        if len(self.received) >= end + 4 + size:
            body = bytes(self.received[end + 4 : end + 4 + size])
            self.received.clear()
            self._tell(Answer(int(head[9:12]), body))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Say that the answer will not come."""
        self.is_lost = True
        if self.listener is not None:
            self._tell(Answer(LOST, b""))

    def _tell(self, answer: Answer) -> None:
        listener, self.listener = self.listener, None
        if listener is not None:
            listener(answer)
        self.when_free(self)


class Pool:
    """Connections to one server, used by turns, so that none idles; a request that finds none free waits."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.free: deque[Connection] = deque()
        self.waiting: deque[tuple[bytes, Listener]] = deque()
        self.opening: set[asyncio.Task[None]] = set()

    async def open(self, number: int) -> None:
        """Open connections."""
        loop = asyncio.get_running_loop()
        for _ in range(number):
            _, connection = await loop.create_connection(lambda: Connection(self._freed), self.host, self.port)
            self._freed(connection)

    def ask(self, request: bytes, listener: Listener) -> None:
        """Send a request as soon as a connection is free."""
        while self.free:
            connection = self.free.popleft()
            if not connection.is_lost:
                connection.ask(request, listener)
                return
            self._replace()
        self.waiting.append((request, listener))

    def answer_to(self, request: bytes) -> asyncio.Future[Answer]:
        """Send a request and return the answer to come."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.ask(request, future.set_result)
        return future

    def close(self) -> None:
        """Close all connections that are free."""
        for connection in self.free:
            if connection.transport is not None:
                connection.transport.close()
        self.free.clear()

    def _replace(self) -> None:
        """Open another connection for one that the server closed, as it does with those that idle for long."""
        task = asyncio.get_running_loop().create_task(self.open(1))
        self.opening.add(task)
        task.add_done_callback(self.opening.discard)

    def _freed(self, connection: Connection) -> None:
        if connection.is_lost:
            self._replace()
        elif self.waiting:
            asyncio.get_running_loop().call_soon(connection.ask, *self.waiting.popleft())
        else:
            self.free.append(connection)


def _length(head: bytes) -> int:
    place = head.find(LENGTH)
    if place < 0:
        return 0
    end = head.find(b"\r\n", place)
    return int(head[place + len(LENGTH) : end if end >= 0 else len(head)])
