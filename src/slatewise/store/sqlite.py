"""The SQLite store: one file, one process; every commit reaches the disk before it is acknowledged."""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import apsw

from slatewise.store.checkpoints import Checkpoints
from slatewise.store.group_commit import GroupCommit, Host
from slatewise.store.protocol import Ready, Result, StoreUnavailableError, Transaction
from slatewise.store.sqlite_file import check_place, connect_reader, connect_writer, own, run
from slatewise.store.transaction import SqlTransaction

KEPT_READERS = 8


class SqliteStore:
    """WAL, synchronous = FULL, one writing thread with group commit, readers on snapshots beside it."""

    def __init__(self, path: Path, writer: GroupCommit | None, lock: int | None) -> None:
        self.path = path
        self._writer = writer
        self._lock = lock
        self._readers: list[apsw.Connection] = []
        self._turn = threading.Lock()
        self._is_closed = False

    @classmethod
    def open(cls, name: str, read_only: bool = False) -> "SqliteStore":
        """Open a store, making it if needed; read_only works beside the process that owns it."""
        if not name:
            raise ValueError("sqlite:/// names no file; give sqlite:///slates.db")
        path = Path(name).absolute()
        check_place(path)
        if read_only:
            connect_reader(path).close()
            return cls(path, None, None)
        lock = own(path)
        try:
            return cls(path, GroupCommit(connect_writer(path), Checkpoints(connect_writer(path))), lock)
        except BaseException:
            os.close(lock)
            raise

    def submit(self, work: Callable[[Transaction], Result], ready: Ready | None = None) -> Future[Result]:
        """Run work in one transaction, with whatever else waits; the future is set once it is on the disk."""
        if self._writer is None:
            return _refused()
        return self._writer.submit(work, ready)

    def work_in(self, host: Host | None) -> None:
        """Run works in the thread of a host from now on; committing stays in the writing thread."""
        if self._writer is not None:
            self._writer.host = host

    def read(self, work: Callable[[Transaction], Result]) -> Result:
        """Run work that only reads, in the calling thread, on a snapshot."""
        return self._read(work)

    def users(self) -> Iterator[str]:
        """Name all users."""
        return iter(self._read(lambda transaction: transaction.users()))

    def vacuum(self) -> None:
        """Rewrite the file without gaps and empty the WAL, so that no byte of what was forgotten is left."""
        chore: Future[None] = _refused() if self._writer is None else self._writer.between_commits(_vacuum)
        chore.result()

    def check(self) -> list[str]:
        """Return what SQLite finds wrong with pages and indexes; flipped bits within rows are found by checksums."""
        connection = self._take_reader()
        try:
            found = [line for (line,) in run(connection, "PRAGMA integrity_check")]
        finally:
            self._give_back(connection)
        return [] if found == ["ok"] else found

    def health(self) -> dict[str, float | str]:
        """Return sizes in bytes and the number of waiting writes."""
        self._read(lambda transaction: transaction.answer(""))
        wal = self.path.with_name(f"{self.path.name}-wal")
        return {
            "kind": "sqlite",
            "bytes": self.path.stat().st_size,
            "wal_bytes": wal.stat().st_size if wal.exists() else 0,
            "free_bytes": shutil.disk_usage(self.path.parent).free,
            "backlog": 0 if self._writer is None else self._writer.backlog(),
        }

    def close(self) -> None:
        """Finish what was submitted, copy the WAL into the file and let go of it."""
        with self._turn:
            if self._is_closed:
                return
            self._is_closed = True
            readers, self._readers = self._readers, []
        for connection in readers:
            connection.close()
        if self._writer is not None:
            self._writer.close()
            with suppress(apsw.Error):
                self._writer.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self._writer.connection.close()
        if self._lock is not None:
            os.close(self._lock)

    def _read(self, work: Callable[[SqlTransaction], Result]) -> Result:
        connection = self._take_reader()
        try:
            run(connection, "BEGIN")
            return work(SqlTransaction(partial(run, connection)))
        finally:
            self._give_back(connection)

    def _take_reader(self) -> apsw.Connection:
        with self._turn:
            if self._is_closed:
                raise StoreUnavailableError("the store is closed")
            if self._readers:
                return self._readers.pop()
        return connect_reader(self.path)

    def _give_back(self, connection: apsw.Connection) -> None:
        """End a reader's transaction and keep it for the next, unless there are enough or the store was closed."""
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        with self._turn:
            if not self._is_closed and len(self._readers) < KEPT_READERS:
                self._readers.append(connection)
                return
        connection.close()


def _vacuum(connection: apsw.Connection) -> None:
    run(connection, "VACUUM")
    is_busy = run(connection, "PRAGMA wal_checkpoint(TRUNCATE)")[0][0]
    if is_busy:
        raise StoreUnavailableError("a long read kept the old content of the store; try again when it has ended")


def _refused() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(StoreUnavailableError("the store was opened for reading only"))
    return future
