"""Connections that cannot be held for nothing: requests arrive in time, responses are read, their number is limited."""

import asyncio
import ipaddress
from dataclasses import dataclass, field
from typing import Protocol

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD = 32_768
MAX_PIPELINED = 8
"""How many requests a client may send before it has the response to the first of them."""
MAX_DRAINED = 16 << 20
MAX_TOGETHER = 1 << 16
REJECTION = b"HTTP/1.1 %s\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
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
            _close_first(max(self.addresses.values(), key=lambda other: len(other.waiting)).waiting)
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


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, which by itself waits forever for requests, and for clients that do not read.

    request_timeout: seconds in which a request must arrive, head and body; write_timeout: seconds for which a client
    may not read; limits: how many connections there may be, shared by all of them.
    """

    request_timeout = 10.0
    write_timeout = 30.0
    limits = ConnectionLimits(1000, 500)
    transport: "ResponseTransport"
    in_head = False
    has_stopped_reading = False
    """Whether nothing more is read: what came was no HTTP, or too much, or the client has sent everything."""
    head_size = trailer_size = 0
    arrival = Arrival(is_whole=True)
    is_reserved = False
    request_timer: asyncio.TimerHandle | None = None
    write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a place, and start waiting for the first request."""
        super().connection_made(transport)
        self.transport = ResponseTransport(transport, self.loop)
        self.is_reserved = self.limits.add(self, self.client[0] if self.client else "")
        self._start_request_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the place and stop all timers, uvicorn's too: it keeps the one of a connection that was reset."""
        self.limits.remove(self)
        self._stop_request_timer()
        self._stop_write_timer()
        self._unset_keepalive_if_required()
        self.pipeline.clear()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Let a client that sends nothing more have the response that is due."""
        return self._end_after_responses()

    def data_received(self, data: bytes) -> None:
        """Take data; a request that is still incomplete must not take too long, nor its head grow beyond bounds."""
        if self.transport.is_lingering or self.has_stopped_reading:
            self.transport.drain(len(data))
            return
        super().data_received(data)
        if self.has_stopped_reading:
            return
        if (self.in_head or not self.arrival.is_whole) and self.request_timer is None:
            self._start_request_timer()
        if self.in_head:
            self.head_size += len(data)
            if self.head_size > MAX_HEAD:
                self.hang_up(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self.in_head, self.trailer_size = True, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; what follows a body is ignored, up to the size of a head."""
        if self.in_head:
            super().on_header(name, value)
            return
        self.trailer_size += len(name) + len(value)
        if self.trailer_size > MAX_HEAD:
            raise ValueError("the trailers of a request are too long")

    def on_headers_complete(self) -> None:
        """The head is complete, and a body may follow; uvicorn raises for an address that is none."""
        self.in_head, self.head_size = False, 0
        super().on_headers_complete()
        self.arrival = self.transport.arrival = Arrival(is_reserved=self.is_reserved)
        self.scope[ARRIVAL] = self.arrival  # type: ignore[literal-required]
        if len(self.pipeline) > MAX_PIPELINED:
            raise ValueError("too many requests were sent before the first was answered")

    def send_400_response(self, msg: str) -> None:
        """Reject what is no HTTP, or too much of it; requests that came before it get their responses instead."""
        if self._end_after_responses():
            return
        if self.arrival.is_whole or not self.cycle.response_started:
            super().send_400_response(msg)
        else:
            self.transport.close_now()

    def on_message_complete(self) -> None:
        """The request is complete: from now on the client waits for the service."""
        super().on_message_complete()
        self.arrival.is_whole = True
        self._stop_request_timer()
        self.limits.mark_served(self)

    def on_response_complete(self) -> None:
        """From now on the service waits for the client, unless it has sent the next request already."""
        is_last = self.has_stopped_reading and not self.pipeline
        super().on_response_complete()
        if is_last:
            self.transport.close()
            return
        if self.cycle.response_complete or not self.arrival.is_whole:
            self.limits.mark_waiting(self)
        if self.transport.is_lingering:
            self.flow.resume_reading()

    def pause_writing(self) -> None:
        """The client does not read: give it some time."""
        super().pause_writing()
        self.limits.mark_waiting(self)
        self._start_write_timer()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._stop_write_timer()
        if not self.cycle.response_complete:
            self.limits.mark_served(self)
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that has been idle for long, read or not."""
        self.transport.abort()

    def hang_up(self, status: bytes) -> None:
        """Close the connection, and say why if that cannot be mistaken for the response to an earlier request."""
        self.limits.remove(self)
        if self._is_silent() and not self.transport.is_closing():
            self.transport.write(REJECTION % status)
        self.transport.close_now()
        self._start_write_timer()

    def _end_after_responses(self) -> bool:
        """Read no more, and close when all requests that have arrived have their responses; whether there are any."""
        self.has_stopped_reading, is_due = True, self.cycle is not None and not self.cycle.response_complete
        if not self.arrival.is_whole:
            is_due = bool(self.pipeline)
            if is_due:
                self.pipeline.popleft()  # the rest of the latest request will never come
                self.arrival.is_whole = True
        if is_due:
            self._stop_request_timer()
            self.limits.mark_served(self)
        return is_due

    def _is_silent(self) -> bool:
        """Whether a request is expected or arriving, and no response is due or on its way."""
        if self.arrival.is_whole:
            return self.cycle is None or (self.in_head and self.cycle.response_complete)
        return not (self.cycle.response_started or self.pipeline)

    def _start_request_timer(self) -> None:
        self.request_timer = self.loop.call_later(self.request_timeout, self.hang_up, b"408 Request Timeout")

    def _stop_request_timer(self) -> None:
        if self.request_timer is not None:
            self.request_timer.cancel()
            self.request_timer = None

    def _start_write_timer(self) -> None:
        if self.write_timer is None:
            self.write_timer = self.loop.call_later(self.write_timeout, self.transport.abort)

    def _stop_write_timer(self) -> None:
        if self.write_timer is not None:
            self.write_timer.cancel()
            self.write_timer = None


class ResponseTransport(asyncio.Transport):
    """Sends the head and the body of a response together, and ends it so that its reader can see it.

    A connection that is closed with unread data is reset, and a reset may overtake the response. So while a request is
    still arriving, only the writing half is closed, and what arrives is discarded, until the request's time is up.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.transport, self.loop = transport, loop
        self.written = bytearray()
        self.arrival = Arrival(is_whole=True)
        self.is_lingering = False
        self.drained = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write part of a response; small parts are sent when the current step of the event loop is over."""
        if len(data) > MAX_TOGETHER:
            self.flush()
            self.transport.write(data)
            return
        if not self.written:
            self.loop.call_soon(self.flush)
        self.written += data

    def flush(self) -> None:
        """Send what was written."""
        if self.written and not self.transport.is_closing():
            self.transport.write(bytes(self.written))
        self.written.clear()

    def close(self) -> None:
        """Close the connection once the request has arrived."""
        self.flush()
        if self.arrival.is_whole or self.is_lingering:
            self.transport.close()
        elif not self.transport.is_closing():
            self.is_lingering = True
            self.transport.write_eof()

    def drain(self, size: int) -> None:
        """Discard what arrives; too much of it is not worth reading."""
        self.drained += size
        if self.drained > MAX_DRAINED:
            self.transport.abort()

    def close_now(self) -> None:
        """Close the connection once what was written is sent."""
        self.flush()
        self.transport.close()

    def abort(self) -> None:
        """Close the connection, whatever is still to be sent."""
        self.transport.abort()

    def is_closing(self) -> bool:
        """Whether nothing can be written any more."""
        return self.is_lingering or self.transport.is_closing()
