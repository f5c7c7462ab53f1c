"""A TCP proxy in front of PostgreSQL that can freeze connections without closing them, break them, and count."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tests.support.postgres import Server

CHUNK = 65_536


@dataclass(eq=False)
class Link:
    """One connection through the proxy; what is not flowing is lost."""

    client: socket.socket
    server: socket.socket
    flows: dict[str, bool] = field(default_factory=lambda: {"request": True, "response": True})
    round_trips: int = 0
    last: str = "response"

    def pump(self, direction: str) -> None:
        """Pass on what comes from one side, as long as it flows."""
        source, target = (self.client, self.server) if direction == "request" else (self.server, self.client)
        with suppress(OSError):
            while data := source.recv(CHUNK):
                if self.flows[direction]:
                    self.round_trips += direction == "request" and self.last == "response"
                    self.last = direction
                    target.sendall(data)
        if all(self.flows.values()):
            self.close()

    def close(self) -> None:
        """Break the connection on both sides."""
        for one in (self.client, self.server):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class Proxy:
    """Accepts connections to a server; `accepts` says whether new ones work, or get no response."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.links: list[Link] = []
        self.accepts = True
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        """The address of the server through the proxy."""
        return f"postgresql://tester@127.0.0.1:{self.listener.getsockname()[1]}/postgres"

    @property
    def round_trips(self) -> int:
        """How often a client has sent something and the server has responded to it, so far."""
        return sum(link.round_trips for link in self.links)

    def freeze(self, *directions: str) -> None:
        """Lose what the present connections send from now on: requests, responses, or both."""
        for link in self.links:
            link.flows.update(dict.fromkeys(directions or ("request", "response"), False))

    def freeze_everything(self) -> None:
        """Freeze the present connections and all later ones."""
        self.accepts = False
        self.freeze()

    def thaw(self) -> None:
        """Let new connections work again; the frozen ones stay as they are, as if a firewall had forgotten them."""
        self.accepts = True

    def cut(self) -> None:
        """Break the present connections."""
        for link in self.links:
            link.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        try:
            link = Link(client, socket.create_connection(("127.0.0.1", self.server.port)))
        except OSError:
            self.links.append(Link(client, client))
            client.close()
            return
        self.links.append(link)
        if not self.accepts:
            link.flows.update(request=False, response=False)
        for direction in link.flows:
            threading.Thread(target=link.pump, args=(direction,), daemon=True).start()


@contextmanager
def proxy_to(server: Server) -> Iterator[Proxy]:
    """Run a proxy in front of a server."""
    proxy = Proxy(server)
    try:
        yield proxy
    finally:
        proxy.listener.close()
        for link in proxy.links:
            link.close()
            link.client.close()
            link.server.close()
