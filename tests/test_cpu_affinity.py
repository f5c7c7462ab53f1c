"""A server process stays on one core, others on other cores, what it starts does not; its garbage collector."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest

from slatewise.service.cpu_affinity import LARGE_CATALOG, available_cores
from slatewise.service.server import set_cpu_affinity
from slatewise.service.settings import Settings
from slatewise.service.shared_directory import claim_worker_number
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
    port = free_port()
    environment = {"SLATEWISE_PIN_TO_CORE": setting} if setting else {}
    with Server(tmp_path, ["--port", str(port)], environment) as server:
        with server.client() as client:
            client.post("/v1/slates", json={"user": "anna", "k": 2}).raise_for_status()
        assert server.process is not None
        found = cores_of(server.process.pid)
    assert len(found) > 5  # the event loop, a worker, the writer, the log, the sweeper, the follower
    assert all(len(cores) == wanted for cores in found)
    if wanted == 1:
        assert set.union(*found) == {sorted(CORES)[port % len(CORES)]}


CHILD = """
import os, subprocess, sys, time
from slatewise.service.cpu_affinity import unpin, pin_to_core
pin_to_core(1)
for leaves in (False, True):
    child = subprocess.Popen([sys.executable, "-c", "import os; input(); print(len(os.sched_getaffinity(0)))"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if leaves:
        unpin(child.pid)
    print(child.communicate("go\\n")[0].strip())
"""


@several
def test_a_process_that_a_server_starts_may_use_all_cores() -> None:
    """The control is one that is not told: it stays on the server's core."""
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.split() == ["1", str(len(CORES))]


def test_a_large_catalog_is_served_from_all_cores_unless_the_settings_say_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    chosen: list[int] = []
    settings = partial(Settings, catalog=tmp_path)
    monkeypatch.setattr("slatewise.service.server.pin_to_core", chosen.append)
    set_cpu_affinity(settings(), LARGE_CATALOG, 1)
    set_cpu_affinity(settings(pin_to_core=False), 10, 2)
    assert chosen == []
    set_cpu_affinity(settings(), LARGE_CATALOG - 1, 3)
    set_cpu_affinity(settings(pin_to_core=True), LARGE_CATALOG, 4)
    assert chosen == [3, 4]


COLLECT = """
import gc
from slatewise.service.server import tune_garbage_collection
before = gc.get_threshold()
tune_garbage_collection()
after = gc.get_threshold()
print(gc.isenabled(), gc.get_freeze_count() > 0, after[:2] == before[:2], after[2] > before[2])
"""


def test_young_objects_are_collected_as_before_and_old_ones_rarely() -> None:
    done = subprocess.run([sys.executable, "-c", COLLECT], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.split() == ["True"] * 4


CLAIM = "import pathlib, sys; from slatewise.service.shared_directory import claim_worker_number; "
CLAIM += "print(claim_worker_number(pathlib.Path(sys.argv[1])), flush=True); input()"


def test_a_number_is_free_again_once_its_process_is_killed(tmp_path: Path) -> None:
    def start() -> tuple[subprocess.Popen[str], int]:
        command = [sys.executable, "-c", CLAIM, str(tmp_path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
        assert process.stdout is not None
        return process, int(process.stdout.readline())

    first, second = start(), start()
    assert (first[1], second[1], claim_worker_number(tmp_path)) == (0, 1, 2)
    first[0].kill()
    first[0].communicate()
    third = start()
    assert third[1] == 0
    for process, _ in (second, third):
        process.kill()
        process.communicate()


@several
@pytest.mark.slow
def test_two_workers_take_two_cores(tmp_path: Path) -> None:
    small_catalog().save(tmp_path / "catalog")
    with throw_away_server() as database:
        arguments = ["--store", database.url, "--workers", "2", "--port", str(free_port())]
        with Server(tmp_path, arguments) as server:
            assert server.process is not None
            family = psutil.Process(server.process.pid).children(recursive=True)

            def kept() -> list[int]:
                found = [set.union(*cores_of(child.pid)) for child in family]
                return sorted(cores.pop() for cores in found if len(cores) == 1)

            assert eventually(lambda: kept() == sorted(CORES)[:2]), kept()
