"""Experiments on a real Dask cluster: a scheduler and workers as processes of their own, on the loopback device."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slatewise.catalog.embeddings import BprSettings
from slatewise.catalog.likes import ArrayPart, Likes
from slatewise.catalog.taste import PASSES, taste_vectors
from slatewise.data.sources import load
from slatewise.data.synthetic import WorldSize, make_world
from slatewise.lab import cluster
from slatewise.lab import experiment as lab
from slatewise.lab.broadcast import MemoryBroadcast, load_broadcast
from slatewise.lab.cluster import Cluster, ClusterError
from slatewise.lab.experiment import Arm, Experiment, Results, load_experiment, n_tasks, run, save_results
from slatewise.lab.taste_on_workers import on_workers
from tests.conftest import missing
from tests.test_cli import slatewise

pytestmark = pytest.mark.slow
DATASET = make_world(WorldSize(n_users=150, n_items=40, n_categories=5, dim=4), seed=8).dataset
SMALL = Experiment(
    name="small",
    title="A small one",
    arms=(
        Arm("dc2b-calibrated", k=4, rounds=3),
        Arm("dc2b", k=4, rounds=3),
        Arm("mmr", label="mmr (tuned)", tuned=True, k=4, rounds=2),
    ),
    splits=2,
    embedding=BprSettings(dim=3, epochs=3),
)
LOCAL = ("--host", "127.0.0.1", "--no-dashboard")
JOURNAL = """import os
from distributed import WorkerPlugin
from slatewise.lab.dask_plugin import BroadcastPlugin

class Journal(WorkerPlugin):
    def __init__(self):
        self.file = open(os.environ["JOURNAL"], "a", buffering=1)

    def transition(self, key, start, finish, **more):
        if "executing" in (start, finish):
            print(key, finish == "executing", file=self.file)

async def dask_setup(worker):
    journal = Journal()
    await worker.plugin_add(journal)
    take_in = BroadcastPlugin.setup

    def noted(self, worker):
        print("arrived", self.name, file=journal.file)
        take_in(self, worker)

    BroadcastPlugin.setup = noted
"""
"""A worker loaded with this writes down what arrives, begins and ends there, so that even the dead can be asked."""


class Machines:
    """A cluster of processes that can be killed one by one."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "scheduler.json"
        (folder / "journal.py").write_text(JOURNAL)
        self.processes: list[subprocess.Popen[bytes]] = []
        self._start("scheduler", "--port", "0", "--scheduler-file", str(self.file), *LOCAL)
        self.address = self._address()

    def _address(self) -> str:
        """Where the scheduler says it is; its file is there before its text is."""
        while self.processes[0].poll() is None:
            try:
                return str(json.loads(self.file.read_text())["address"])
            except (FileNotFoundError, json.JSONDecodeError):
                time.sleep(0.05)
        pytest.fail("the scheduler did not start")

    def add_worker(self, **environment: str) -> subprocess.Popen[bytes]:
        number = len(self.processes)
        options = ("--no-nanny", "--nthreads", "1", "--preload", str(self.folder / "journal.py"))
        known = {"JOURNAL": str(self.folder / f"{number}.txt"), **environment}
        return self._start("worker", *options, "--scheduler-file", str(self.file), *LOCAL, **known)

    def begun(self, number: int) -> list[str]:
        """The tasks a worker began, killed or not; workers are numbered from 1."""
        return [key for key, event in self._journal(number) if event == "True"]

    def arrived(self, number: int) -> list[str]:
        """What was sent to a worker."""
        return [name for word, name in self._journal(number) if word == "arrived"]

    def is_at_work(self, number: int) -> bool:
        """Whether the last thing a worker did was to begin a task."""
        return self._journal(number)[-1:] == [(key, "True") for key in self.begun(number)[-1:]] != []

    def _journal(self, number: int) -> list[tuple[str, str]]:
        path = self.folder / f"{number}.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(first, second) for first, second in (line.split() for line in lines)]

    def _start(self, part: str, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{part}", *options]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ, **environment})  # noqa: S603
        self.processes.append(process)
        return process

    def wait_for_workers(self, count: int) -> None:
        with cluster.connect(self.address) as client:
            client.wait_for_workers(count, timeout=30)

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def _dask() -> None:
    try:
        cluster.import_dask()
    except ModuleNotFoundError:
        missing("dask.distributed")


@pytest.fixture
def machines(_dask: None, tmp_path: Path) -> Iterator[Machines]:
    found = Machines(tmp_path)
    yield found
    found.stop()


@pytest.fixture(scope="module")
def pair(_dask: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Two workers for tests that leave them as they were."""
    found = Machines(tmp_path_factory.mktemp("pair"))
    for _ in range(2):
        found.add_worker()
    found.wait_for_workers(2)
    yield found
    found.stop()


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "users_at_once", lambda _: 4)


@pytest.fixture(scope="module")
def expected() -> Results:
    """The records of this process alone, in chunks of the usual size."""
    return run(SMALL, DATASET)


def assert_same(found: Results, expected: Results) -> None:
    assert found.records.schema == expected.records.schema
    assert found.records.rows() == expected.records.rows()
    assert found.choices.rows() == expected.choices.rows()


N_BROADCASTS = 1 + 2 * 2


def test_a_cluster_gives_the_records_of_this_process_and_data_travels_once(
    pair: Machines, expected: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, told = [], []
    submit = cluster.import_dask().Client.submit

    def spy(self: Any, *arguments: Any, **options: Any) -> Any:
        sizes.append(sum(weight(one) for one in arguments))
        return submit(self, *arguments, **options)

    monkeypatch.setattr(cluster.import_dask().Client, "submit", spy)
    assert_same(run(SMALL, DATASET, on_task=lambda: told.append(1), cluster=pair.address), expected)
    assert len(told) == len(sizes) == n_tasks(SMALL, DATASET) == 2 * 2 + 2 + 2 * 8 * 3
    assert max(sizes) < 5_000 < weight(MemoryBroadcast.of(DATASET))
    begun = pair.begun(1) + pair.begun(2)
    assert len(begun) == len(set(begun)) == len(told)
    for number in (1, 2):
        assert len(pair.begun(number)) > N_BROADCASTS
        assert len(pair.arrived(number)) == len(set(pair.arrived(number))) == N_BROADCASTS


def weight(thing: Any) -> int:
    """About how many bytes a task's argument takes over the network."""
    if isinstance(thing, MemoryBroadcast):
        return sum(map(len, thing.files.values()))
    return len(repr(thing))


def test_records_are_the_same_when_a_worker_is_killed(pair: Machines, expected: Results) -> None:
    victim, done = pair.add_worker(), []
    pair.wait_for_workers(3)

    def kill_one() -> None:
        done.append(1)
        if len(done) == 20:
            kill(victim)

    assert_same(run(SMALL, DATASET, on_task=kill_one, cluster=pair.address), expected)
    assert victim.returncode == -signal.SIGKILL
    assert len(done) == n_tasks(SMALL, DATASET)
    assert pair.begun(3)


Step = Callable[[], object]


def work(machines: Machines, steps: dict[int, Step]) -> list[Any]:
    """Run little tasks on shared data. After some of them something happens; after ten they wait for the gate."""
    done: list[int] = []
    gate = str(machines.folder / "gate")

    def on_task() -> None:
        done.append(1)
        steps.get(len(done), lambda: None)()

    def little(data: Any, number: int) -> tuple[str, int]:
        while number >= 10 and not os.path.exists(gate):  # noqa: PTH110
            time.sleep(0.01)
        time.sleep(0.02)
        return data.digest, number

    with Cluster(machines.address, on_task) as pool:
        data = pool.share(MemoryBroadcast.of(DATASET))
        found = pool.map([(little, data, number) for number in range(60)])
    assert len(done) == 60
    return found


WORK = [(DATASET.digest, number) for number in range(60)]


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_killed_worker_costs_its_chunk_and_late_ones_take_over(machines: Machines) -> None:
    """Ten results have arrived and both workers are in the middle of a task: one is killed, later all of them."""

    def replace_one() -> None:
        wait_until(lambda: machines.is_at_work(1) and machines.is_at_work(2))
        kill(machines.processes[1])
        machines.add_worker()
        wait_until(lambda: machines.is_at_work(3))
        (machines.folder / "gate").touch()

    def replace_all() -> None:
        for process in machines.processes[2:]:
            kill(process)
        machines.add_worker()

    for _ in range(2):
        machines.add_worker()
    machines.wait_for_workers(2)
    assert work(machines, {10: replace_one, 40: replace_all}) == WORK
    first, second, third, fourth = (machines.begun(number) for number in (1, 2, 3, 4))
    assert len(first) > 1
    assert set(first) & {*second, *third, *fourth} == {first[-1]}
    assert 0 < len(fourth) <= 21
    assert all(len(machines.arrived(number)) == 1 for number in (1, 2, 3, 4))


def test_a_worker_lost_while_data_is_sent_changes_nothing(pair: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    client, failures = cluster.import_dask().Client, [OSError("a worker was lost")] * 2
    register = client.register_plugin

    def fail_twice(self: Any, *arguments: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return register(self, *arguments, **options)

    monkeypatch.setattr(client, "register_plugin", fail_twice)
    with Cluster(pair.address, lambda: None) as pool:
        assert pool.map([(getattr, pool.share(MemoryBroadcast.of(DATASET)), "n_users")]) == [DATASET.n_users]
        failures += [OSError("disk full")] * 3
        with pytest.raises(ClusterError, match="cannot send the dataset to the workers"):
            pool.share(MemoryBroadcast.of(DATASET))


def test_nothing_is_left_on_the_workers(pair: Machines) -> None:
    def found() -> list[str]:
        with cluster.connect(pair.address) as client:
            answers = client.run(lambda dask_worker: [*dask_worker.plugins, *os.listdir(dask_worker.local_directory)])  # noqa: PTH208
        return [name for names in answers.values() for name in names if name.startswith("slatewise")]

    with Cluster(pair.address, lambda: None) as pool:
        pool.share(MemoryBroadcast.of(DATASET))
        assert len(found()) == 2 * 2
    assert found() == []


def other_version(folder: Path, package: str) -> str:
    """A path on which a package claims to be of another version."""
    about = folder / f"{package}-0.0.7.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.0.7\n")
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


def test_other_versions_are_refused_before_anything_runs(pair: Machines, tmp_path: Path) -> None:
    odd = pair.add_worker(PYTHONPATH=other_version(tmp_path, "polars"))
    pair.wait_for_workers(3)
    before = len(pair.begun(1) + pair.begun(2))
    with pytest.raises(
        ClusterError, match=r"the worker tcp://127.* has polars 0\.0\.7 \(here [0-9.]+\); install the same"
    ):
        run(SMALL, DATASET, cluster=pair.address)
    kill(odd)
    assert len(pair.begun(1) + pair.begun(2)) == before
    assert not pair.begun(len(pair.processes) - 1)


def test_a_worker_that_joined_late_refuses_other_versions() -> None:
    here = cluster.installed_versions()
    assert cluster.run_checked_task(here, max, 3, 4) == 4
    with pytest.raises(ClusterError, match=r"a worker has numpy [0-9.]+ \(here 0.1\)"):
        cluster.run_checked_task({**here, "numpy": "0.1"}, max, 3, 4)


def test_every_version_that_matters_is_named() -> None:
    here: dict[str, str | None] = {"python": "3.11", "slatewise": "1", "numpy": "2", "polars": "3"}
    cluster.compare_versions(here, dict(here), "w")
    others: dict[str, str | None] = {"python": "3.12", "slatewise": None, "numpy": "1", "polars": "3"}
    with pytest.raises(ClusterError, match=r"w has python 3.12 \(here 3.11\), slatewise is missing .*, numpy 1"):
        cluster.compare_versions(here, others, "w")
    assert set(here) <= set(cluster.installed_versions())
    assert cluster.installed_versions()["python"] == f"{sys.version_info[0]}.{sys.version_info[1]}"


def test_a_cluster_without_workers_or_scheduler(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "JOIN_SECONDS", 1)
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 1)
    with pytest.raises(ClusterError, match=f"no worker joined the cluster at {machines.address} within 1 s; start one"):
        Cluster(machines.address, print)
    machines.add_worker()
    machines.wait_for_workers(1)
    with pytest.raises(ClusterError, match=r"lost the scheduler at tcp"):
        work(machines, {5: lambda: kill(machines.processes[0])})
    with pytest.raises(ClusterError, match=f"no Dask scheduler responds at {machines.address} within 1 s"):
        Cluster(machines.address, print)
    with pytest.raises(ClusterError, match="'nowhere' is not the address"):
        Cluster("nowhere", print)


def test_without_dask_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install '\.\[dask\]'"):
        run(SMALL, DATASET, cluster="tcp://127.0.0.1:8786")


EXPERIMENT = """title = "Two"
splits = 1
embedding = { dim = 3, epochs = 2 }
arms = [{ policy = "dc2b-calibrated" }, { policy = "random", label = "anything" }]
"""


def test_the_command_writes_the_bytes_that_this_process_would_write(pair: Machines, tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text(EXPERIMENT)
    command = ("run", path, "--data", "synthetic", "--out", tmp_path / "there")
    done = slatewise(*command, "--cluster", pair.address, "--json")
    assert done.returncode == 0, done.stderr
    experiment, dataset = load_experiment(path), load("synthetic")
    save_results(run(experiment, dataset), tmp_path / "here", experiment, dataset)
    files = {one.name: one.read_bytes() for one in (tmp_path / "here").iterdir()}
    assert files == {one.name: one.read_bytes() for one in (tmp_path / "there" / "records").iterdir()}
    assert len(files) == 3
    again = slatewise(*command, "--cluster", "tcp://127.0.0.1:1")
    assert again.returncode == 0, again.stderr
    assert "nothing is simulated again" in again.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["policy"] for row in rows] == ["dc2b-calibrated", "anything"]
    assert f"| anything | {rows[1]['p@10']:.4f} |" in again.stdout


def test_a_broadcast_is_not_kept_after_the_job() -> None:
    run(replace(SMALL, splits=1), DATASET)
    assert load_broadcast.cache_info().currsize == 0


def test_a_cluster_computes_the_same_taste_vectors(machines: Machines, tmp_path: Path) -> None:
    """Bit by bit, on two workers, one of which is killed; blocks of earlier passes are gone from the others."""
    parts = [ArrayPart(one.items, one.user_starts) for one in (DATASET.take(range(n, n + 50)) for n in (0, 50, 100))]
    likes = Likes.in_groups(150, np.bincount(DATASET.items, minlength=40), parts)
    here = taste_vectors(likes)
    machines.add_worker()
    doomed = machines.add_worker()
    machines.wait_for_workers(2)
    with Cluster(machines.address, lambda: None) as workers:
        there = taste_vectors(likes, products=on_workers(workers), on_pass=doomed.kill)
        assert workers.names == []
    assert np.array_equal(here, there)
    assert len(set(machines.arrived(1))) == PASSES + 1
    assert not list(tmp_path.rglob("slatewise-*"))
