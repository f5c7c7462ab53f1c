"""An HTTP proxy that loses requests, loses answers, cuts answers short, delays, repeats, and says 503."""

import random
import re
import socket
import socketserver
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

FAULTS = ("lose request", "lose answer", "cut answer", "delay", "repeat", "refuse")
BUSY = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


@dataclass
class BadNetwork:
    """A proxy to a port of this machine; calls of the API suffer a fault with the given probability."""

    target: int
    share: float = 0.5
    delay: float = 1.0
    seed: int = 0
    is_down: bool = False
    port: int = 0
    suffered: Counter[str] = field(default_factory=Counter)
    closing: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def serve(self, client: socket.socket) -> None:
        """Serve one request of a connection."""
        request = _message(client)
        if not request:
            return
        fault = self._fault(request)
        self.suffered[fault] += 1
        if fault == "refuse":
            client.sendall(BUSY)
        elif fault != "lose request":
            self._answer(client, request, fault)

    def _answer(self, client: socket.socket, request: bytes, fault: str) -> None:
        answer = self._forward(request)
        if fault == "repeat":
            answer = self._forward(request)
        if fault == "delay":
            self.closing.wait(self.delay)
        if fault != "lose answer":
            client.sendall(answer[:-5] if fault == "cut answer" else answer)

    def _fault(self, request: bytes) -> str:
        is_call = request.split(b" ", 2)[1].startswith(b"/v1/")
        if is_call and self.is_down:
            return "lose request"
        return self.random.choice(FAULTS) if is_call and self.random.random() < self.share else "none"

    def _forward(self, request: bytes) -> bytes:
        head, _, body = request.partition(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
        with socket.create_connection(("127.0.0.1", self.target), timeout=30) as service:
            service.sendall(b"\r\n".join([*lines, b"connection: close"]) + b"\r\n\r\n" + body)
            parts = []
            while part := service.recv(65_536):
                parts.append(part)
        return b"".join(parts)


def _message(client: socket.socket) -> bytes:
    """Read a whole request; nothing if the client hangs up before."""
    found = b""
    while not _is_whole(found):
        part = client.recv(65_536)
        if not part:
            return b""
        found += part
    return found


def _is_whole(found: bytes) -> bool:
    head, end, body = found.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    return bool(end) and len(body) >= (int(length[1]) if length else 0)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = False
    request_queue_size = 100


@contextmanager
def bad_network(target: int, **options: float) -> Iterator[BadNetwork]:
    """Run a proxy in threads of its own."""
    network = BadNetwork(target, **options)  # type: ignore[arg-type]

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.settimeout(30)
            with suppress(OSError):
                network.serve(self.request)

    with _Server(("127.0.0.1", 0), Handler) as server:
        network.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield network
        finally:
            network.closing.set()
            server.shutdown()
            thread.join()
