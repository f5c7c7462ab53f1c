"""The files of a SQLite store: one owner, whatever their names; nothing is acknowledged into files that are gone."""

import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from slatewise.store import StoreError, StoreUnavailableError, sqlite_files
from slatewise.store.protocol import StoreUncertainError
from slatewise.store.sqlite import SqliteStore
from slatewise.store.sqlite_checkpoints import Checkpoints
from slatewise.store.sqlite_files import OwnedFiles
from slatewise.store.sqlite_writer import SqliteWriter
from tests.support.store_rows import do, fill, one_more

COUNT_FOREVER = """
import sys
from pathlib import Path
from slatewise.store import open_store
from slatewise.store.protocol import PolicyCounts
store = open_store("sqlite:///" + sys.argv[1])
if sys.argv[2] == "careless":
    Path(sys.argv[1]).read_bytes()
while True:
    store.write(lambda transaction: transaction.count("ann", "p", PolicyCounts(1))).result()
    print("counted", flush=True)
    sys.stdin.readline()
"""
"""A store whose process acknowledges one count for each line that it reads; a careless one reads the database file."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "slates.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore.open(str(path))
    fill(opened, ["u"])
    yield opened
    opened.close()


# --- one owner


def test_a_hard_link_does_not_make_a_second_store(store: SqliteStore, path: Path) -> None:
    other = path.with_name("other.db")
    other.hardlink_to(path)
    with pytest.raises(StoreUnavailableError, match=r"other\.db has 2 names"):
        SqliteStore.open(str(other))
    with pytest.raises(StoreUnavailableError, match=r"slates\.db has 2 names"):
        store.health()
    other.unlink()
    assert store.health()["kind"] == "sqlite"


def test_without_a_look_at_links_and_the_lock_of_the_database_there_are_two_owners(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: by another name the same database belongs to somebody else, too."""
    assert store.health()["kind"] == "sqlite"
    other = path.with_name("other.db")
    other.hardlink_to(path)
    monkeypatch.setattr(sqlite_files, "refuse_links", lambda *_: None)
    with pytest.raises(StoreUnavailableError, match="another path"):
        OwnedFiles(other)
    monkeypatch.setattr(sqlite_files, "locked_database", sqlite_files.open_file)
    OwnedFiles(other).release()
    other.unlink()


def test_the_database_itself_is_locked(path: Path, tmp_path: Path) -> None:
    """A file that is mounted at a second place has one name in each, and another lock file next to it."""
    owner = OwnedFiles(path)
    lock = path.with_name("slates.db.lock")
    lock.rename(tmp_path / "elsewhere.lock")
    with pytest.raises(StoreUnavailableError, match="another path"):
        OwnedFiles(path)
    owner.release()
    OwnedFiles(path).release()


def test_a_symbolic_link_leads_to_the_same_store(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.db"
    link.symlink_to(path)
    with pytest.raises(StoreUnavailableError, match="belongs to process"):
        SqliteStore.open(str(link))
    store.close()
    again = SqliteStore.open(str(link))
    assert again.health()["wal_bytes"] == path.with_name("slates.db-wal").stat().st_size
    again.close()
    assert sorted(file.name for file in link.parent.iterdir()) == ["link.db"]


@pytest.mark.parametrize("make_link", [Path.symlink_to, Path.hardlink_to])
def test_a_lock_file_that_is_a_link_is_refused(path: Path, make_link: Callable[[Path, Path], None]) -> None:
    """It would be overwritten with the number of the process."""
    precious = path.with_name("precious.txt")
    precious.write_text("precious")
    make_link(path.with_name("slates.db.lock"), precious)
    with pytest.raises(StoreUnavailableError, match=r"slates\.db\.lock is .*; remove it"):
        SqliteStore.open(str(path))
    assert precious.read_text() == "precious"


# --- files that are gone


def remove(path: Path) -> None:
    path.unlink()


def rename(path: Path) -> None:
    path.rename(path.with_name("aside"))


def replace(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copyfile(path, copy)
    copy.replace(path)


@pytest.mark.parametrize("suffix", ["", "-wal"])
@pytest.mark.parametrize("take_away", [remove, rename, replace])
def test_nothing_is_acknowledged_into_files_that_are_gone(
    store: SqliteStore, path: Path, take_away: Callable[[Path], None], suffix: str
) -> None:
    take_away(path.with_name(f"slates.db{suffix}"))
    with pytest.raises(StoreUncertainError, match="removed or replaced"):
        do(store, one_more("u"))
    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match="removed or replaced") as refused:
            do(store, one_more("u"))
        assert not isinstance(refused.value, StoreUncertainError)
    with pytest.raises(StoreUnavailableError, match="removed or replaced"):
        store.health()


def test_a_store_that_does_not_look_acknowledges_what_is_lost(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the same store without the look at its files."""
    monkeypatch.setattr(SqliteWriter, "are_files_in_place", lambda _: True)
    monkeypatch.setattr(OwnedFiles, "check", lambda _: None)
    rename(path)
    do(store, one_more("lost"))
    store.close()
    again = SqliteStore.open(str(path))
    assert list(again.users()) == []
    again.close()


def other_store(path: Path) -> bytes:
    store = SqliteStore.open(str(path.with_name("other.db")))
    fill(store, ["other"])
    store.close()
    return path.with_name("other.db").read_bytes()


OVERWRITTEN: dict[str, Callable[[Path], bytes]] = {
    "by another store": other_store,
    "by nothing": lambda _: b"",
    "by noise": lambda _: b"noise" * 10_000,
}


@pytest.mark.parametrize("content", OVERWRITTEN.values(), ids=list(OVERWRITTEN))
def test_nothing_is_acknowledged_into_a_file_that_was_overwritten(
    store: SqliteStore, path: Path, content: Callable[[Path], bytes]
) -> None:
    """It is the same file, with another content; `cp` does that."""
    path.write_bytes(content(path))
    for _ in range(2):
        with pytest.raises(StoreError):
            do(store, one_more("u"))


def test_checkpoints_are_not_taken_for_other_content(store: SqliteStore, path: Path) -> None:
    """The control: what we write to the file ourselves changes it, too."""
    writer, before = store.writer, path.stat()
    assert writer is not None
    do(store, one_more("v"))
    writer.between_commits(lambda connection: connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)).result()
    assert (path.stat().st_mtime_ns, path.stat().st_size) != (before.st_mtime_ns, before.st_size)
    assert do(store, one_more("v")) == 2


def test_a_store_that_does_not_look_into_its_file_acknowledges_what_is_lost(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the same store without the look."""
    monkeypatch.setattr(Checkpoints, "is_database_ours", lambda _: True)
    path.write_bytes(other_store(path))
    do(store, one_more("lost"))


def test_writing_resumes_when_the_same_file_is_back(store: SqliteStore, path: Path) -> None:
    rename(path)
    with pytest.raises(StoreError):
        do(store, one_more("u"))
    path.with_name("aside").rename(path)
    assert store.health()["kind"] == "sqlite"
    do(store, one_more("u"))
    store.close()
    again = SqliteStore.open(str(path))
    assert again.read(lambda transaction: transaction.lock("u").n_slates) > 3
    again.close()


def test_shared_memory_that_is_gone_is_noticed(store: SqliteStore, path: Path) -> None:
    """Other processes would no longer see our locks."""
    path.with_name("slates.db-shm").unlink()
    with pytest.raises(StoreUnavailableError, match=r"slates\.db-shm was removed"):
        store.health()


# --- other programs


def acknowledged_and_kept(path: Path, way: str) -> tuple[int, int]:
    """Let another program open and close the store of a process between two counts, and kill the process."""
    command = [sys.executable, "-c", COUNT_FOREVER, str(path), way]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    owner = subprocess.Popen(command, text=True, **pipes)  # type: ignore[call-overload]  # noqa: S603
    try:
        n_acknowledged = int(owner.stdout.readline() == "counted\n")
        visitor = sqlite3.connect(path)
        visitor.execute("SELECT count(*) FROM counts").fetchall()
        visitor.close()
        owner.stdin.write("\n")
        owner.stdin.flush()
        n_acknowledged += owner.stdout.readline() == "counted\n"
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.communicate()
    store = SqliteStore.open(str(path))
    n_kept = sum(total.slates for total in store.read(lambda transaction: transaction.totals()))
    store.close()
    return n_acknowledged, n_kept


@pytest.mark.process
def test_another_program_that_opens_and_closes_the_file_takes_nothing_away(path: Path) -> None:
    """The last connection to close deletes the WAL, unless SQLite's lock says that there is another one."""
    assert acknowledged_and_kept(path, "careful") == (2, 2)


@pytest.mark.process
def test_a_process_that_reads_its_own_database_file_loses_the_lock(path: Path) -> None:
    """The control: the visitor deletes the WAL; as the files are looked at, the next write is at least refused."""
    assert acknowledged_and_kept(path, "careless")[0] == 1
