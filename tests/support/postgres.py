"""A throw-away PostgreSQL server for tests: Debian's binaries, an unprivileged user, loopback only, fsync on."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from slatewise.store import StoreUnavailableError
from tests.conftest import missing
from tests.support.leftovers import RUN

ROOT_USER = 0


class Server:
    """A running server; it can be stopped and started again."""

    def __init__(self, binaries: Path, directory: Path) -> None:
        self.binaries = binaries
        self.directory = directory
        self.port = free_port()
        self.owner = "postgres" if os.geteuid() == ROOT_USER else None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"postgresql://tester@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int:
        """Its main process."""
        return int((self.directory / "data" / "postmaster.pid").read_text().split()[0])

    def run(self, program: str, *arguments: str) -> None:
        """Run one of its programs, not as root."""
        done = subprocess.run(  # noqa: S603
            [self.binaries / program, *arguments],
            user=self.owner,
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
            env={name: os.environ[name] for name in ("PATH", RUN) if name in os.environ} | {"LC_ALL": "C.UTF-8"},
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        """Start it and wait until it answers."""
        log = self.directory / "log"
        options = f"-p {self.port} -h 127.0.0.1 -k {self.directory} -c max_connections=60"
        self.run("pg_ctl", "-D", str(self.directory / "data"), "-l", str(log), "-o", options, "-w", "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop it: fast breaks all connections, immediate is like a crash."""
        self.run("pg_ctl", "-D", str(self.directory / "data"), "-m", mode, "-w", "stop")

    @contextmanager
    def stopped(self, *, postmaster: bool = True) -> Iterator[None]:
        """Stop all its processes as they are, so that they answer nothing; optionally not the one that forks others."""
        main = psutil.Process(self.pid)
        processes = [*main.children(recursive=True), *([main] if postmaster else [])]
        for process in processes:
            process.suspend()
        try:
            yield
        finally:
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.resume()


@contextmanager
def throw_away_server(place: Path | None = None) -> Iterator[Server]:
    """Yield a new server whose files are in a directory of that place, or say what is missing."""
    binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not binaries or (os.geteuid() == ROOT_USER and "postgres" not in {one.pw_name for one in pwd.getpwall()}):
        missing("a PostgreSQL server (/usr/lib/postgresql)")
    directory = Path(tempfile.mkdtemp(prefix="slatewise-postgres-", dir=place))
    server = Server(binaries[-1].parent, directory)
    if server.owner:
        shutil.chown(directory, server.owner)
    try:
        server.run("initdb", "-D", str(directory / "data"), "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync")
        server.start()
        yield server
    finally:
        if (directory / "data" / "postmaster.pid").exists():
            server.stop("immediate")
        shutil.rmtree(directory, ignore_errors=True)


def free_port() -> int:
    """Return a port that nobody listens on."""
    """Return a port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def until_it_works(attempt: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Repeat what fails because the store is away; return its result."""
    until = time.monotonic() + seconds
    while True:
        try:
            return attempt()
        except StoreUnavailableError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def wait_for(is_so: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait until something is so; fail if that takes too long."""
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.05)
