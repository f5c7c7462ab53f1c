"""A server process stays on one core, others on other cores, what it starts does not; its garbage collector."""

import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import psutil
import pytest

from slatewise.recommender import Recommender
from slatewise.service.cpu_affinity import LARGE_CATALOG, available_cores, claim_core
from slatewise.service.item_follower import ItemFollower
from slatewise.service.logs import Log
from slatewise.service.server import set_cpu_affinity
from slatewise.service.settings import Settings
from tests.support.postgres import throw_away_server
from tests.support.serving import Server, small_catalog
from tests.test_serve import eventually, free_port

pytestmark = pytest.mark.process

CORES = available_cores()
several = pytest.mark.skipif(len(CORES) < 2, reason="this machine has one core")


def cores_of(pid: int) -> list[set[int]]:
    """The cores that each thread of a process may run on."""
    return [os.sched_getaffinity(int(thread.name)) for thread in Path(f"/proc/{pid}/task").iterdir()]


@several
@pytest.mark.parametrize(("setting", "wanted"), [("true", 1), ("false", len(CORES)), ("", 1)])
def test_every_thread_of_a_server_is_on_its_core(tmp_path: Path, setting: str, wanted: int) -> None:
    small_catalog().save(tmp_path / "catalog")
    environment = {"TMPDIR": str(tmp_path)} | ({"SLATEWISE_PIN_TO_CORE": setting} if setting else {})
    with Server(tmp_path, ["--port", str(free_port())], environment) as server:
        with server.client() as client:
            client.post("/v1/slates", json={"user": "anna", "k": 2}).raise_for_status()
        assert server.process is not None
        pid = server.process.pid
        assert eventually(
            lambda: all(len(cores) == wanted for cores in cores_of(pid))
        )  # preparing for new items has ended
        found = cores_of(pid)
    assert len(found) > 5  # the event loop, a worker, the writer, the log, the sweeper, the follower
    assert len(set.union(*found)) == wanted


@several
def test_what_is_prepared_for_new_items_leaves_the_core_to_requests() -> None:
    """A thread on one core starts it; the control is what else such a thread starts."""
    found: dict[str, set[int]] = {}

    def note(name: str) -> None:
        found[name] = os.sched_getaffinity(0)

    def start() -> None:
        os.sched_setaffinity(0, {min(CORES)})
        recommender = SimpleNamespace(expect_new_items=lambda: note("new items"))
        ItemFollower(cast(Recommender, recommender), Log()).expect_new_items()
        other = threading.Thread(target=note, args=("other",))
        other.start()
        other.join()

    pinned = threading.Thread(target=start)
    pinned.start()
    pinned.join()
    assert eventually(lambda: "new items" in found)
    assert found == {"new items": set(CORES), "other": {min(CORES)}}


CHILD = """
import os, subprocess, sys, time
from slatewise.service.cpu_affinity import unpin, pin_to_core
assert pin_to_core() is not None
for leaves in (False, True):
    child = subprocess.Popen([sys.executable, "-c", "import os; input(); print(len(os.sched_getaffinity(0)))"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if leaves:
        unpin(child.pid)
    print(child.communicate("go\\n")[0].strip())
"""


@several
def test_a_process_that_a_server_starts_may_use_all_cores(tmp_path: Path) -> None:
    """The control is one that is not told: it stays on the server's core."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", CHILD], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.split() == ["1", str(len(CORES))]


def test_a_large_catalog_is_served_from_all_cores_unless_the_settings_say_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pinned: list[bool] = []
    settings = partial(Settings, catalog=tmp_path)
    monkeypatch.setattr("slatewise.service.server.pin_to_core", lambda: pinned.append(True))
    set_cpu_affinity(settings(), LARGE_CATALOG)
    set_cpu_affinity(settings(pin_to_core=False), 10)
    assert pinned == []
    set_cpu_affinity(settings(), LARGE_CATALOG - 1)
    set_cpu_affinity(settings(pin_to_core=True), LARGE_CATALOG)
    assert pinned == [True, True]


COLLECT = """
import gc
from slatewise.service.server import tune_garbage_collection
before = gc.get_threshold()
tune_garbage_collection()
after = gc.get_threshold()
print(gc.isenabled(), gc.get_freeze_count() > 0, after[:2] == before[:2], after[2] > before[2] or after[2] == 0)
"""


def test_young_objects_are_collected_as_before_and_old_ones_rarely() -> None:
    """From Python 3.14 on old objects are looked through in portions, and their threshold is always 0."""
    done = subprocess.run([sys.executable, "-c", COLLECT], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.split() == ["True"] * 4


CLAIMING = "from slatewise.service.cpu_affinity import claim_core; "
CLAIMING += "print(claim_core(frozenset({901, 902})), flush=True); input()"


def test_every_process_has_a_core_of_its_own_and_frees_it_when_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def start() -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", CLAIMING],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    first, second = start(), start()
    assert sorted([first[1], second[1]]) == ["901", "902"]
    assert claim_core(frozenset({901, 902})) is None
    (tmp_path / f"slatewise-core-903-of-{os.geteuid()}").symlink_to(tmp_path / "elsewhere")
    assert claim_core(frozenset({903})) is None
    first[0].kill()
    first[0].communicate()
    third = start()
    assert third[1] == first[1]
    for process, _ in (second, third):
        process.kill()
        process.communicate()


@several
@pytest.mark.slow
def test_two_workers_take_two_cores(tmp_path: Path) -> None:
    small_catalog().save(tmp_path / "catalog")
    with throw_away_server() as database:
        arguments = ["--store", database.url, "--workers", "2", "--port", str(free_port())]
        with Server(tmp_path, arguments, {"TMPDIR": str(tmp_path)}) as server:
            assert server.process is not None
            family = psutil.Process(server.process.pid).children(recursive=True)

            def kept() -> list[int]:
                found = [set.union(*cores_of(child.pid)) for child in family]
                return sorted(cores.pop() for cores in found if len(cores) == 1)

            assert eventually(lambda: kept() == sorted(CORES)[:2]), kept()
