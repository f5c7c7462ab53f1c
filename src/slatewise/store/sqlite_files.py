"""The files of a SQLite store: where they may be, which process owns them, and whether they are still in place.

Nothing here opens a database file that is in use and closes it again: that would release the locks that SQLite holds
on it for this process, and another program could then delete the WAL.
"""

import fcntl
import os
import stat
from errno import ELOOP
from pathlib import Path

import apsw

from slatewise.store.protocol import StoreError, StoreUnavailableError

FIRST_SAFE_LIBRARY = (3, 51, 3)
"""Older SQLite libraries can corrupt a WAL that two connections reset at once."""
NETWORK_FILESYSTEMS = {"9p", "afs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "lustre", "ncpfs", "nfs", "nfs4"}
NETWORK_FILESYSTEMS |= {"smb3", "smbfs"}


class OwnedFiles:
    """The files of a store that belongs to this process, until they are released or the process dies.

    The lock file names the process. The database itself is locked too, because it may have more than one path.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written: list[tuple[Path, os.stat_result]] = []
        """The database and its WAL as SQLite has opened them; what is written to other files of these names is lost."""
        self.failure: StoreError | None = None
        """Why nothing may be written to these files any more."""
        self.note = ""
        """What the lock file says besides the number of the process; it outlives it."""
        self._lock = _locked_lock_file(path)
        try:
            self.write_note(os.read(self._lock, 10_000).decode(errors="replace").partition("\n")[2])
            self._database = locked_database(path)
        except BaseException:
            os.close(self._lock)
            raise

    def remember(self) -> None:
        """Remember which files SQLite has opened."""
        self.written = [(file, file.stat()) for file in (self.path, companion_file(self.path, "-wal"))]
        shared_memory = companion_file(self.path, "-shm")
        self._opened = [*self.written, (shared_memory, shared_memory.stat())]

    def check(self) -> None:
        """Fail if a file was removed or replaced, or the database has got a second name."""
        for file, opened in self._opened:
            if not _is_same(file, opened):
                raise StoreUnavailableError(
                    f"{file} was removed or replaced while it was in use; stop the service, then restore a backup"
                )
        refuse_links(os.fstat(self._database), self.path)

    def head(self) -> bytes:
        """Return the first bytes of the database file as it is now, without its WAL."""
        return os.pread(self._database, 100, 0)

    def write_note(self, note: str) -> None:
        """Write the number of this process and a note to the lock file, and flush it to the disk."""
        self.note = note.strip()
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n{self.note}\n".encode(), 0)
        os.fsync(self._lock)

    def release(self) -> None:
        """Let another process own the store; every connection must be closed."""
        os.close(self._database)
        os.close(self._lock)


def companion_file(path: Path, suffix: str) -> Path:
    """Return the file that belongs to a database by its name."""
    return path.with_name(path.name + suffix)


def _is_same(file: Path, opened: os.stat_result) -> bool:
    try:
        return os.path.samestat(file.stat(), opened)
    except OSError:
        return False


def _locked_lock_file(path: Path) -> int:
    lock = companion_file(path, ".lock")
    descriptor = open_file(lock)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(descriptor)
        raise StoreUnavailableError(f"{lock} is not a file of its own; remove it")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.read(descriptor, 20).decode(errors="replace").partition("\n")[0] or "unknown"
        os.close(descriptor)
        raise StoreUnavailableError(
            f"{path} belongs to process {owner}; stop it first, or use postgresql:// for several processes"
        ) from error
    return descriptor


def locked_database(path: Path) -> int:
    """Open a database, created if needed, and lock it; fail if another process has it by whatever path."""
    descriptor = open_file(path)
    try:
        refuse_links(os.fstat(descriptor), path)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise StoreUnavailableError(f"{path} belongs to another process, which opened it by another path") from error
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_file(path: Path) -> int:
    """Open a file, created if needed; follow no symbolic link."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        problem = "is a symbolic link; remove it" if error.errno == ELOOP else f"cannot be opened: {error.strerror}"
        raise StoreUnavailableError(f"{path} {problem}") from error


def refuse_links(status: os.stat_result, path: Path) -> None:
    """Fail if a file has more than one name."""
    if status.st_nlink > 1:
        raise StoreUnavailableError(
            f"{path} has {status.st_nlink} names (hard links), each with a WAL of its own; keep one of them"
        )


def check_location(path: Path) -> None:
    """Refuse a place where a store would not be safe."""
    library = tuple(map(int, apsw.sqlite_lib_version().split(".")))
    if library < FIRST_SAFE_LIBRARY:
        raise StoreError(f"SQLite {apsw.sqlite_lib_version()} can damage a store; install apsw 3.51.3 or newer")
    if not path.parent.is_dir():
        raise StoreUnavailableError(f"the directory {path.parent} of the store does not exist; create it first")
    kind = filesystem_of(path, mounted())
    if kind in NETWORK_FILESYSTEMS:
        raise StoreError(f"{path} is on a network file system ({kind}), where SQLite is not safe; use postgresql://")


def filesystem_of(path: Path, mounts: str) -> str:
    """Return the type of file system that a path is on, from a table like /proc/mounts; "" if it is not listed."""
    kinds = {}
    for line in mounts.splitlines():
        where, kind = line.split(" ")[1:3]
        kinds[Path(where.encode().decode("unicode_escape"))] = kind
    resolved = path.resolve()
    holding = [mount for mount in kinds if resolved.is_relative_to(mount)]
    return kinds[max(holding, key=lambda mount: len(mount.parts))] if holding else ""


def mounted() -> str:
    """Return the table of mounted file systems; empty where there is none."""
    table = Path("/proc/mounts")
    return table.read_text(encoding="utf-8") if table.exists() else ""
