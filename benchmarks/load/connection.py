"""HTTP/1.1 with as little work as possible, so that the generator does not measure itself."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

LENGTH = b"content-length:"
LOST = 0
"""The status of a response that never came, because the connection broke."""


@dataclass(frozen=True, slots=True)
class Response:
    """A status and a body."""

    status: int
    body: bytes

    @property
    def is_ok(self) -> bool:
        """Whether the request succeeded."""
        return 200 <= self.status < 300


OnResponse = Callable[[Response], None]


def get(host: str, path: str) -> bytes:
    """Return the bytes of a GET request."""
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


def post(host: str, path: str, body: bytes) -> bytes:
    """Return the bytes of a POST request with JSON."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Connection(asyncio.Protocol):
    """A connection that is kept open and carries one request at a time."""

    def __init__(self, on_free: Callable[["Connection"], None]) -> None:
        self.on_free = on_free
        self.transport: asyncio.Transport | None = None
        self.on_response: OnResponse | None = None
        self.received = bytearray()
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what bytes are written to."""
        self.transport = cast(asyncio.Transport, transport)

    def send(self, request: bytes, on_response: OnResponse) -> None:
        """Send a request; the callback gets the response."""
        self.on_response = on_response
        if self.transport is None or self.transport.is_closing():
            self._finish(Response(LOST, b""))
        else:
            self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Collect bytes until the response is complete."""
        self.received += data
        end = self.received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self.received[:end]).lower()
        size = _content_length(head)
        if len(self.received) >= end + 4 + size:
            body = bytes(self.received[end + 4 : end + 4 + size])
            self.received.clear()
            self._finish(Response(int(head[9:12]), body))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Report that the response will not come."""
        self.is_lost = True
        if self.on_response is not None:
            self._finish(Response(LOST, b""))

    def _finish(self, response: Response) -> None:
        on_response, self.on_response = self.on_response, None
        if on_response is not None:
            on_response(response)
        self.on_free(self)


class Pool:
    """Connections to one server, used in turn, so that none idles; a request waits until one is free."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.free: deque[Connection] = deque()
        self.queue: deque[tuple[bytes, OnResponse]] = deque()
        self.opening: set[asyncio.Task[None]] = set()

    async def open(self, number: int) -> None:
        """Open connections."""
        loop = asyncio.get_running_loop()
        for _ in range(number):
            _, connection = await loop.create_connection(lambda: Connection(self._release), self.host, self.port)
            self._release(connection)

    def send(self, request: bytes, on_response: OnResponse) -> None:
        """Send a request as soon as a connection is free."""
        while self.free:
            connection = self.free.popleft()
            if not connection.is_lost:
                connection.send(request, on_response)
                return
            self._replace()
        self.queue.append((request, on_response))

    def fetch(self, request: bytes) -> asyncio.Future[Response]:
        """Send a request and return the response to come."""
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.send(request, future.set_result)
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

    def _release(self, connection: Connection) -> None:
        if connection.is_lost:
            self._replace()
        elif self.queue:
            asyncio.get_running_loop().call_soon(connection.send, *self.queue.popleft())
        else:
            self.free.append(connection)


def _content_length(head: bytes) -> int:
    start = head.find(LENGTH)
    if start < 0:
        return 0
    end = head.find(b"\r\n", start)
    return int(head[start + len(LENGTH) : end if end >= 0 else len(head)])
