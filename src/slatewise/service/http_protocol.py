"""Connections that cannot be held open for nothing: heads must arrive whole, small and in time; answers be taken."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LARGEST_HEAD = 32_768
REFUSAL = b"HTTP/1.1 %s\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP, which by itself waits for ever for a head of any size and for whoever takes no answer."""

    header_timeout = 10.0
    taking_timeout = 30.0
    in_head = False
    head_size = 0
    deadline: asyncio.TimerHandle | None = None
    patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for the first request."""
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        self._stop_watching()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came; a head that is still not whole must not take too long, nor grow beyond bounds."""
        super().data_received(data)
        if self.in_head:
            if self.deadline is None:
                self._wait_for_head()
            self.head_size += len(data)
            if self.head_size > LARGEST_HEAD:
                self._refuse(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self.in_head = True

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._stop_waiting()
        self.in_head, self.head_size = False, 0
        super().on_headers_complete()

    def pause_writing(self) -> None:
        """The other side takes nothing: give it a while."""
        super().pause_writing()
        self.patience = self.loop.call_later(self.taking_timeout, self.transport.abort)

    def resume_writing(self) -> None:
        """The other side takes its answer again."""
        self._stop_watching()
        super().resume_writing()

    def _stop_watching(self) -> None:
        if self.patience is not None:
            self.patience.cancel()
            self.patience = None

    def _wait_for_head(self) -> None:
        self.deadline = self.loop.call_later(self.header_timeout, self._refuse, b"408 Request Timeout")

    def _stop_waiting(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def _refuse(self, status: bytes) -> None:
        """Answer and hang up, unless an earlier request on this connection is still being answered."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(REFUSAL % status)
        self.transport.close()
