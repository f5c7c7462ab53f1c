"""What is checked when a SQLite store is opened: its pages, and that the database and its WAL belong together.

Every opening has a random id, kept in the database and in the lock file. A database that has another id than the lock
file says was put in the place of the one that the WAL was written for; mixed with that WAL it would be damaged.
"""

import secrets
import time
from contextlib import suppress
from urllib.parse import quote

import apsw

from slatewise.store.protocol import StoreDamagedError
from slatewise.store.rows import RESTORE
from slatewise.store.sqlite_connection import APPLICATION_ID, execute, store_error
from slatewise.store.sqlite_files import OwnedFiles, companion_file

PREFIX = "opening-"
UNSIGNED = f"{PREFIX}none"
SECONDS_TO_CHECK = 1.0
STEPS_BETWEEN_LOOKS = 1_000


def check_wal(files: OwnedFiles) -> None:
    """Refuse a database that was put in place while a WAL holds changes of another one."""
    wal, known = companion_file(files.path, "-wal"), files.note.split()
    if known and wal.exists() and wal.stat().st_size and (_opening_of(files) or known[0]) not in known:
        raise _replaced(files)


def check_opening(files: OwnedFiles) -> None:
    """Fail if the database in use was overwritten by another one; from then on nothing is written to it."""
    known = files.note.split()
    is_store = UNSIGNED in known or _is_head_of_store(files.head())
    if not is_store or (_opening_of(files) or UNSIGNED) not in [*known, UNSIGNED]:
        files.failure = _replaced(files)
        raise files.failure


def sign_opening(files: OwnedFiles, connection: apsw.Connection) -> None:
    """Give the opening an id; until it has been copied from the WAL into the database, the ids before are valid too."""
    execute(connection, "CREATE TABLE IF NOT EXISTS openings (id TEXT NOT NULL)")
    before = [row[0] for row in execute(connection, "SELECT id FROM openings")] or [UNSIGNED]
    opening = _new_id()
    files.write_note(" ".join(dict.fromkeys([*files.note.split(), *before, opening])))
    _write_id(connection, opening)
    with suppress(apsw.BusyError):
        n_pages, n_copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        if n_pages == n_copied:
            files.write_note(opening)


def sign_copy(connection: apsw.Connection) -> None:
    """Give a copy of a database an id of its own, as no WAL belongs to it."""
    execute(connection, "CREATE TABLE IF NOT EXISTS openings (id TEXT NOT NULL)")
    _write_id(connection, _new_id())


def announce_replacement(files: OwnedFiles) -> None:
    """Note which database the WAL belongs to, before another one takes its place."""
    files.write_note(files.note or _opening_of(files) or UNSIGNED)


def check_pages(connection: apsw.Connection, seconds: float = SECONDS_TO_CHECK) -> None:
    """Fail if SQLite finds a damaged page in the time given; in a large store it does not look at all of them."""
    end = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() > end, STEPS_BETWEEN_LOOKS)
    try:
        lines = [line for (line,) in connection.execute("PRAGMA quick_check(1)")]
    except apsw.InterruptError:
        return
    except apsw.Error as error:
        raise store_error(error, connection.filename) from error
    finally:
        connection.set_progress_handler(None)
    if lines != ["ok"]:
        raise StoreDamagedError(f"{connection.filename} is damaged ({lines[0]}); {RESTORE}")


def _is_head_of_store(head: bytes) -> bool:
    return head.startswith(b"SQLite format 3\0") and head[68:72] == APPLICATION_ID.to_bytes(4, "big")


def _opening_of(files: OwnedFiles) -> str | None:
    """Return the id in the database itself, as if there were no WAL; None if it cannot be told.

    A database that a part of the WAL was copied into need not be readable without the rest. And while a WAL is copied
    that moves the table, as after VACUUM, something else may be found in its place.
    """
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    try:
        connection = apsw.Connection(f"file:{quote(str(files.path))}?immutable=1", flags=flags)
    except apsw.Error:
        return None
    try:
        rows = connection.execute("SELECT id FROM openings").fetchall()
    except apsw.SQLError:
        return UNSIGNED
    except (apsw.Error, UnicodeDecodeError):
        return None
    finally:
        connection.close()
    opening = rows[0][0] if rows else UNSIGNED
    return opening if isinstance(opening, str) and opening.startswith(PREFIX) else None


def _replaced(files: OwnedFiles) -> StoreDamagedError:
    return StoreDamagedError(
        f"{files.path} was replaced, but its WAL belongs to the file before; stop the service, and use "
        "`slatewise store restore FILE`, or remove the WAL to use the file as it is"
    )


def _new_id() -> str:
    return PREFIX + secrets.token_hex(8)


def _write_id(connection: apsw.Connection, opening: str) -> None:
    execute(connection, "BEGIN IMMEDIATE; DELETE FROM openings")
    execute(connection, "INSERT INTO openings VALUES (?)", (opening,))
    execute(connection, "COMMIT")
