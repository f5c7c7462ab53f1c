"""How many connections there may be, in all and from one address; and who has to go when there are too many."""

import ipaddress
from dataclasses import dataclass, field
from typing import Protocol

ARRIVAL = "slatewise.arrival"
"""The key under which the scope of a request says how much of it has arrived."""
EXTRA_PLACES = 100


@dataclass
class Arrival:
    """Whether a request has arrived to its end, and whether it came by an extra connection."""

    is_whole: bool = False
    is_extra: bool = False


class Guest(Protocol):
    """A connection that can be told to go."""

    def hang_up(self, status: bytes) -> None:
        """Close the connection, after this status if it can still be sent."""


@dataclass(eq=False)
class Address:
    """The connections from one address, and those of them that keep the service waiting, the longest first."""

    name: str
    connected: int = 0
    waiting: dict[Guest, None] = field(default_factory=dict)


class Places:
    """Places for so many connections in all, and for so many from one address.

    A connection waits while the next move is its client's: to send a request or the rest of it, or to read a response.
    When places run out, the connection that has waited longest goes, of the address that has most of them waiting. If
    none waits, because every client is being served, a new connection is an extra one, which may only ask for /health;
    there are a few of those, and the oldest goes first.
    """

    def __init__(self, total: int, per_address: int) -> None:
        self.total, self.per_address = total, per_address
        self.addresses: dict[str, Address] = {}
        self.of: dict[Guest, Address] = {}
        self.extra: dict[Guest, None] = {}

    def enter(self, guest: Guest, host: str) -> bool:
        """Take a place, from another connection if need be; return whether it is an extra one."""
        name = _network(host)
        address = self.addresses.get(name) or Address(name)
        if address.connected >= self.per_address:
            _dismiss(address.waiting)
        elif len(self.of) >= self.total:
            _dismiss(max(self.addresses.values(), key=lambda one: len(one.waiting)).waiting)
        if address.connected >= self.per_address or len(self.of) >= self.total:
            if len(self.extra) >= EXTRA_PLACES:
                _dismiss(self.extra)
            self.extra[guest] = None
            return True
        self.addresses[name] = self.of[guest] = address
        address.connected += 1
        address.waiting[guest] = None
        return False

    def wait(self, guest: Guest) -> None:
        """The client has to make the next move."""
        address = self.of.get(guest)
        if address is not None:
            address.waiting[guest] = None

    def serve(self, guest: Guest) -> None:
        """The service has to make the next move."""
        address = self.of.get(guest)
        if address is not None:
            address.waiting.pop(guest, None)

    def leave(self, guest: Guest) -> None:
        """Give the place back; a second time does nothing."""
        self.extra.pop(guest, None)
        address = self.of.pop(guest, None)
        if address is None:
            return
        address.waiting.pop(guest, None)
        address.connected -= 1
        if not address.connected:
            del self.addresses[address.name]


def _dismiss(guests: dict[Guest, None]) -> None:
    """Let the first one go, if there is one; it leaves by itself."""
    for guest in guests:
        guest.hang_up(b"503 Service Unavailable")
        return


def _network(host: str) -> str:
    """Return what counts as one address: in IPv6, whoever has one has the whole /64."""
    return ipaddress.ip_address(host.partition("%")[0]).exploded[:19] if ":" in host else host
