"""One connection to PostgreSQL, used through libpq's pipeline mode: statements are sent without waiting for results.

What psycopg offers above libpq polls the socket for every statement, and every poll hands the interpreter to another
thread. Here only `rows` and `sync` wait, for one round trip, and never longer than MAX_SILENCE.

Nothing is left in a connection unless it `prepares`: settings are those of a transaction, so that a pooler such as
PgBouncer may give every transaction another connection to the server.
"""

import re
import select
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from itertools import count
from typing import Any, NoReturn

import psycopg
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from slatewise.store.postgres_errors import ServerSilentError
from slatewise.store.rows import Values

MAX_SILENCE = 5.0
"""Seconds to wait for a response to what was sent; then the connection is closed."""
SETTINGS = (
    "SELECT set_config('search_path', 'slatewise', true), set_config('statement_timeout', '4s', true),"
    " set_config('lock_timeout', '100ms', true), set_config('idle_in_transaction_session_timeout', '60s', true),"
    " set_config('synchronous_commit', coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on'), true)"
)
"""Of every transaction; the timeouts are shorter than MAX_SILENCE, and no commit is asynchronous."""
FAILED = {int(ExecStatus.FATAL_ERROR), int(ExecStatus.PIPELINE_ABORTED)}
DECODERS: dict[int, Callable[[bytes], Any]] = {
    17: lambda text: bytes.fromhex(text[2:].decode()),  # bytea
    20: int,  # bigint
    23: int,  # integer
    701: float,  # double precision
    1700: lambda text: Decimal(text.decode()),  # numeric
}
"""How a value in PostgreSQL's text format is read, by the number of its type; everything else is text."""


@dataclass(slots=True)
class Statement:
    """A statement that was sent, or the end of a series of them, and its result once that is here."""

    result: PGresult | None = None

    @property
    def command(self) -> bytes | None:
        """The name of the command that was carried out: COMMIT, or ROLLBACK if there was nothing to commit."""
        return None if self.result is None else self.result.command_status


class Session:
    """Sends statements and receives their results in order; after an error, `roll_back` makes it usable again."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.prepares = False
        """Whether statements are prepared, for which all transactions must be on the same connection to the server."""
        self.was_silent = False
        """Whether it was closed because the server did not respond in time."""
        self._connection = connection
        self._libpq = connection.pgconn
        self._prepared: dict[str, bytes] = {}
        self._pending: deque[Statement] = deque()
        self._is_flushed = self._is_sent = True
        self._libpq.nonblocking = 1
        self._libpq.enter_pipeline_mode()

    def begin(self, kind: str) -> None:
        """Begin a transaction of a kind, with our settings.

        A pooler must have seen the end of the one before: what comes earlier may go to a connection that it takes back.
        """
        if self._pending and not self.prepares:
            self._receive(self._pending[-1])
        self.send(kind)
        self.send(SETTINGS)

    def send(self, sql: str, parameters: Values = ()) -> Statement:
        """Put a statement, with ? for parameters, behind those sent before; it may be prepared at its first use."""
        values = [_encoded(value) for value in parameters]
        formats = [int(type(value) is bytes) for value in parameters] if bytes in map(type, parameters) else None
        if self.prepares:
            self._libpq.send_query_prepared(self._name(sql), values, formats)
        else:
            self._libpq.send_query_params(numbered(sql), values, None, formats)
        statement = Statement()
        self._pending.append(statement)
        self._is_flushed = self._is_sent = False
        return statement

    def rows(self, statement: Statement) -> list[Values]:
        """Wait for the result of a statement and return its rows."""
        if statement.result is None:
            if not self._is_flushed:
                self._libpq.send_flush_request()
                self._is_flushed, self._is_sent = True, False
            self._receive(statement)
        return _rows(statement.result)

    def sync(self, *, wait: bool = True) -> None:
        """End a series of statements, of which none runs if one before it failed; fail if one did."""
        self._libpq.pipeline_sync()
        self._pending.append(Statement())
        self._is_sent = False
        if wait:
            self._receive(self._pending[-1])
        else:
            self._is_sent = self._libpq.flush() == 0

    def roll_back(self) -> None:
        """End the transaction after an error, whatever is still on its way; close the session if that fails."""
        try:
            if not self._connection.closed:
                self._recover()
        except psycopg.Error:
            self.close()

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    @property
    def is_usable(self) -> bool:
        """Whether it is connected and no failed transaction is left."""
        return not self._connection.closed and self._libpq.transaction_status != TransactionStatus.INERROR

    def _name(self, sql: str) -> bytes:
        """Return the name of a prepared statement; prepare it if it is new."""
        name = self._prepared.get(sql)
        if name is None:
            name = self._prepared[sql] = b"s%d" % len(self._prepared)
            self._libpq.send_prepare(name, numbered(sql))
            self._pending.append(Statement())
        return name

    def _recover(self) -> None:
        self._prepared.clear()
        endings = (b"ROLLBACK", b"DEALLOCATE ALL") if self.prepares else (b"ROLLBACK",)
        self._libpq.pipeline_sync()
        for sql in endings:
            self._libpq.send_query_params(sql, None)
        self._libpq.pipeline_sync()
        self._is_sent = False
        self._pending.extend(Statement() for _ in range(2 + len(endings)))
        last, until = self._pending[-1], time.monotonic() + MAX_SILENCE
        while last.result is None:
            self._receive_one(until)

    def _receive(self, wanted: Statement) -> None:
        """Receive results up to that of a statement; fail if it or one before it failed."""
        until = time.monotonic() + MAX_SILENCE
        while wanted.result is None:
            result = self._receive_one(until)
            if result is not None and result.status in FAILED:
                if self._libpq.status == ConnStatus.BAD:
                    raise psycopg.OperationalError(result.get_error_message())
                raise psycopg.errors.error_from_result(result)

    def _receive_one(self, until: float) -> PGresult | None:
        """Receive the result of the next statement; None is what libpq returns between two of them."""
        self._wait_for_result(until)
        result = self._libpq.get_result()
        if result is not None:
            self._pending.popleft().result = result
        elif time.monotonic() > until:
            self._give_up()
        return result

    def _wait_for_result(self, until: float) -> None:
        """Send what is not sent yet, and wait until there is a result; give up a server that stays silent."""
        self._is_sent = self._is_sent or self._libpq.flush() == 0
        while self._libpq.is_busy():
            poll = select.poll()
            poll.register(self._libpq.socket, select.POLLIN | (0 if self._is_sent else select.POLLOUT))
            if not poll.poll(max(0.0, 1000.0 * (until - time.monotonic()))):
                self._give_up()
            self._libpq.consume_input()
            self._is_sent = self._is_sent or self._libpq.flush() == 0

    def _give_up(self) -> NoReturn:
        """Close a connection whose results do not come."""
        self.was_silent = True
        self.close()
        raise ServerSilentError(f"no response within {MAX_SILENCE:g} seconds")


def _rows(result: PGresult | None) -> list[Values]:
    if result is None or not result.nfields:
        return []
    decoders = [DECODERS.get(result.ftype(column), bytes.decode) for column in range(result.nfields)]
    return [
        tuple(
            None if (value := result.get_value(row, column)) is None else decode(value)
            for column, decode in enumerate(decoders)
        )
        for row in range(result.ntuples)
    ]


def _encoded(value: Any) -> bytes | None:
    """Return a value in PostgreSQL's text format, or bytes as they are."""
    if value is None or isinstance(value, bytes):
        return value
    text = str(value)
    if "\0" in text:
        raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return text.encode()


@cache
def numbered(sql: str) -> bytes:
    """Return a statement with $1, $2, … for its parameters."""
    numbers = count(1)
    return re.sub(r"\?", lambda _: f"${next(numbers)}", sql).encode()
