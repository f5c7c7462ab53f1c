"""The connections of a PostgreSQL store; while the server is away, one thread tries, and others are told at once."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psycopg

from slatewise.store.postgres_connection import Address, connect
from slatewise.store.postgres_errors import ServerAwayError, explained
from slatewise.store.postgres_session import Session
from slatewise.store.protocol import StoreUnavailableError

PROBE_PAUSE = 0.25
"""Seconds between attempts to reach a server that is away."""


class ConnectionPool:
    """Lends connections, made when needed; whoever has a connection may use it, whatever happened to another one.

    After a connection could not be made, or got no response, no other is made until the probe has one that works. The
    probe is given a new connection and fails with StoreUnavailableError if it does not work.
    """

    def __init__(self, address: Address, probe: Callable[[Session], None]) -> None:
        self.address = address
        self._probe = probe
        self._idle: list[Session] = []
        self._lock = threading.Lock()
        self._failure: str | None = None
        self._closing = threading.Event()

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Lend a session; one that comes back broken or with a failed transaction is closed."""
        session = self._take()
        try:
            yield session
        finally:
            self._give_back(session)

    def close(self) -> None:
        """Disconnect; what is lent is closed when it comes back."""
        self._closing.set()
        self._close_idle()

    def _take(self) -> Session:
        with self._lock:
            if self._closing.is_set():
                raise StoreUnavailableError("the store is closed")
            if self._idle:
                return self._idle.pop()
            if self._failure is not None:
                raise ServerAwayError(self._failure)
        try:
            return connect(self.address)
        except psycopg.Error as error:
            away = ServerAwayError(str(explained(error, self.address.where)))
            self.stop_connecting(away)
            raise away from error

    def _give_back(self, session: Session) -> None:
        if session.is_usable:
            with self._lock:
                if not self._closing.is_set():
                    self._idle.append(session)
                    return
        elif session.was_silent:
            self.stop_connecting(ServerAwayError(f"{self.address.where} cannot be reached: it does not respond"))
        else:
            self._close_idle()
        session.close()

    def _close_idle(self) -> None:
        """Close what is idle: if one connection broke, the others probably did too."""
        with self._lock:
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()

    def stop_connecting(self, why: ServerAwayError) -> None:
        """From now on say at once that the server is away, until the probe has reached it."""
        self._close_idle()
        with self._lock:
            if self._failure is None and not self._closing.is_set():
                self._failure = str(why)
                threading.Thread(target=self._watch, name="slatewise-probe", daemon=True).start()

    def _watch(self) -> None:
        """Try to reach the server again and again; what worked is lent to others."""
        while not self._closing.is_set():
            with suppress(psycopg.Error, StoreUnavailableError):
                session = connect(self.address)
                try:
                    self._probe(session)
                finally:
                    self._give_back(session)
                break
            self._closing.wait(PROBE_PAUSE)
        with self._lock:
            self._failure = None
