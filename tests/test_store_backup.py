"""Backups of a SQLite store: consistent while it is written to, checked, and put back in one step or not at all."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from slatewise.store import StoreDamagedError, StoreError, StoreUnavailableError, open_store, sqlite_backup
from slatewise.store.protocol import Transaction
from slatewise.store.sqlite import SqliteStore
from slatewise.store.sqlite_backup import NO_LIMIT, back_up, replacement, restore
from slatewise.store.sqlite_files import OwnedFiles
from slatewise.store.transfer import export_lines, load_lines
from tests.support.store_rows import answer, do, emptied, fill, slate, user_row

OLD, NEW = ["ann", "ben"], ["cat", "dan", "eve"]


def ignore(_done: int, _total: int) -> None:
    """Show nothing."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "slates.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore.open(str(path))
    fill(opened, OLD)
    yield opened
    opened.close()


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """A backup of another store."""
    store = SqliteStore.open(str(tmp_path / "other.db"))
    fill(store, NEW)
    back_up(tmp_path / "other.db", tmp_path / "backup.db", NO_LIMIT, ignore)
    store.close()
    return tmp_path / "backup.db"


def users_in(path: Path) -> list[str]:
    store = SqliteStore.open(str(path))
    try:
        assert store.check() == []
        return list(store.users())
    finally:
        store.close()


def pair(number: int) -> Callable[[Transaction], None]:
    """A job that records one slate for each of two users: no snapshot has one without the other."""

    def job(transaction: Transaction) -> None:
        for user in ("left", "right"):
            transaction.lock(user)
            transaction.add_slate(slate(user, number))
            transaction.save_user(user_row(user))

    return job


def numbers_in_backup_of_busy_store(store: SqliteStore, target: Path) -> tuple[int, int]:
    """Back up while pairs are written, slowly enough for many of them; return the slates of both users."""
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            do(store, pair(number))
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        back_up(store.path, target, 1_000_000, ignore)
    finally:
        stop.set()
        writer.join()
    copy = open_store(f"sqlite:///{target}", read_only=True)
    left, right = (len(copy.read(lambda t, user=user: t.slates_of(user))) for user in ("left", "right"))  # type: ignore[misc]
    copy.close()
    return left, right


def test_a_backup_of_a_busy_store_is_one_moment(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends although the store never rests; a copy page by page would start again after every write."""
    monkeypatch.setattr(sqlite_backup, "PAGES_PER_STEP", 4)
    fill(store, [f"user {number}" for number in range(200)])
    left, right = numbers_in_backup_of_busy_store(store, tmp_path / "copy.db")
    assert left == right
    assert len(store.read(lambda t: t.slates_of("left"))) > left
    assert sorted(file.name for file in tmp_path.iterdir() if "copy" in file.name) == ["copy.db"]
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600


def test_a_copy_of_the_file_of_a_busy_store_is_incomplete(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    """The control: what is only in the WAL is not in it."""
    (tmp_path / "copy.db").write_bytes(path.read_bytes())
    with pytest.raises(AssertionError):
        assert users_in(tmp_path / "copy.db") == list(store.users())


def test_a_backup_takes_no_name_that_is_taken(store: SqliteStore, backup: Path) -> None:
    before = backup.read_bytes()
    with pytest.raises(StoreUnavailableError, match=r"backup\.db exists"):
        back_up(store.path, backup, NO_LIMIT, ignore)
    assert backup.read_bytes() == before


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE slates SET variety = 2.0 WHERE user_id = 'ben' AND number = 1",
        "DELETE FROM feedback WHERE user_id = 'ben'",
    ],
)
def test_a_damaged_log_makes_no_backup_and_is_not_restored(
    store: SqliteStore, path: Path, backup: Path, tmp_path: Path, damage: str
) -> None:
    store.close()
    for file in (path, backup):
        connection = apsw.Connection(str(file))
        connection.execute(damage.replace("ben", "dan") if file == backup else damage)
        connection.close()
    with pytest.raises(StoreDamagedError):
        back_up(path, tmp_path / "copy.db", NO_LIMIT, ignore)
    assert not (tmp_path / "copy.db").exists()
    with pytest.raises(StoreDamagedError):
        restore(backup, path, ignore)
    assert users_in(path) == OLD


def test_what_is_no_backup_is_not_restored(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    store.close()
    foreign, text = tmp_path / "foreign.db", tmp_path / "text.db"
    apsw.Connection(str(foreign)).execute("CREATE TABLE theirs (x)")
    text.write_bytes(b"SQLite format 3\0" + b"but not a database" * 1000)
    (tmp_path / "empty.db").touch()
    for file in (foreign, text, tmp_path / "empty.db"):
        with pytest.raises(StoreError):
            restore(file, path, ignore)
    assert users_in(path) == OLD


# --- restoring


def test_a_store_that_is_in_use_is_not_replaced(store: SqliteStore, path: Path, backup: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="belongs to process"):
        restore(backup, path, ignore)
    assert list(store.users()) == OLD


def test_a_backup_takes_the_place_of_a_store_with_a_long_wal(path: Path, backup: Path, tmp_path: Path) -> None:
    leave_wal(path, tmp_path)
    assert restore(backup, path, ignore) == len(NEW)
    assert not path.with_name("slates.db-wal").exists()
    assert users_in(path) == NEW
    assert users_in(backup) == NEW


def test_a_backup_makes_a_store_where_there_was_none(path: Path, backup: Path) -> None:
    restore(backup, path, ignore)
    assert users_in(path) == NEW


def leave_wal(path: Path, tmp_path: Path) -> None:
    """Leave the files of a process that was killed: most of its work is in the WAL."""
    (tmp_path / "life").mkdir()
    store = SqliteStore.open(str(tmp_path / "life" / "slates.db"))
    fill(store, OLD)
    for name in ("slates.db", "slates.db-wal", "slates.db.lock"):
        path.with_name(name).write_bytes((tmp_path / "life" / name).read_bytes())
    store.close()


STEPS = ("announce_replacement", "_flush", "_put", "unlink", "write_note")


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_a_restore_that_is_interrupted_never_mixes_two_stores(
    step: str, is_done: bool, path: Path, backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted before or after each step: the old store, the new one, or an error that says what to do."""
    leave_wal(path, tmp_path)
    with monkeypatch.context() as patch:
        place = {"unlink": Path, "write_note": OwnedFiles}.get(step, sqlite_backup)
        patch.setattr(place, step, interrupted(getattr(place, step), step, is_done))
        with pytest.raises(KeyboardInterrupt):
            restore(backup, path, ignore)
    assert outcome(path) in (OLD, NEW, ["replaced"])
    restore(backup, path, ignore)
    assert users_in(path) == NEW


def interrupted(function: Any, step: str, is_done: bool) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        if step == "unlink" and not str(arguments[0]).endswith("slates.db-wal"):
            return function(*arguments, **options)
        if step == "write_note" and arguments[1]:
            return function(*arguments, **options)
        if is_done:
            function(*arguments, **options)
        raise KeyboardInterrupt

    return call


def outcome(path: Path) -> list[str]:
    try:
        return users_in(path)
    except StoreDamagedError as error:
        return ["replaced"] if "its WAL belongs to the file before" in str(error) else [str(error)]


def test_a_file_that_is_moved_over_a_store_by_hand_is_noticed(path: Path, backup: Path, tmp_path: Path) -> None:
    """The same without the command, which would have removed the WAL."""
    leave_wal(path, tmp_path)
    backup.replace(path)
    assert outcome(path) == ["replaced"]


# --- exports


def lines_of(store: SqliteStore) -> list[str]:
    return [json.dumps(line) for line in export_lines(store)]


@pytest.mark.process
def test_an_export_can_be_loaded_again_into_any_store(
    store: SqliteStore, path: Path, request: pytest.FixtureRequest
) -> None:
    do(store, lambda t: t.add_feedback(answer("ann", 0, event="late", seen=(0, "0"), disliked=("0",))))
    lines, server = lines_of(store), request.getfixturevalue("postgres_server")
    for url in (f"sqlite:///{path.with_name('again.db')}", "memory://", emptied(server)):
        again = open_store(url)
        assert load_lines(again, lines) == 2
        for user in OLD:
            for ask in (slates, feedback):
                assert again.read(ask(user)) == store.read(ask(user))
            assert again.read(lambda t, user=user: t.lock(user).n_slates) == 3  # type: ignore[misc]
        with pytest.raises(StoreUnavailableError, match="not empty"):
            load_lines(again, lines)
        again.close()


def replace_by(lines: list[str], path: Path) -> None:
    with replacement(path) as copy:
        loading = SqliteStore.open(str(copy))
        try:
            load_lines(loading, lines)
        finally:
            loading.close()


def slates(user: str) -> Callable[[Transaction], Any]:
    return lambda transaction: transaction.slates_of(user)


def feedback(user: str) -> Callable[[Transaction], Any]:
    return lambda transaction: transaction.feedback_of(user)


@pytest.mark.parametrize("change", [("items", "itmes"), ('"slates"', '"shown"'), ("}", ""), ("ann", "\\ud800")])
def test_a_line_that_cannot_be_loaded_leaves_the_store_as_it_was(
    store: SqliteStore, path: Path, change: tuple[str, str]
) -> None:
    lines = [line.replace(*change) for line in lines_of(store)]
    store.close()
    with pytest.raises(StoreError):
        replace_by(lines, path)
    assert users_in(path) == OLD
    assert [file.name for file in path.parent.iterdir() if file.name.startswith(".")] == []
