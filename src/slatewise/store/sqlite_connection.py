"""Connections to a SQLite store: whether the file is ours, how it is opened, and what the errors of SQLite mean."""

import errno
from pathlib import Path

import apsw

from slatewise.store.migrations import MIGRATIONS, steps_from
from slatewise.store.protocol import StoreDamagedError, StoreError, StoreFullError, StoreUnavailableError
from slatewise.store.rows import RESTORE, Values

APPLICATION_ID = 0x736C6174
"""The bytes "slat" in the header of the file."""
MAX_ROW_BYTES = 64 << 20
BUSY_MILLISECONDS = 2000
"""How long to wait for another program that has locked the store."""
KEPT_WAL_BYTES = 16 << 20
CACHE_BYTES = 32 << 20
"""Page cache of a writer; with SQLite's own 2 MB it reads the same pages again and again."""


def connect_writer(path: Path) -> apsw.Connection:
    """Open a store for writing: fill an empty file, refuse a foreign one, migrate an old store."""
    connection = _connect(path, apsw.SQLITE_OPEN_READWRITE)
    try:
        version = _version(connection, path)
        steps = steps_from(version, "sqlite", str(path))
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON", "cell_size_check = ON"):
            execute(connection, f"PRAGMA {pragma}")
        execute(connection, f"PRAGMA journal_size_limit = {KEPT_WAL_BYTES}; PRAGMA cache_size = -{CACHE_BYTES >> 10}")
        if steps:
            script = ";".join([*steps, f"PRAGMA application_id = {APPLICATION_ID}"])
            execute(connection, f"BEGIN IMMEDIATE; {script}; PRAGMA user_version = {len(MIGRATIONS)}; COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_reader(path: Path) -> apsw.Connection:
    """Open an up-to-date store for reading, next to its writer."""
    connection = connect_any(path)
    if _version(connection, path) < len(MIGRATIONS):
        connection.close()
        raise StoreError(f"{path} was written by an older slatewise; let a server open it once")
    return connection


def connect_any(path: Path) -> apsw.Connection:
    """Open a store of this or an older version for reading."""
    connection = _connect(path, apsw.SQLITE_OPEN_READONLY)
    try:
        version = _version(connection, path)
        if version == 0:
            raise StoreError(f"{path} is empty")
        steps_from(version, "sqlite", str(path))
        execute(connection, "PRAGMA query_only = ON; PRAGMA cell_size_check = ON")
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    except BaseException:
        connection.close()
        raise
    return connection


def execute(connection: apsw.Connection, sql: str, parameters: Values = ()) -> list[Values]:
    """Execute a statement; errors of SQLite become those of a store."""
    try:
        return connection.execute(sql, parameters).fetchall()
    except (apsw.Error, UnicodeEncodeError) as error:
        raise store_error(error, connection.filename, connection.system_errno) from error


def store_error(error: apsw.Error | UnicodeEncodeError, path: str, system_errno: int = 0) -> StoreError:
    """Return the store's error for an error of SQLite."""
    if isinstance(error, UnicodeEncodeError):
        return StoreError("text with a lone surrogate cannot be stored")
    if isinstance(error, apsw.FullError) or (isinstance(error, apsw.IOError) and system_errno in _NO_SPACE):
        return StoreFullError(f"there is no space for {path}; free some: a service that runs then goes on by itself")
    if isinstance(error, apsw.CorruptError | apsw.NotADBError | apsw.TooBigError):
        return StoreDamagedError(f"{path} is damaged ({error}); {RESTORE}")
    if isinstance(error, apsw.BusyError | apsw.LockedError | apsw.CantOpenError | apsw.ConnectionClosedError):
        return StoreUnavailableError(f"{path} cannot be used now: {error}")
    return StoreError(f"{path}: {error}")


_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _connect(path: Path, flags: int) -> apsw.Connection:
    try:
        connection = apsw.Connection(str(path), flags=flags)
    except apsw.Error as error:
        raise store_error(error, str(path)) from error
    connection.set_busy_timeout(BUSY_MILLISECONDS)
    connection.limit(apsw.SQLITE_LIMIT_LENGTH, MAX_ROW_BYTES)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # else statements are planned again for new parameters
    execute(connection, "PRAGMA trusted_schema = OFF")
    return connection


def _version(connection: apsw.Connection, path: Path) -> int:
    """Return the version of the tables, 0 for a new file; refuse a file that is not a store."""
    application = execute(connection, "PRAGMA application_id")[0][0]
    n_tables = execute(connection, "SELECT count(*) FROM sqlite_schema")[0][0]
    if application != APPLICATION_ID and (application or n_tables):
        raise StoreError(f"{path} is a SQLite database of another program; give the store its own file")
    version: int = execute(connection, "PRAGMA user_version")[0][0]
    return version
