"""Connections as a weapon: reset, idle, slow, too many. None of them leaves anything behind or locks anybody out."""

import gc
import json
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest
import uvicorn

from slatewise.service.connections import RESERVED_FOR_HEALTH, ConnectionLimits, GuardedProtocol
from tests.support.serving import Server, key_file, local, small_catalog

pytestmark = pytest.mark.process

HEAD = b"POST /v1/slates HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LARGE_HEAD = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nX-Padding: " + b"x" * 31_000 + b"\r\n\r\n"
UNFINISHED = HEAD + b"Content-Length: 100000\r\n\r\n{"
LARGEST_GROWTH = 20 << 20


def connect(port: int, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20, source_address=(source, 0))


def reset(connection: socket.socket) -> None:
    """Hang up rudely: the other side sees an error instead of an end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def ask_and_reset(port: int, number: int) -> None:
    for _ in range(number):
        connection = connect(port)
        connection.sendall(LARGE_HEAD)
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        reset(connection)


async def short_answer(_: Any, __: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@contextmanager
def in_process(
    protocol: type[GuardedProtocol], application: Any = short_answer
) -> Iterator[tuple[uvicorn.Server, int]]:
    """An application behind this protocol, in a thread of this process."""
    config = uvicorn.Config(application, http=protocol, lifespan="off", log_config=None, timeout_keep_alive=65)
    running = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=running.run, args=([listener],))
        thread.start()
        try:
            yield running, listener.getsockname()[1]
        finally:
            running.should_exit = True
            thread.join()


class Forgetful(GuardedProtocol):
    """The negative control: keeps the timer of an idle connection that was reset, as uvicorn does."""

    def _unset_keepalive_if_required(self) -> None:
        if not self.transport.is_closing():
            super()._unset_keepalive_if_required()


@pytest.mark.parametrize(("protocol", "left_behind"), [(GuardedProtocol, 0), (Forgetful, 100)])
def test_a_reset_connection_leaves_nothing_behind(protocol: type[GuardedProtocol], left_behind: int) -> None:
    """Not even for the garbage collector: it is off, so whatever is part of a reference cycle would stay."""
    gc.collect()
    gc.disable()
    try:
        with in_process(protocol) as (running, port):
            ask_and_reset(port, 100)
            deadline = time.monotonic() + 60
            while running.server_state.connections and time.monotonic() < deadline:
                time.sleep(0.01)
            assert sum(isinstance(one, GuardedProtocol) for one in gc.get_objects()) == left_behind
    finally:
        gc.enable()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("shop")
    small_catalog().save(directory / "catalog")
    return directory


@pytest.mark.slow
def test_the_memory_of_the_service_does_not_grow_with_resets(shop: Path) -> None:
    with Server(shop, ["--store", "memory://"]) as server:
        assert server.process is not None
        process = psutil.Process(server.process.pid)
        ask_and_reset(server.port, 200)
        before = process.memory_info().rss
        ask_and_reset(server.port, 3_000)
        assert process.memory_info().rss - before < LARGEST_GROWTH


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    """A service that asks for keys, with the limits that are set if nobody sets any, and one of its keys."""
    directory = tmp_path_factory.mktemp("guarded")
    small_catalog().save(directory / "catalog")
    key = key_file(directory / "keys.json", shop=("serve",))["shop"]
    with Server(directory, ["--store", "memory://"], {"SLATEWISE_REQUEST_TIMEOUT": "5"}) as server:
        yield server, key


def preview(server: Server, key: str | None = None) -> int:
    with server.client(key) as client:
        return client.post("/v1/slates", json={"user": "anna", "preview": True}).status_code


class Drip:
    """Sockets that send a little every now and then, from a thread of their own, and never mind what comes back."""

    def __init__(self, connections: list[socket.socket]) -> None:
        self.connections, self.stopped = connections, threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while not self.stopped.wait(0.3):
            for connection in self.connections:
                with suppress(OSError):
                    connection.send(b" ")

    def stop(self) -> None:
        self.stopped.set()
        self.thread.join()
        for connection in self.connections:
            connection.close()


@contextmanager
def dripping(port: int, number: int, first: bytes) -> Iterator[list[socket.socket]]:
    connections = [connect(port) for _ in range(number)]
    for connection in connections:
        connection.sendall(first)
    drip = Drip(connections)
    try:
        yield connections
    finally:
        drip.stop()


OPENINGS = {"nothing": b"", "part of a head": HEAD, "part of a body, without a key": UNFINISHED}


@pytest.mark.parametrize("first", OPENINGS.values(), ids=OPENINGS.keys())
def test_a_thousand_slow_connections_lock_nobody_out(guarded: tuple[Server, str], first: bytes) -> None:
    """From the same address, while they last: everybody else is served, and health is told."""
    server, key = guarded
    with dripping(server.port, 1_100, first):
        for _ in range(5):
            assert preview(server, key) == 200
            with server.client() as client:
                assert [client.get(f"/health/{what}").status_code for what in ("live", "ready")] == [200, 200]
            time.sleep(0.2)


def send_slowly(connection: socket.socket, number: int) -> None:
    for _ in range(number):
        connection.sendall(b" ")
        time.sleep(0.1)


def test_a_request_answered_before_it_was_read_is_closed(guarded: tuple[Server, str]) -> None:
    """The sender gets the answer and the end at once, whatever it still sends, and is cut off in time."""
    server, _ = guarded
    with connect(server.port) as connection:
        connection.sendall(UNFINISHED)
        with connection.makefile("rb") as answer:
            text = answer.read()
        assert text.startswith(b"HTTP/1.1 401")
        assert b"\r\nconnection: close\r\n" in text
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            send_slowly(connection, 200)


def test_a_request_answered_after_it_was_read_is_not_closed(guarded: tuple[Server, str]) -> None:
    """The negative control: a refusal by itself closes nothing."""
    server, _ = guarded
    with connect(server.port) as connection:
        for _ in range(2):
            connection.sendall(HEAD + b"Content-Length: 2\r\n\r\n{}")
            answer = connection.recv(10_000)
            assert answer.startswith(b"HTTP/1.1 401")
            assert b"connection: close" not in answer


def test_a_large_body_does_not_keep_its_sender_from_seeing_the_refusal(guarded: tuple[Server, str]) -> None:
    server, key = guarded
    for headers, status in (({}, 401), ({"authorization": f"Bearer {key}"}, 413)):
        with server.client() as client:
            for _ in range(20):
                large = {**headers, "content-type": "application/json"}
                assert client.post("/v1/slates", content=b" " * 8_000_000, headers=large).status_code == status


def test_one_deadline_covers_head_and_body(guarded: tuple[Server, str]) -> None:
    """Neither the head nor the body takes as long as the limit, but together they do."""
    server, key = guarded
    authorized = HEAD + b"Authorization: Bearer " + key.encode() + b"\r\n"
    parts = [authorized, *[b"X: y\r\n"] * 3, b"Content-Length: 19\r\n\r\n", b'{"user": "anna"', b" ", b" ", b" ", b"}"]
    assert server.raw(*parts, pause=0.7).startswith(b"HTTP/1.1 408")
    lines = [json.loads(line) for line in server.logged().splitlines()]
    assert [line["refusal"] for line in lines if line.get("status") == 408] == ["timeout"]


class Small(GuardedProtocol):
    """Few connections; the tests set how many."""


@pytest.fixture
def busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, threading.Event]]:
    """The port of a service for four connections, two per address, and an event: until it is set, slates wait."""
    monkeypatch.setattr(Small, "limits", ConnectionLimits(4, 2))
    go_on = threading.Event()
    with local(tmp_path) as service:
        preview_of = service.recommender.preview_of
        monkeypatch.setattr(service.recommender, "preview_of", lambda wanted: go_on.wait(60) and preview_of(wanted))
        with in_process(Small, service.app) as (_, port):
            try:
                yield port, go_on
            finally:
                go_on.set()


CATALOG = b"GET /v1/catalog HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEALTH = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODY = b'{"user": "anna", "preview": true}'
SLATE = HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


def ask(port: int, source: str, request: bytes) -> socket.socket:
    connection = connect(port, source)
    connection.sendall(request)
    return connection


def wait_until_connected(number: int, *, served: int = 0) -> None:
    """Wait until the service has so many connections, of which so many have sent a request and wait for it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        waiting = sum(len(address.waiting) for address in list(Small.limits.addresses.values()))
        if len(Small.limits.of) == number and number - waiting == served:
            return
        time.sleep(0.01)
    raise AssertionError("the connections were not made in time")


def status(connection: socket.socket) -> int:
    """The status of the answer, 0 if the connection ends without one."""
    head = connection.recv(10_000)
    return int(head.split(b" ")[1]) if head else 0


def test_when_all_are_being_served_others_may_still_ask_for_health(busy: tuple[int, threading.Event]) -> None:
    port, go_on = busy
    with ExitStack() as stack:
        served = [stack.enter_context(ask(port, f"127.0.0.{1 + at % 2}", SLATE)) for at in range(4)]
        wait_until_connected(4, served=4)
        for _ in range(3):
            answer = stack.enter_context(ask(port, "127.0.0.3", CATALOG)).recv(10_000)
            assert answer.startswith(b"HTTP/1.1 503")
            assert b"urn:slatewise:problem:busy" in answer
            assert b"connection: close" in answer
            assert status(stack.enter_context(ask(port, "127.0.0.3", HEALTH))) == 200
        go_on.set()
        assert [status(connection) for connection in served] == [200] * 4
        assert status(stack.enter_context(ask(port, "127.0.0.3", CATALOG))) == 200


def test_one_address_does_not_take_all_connections(busy: tuple[int, threading.Event]) -> None:
    port, go_on = busy
    with ExitStack() as stack:
        served = [stack.enter_context(ask(port, "127.0.0.1", SLATE)) for _ in range(2)]
        wait_until_connected(2, served=2)
        assert status(stack.enter_context(ask(port, "127.0.0.1", CATALOG))) == 503
        assert status(stack.enter_context(ask(port, "127.0.0.2", CATALOG))) == 200
        go_on.set()
        assert [status(connection) for connection in served] == [200] * 2


def test_who_keeps_the_service_waiting_longest_goes_first(busy: tuple[int, threading.Event]) -> None:
    """One that is idle goes silently, one that has not finished its request is told."""
    port, _ = busy
    with ExitStack() as stack:
        idle = stack.enter_context(ask(port, "127.0.0.1", CATALOG))
        assert status(idle) == 200
        slow = stack.enter_context(ask(port, "127.0.0.1", UNFINISHED))
        wait_until_connected(2)
        assert status(stack.enter_context(ask(port, "127.0.0.1", CATALOG))) == 200
        assert status(idle) == 0
        assert status(stack.enter_context(ask(port, "127.0.0.1", CATALOG))) == 200
        assert status(slow) == 503


class FakeConnection:
    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits, self.gone = limits, False

    def hang_up(self, status: bytes) -> None:
        assert status.startswith(b"503")
        self.gone = True
        self.limits.remove(self)


def test_the_address_with_most_connections_waiting_loses_one() -> None:
    limits = ConnectionLimits(4, 3)
    few, many = [FakeConnection(limits)], [FakeConnection(limits) for _ in range(3)]
    for host, connections in (("10.0.0.1", few), ("10.0.0.2", many)):
        assert not any(limits.add(connection, host) for connection in connections)
    limits.mark_served(many[0])
    newcomer = FakeConnection(limits)
    assert not limits.add(newcomer, "10.0.0.3")
    assert [connection.gone for connection in few + many] == [False, False, True, False]
    limits.mark_waiting(many[0])
    assert not limits.add(FakeConnection(limits), "10.0.0.2")
    assert [connection.gone for connection in few + many] == [False, False, True, True]


def test_limits_are_never_exceeded_and_nothing_is_left() -> None:
    limits, random = ConnectionLimits(20, 8), Random(7)
    connections: list[FakeConnection] = []
    for _ in range(5_000):
        connections = [connection for connection in connections if not connection.gone]
        move = random.choice([limits.mark_served, limits.mark_waiting, limits.remove])
        if connections and random.random() < 0.4:
            connection = random.choice(connections)
            move(connection)
            connection.gone = move == limits.remove
        else:
            connections.append(FakeConnection(limits))
            limits.add(connections[-1], f"10.0.0.{random.randrange(5)}")
        assert len(limits.of) <= 20
        assert len(limits.reserved) <= RESERVED_FOR_HEALTH
        counts = Counter(address.name for address in limits.of.values())
        assert max(counts.values(), default=0) <= 8
        assert {name: address.connected for name, address in limits.addresses.items()} == counts
    for connection in connections:
        limits.remove(connection)
        limits.remove(connection)
    assert (limits.of, limits.reserved, limits.addresses) == ({}, {}, {})


def test_an_address_of_ipv6_is_a_whole_network() -> None:
    limits = ConnectionLimits(10, 1)
    assert not limits.add(FakeConnection(limits), "2001:db8::1")
    [address] = limits.addresses.values()
    address.waiting.clear()
    assert limits.add(FakeConnection(limits), "2001:db8::2%eth0")
    assert not limits.add(FakeConnection(limits), "2001:db8:0:1::1")
