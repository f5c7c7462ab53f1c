"""What a SQLite store notices when it is opened: damaged pages, and a database that the WAL does not belong to."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import apsw
import pytest

from slatewise.store import StoreDamagedError, StoreError, sqlite, sqlite_start, sqlite_writer
from slatewise.store.sqlite import SqliteStore
from slatewise.store.sqlite_backup import NO_LIMIT, back_up
from slatewise.store.sqlite_checkpoints import Checkpoints
from slatewise.store.sqlite_files import OwnedFiles
from tests.support.store_rows import do, fill, one_more

EARLY, LATE = [f"early {number}" for number in range(40)], [f"late {number}" for number in range(40)]
FILES = ("slates.db", "slates.db-wal", "slates.db.lock")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A copy of the store from before most of its users came."""
    (tmp_path / "life").mkdir()
    store = SqliteStore.open(str(tmp_path / "life" / "slates.db"))
    fill(store, ["first"])
    store.close()
    return Path(shutil.copy(tmp_path / "life" / "slates.db", tmp_path / "old.db"))


@pytest.fixture
def crashed(old: Path, tmp_path: Path) -> Path:  # noqa: ARG001
    """The database of a process that was killed: some changes are in the database, some only in the WAL."""
    store = SqliteStore.open(str(tmp_path / "life" / "slates.db"))
    fill(store, EARLY)
    assert store.writer is not None
    store.writer.between_commits(lambda one: one.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)).result()
    fill(store, LATE)
    (tmp_path / "crash").mkdir()
    for name in FILES:
        shutil.copy(tmp_path / "life" / name, tmp_path / "crash" / name)
    store.close()
    return tmp_path / "crash" / "slates.db"


def overwrite(path: Path, content: Path) -> None:
    """Change the content of a file in place, as `cp` does."""
    path.write_bytes(content.read_bytes())


def exchange(path: Path, content: Path) -> None:
    """Put another file in its place, as `mv` does."""
    Path(shutil.copy(content, path.with_name("new"))).replace(path)


def test_what_a_killed_process_left_behind_is_read(crashed: Path) -> None:
    store = SqliteStore.open(str(crashed))
    assert sorted(store.users()) == sorted(["first", *EARLY, *LATE])
    assert store.check() == []
    store.close()


@pytest.mark.parametrize("put", [overwrite, exchange])
def test_a_database_restored_over_an_old_wal_is_refused(
    crashed: Path, old: Path, put: Callable[[Path, Path], None]
) -> None:
    put(crashed, old)
    for _ in range(2):
        with pytest.raises(StoreDamagedError, match="its WAL belongs to the file before"):
            SqliteStore.open(str(crashed))
    assert crashed.read_bytes() == old.read_bytes()
    crashed.with_name("slates.db-wal").unlink()
    store = SqliteStore.open(str(crashed))
    assert list(store.users()) == ["first"]
    store.close()


def test_without_the_id_it_would_be_a_mixture(crashed: Path, old: Path) -> None:
    """The control: no lock file says which database the WAL belongs to."""
    overwrite(crashed, old)
    crashed.with_name("slates.db.lock").unlink()
    with pytest.raises(StoreError):
        check_all(crashed)


def check_all(path: Path) -> None:
    store = SqliteStore.open(str(path))
    try:
        problems = store.check()
        if problems or sorted(store.users()) != sorted(["first", *EARLY, *LATE]):
            raise StoreDamagedError(f"{problems}")
    finally:
        store.close()


@pytest.mark.parametrize("n_notes", [1, 2, 3])
def test_an_opening_that_is_interrupted_leaves_a_store_that_opens(
    crashed: Path, n_notes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock file is written three times; afterwards the database has the old id or the new one."""
    written, write = [0], OwnedFiles.write_note

    def interrupted(self: OwnedFiles, note: str) -> None:
        written[0] += 1
        if written[0] == n_notes:
            raise KeyboardInterrupt
        write(self, note)

    with monkeypatch.context() as patch:
        patch.setattr(OwnedFiles, "write_note", interrupted)
        with pytest.raises(KeyboardInterrupt):
            SqliteStore.open(str(crashed))
    check_all(crashed)


@pytest.mark.slow
def test_a_reader_that_holds_up_the_checkpoint_of_an_opening_does_no_harm(crashed: Path) -> None:
    """The id stays in the WAL; the ids before are still valid."""
    reader = apsw.Connection(str(crashed))
    reader.execute("BEGIN; SELECT count(*) FROM users")
    for _ in range(3):
        store = SqliteStore.open(str(crashed))
        do(store, one_more("late 0"))
        assert store.health()["kind"] == "sqlite"
        store.close()
    reader.close()
    check_all(crashed)


def test_a_database_that_is_overwritten_while_it_is_in_use_is_noticed(backup: Path, tmp_path: Path) -> None:
    """Nothing more is written to it, not even by closing the store, and the next start says what happened."""
    store = SqliteStore.open(str(tmp_path / "life" / "slates.db"))
    fill(store, EARLY)
    assert store.health()["kind"] == "sqlite"
    overwrite(store.path, backup)
    with pytest.raises(StoreDamagedError, match="replaced"):
        store.health()
    with pytest.raises(StoreDamagedError, match="replaced"):
        do(store, one_more("early 0"))
    store.close()
    assert store.path.read_bytes() == backup.read_bytes()
    with pytest.raises(StoreDamagedError, match="its WAL belongs to the file before"):
        SqliteStore.open(str(store.path))


def test_a_checkpoint_does_not_copy_into_another_database(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the writer does not notice."""
    monkeypatch.setattr(sqlite_writer, "CHECKPOINT_PAGES", 10)
    monkeypatch.setattr(Checkpoints, "is_database_ours", lambda _: True)
    store = SqliteStore.open(str(tmp_path / "life" / "slates.db"))
    overwrite(store.path, backup)
    with pytest.raises(StoreDamagedError, match="replaced"):
        write_until_refused(store)
    store.close()
    assert store.path.read_bytes() == backup.read_bytes()


def write_until_refused(store: SqliteStore) -> None:
    for _ in range(10_000):
        do(store, one_more("u", bytes(10_000)))


@pytest.fixture
def backup(old: Path, tmp_path: Path) -> Path:
    """A backup of the old store."""
    back_up(old, tmp_path / "backup.db", NO_LIMIT, lambda *_: None)
    return tmp_path / "backup.db"


@pytest.fixture
def damaged(crashed: Path) -> Path:
    """A store that was closed in peace, and then lost a page of an index."""
    check_all(crashed)
    connection = apsw.Connection(str(crashed))
    name = "SELECT rootpage FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'slates' ORDER BY name LIMIT 1"
    start = 4096 * (int(str(connection.execute(name).fetchall()[0][0])) - 1)
    connection.close()
    content = bytearray(crashed.read_bytes())
    content[start : start + 100] = bytes(100)
    crashed.write_bytes(content)
    return crashed


def test_damaged_pages_are_noticed_at_the_start(damaged: Path) -> None:
    with pytest.raises(StoreDamagedError, match=r"slates\.db is damaged"):
        SqliteStore.open(str(damaged))


def test_the_check_at_the_start_ends_in_time(damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that was given no time finds nothing, and the store opens; that is also the control."""
    monkeypatch.setattr(sqlite_start, "STEPS_BETWEEN_LOOKS", 1)
    monkeypatch.setattr(sqlite, "check_pages", partial(sqlite_start.check_pages, seconds=-1.0))
    store = SqliteStore.open(str(damaged))
    assert store.check() != []
    store.close()
