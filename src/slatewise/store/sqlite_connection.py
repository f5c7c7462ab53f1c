"""The file of a SQLite store: who owns it, whether it is ours, how it is opened, and what its errors mean."""

import errno
import fcntl
import os
from pathlib import Path

import apsw

from slatewise.store.migrations import MIGRATIONS, steps_from
from slatewise.store.protocol import StoreDamagedError, StoreError, StoreFullError, StoreUnavailableError
from slatewise.store.rows import RESTORE, Values

APPLICATION_ID = 0x736C6174
"""The bytes "slat" in the header of the file."""
FIRST_SAFE_LIBRARY = (3, 51, 3)
"""Older SQLite libraries can corrupt a WAL that two connections reset at once."""
NETWORK_FILESYSTEMS = {"9p", "afs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "lustre", "ncpfs", "nfs", "nfs4"}
NETWORK_FILESYSTEMS |= {"smb3", "smbfs"}
MAX_ROW_BYTES = 64 << 20
BUSY_MILLISECONDS = 5000
KEPT_WAL_BYTES = 16 << 20
CACHE_BYTES = 32 << 20
"""Page cache of a writer; with SQLite's own 2 MB it reads the same pages again and again."""


def lock_file(path: Path) -> int:
    """Lock a store for this process, until the returned descriptor is closed or the process dies."""
    lock = path.with_name(f"{path.name}.lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreUnavailableError(f"{lock} cannot be opened: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.read(descriptor, 20).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise StoreUnavailableError(
            f"{path} belongs to process {owner}; stop it first, or use postgresql:// for several processes"
        ) from error
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
    return descriptor


def check_location(path: Path) -> None:
    """Refuse a place where a store would not be safe."""
    library = tuple(map(int, apsw.sqlite_lib_version().split(".")))
    if library < FIRST_SAFE_LIBRARY:
        raise StoreError(f"SQLite {apsw.sqlite_lib_version()} can damage a store; install apsw 3.51.3 or newer")
    if not path.parent.is_dir():
        raise StoreUnavailableError(f"the directory {path.parent} of the store does not exist; create it first")
    kind = filesystem_of(path, _mounts())
    if kind in NETWORK_FILESYSTEMS:
        raise StoreError(f"{path} is on a network file system ({kind}), where SQLite is not safe; use postgresql://")


def filesystem_of(path: Path, mounts: str) -> str:
    """Return the type of file system that a path is on, from a table like /proc/mounts; "" if it is not listed."""
    kinds = {}
    for line in mounts.splitlines():
        where, kind = line.split(" ")[1:3]
        kinds[Path(where.encode().decode("unicode_escape"))] = kind
    resolved = path.resolve()
    holding = [place for place in kinds if resolved.is_relative_to(place)]
    return kinds[max(holding, key=lambda place: len(place.parts))] if holding else ""


def connect_writer(path: Path) -> apsw.Connection:
    """Open a store for writing: create it if there is none, refuse a foreign file, migrate an old store."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreUnavailableError(f"{path} cannot be opened: {error.strerror}") from error
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
    connection = _connect(path, apsw.SQLITE_OPEN_READONLY)
    try:
        if _version(connection, path) < len(MIGRATIONS):
            raise StoreError(f"{path} is empty or was written by an older slatewise; let a server open it once")
        steps_from(_version(connection, path), "sqlite", str(path))
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
        return StoreFullError(f"there is no space for {path}; free some, and writing resumes by itself")
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


def _mounts() -> str:
    table = Path("/proc/mounts")
    return table.read_text(encoding="utf-8") if table.exists() else ""
