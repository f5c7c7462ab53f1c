"""The file of a SQLite store: who owns it, whether it is one of ours, and how it is opened."""

import errno
import fcntl
import os
from pathlib import Path

import apsw

from slatewise.store.migrations import MIGRATIONS, steps_from
from slatewise.store.protocol import StoreDamagedError, StoreError, StoreFullError, StoreUnavailableError
from slatewise.store.rows import WAY_OUT, Values

APPLICATION_ID = 0x736C6174
"""The bytes "slat" in the header of the file."""
FIRST_SAFE_LIBRARY = (3, 51, 3)
"""Older SQLite libraries can destroy a WAL that two connections reset at once."""
NETWORK_FILESYSTEMS = {"9p", "afs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "lustre", "ncpfs", "nfs", "nfs4"}
NETWORK_FILESYSTEMS |= {"smb3", "smbfs"}
LARGEST_ROW = 64 << 20
BUSY_MILLISECONDS = 5000
KEPT_WAL_BYTES = 16 << 20
CACHE_BYTES = 32 << 20
"""Pages that a writer keeps; with SQLite's own 2 MB it reads them again and again."""


def own(path: Path) -> int:
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


def check_place(path: Path) -> None:
    """Refuse where a store could not be kept safely."""
    library = tuple(map(int, apsw.sqlite_lib_version().split(".")))
    if library < FIRST_SAFE_LIBRARY:
        raise StoreError(f"SQLite {apsw.sqlite_lib_version()} can damage a store; install apsw 3.51.3 or newer")
    if not path.parent.is_dir():
        raise StoreUnavailableError(f"the directory {path.parent} of the store does not exist; make it first")
    kind = filesystem_of(path, _mounts())
    if kind in NETWORK_FILESYSTEMS:
        raise StoreError(f"{path} is on a network file system ({kind}), where SQLite is not safe; use postgresql://")


def filesystem_of(path: Path, mounts: str) -> str:
    """Return the kind of file system a path is on, by a table like /proc/mounts; "" if it does not say."""
    kinds = {}
    for line in mounts.splitlines():
        where, kind = line.split(" ")[1:3]
        kinds[Path(where.encode().decode("unicode_escape"))] = kind
    resolved = path.resolve()
    holding = [place for place in kinds if resolved.is_relative_to(place)]
    return kinds[max(holding, key=lambda place: len(place.parts))] if holding else ""


def connect_writer(path: Path) -> apsw.Connection:
    """Open a store for writing: make it if there is none, refuse a foreign one, bring an old one up to date."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreUnavailableError(f"{path} cannot be opened: {error.strerror}") from error
    connection = _connect(path, apsw.SQLITE_OPEN_READWRITE)
    try:
        version = _version(connection, path)
        steps = steps_from(version, "sqlite", str(path))
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON", "cell_size_check = ON"):
            run(connection, f"PRAGMA {pragma}")
        run(connection, f"PRAGMA journal_size_limit = {KEPT_WAL_BYTES}; PRAGMA cache_size = -{CACHE_BYTES >> 10}")
        if steps:
            script = ";".join([*steps, f"PRAGMA application_id = {APPLICATION_ID}"])
            run(connection, f"BEGIN IMMEDIATE; {script}; PRAGMA user_version = {len(MIGRATIONS)}; COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_reader(path: Path) -> apsw.Connection:
    """Open an up-to-date store for reading, beside its writer."""
    connection = _connect(path, apsw.SQLITE_OPEN_READONLY)
    try:
        if _version(connection, path) < len(MIGRATIONS):
            raise StoreError(f"{path} is empty or of an older slatewise; let a server open it once")
        steps_from(_version(connection, path), "sqlite", str(path))
        run(connection, "PRAGMA query_only = ON; PRAGMA cell_size_check = ON")
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    except BaseException:
        connection.close()
        raise
    return connection


def run(connection: apsw.Connection, sql: str, parameters: Values = ()) -> list[Values]:
    """Execute a statement; its failures become those of a store."""
    try:
        return connection.execute(sql, parameters).fetchall()
    except apsw.Error as error:
        raise explained(error, connection.filename, connection.system_errno) from error
    except UnicodeEncodeError as error:
        raise StoreError("text with half a character (a lone surrogate) cannot be stored") from error


def explained(error: apsw.Error, path: str, system_errno: int = 0) -> StoreError:
    """Say what a failure of SQLite means for the store."""
    if isinstance(error, apsw.FullError) or (isinstance(error, apsw.IOError) and system_errno in _NO_SPACE):
        return StoreFullError(f"there is no room for {path}; free some space, writing goes on by itself")
    if isinstance(error, apsw.CorruptError | apsw.NotADBError | apsw.TooBigError):
        return StoreDamagedError(f"{path} is damaged ({error}); {WAY_OUT}")
    if isinstance(error, apsw.BusyError | apsw.LockedError | apsw.CantOpenError | apsw.ConnectionClosedError):
        return StoreUnavailableError(f"{path} cannot be used now: {error}")
    return StoreError(f"{path}: {error}")


_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _connect(path: Path, flags: int) -> apsw.Connection:
    try:
        connection = apsw.Connection(str(path), flags=flags)
    except apsw.Error as error:
        raise explained(error, str(path)) from error
    connection.set_busy_timeout(BUSY_MILLISECONDS)
    connection.limit(apsw.SQLITE_LIMIT_LENGTH, LARGEST_ROW)
    run(connection, "PRAGMA trusted_schema = OFF")
    return connection


def _version(connection: apsw.Connection, path: Path) -> int:
    """Return the version of the tables, 0 for a new file; refuse a file that is not a store."""
    application = run(connection, "PRAGMA application_id")[0][0]
    n_tables = run(connection, "SELECT count(*) FROM sqlite_schema")[0][0]
    if application != APPLICATION_ID and (application or n_tables):
        raise StoreError(f"{path} is a SQLite database of another program; give the store a file of its own")
    version: int = run(connection, "PRAGMA user_version")[0][0]
    return version


def _mounts() -> str:
    table = Path("/proc/mounts")
    return table.read_text(encoding="utf-8") if table.exists() else ""
