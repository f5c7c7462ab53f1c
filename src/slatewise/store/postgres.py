"""The PostgreSQL store: for several processes and machines; a row lock per user serializes its writers."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from slatewise.store.postgres_connection import (
    BEGIN_READING,
    BEGIN_WRITING,
    Address,
    Connection,
    commit,
    connect,
    execute_on,
    lock_user,
    migrate,
    prepare,
    translated,
)
from slatewise.store.postgres_errors import ConnectionLostError, RetryError
from slatewise.store.protocol import Result, StoreUnavailableError, Transaction
from slatewise.store.sql import SqlTransaction

N_WRITERS = 8
N_CONNECTIONS = 12
MAX_ATTEMPTS = 4
MAX_QUEUE = 10_000
SECONDS_TO_CONNECT = 5.0
TABLES = ["users", "beliefs", "slates", "feedback", "events", "counts", "fits"]


class PostgresStore:
    """One transaction per job, on a pool of connections; a job that conflicts with another one is run again."""

    def __init__(self, address: Address, pool: ConnectionPool[Connection], read_only: bool) -> None:
        self.address = address
        self._pool = pool
        self._read_only = read_only
        self._threads = ThreadPoolExecutor(N_WRITERS, thread_name_prefix="slatewise-writer")
        self._lock = threading.Lock()
        self._n_queued = 0
        self._is_closed = False

    @classmethod
    def open(cls, url: str, read_only: bool = False) -> "PostgresStore":
        """Connect, and create the tables if needed; read_only never writes."""
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

    def write(self, job: Callable[[Transaction], Result]) -> Future[Result]:
        """Run a job in one transaction on another thread; the future is set once the server has committed it."""
        with self._lock:
            if self._is_closed or self._read_only or self._n_queued >= MAX_QUEUE:
                return self._refused()
            self._n_queued += 1
            future = self._threads.submit(self._run, job)
        future.add_done_callback(self._note_done)
        return future

    def read(self, job: Callable[[Transaction], Result]) -> Result:
        """Run a job that only reads, in the calling thread, on a snapshot."""
        return self._read(job)

    def users(self) -> Iterator[str]:
        """Iterate over the ids of all users."""
        return iter(self._read(lambda transaction: transaction.users()))

    def vacuum(self) -> None:
        """Rewrite the tables while everybody else waits. The server's own WAL and backups are not touched."""
        if self._is_closed or self._read_only:
            self._refused().result()
        with translated(self.address), connect(self.address) as connection:
            connection.execute(f"VACUUM (FULL, ANALYZE) {', '.join(TABLES)}")

    def check(self) -> list[str]:
        """Return nothing: PostgreSQL has tools of its own for that (pg_amcheck, pg_checksums)."""
        return []

    def health(self) -> dict[str, float | str]:
        """Return the size of the tables in bytes and the number of queued writes."""
        sql = "SELECT sum(pg_total_relation_size(name::regclass)) FROM unnest(%s::text[]) name"
        with self._connection() as connection, translated(self.address):
            size = connection.execute(sql, (TABLES,)).fetchall()[0][0]
        return {"kind": "postgresql", "bytes": int(size), "backlog": self._n_queued}

    def close(self) -> None:
        """Finish the queued jobs and disconnect."""
        with self._lock:
            self._is_closed = True
        self._threads.shutdown(wait=True)
        self._pool.close()

    def _run(self, job: Callable[[Transaction], Result]) -> Result:
        """Run a job; repeat it after a conflict or a lost connection, a few times."""
        for _ in range(MAX_ATTEMPTS - 1):
            try:
                return self._run_once(job)
            except ConnectionLostError:
                self._pool.check()
            except RetryError:
                pass
        return self._run_once(job)

    def _run_once(self, job: Callable[[Transaction], Result]) -> Result:
        with self._connection() as connection, translated(self.address):
            with connection.pipeline():
                connection.execute(BEGIN_WRITING)
                transaction = SqlTransaction(execute_on(connection, self.address), lock_user)
                result = job(transaction)
                transaction.finish()
            commit(connection, self.address)
        return result

    def _read(self, job: Callable[[SqlTransaction], Result]) -> Result:
        with self._connection() as connection, translated(self.address):
            connection.execute(BEGIN_READING)
            result = job(SqlTransaction(execute_on(connection, self.address)))
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
        why = "was opened for reading only" if self._read_only else f"has {MAX_QUEUE} writes queued; try again later"
        future.set_exception(StoreUnavailableError(f"the store {'is closed' if self._is_closed else why}"))
        return future

    def _note_done(self, _future: Future[Any]) -> None:
        with self._lock:
            self._n_queued -= 1
