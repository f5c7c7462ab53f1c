"""The PostgreSQL store: several processes and machines; a row lock per user keeps their writers apart."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from slatewise.store.postgres_connection import (
    READING,
    WRITING,
    Address,
    Connection,
    claim,
    commit,
    connect,
    execute_on,
    migrate,
    prepare,
    translated,
)
from slatewise.store.postgres_errors import AgainError, LostError
from slatewise.store.protocol import Ready, Result, StoreUnavailableError, Transaction
from slatewise.store.transaction import SqlTransaction

N_WRITERS = 8
N_CONNECTIONS = 12
N_ATTEMPTS = 4
LONGEST_QUEUE = 10_000
SECONDS_TO_CONNECT = 5.0
TABLES = ["users", "beliefs", "slates", "answers", "counts"]


class PostgresStore:
    """One transaction per work, on a pool of connections; a work that met another one is run again."""

    def __init__(self, address: Address, pool: ConnectionPool[Connection], read_only: bool) -> None:
        self.address = address
        self._pool = pool
        self._read_only = read_only
        self._threads = ThreadPoolExecutor(N_WRITERS, thread_name_prefix="slatewise-writer")
        self._turn = threading.Lock()
        self._n_waiting = 0
        self._is_closed = False

    @classmethod
    def open(cls, url: str, read_only: bool = False) -> "PostgresStore":
        """Connect, and make the tables if needed; read_only never writes."""
        address = Address.of(url)
        migrate(address, read_only)
        pool: ConnectionPool[Connection] = ConnectionPool(
            address.conninfo,
            kwargs={"autocommit": True},
            min_size=1,
            max_size=N_CONNECTIONS,
            configure=prepare(read_only),
            timeout=SECONDS_TO_CONNECT,
            open=True,
        )
        return cls(address, pool, read_only)

    def submit(self, work: Callable[[Transaction], Result], ready: Ready | None = None) -> Future[Result]:  # noqa: ARG002
        """Run work in one transaction on another thread; the future is set once the server has committed it."""
        with self._turn:
            if self._is_closed or self._read_only or self._n_waiting >= LONGEST_QUEUE:
                return self._refused()
            self._n_waiting += 1
            future = self._threads.submit(self._write, work)
        future.add_done_callback(self._note_done)
        return future

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Run work that only reads, in the calling thread, on a snapshot."""
        return self._read(work)

    def users(self) -> Iterator[str]:
        """Name all users."""
        return iter(self._read(lambda transaction: transaction.users()))

    def vacuum(self) -> None:
        """Rewrite the tables; everybody else waits meanwhile. The server's own WAL and backups are not touched."""
        if self._is_closed or self._read_only:
            self._refused().result()
        with translated(self.address), connect(self.address) as connection:
            connection.execute(f"VACUUM (FULL, ANALYZE) {', '.join(TABLES)}")

    def check(self) -> list[str]:
        """Nothing: PostgreSQL checks its files with tools of its own (pg_amcheck, pg_checksums)."""
        return []

    def health(self) -> dict[str, float | str]:
        """Return the size of the tables in bytes and the number of waiting writes."""
        sql = "SELECT sum(pg_total_relation_size(name::regclass)) FROM unnest(%s::text[]) name"
        with self._connection() as connection, translated(self.address):
            size = connection.execute(sql, (TABLES,)).fetchall()[0][0]
        return {"kind": "postgresql", "bytes": int(size), "backlog": self._n_waiting}

    def close(self) -> None:
        """Finish what was submitted and disconnect."""
        with self._turn:
            self._is_closed = True
        self._threads.shutdown(wait=True)
        self._pool.close()

    def _write(self, work: Callable[[Transaction], Result]) -> Result:
        """Run work until it meets nobody, within reason."""
        for _ in range(N_ATTEMPTS - 1):
            try:
                return self._write_once(work)
            except LostError:
                self._pool.check()
            except AgainError:
                pass
        return self._write_once(work)

    def _write_once(self, work: Callable[[Transaction], Result]) -> Result:
        with self._connection() as connection, translated(self.address):
            with connection.pipeline():
                connection.execute(WRITING)
                transaction = SqlTransaction(execute_on(connection, self.address), claim)
                result = work(transaction)
                transaction.finish()
            commit(connection, self.address)
        return result

    def _read(self, work: Callable[[SqlTransaction], Result]) -> Result:
        with self._connection() as connection, translated(self.address):
            connection.execute(READING)
            result = work(SqlTransaction(execute_on(connection, self.address)))
            connection.rollback()
        return result

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        try:
            with self._pool.connection() as connection:
                yield connection
        except PoolTimeout as error:
            raise StoreUnavailableError(f"{self.address.where} cannot be reached; is the server running?") from error
        except PoolClosed as error:
            raise StoreUnavailableError("the store is closed") from error

    def _refused(self) -> Future[Any]:
        future: Future[Any] = Future()
        why = (
            "was opened for reading only" if self._read_only else f"has {LONGEST_QUEUE} writes waiting; try again later"
        )
        future.set_exception(StoreUnavailableError(f"the store {'is closed' if self._is_closed else why}"))
        return future

    def _note_done(self, _future: Future[Any]) -> None:
        with self._turn:
            self._n_waiting -= 1
