"""Connections that cannot be held open for nothing: heads must be small and on time, responses must be read."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD = 32_768
REJECTION = b"HTTP/1.1 %s\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, which by itself waits forever for a head of any size and for clients that do not read.

    header_timeout: seconds in which a head must arrive; write_timeout: seconds for which a client may not read.
    """

    header_timeout = 10.0
    write_timeout = 30.0
    in_head = False
    head_size = 0
    head_timer: asyncio.TimerHandle | None = None
    write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for the first request."""
        super().connection_made(transport)
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        self._stop_head_timer()
        self._stop_write_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take data; a head that is still incomplete must not take too long, nor grow beyond bounds."""
        super().data_received(data)
        if self.in_head:
            if self.head_timer is None:
                self._start_head_timer()
            self.head_size += len(data)
            if self.head_size > MAX_HEAD:
                self._reject(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self.in_head = True

    def on_headers_complete(self) -> None:
        """The head is complete."""
        self._stop_head_timer()
        self.in_head, self.head_size = False, 0
        super().on_headers_complete()

    def pause_writing(self) -> None:
        """The client does not read: give it some time."""
        super().pause_writing()
        self.write_timer = self.loop.call_later(self.write_timeout, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        self._stop_write_timer()
        super().resume_writing()

    def _stop_write_timer(self) -> None:
        if self.write_timer is not None:
            self.write_timer.cancel()
            self.write_timer = None

    def _start_head_timer(self) -> None:
        self.head_timer = self.loop.call_later(self.header_timeout, self._reject, b"408 Request Timeout")

    def _stop_head_timer(self) -> None:
        if self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None

    def _reject(self, status: bytes) -> None:
        """Respond and hang up, unless an earlier request on this connection is still being served."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(REJECTION % status)
        self.transport.close()
