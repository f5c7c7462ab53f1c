"""Requests that follow each other without waiting, trailers, garbage and half-closed connections."""

import asyncio
import socket
import threading
from typing import Any

import pytest

from slatewise.service.connections import MAX_HEAD, MAX_PIPELINED, GuardedProtocol
from tests.test_connections import connect, in_process

pytestmark = pytest.mark.process

GET = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"


def received(connection: socket.socket) -> bytes:
    """Everything until the other side closes."""
    parts = []
    while part := connection.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


class Recorded(GuardedProtocol):
    """Remembers the longest pipeline that a connection had, and how many requests were queued when it ended."""

    longest, left = 0, 0

    def on_headers_complete(self) -> None:
        try:
            super().on_headers_complete()
        finally:
            type(self).longest = max(self.longest, len(self.pipeline))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        type(self).left += len(self.pipeline)


class Unlimited(Recorded):
    """The negative control: takes as many requests as arrive, as uvicorn does."""

    def on_headers_complete(self) -> None:
        try:
            super().on_headers_complete()
        except ValueError:
            type(self).longest = max(self.longest, len(self.pipeline))


async def slow_answer(_: Any, receive: Any, send: Any) -> None:
    await asyncio.sleep(0.05)
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.mark.parametrize(("protocol", "is_bounded"), [(Recorded, True), (Unlimited, False)])
def test_a_client_cannot_queue_thousands_of_requests(protocol: type[Recorded], is_bounded: bool) -> None:
    """What was queued when the connection ends is forgotten."""
    protocol.longest = protocol.left = 0
    with in_process(protocol, slow_answer) as (_, port), connect(port) as connection:
        connection.sendall(1_000 * GET)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(2.0)
        answers = received(connection) if is_bounded else connection.recv(1)
    assert (protocol.longest <= MAX_PIPELINED + 1) == is_bounded
    assert protocol.left == 0
    if is_bounded:
        assert answers.count(b"HTTP/1.1 200") == MAX_PIPELINED + 1
        assert b"400" not in answers


def test_a_few_requests_may_follow_each_other() -> None:
    with in_process(GuardedProtocol, slow_answer) as (_, port), connect(port) as connection:
        connection.sendall(MAX_PIPELINED * GET)
        answers = b""
        while answers.count(b"ok") < MAX_PIPELINED:
            answers += connection.recv(1 << 16)
        connection.sendall(GET)
        assert connection.recv(100).startswith(b"HTTP/1.1 200")


GARBAGE = [
    b"\x00garbage\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"CONNECT a:80 HTTP/1.1\r\n\r\n",
    b"GET http://[ HTTP/1.1\r\n\r\n",
]


@pytest.mark.parametrize("rest", [*GARBAGE, b"POST / HTTP/1.1\r\nContent-Le"])
@pytest.mark.parametrize("requests", [1, 2])
def test_a_request_before_garbage_gets_its_own_response(requests: int, rest: bytes) -> None:
    """A 400 would say that it changed nothing."""
    with in_process(GuardedProtocol, slow_answer) as (_, port), connect(port) as connection:
        connection.sendall(requests * GET + rest)
        connection.shutdown(socket.SHUT_WR)
        answer = received(connection)
    assert answer.count(b"HTTP/1.1 200") == requests
    assert answer.count(b"HTTP/1.1") == requests


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_alone_gets_a_400(garbage: bytes) -> None:
    with in_process(GuardedProtocol, slow_answer) as (_, port):
        for before in (b"", GET):
            with connect(port) as connection:
                if before:
                    connection.sendall(before)
                    assert connection.recv(1 << 16).endswith(b"ok")
                connection.sendall(garbage)
                assert received(connection).startswith(b"HTTP/1.1 400")


def test_a_client_that_sends_nothing_more_gets_its_response() -> None:
    with in_process(GuardedProtocol, slow_answer) as (_, port), connect(port) as connection:
        connection.sendall(2 * GET)
        connection.shutdown(socket.SHUT_WR)
        assert received(connection).count(b"HTTP/1.1 200") == 2


@pytest.mark.parametrize(("size", "status"), [(100, b"200"), (MAX_HEAD + 1_000, b"400")])
def test_trailers_are_ignored_and_limited(size: int, status: bytes) -> None:
    trailers = b"a:b\r\n" * (size // 2)
    with in_process(GuardedProtocol, slow_answer) as (_, port), connect(port) as connection:
        sending = threading.Thread(target=connection.sendall, args=(CHUNKED + trailers + b"\r\n",))
        sending.start()
        assert connection.recv(100).startswith(b"HTTP/1.1 " + status)
        sending.join()
