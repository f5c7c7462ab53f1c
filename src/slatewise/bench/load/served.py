"""Servers as they are run: processes of their own, which are started, waited for, watched and stopped."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from slatewise.catalog import Catalog
from slatewise.data.synthetic import WorldSize, make_world

HOST = "127.0.0.1"
START_SECONDS = 60.0
PORTS = range(20_000, 32_000)
READY = f"GET /health/ready HTTP/1.0\r\nHost: {HOST}\r\n\r\n".encode()


@dataclass(frozen=True)
class Served:
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
    def wal_bytes(self) -> int:
        """Size of the store's write-ahead log."""
        wal = Path(f"{self.store}-wal")
        return wal.stat().st_size if wal.exists() else 0


@contextmanager
def slatewise(directory: Path, catalog: Path, policy: str) -> Iterator[Served]:
    """Run the service with one worker and a SQLite store, without a limit of requests; its log goes to a file."""
    store = directory / "slates.db"
    words = ["-m", "slatewise", "serve", "--catalog", str(catalog), "--store", f"sqlite:///{store}"]
    with _running([*words, "--policy", policy], ("--port",), directory) as (process, port):
        yield Served(process, port, store)


@contextmanager
def bare(directory: Path) -> Iterator[Served]:
    """Run the bare routes."""
    with _running(["-m", "slatewise.bench.load.bare"], (), directory) as (process, port):
        yield Served(process, port)


@contextmanager
def _running(
    words: Sequence[str], before_port: Sequence[str], directory: Path
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    port = free_port()
    environment = {**os.environ, "SLATEWISE_RATE": "0", "OPENBLAS_NUM_THREADS": "1"}
    with (directory / "server.log").open("ab") as log:
        command = [sys.executable, *words, *before_port, str(port)]
        process = subprocess.Popen(command, env=environment, cwd=directory, stdout=log, stderr=log)  # noqa: S603
    try:
        wait_until_ready(process, port)
        yield process, port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def wait_until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    """Return once the server answers; fail if it ends or takes too long."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            raise ChildProcessError(f"the server ended with {process.returncode} before it was ready; see its log")
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


def save_catalog(directory: Path, n_items: int, rank: int = 50) -> None:
    """Save a catalogue of a synthetic world: 18 categories, taste vectors of this rank."""
    world = make_world(WorldSize(n_users=1_000, n_items=n_items, n_categories=18, dim=rank))
    people = world.dataset
    names = np.array(people.category_names)
    groups = [names[row].tolist() for row in people.categories]
    Catalog.from_vectors(people.item_ids.tolist(), world.vectors, categories=groups, interactions=people).save(
        directory
    )
