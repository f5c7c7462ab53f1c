"""The PostgreSQL store: for several processes and machines; a row lock per user serializes its writers."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any

from psycopg.sql import SQL, Identifier

from slatewise.store.postgres_batch import commit_jobs, lock_patiently
from slatewise.store.postgres_connection import Address, connect_for_maintenance, translated
from slatewise.store.postgres_errors import ConnectionLostError
from slatewise.store.postgres_migration import migrate
from slatewise.store.postgres_pool import ConnectionPool
from slatewise.store.postgres_reader import Reader
from slatewise.store.postgres_session import Session
from slatewise.store.postgres_transaction import PostgresTransaction, measure_by_writing
from slatewise.store.postgres_writer import PostgresWriter
from slatewise.store.protocol import Result, StoreError, StoreUnavailableError, Transaction
from slatewise.store.rows import Values

MAX_READERS = 11
"""The worker threads of a service, those that serve its operators, and the one that closes expired slates."""
USERS_PER_READ = 1_000
SECONDS_FOR_TURN = 5.0
"""How long a reader waits until there are fewer than MAX_READERS others."""
SECONDS_FOR_PROOF = 2.0
PROOF_AGE = 1.0
"""Seconds for which a committed write proves that others can be committed, too."""
SIZE_AGE = 10.0
BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
SWEEP_LOCK = 0x736C6177
TRY_TO_SWEEP = f"SELECT pg_try_advisory_xact_lock({SWEEP_LOCK})::int"
TABLES = (
    "SELECT relname FROM pg_class WHERE relnamespace = 'slatewise'::regnamespace AND relkind IN ('r', 'p')"
    " AND NOT relispartition ORDER BY relname"
)
READ_ONLY = "the store was opened for reading only"


class PostgresStore:
    """Reads in the calling thread; writes are committed in batches by a thread of the writer."""

    def __init__(self, address: Address, read_only: bool) -> None:
        self.address = address
        self._read_only = read_only
        self._pool = ConnectionPool(address, self._probe)
        self._writer = None if read_only else PostgresWriter(self._pool)
        self._turns = threading.BoundedSemaphore(MAX_READERS)
        self._proof_lock = threading.Lock()
        self._proof: Future[int] | None = None
        self._proof_at = 0.0
        self._size: int | None = None
        self._is_closed = False

    @classmethod
    def open(cls, url: str, read_only: bool = False) -> "PostgresStore":
        """Connect, and create the tables if needed; read_only never writes."""
        address = Address.of(url)
        migrate(address, read_only)
        return cls(address, read_only)

    def write(self, job: Callable[[Transaction], Result]) -> Future[Result]:
        """Queue a job; the future is set once the server has committed it."""
        return _refused() if self._writer is None else self._writer.submit(job)

    def read(self, job: Callable[[Transaction], Result]) -> Result:
        """Run a job that only reads, in the calling thread, on a snapshot."""
        return self._read(job)

    def users(self) -> Iterator[str]:
        """Iterate over the ids of all users, in many short reads."""
        last, page = "", [""]
        while page:
            page = self._read(partial(PostgresTransaction.users, after=last, limit=USERS_PER_READ))
            yield from page
            last = page[-1] if page else last

    @contextmanager
    def sweeping(self) -> Iterator[bool]:
        """Yield whether no other process sweeps; until the end of the context, none does.

        The lock is that of a transaction: the server ends it if this process or its connection does not.
        """
        with self._pool.session() as session, translated(self.address.where):
            try:
                session.begin(BEGIN_READING)
                yield session.rows(session.send(TRY_TO_SWEEP)) == [(1,)]
                session.send("ROLLBACK")
                session.sync(wait=False)
            except BaseException:
                session.roll_back()
                raise

    def vacuum(self) -> None:
        """Rewrite the tables while everybody else waits. The server's own WAL and backups are not touched."""
        if self._writer is None or self._is_closed:
            raise StoreUnavailableError("the store is closed" if self._is_closed else READ_ONLY)
        with translated(self.address.where), connect_for_maintenance(self.address) as connection:
            names = [Identifier("slatewise", name) for (name,) in connection.execute(TABLES).fetchall()]
            connection.execute(SQL("VACUUM (FULL, ANALYZE) {}").format(SQL(", ").join(names)))

    def check(self) -> list[str]:
        """Return nothing: PostgreSQL has tools of its own for that (pg_amcheck, pg_checksums)."""
        return []

    def health(self) -> dict[str, float | str]:
        """Return the size of the tables in bytes and the number of queued writes; fail unless writes are committed."""
        writer = self._writer
        size = self._read(PostgresTransaction.size) if writer is None else self._proven_size(writer)
        return {"kind": "postgresql", "bytes": size, "backlog": 0 if writer is None else writer.backlog()}

    def close(self) -> None:
        """Finish the queued jobs and disconnect."""
        self._is_closed = True
        if self._writer is not None:
            self._writer.close()
        self._pool.close()

    def _read(self, job: Callable[[PostgresTransaction], Result]) -> Result:
        if not self._turns.acquire(timeout=SECONDS_FOR_TURN):
            raise StoreUnavailableError(f"{MAX_READERS} others are reading from {self.address.where}; try again later")
        try:
            return self._read_once(job)
        except ConnectionLostError:
            return self._read_once(job)
        finally:
            self._turns.release()

    def _read_once(self, job: Callable[[PostgresTransaction], Result]) -> Result:
        def execute(sql: str, parameters: Values) -> list[Values]:
            with translated(self.address.where):
                return reader.rows(sql, parameters)

        with self._pool.session() as session, translated(self.address.where):
            try:
                session.begin(BEGIN_READING)
                reader = Reader(session)
                result = job(PostgresTransaction(execute, reader))
                session.send("ROLLBACK")
                session.sync(wait=False)
            except BaseException:
                session.roll_back()
                raise
        return result

    def _proven_size(self, writer: PostgresWriter) -> int:
        """Return the size as measured by a write through the queue; wait for it unless one was just committed."""
        with self._proof_lock:
            now = time.monotonic()
            is_proven = now - writer.wrote_at <= PROOF_AGE
            if self._proof is None or (self._proof.done() and not (is_proven and now - self._proof_at <= SIZE_AGE)):
                self._proof, self._proof_at = writer.submit(measure_by_writing), now
            proof = self._proof
        if is_proven and self._size is not None:
            return self._size
        try:
            self._size = proof.result(SECONDS_FOR_PROOF)
        except TimeoutError:
            raise StoreUnavailableError(f"{self.address.where} did not commit a write in time") from None
        return self._size

    def _probe(self, session: Session) -> None:
        """Fail with StoreUnavailableError unless the server commits writes; other errors are for those who write."""
        if self._read_only:
            return
        try:
            commit_jobs(session, self.address.where, [measure_by_writing], lock_patiently)
        except StoreUnavailableError:
            raise
        except StoreError:
            pass


def _refused() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(StoreUnavailableError(READ_ONLY))
    return future
