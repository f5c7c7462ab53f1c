"""fsync fails during COMMIT: what was refused is not found after kill -9, or the answer said that it may be."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from slatewise.service.errors import problem_of
from slatewise.store.protocol import StoreUncertainError
from slatewise.store.sqlite import SqliteStore
from slatewise.store.sqlite_writer import SqliteWriter
from tests.support.store_rows import answer, slate

FOREVER = 10**9


class FailingDisk(apsw.VFS):
    """A file system whose next calls of fsync on a WAL fail, as a broken disk makes them."""

    def __init__(self) -> None:
        self.n_failures = 0
        super().__init__("failing", "")

    def xOpen(self, name: Any, flags: list[int]) -> "FailingFile":  # noqa: N802
        return FailingFile(self, name, flags)


class FailingFile(apsw.VFSFile):
    def __init__(self, disk: FailingDisk, name: Any, flags: list[int]) -> None:
        self.disk, self.is_wal = disk, bool(flags[0] & apsw.SQLITE_OPEN_WAL)
        super().__init__("unix", name, flags)

    def xSync(self, flags: int) -> None:  # noqa: N802
        if self.is_wal and self.disk.n_failures > 0:
            self.disk.n_failures -= 1
            raise apsw.IOError("on purpose")
        super().xSync(flags)


def answer_and_die(path: Path, n_failures: int, way: str) -> None:
    """Record a slate, let fsync fail so many times, send feedback, say what came of it, and die."""
    disk = FailingDisk()
    apsw.set_default_vfs("failing")
    if way == "without erasing":
        SqliteWriter.erase_failed_commit = lambda *_: None  # type: ignore[method-assign]
    store = SqliteStore.open(str(path))
    store.write(lambda transaction: transaction.add_slate(slate("u", 0))).result()
    disk.n_failures = n_failures
    error = store.write(lambda transaction: transaction.add_feedback(answer("u", 0))).exception()
    is_uncertain = isinstance(error, StoreUncertainError)
    detail = problem_of(error).detail if isinstance(error, Exception) else None
    print(json.dumps({"refused": error is not None, "uncertain": is_uncertain, "detail": detail}), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def told_and_kept(path: Path, n_failures: int, way: str = "plain") -> tuple[dict[str, Any], bool]:
    """Return what the client was told, and whether its feedback is there after a restart."""
    command = [sys.executable, "-m", __name__, str(path), str(n_failures), way]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
    assert done.returncode == -signal.SIGKILL, done.stderr
    store = SqliteStore.open(str(path))
    slates, events = store.read(lambda transaction: (transaction.slates_of("u"), transaction.feedback_of("u")))
    store.close()
    assert [one.slate_id for one in slates] == ["slate 0 of u"]
    return json.loads(done.stdout), bool(events)


@pytest.mark.process
def test_a_commit_that_failed_once_is_erased(tmp_path: Path) -> None:
    told, is_kept = told_and_kept(tmp_path / "slates.db", 1)
    assert told == {"refused": True, "uncertain": False, "detail": "Nothing was recorded; try again."}
    assert not is_kept


@pytest.mark.process
def test_a_commit_that_cannot_be_erased_may_be_recorded_and_the_answer_says_so(tmp_path: Path) -> None:
    told, _ = told_and_kept(tmp_path / "slates.db", FOREVER)
    assert told["uncertain"]
    assert "may have been recorded" in told["detail"]


@pytest.mark.process
def test_without_erasing_what_was_refused_is_recorded(tmp_path: Path) -> None:
    """The control: the frames of the failed commit are in the WAL, and SQLite recovers them."""
    told, is_kept = told_and_kept(tmp_path / "slates.db", 1, "without erasing")
    assert told["refused"]
    assert not told["uncertain"]
    assert is_kept


@pytest.mark.process
def test_without_a_failure_it_is_recorded(tmp_path: Path) -> None:
    assert told_and_kept(tmp_path / "slates.db", 0) == ({"refused": False, "uncertain": False, "detail": None}, True)


if __name__ == "__main__":
    answer_and_die(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
