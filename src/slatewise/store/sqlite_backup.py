"""Backups of a SQLite store: a copy as of one moment, made next to the service and checked; put back in one step."""

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import methodcaller
from pathlib import Path

import apsw

from slatewise.store.protocol import StoreDamagedError, StoreUnavailableError, Transaction
from slatewise.store.sqlite import SqliteStore
from slatewise.store.sqlite_connection import connect_any, connect_reader, connect_writer, execute, store_error
from slatewise.store.sqlite_files import OwnedFiles, check_location, companion_file
from slatewise.store.sqlite_start import announce_replacement, sign_copy

PAGES_PER_STEP = 256
ITEMS_PER_READ = 1_000
PAGE_BYTES = 4096
NO_LIMIT = float("inf")
Progress = Callable[[int, int], None]
"""Takes the bytes that are done, and all."""


def back_up(path: Path, target: Path, bytes_per_second: float, show: Progress) -> int:
    """Copy a store, which may be in use, to a new file; return the number of users.

    The copy is one consistent snapshot. It gets its name after every page and every row of the log was checked.
    """
    if target.exists():
        raise StoreUnavailableError(f"{target} exists; give the backup a name of its own")
    with _new_file(target) as copy:
        _copy(connect_reader(path), copy, bytes_per_second, show)
        n_users = check_copy(copy)
        _put(copy, target)
    return n_users


def restore(backup: Path, path: Path, show: Progress) -> int:
    """Put a backup in the place of a store that no process uses; return the number of users."""
    with replacement(path) as copy:
        _copy(connect_any(backup), copy, NO_LIMIT, show)
        return check_copy(copy)


@contextmanager
def replacement(path: Path) -> Iterator[Path]:
    """Yield a new file, which then takes the place of a store, unless there was an error; no process may use the store.

    Whenever this is interrupted, the store is the old one or the new one, or the next start finds that the WAL does
    not belong to the database, and says what to do.
    """
    check_location(path)
    files = OwnedFiles(path)
    try:
        with _new_file(path) as copy:
            yield copy
            announce_replacement(files)
            _put(copy, path)
        for suffix in ("-wal", "-shm"):
            companion_file(path, suffix).unlink(missing_ok=True)
        _flush(path.parent)
        files.write_note("")
    finally:
        files.release()


def check_copy(copy: Path) -> int:
    """Check every page, and every row of log and item table against its checksum; return the number of users."""
    store = SqliteStore.open(str(copy), read_only=True)
    try:
        for problem in store.check():
            raise StoreDamagedError(f"the store is damaged ({problem}); use an older backup")
        n_users = 0
        for user in store.users():
            store.read(lambda transaction, user=user: _read_log(transaction, user))  # type: ignore[misc]
            n_users += 1
        number = 0
        while page := store.read(methodcaller("items_by_number", number, ITEMS_PER_READ)):
            number = page[-1].number
    finally:
        store.close()
    return n_users


@contextmanager
def _new_file(target: Path) -> Iterator[Path]:
    """Make a file next to the target, readable by nobody else; if it is not moved there, nothing is left of it."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise StoreUnavailableError(f"{target} cannot be written: {error.strerror}") from error
    try:
        yield temporary
    finally:
        for suffix in ("", "-wal", "-shm", "-journal", ".lock"):
            companion_file(temporary, suffix).unlink(missing_ok=True)


def _copy(source: apsw.Connection, copy: Path, bytes_per_second: float, show: Progress) -> None:
    """Copy all pages as of now and bring the tables up to date; the result is one file that needs no WAL."""
    try:
        execute(source, "BEGIN; SELECT count(*) FROM sqlite_schema")
        _copy_pages(source, copy, bytes_per_second, show)
    except apsw.Error as error:
        raise store_error(error, str(copy)) from error
    finally:
        source.close()
    connection = connect_writer(copy)
    try:
        sign_copy(connection)
        execute(connection, "PRAGMA journal_mode = DELETE")
    finally:
        connection.close()


def _copy_pages(source: apsw.Connection, copy: Path, bytes_per_second: float, show: Progress) -> None:
    """Copy pages in small steps; the transaction of the source makes them all part of one snapshot."""
    destination, began = apsw.Connection(str(copy)), time.monotonic()
    try:
        with destination.backup("main", source, "main") as backup:
            while not backup.done:
                backup.step(PAGES_PER_STEP)
                done = PAGE_BYTES * (backup.page_count - backup.remaining)
                show(done, PAGE_BYTES * backup.page_count)
                time.sleep(max(0.0, began + done / bytes_per_second - time.monotonic()))
    finally:
        destination.close()


def _read_log(transaction: Transaction, user: str) -> None:
    """Read everything that cannot be rebuilt; a row that does not match its checksum fails."""
    transaction.slates_of(user)
    transaction.feedback_of(user)
    transaction.events_of(user)


def _put(copy: Path, target: Path) -> None:
    """Give a complete file its name, on the disk too."""
    _flush(copy)
    copy.replace(target)
    _flush(target.parent)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
