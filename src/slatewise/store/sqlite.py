"""The SQLite store: one file, one process; every commit reaches the disk before it is acknowledged."""

import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import apsw

from slatewise.store.protocol import Result, StoreDamagedError, StoreError, StoreUnavailableError, Transaction
from slatewise.store.sql import SqlTransaction
from slatewise.store.sqlite_checkpoints import Checkpoints
from slatewise.store.sqlite_connection import connect_reader, connect_writer, execute
from slatewise.store.sqlite_files import OwnedFiles, check_location, companion_file
from slatewise.store.sqlite_start import check_opening, check_pages, check_wal, sign_opening
from slatewise.store.sqlite_writer import SqliteWriter

MAX_IDLE_READERS = 8
USERS_PER_READ = 1_000


class SqliteStore:
    """WAL, synchronous = FULL, one writer thread with group commit; readers on snapshots do not wait for it."""

    def __init__(self, path: Path, writer: SqliteWriter | None = None, files: OwnedFiles | None = None) -> None:
        self.path = path
        self.writer = writer
        """None if the store was opened for reading only."""
        self._files = files
        self._readers: list[apsw.Connection] = []
        self._readers_lock = threading.Lock()
        self._is_closed = False

    @classmethod
    def open(cls, name: str, read_only: bool = False) -> "SqliteStore":
        """Open a store, created if needed; read_only works next to the process that owns it."""
        if not name:
            raise ValueError("sqlite:/// names no file; give sqlite:///slates.db")
        path = Path(name).resolve()
        check_location(path)
        if read_only:
            connect_reader(path).close()
            return cls(path)
        files = OwnedFiles(path)
        try:
            return cls(path, _start_writer(files), files)
        except BaseException:
            files.release()
            raise

    def write(self, job: Callable[[Transaction], Result]) -> Future[Result]:
        """Queue a job; the future is set once it is on the disk."""
        return _refused() if self.writer is None else self.writer.submit(job)

    def read(self, job: Callable[[Transaction], Result]) -> Result:
        """Run a job that only reads, in the calling thread, on a snapshot."""
        return self._read(job)

    def users(self) -> Iterator[str]:
        """Iterate over the ids of all users, in many short reads, so that the WAL can be shortened in between."""
        last, page = "", [""]
        while page:
            page = self._read(partial(SqlTransaction.users, after=last, limit=USERS_PER_READ))
            yield from page
            last = page[-1] if page else last

    def sweeping(self) -> AbstractContextManager[bool]:
        """Return a context: expired slates are always for this process to close, as no other uses the store."""
        return nullcontext(True)

    def vacuum(self) -> None:
        """Rewrite the file without gaps and empty the WAL, so that no byte of a forgotten user is left."""
        if self.writer is None:
            raise _read_only()
        with self.writer.checkpoints.paused():
            self.writer.between_commits(_vacuum).result()

    def check(self) -> list[str]:
        """Return what SQLite finds wrong with pages and indexes; checksums find flipped bits within rows."""
        connection = self._take_reader()
        try:
            lines = [line for (line,) in execute(connection, "PRAGMA integrity_check")]
        except StoreDamagedError as error:
            lines = [str(error)]
        finally:
            self._give_back(connection)
        return [] if lines == ["ok"] else lines

    def health(self) -> dict[str, float | str]:
        """Return sizes in bytes, the number of queued writes, and how far checkpoints lag behind.

        Fail if the store cannot be read, or if its files were removed, replaced or linked.
        """
        if self._files is not None and not self._is_closed:
            _check(self._files)
        self._read(lambda transaction: transaction.fit(""))
        wal = companion_file(self.path, "-wal")
        return {
            "kind": "sqlite",
            "bytes": self.path.stat().st_size,
            "wal_bytes": wal.stat().st_size if wal.exists() else 0,
            "free_bytes": shutil.disk_usage(self.path.parent).free,
            "backlog": 0 if self.writer is None else self.writer.backlog(),
            "checkpoint_lag_pages": 0 if self.writer is None else self.writer.checkpoints.lag_pages,
        }

    def close(self) -> None:
        """Finish the queued jobs, copy the WAL into the file and close it."""
        with self._readers_lock:
            if self._is_closed:
                return
            self._is_closed = True
            readers, self._readers = self._readers, []
        for connection in readers:
            connection.close()
        if self.writer is not None and self._files is not None:
            self.writer.close()
            _close(self.writer.connection, self._files)
            self._files.release()

    def _read(self, job: Callable[[SqlTransaction], Result]) -> Result:
        connection = self._take_reader()
        try:
            execute(connection, "BEGIN")
            return job(SqlTransaction(partial(execute, connection)))
        finally:
            self._give_back(connection)

    def _take_reader(self) -> apsw.Connection:
        with self._readers_lock:
            if self._is_closed:
                raise StoreUnavailableError("the store is closed")
            if self._readers:
                return self._readers.pop()
        return connect_reader(self.path)

    def _give_back(self, connection: apsw.Connection) -> None:
        """End a reader's transaction and keep it for the next, unless there are enough or the store was closed."""
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        with self._readers_lock:
            if not self._is_closed and len(self._readers) < MAX_IDLE_READERS:
                self._readers.append(connection)
                return
        connection.close()


def _start_writer(files: OwnedFiles) -> SqliteWriter:
    """Check the files of a store and connect to them, once to write and once for checkpoints, each in a thread."""
    check_wal(files)
    connection = connect_writer(files.path)
    try:
        check_pages(connection)
        sign_opening(files, connection)
        files.remember()
        return SqliteWriter(connection, Checkpoints(connect_writer(files.path), partial(check_opening, files)), files)
    except BaseException:
        connection.close()
        raise


def _check(files: OwnedFiles) -> None:
    files.check()
    check_opening(files)


def _close(connection: apsw.Connection, files: OwnedFiles) -> None:
    """Copy the WAL into the database, unless that was replaced: then the next start will say so."""
    try:
        _check(files)
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except StoreError:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    except apsw.Error:
        pass
    connection.close()


def _vacuum(connection: apsw.Connection) -> None:
    execute(connection, "VACUUM")
    is_busy = execute(connection, "PRAGMA wal_checkpoint(TRUNCATE)")[0][0]
    if is_busy:
        raise StoreUnavailableError("a long read kept the old content of the store; try again when it has ended")


def _refused() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(_read_only())
    return future


def _read_only() -> StoreUnavailableError:
    return StoreUnavailableError("the store was opened for reading only")
