"""How many connections there may be, in all and from one address, and which is closed when there are too many."""

import ipaddress
from dataclasses import dataclass, field
from typing import Protocol

ARRIVAL = "slatewise.arrival"
"""The key under which the scope of a request says how much of it has arrived."""
RESERVED_FOR_HEALTH = 100


@dataclass
class Arrival:
    """Whether a request has arrived to its end, and whether its connection is one of those reserved for /health."""

    is_whole: bool = False
    is_reserved: bool = False


class Connection(Protocol):
    """A connection that can be closed."""

    def hang_up(self, status: bytes) -> None:
        """Close the connection, after this status if it can still be sent."""


@dataclass(eq=False)
class Address:
    """The connections from one address, and those of them that keep the service waiting, the longest first."""

    name: str
    connected: int = 0
    waiting: dict[Connection, None] = field(default_factory=dict)


class ConnectionLimits:
    """Limits the number of connections in all, and from one address.

    A connection waits while the next move is its client's: to send a request or the rest of it, or to read a response.
    At the limit, the connection that has waited longest is closed, of the address that has most of them waiting. If
    none waits, because every client is being served, a new connection is a reserved one, which may only ask for
    /health; there are a few of those, and the oldest is closed first.
    """

    def __init__(self, total: int, per_address: int) -> None:
        self.total, self.per_address = total, per_address
        self.addresses: dict[str, Address] = {}
        self.of: dict[Connection, Address] = {}
        self.reserved: dict[Connection, None] = {}

    def add(self, connection: Connection, host: str) -> bool:
        """Admit a connection, in favor of another if need be; return whether it is a reserved one."""
        name = _network(host)
        address = self.addresses.get(name) or Address(name)
        if address.connected >= self.per_address:
            _close_first(address.waiting)
        elif len(self.of) >= self.total:
            _close_first(max(self.addresses.values(), key=lambda one: len(one.waiting)).waiting)
        if address.connected >= self.per_address or len(self.of) >= self.total:
            if len(self.reserved) >= RESERVED_FOR_HEALTH:
                _close_first(self.reserved)
            self.reserved[connection] = None
            return True
        self.addresses[name] = self.of[connection] = address
        address.connected += 1
        address.waiting[connection] = None
        return False

    def mark_waiting(self, connection: Connection) -> None:
        """The client has to make the next move."""
        address = self.of.get(connection)
        if address is not None:
            address.waiting[connection] = None

    def mark_served(self, connection: Connection) -> None:
        """The service has to make the next move."""
        address = self.of.get(connection)
        if address is not None:
            address.waiting.pop(connection, None)

    def remove(self, connection: Connection) -> None:
        """Forget a connection; a second time does nothing."""
        self.reserved.pop(connection, None)
        address = self.of.pop(connection, None)
        if address is None:
            return
        address.waiting.pop(connection, None)
        address.connected -= 1
        if not address.connected:
            del self.addresses[address.name]


def _close_first(connections: dict[Connection, None]) -> None:
    """Close the first one, if there is one; it removes itself."""
    for connection in connections:
        connection.hang_up(b"503 Service Unavailable")
        return


def _network(host: str) -> str:
    """Return what counts as one address: in IPv6, whoever has one has the whole /64."""
    return ipaddress.ip_address(host.partition("%")[0]).exploded[:19] if ":" in host else host
