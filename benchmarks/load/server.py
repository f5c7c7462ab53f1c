"""Servers as they are run: processes of their own, which are started, awaited, watched and stopped."""

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import psutil

from benchmarks.measure import SOURCE, python, python_path
from slatewise.catalog import Catalog
from slatewise.data.synthetic import WorldSize, make_world

HOST = "127.0.0.1"
SQLITE = "sqlite"
START_SECONDS = 180.0
STOP_SECONDS = 30.0
PORTS = range(20_000, 32_000)
READY = f"GET /health/ready HTTP/1.0\r\nHost: {HOST}\r\n\r\n".encode()
SAVE = """
import pathlib, sys
from benchmarks.load.server import save_catalog
save_catalog(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
print("saved")
"""
WHERE = "import slatewise; print(slatewise.__file__)"


@dataclass(frozen=True)
class Launch:
    """How the service is started: catalog, policy, the source tree that holds its package, environment, and store.

    The store is a file of SQLite, or a new database on the PostgreSQL server that a URL names.
    """

    catalog: Path
    policy: str = "dc2b-calibrated"
    source: Path = SOURCE
    environment: Mapping[str, str] = field(default_factory=dict)
    store: str = SQLITE


@dataclass(frozen=True)
class Server:
    """A running server and, if it has one, the file of its store."""

    process: subprocess.Popen[bytes]
    port: int
    store: Path | None = None

    @property
    def host(self) -> str:
        """How requests name it."""
        return f"{HOST}:{self.port}"

    @property
    def resident_bytes(self) -> int:
        """Memory that the server holds now."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    @property
    def cpu_seconds(self) -> float:
        """Processor time of the server and of all processes that it has started, in steps of a clock tick."""
        return cpu_seconds(self.process.pid)

    @property
    def store_bytes(self) -> int:
        """Size of the store's file, without its write-ahead log."""
        return self.store.stat().st_size if self.store is not None else 0

    @property
    def wal_bytes(self) -> int:
        """Size of the store's write-ahead log."""
        wal = Path(f"{self.store}-wal")
        return wal.stat().st_size if wal.exists() else 0


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process and all those that it has started, also of those that ended."""
    owner = psutil.Process(pid)
    times = [owner.cpu_times(), *(child.cpu_times() for child in owner.children(recursive=True))]
    ended = times[0].children_user + times[0].children_system if pid != os.getpid() else 0.0
    family = times if pid != os.getpid() else times[:1]
    return float(ended + sum(one.user + one.system for one in family))


@contextmanager
def service(directory: Path, launch: Launch) -> Iterator[Server]:
    """Run the service with one worker on an empty store, without a rate limit; its log goes to a file."""
    file = directory / "slates.db" if launch.store == SQLITE else None
    with nullcontext(f"sqlite:///{file}") if file else new_database(launch.store) as store:
        arguments = ["-m", "slatewise", "serve", "--catalog", str(launch.catalog), "--policy", launch.policy]
        environment = {"PYTHONPATH": python_path(launch.source), "SLATEWISE_STORE": store, **launch.environment}
        with _process([*arguments, "--port"], directory, environment) as (process, port):
            yield Server(process, port, file)


@contextmanager
def new_database(url: str) -> Iterator[str]:
    """Create a database on a PostgreSQL server and drop it afterwards; yield its URL."""
    import psycopg

    name = f"slatewise_load_{secrets.token_hex(8)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            yield urlsplit(url)._replace(path=f"/{name}").geturl()
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def baseline(directory: Path) -> Iterator[Server]:
    """Run the baseline application."""
    with _process(["-m", "benchmarks.load.baseline_app"], directory, {"PYTHONPATH": python_path(SOURCE)}) as (
        process,
        port,
    ):
        yield Server(process, port)


@contextmanager
def _process(
    arguments: Sequence[str], directory: Path, environment: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run Python with a port as the last argument; yield the process and the port once the server is ready."""
    port = free_port()
    variables = {**os.environ, "SLATEWISE_RATE": "0", "OPENBLAS_NUM_THREADS": "1", **environment}
    with (directory / "server.log").open("ab") as log:
        command = [sys.executable, *arguments, str(port)]
        process = subprocess.Popen(command, env=variables, cwd=directory, stdout=log, stderr=log)  # noqa: S603
    try:
        wait_until_ready(process, port)
        yield process, port
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask a server to stop, and end it if it does not."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


def wait_until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    """Return once the server is ready; fail if it ends or takes too long."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            raise ChildProcessError(f"the server exited with {process.returncode} before it was ready; see its log")
        if _is_ready(port):
            return
        time.sleep(0.02)
    raise ChildProcessError(f"the server was not ready after {START_SECONDS:.0f} seconds; see its log")


def _is_ready(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=5.0) as connection:
            connection.sendall(READY)
            return b" 200 " in connection.recv(100)
    except OSError:
        return False


def free_port() -> int:
    """Return a port that nobody listens on, below those that systems lend to clients, so that it stays free."""
    while True:
        port = secrets.choice(PORTS)
        with suppress(OSError), socket.create_server((HOST, port)):
            return port


def check_source(source: Path) -> Path:
    """Return the absolute path of a source tree; refuse one whose package would not be the one that is served."""
    source = source.resolve()
    if not (source / "slatewise" / "__init__.py").is_file():
        raise ValueError(f"{source} does not hold the package slatewise; give the directory that does, as CHECKOUT/src")
    imported = Path(python(["-c", WHERE], source=source))
    if not imported.is_relative_to(source):
        raise ValueError(f"with {source} on PYTHONPATH slatewise is imported from {imported}; uninstall that one")
    return source


def save_catalog(directory: Path, n_items: int, rank: int = 50) -> None:
    """Save a catalog of a synthetic world: 18 categories, taste vectors of this rank."""
    world = make_world(WorldSize(n_users=1_000, n_items=n_items, n_categories=18, dim=rank))
    dataset = world.dataset
    names = np.array(dataset.category_names)
    categories = [names[row].tolist() for row in dataset.categories]
    ids = dataset.item_ids.tolist()
    Catalog.from_vectors(ids, world.vectors, categories=categories, interactions=dataset).save(directory)


def save_catalog_with(source: Path, directory: Path, n_items: int) -> None:
    """Save the same catalog with the code of a source tree, which may have a format of its own."""
    python(["-c", SAVE, str(directory), str(n_items)], source=source)
