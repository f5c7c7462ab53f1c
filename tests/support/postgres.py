"""A throw-away PostgreSQL server for tests: Debian's binaries, an unprivileged user, loopback only, fsync on."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import missing

ROOT_USER = 0


class Server:
    """A running server; it can be stopped and started again."""

    def __init__(self, binaries: Path, directory: Path) -> None:
        self.binaries = binaries
        self.directory = directory
        self.port = _free_port()
        self.owner = "postgres" if os.geteuid() == ROOT_USER else None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"postgresql://tester@127.0.0.1:{self.port}/postgres"

    def run(self, program: str, *arguments: str) -> None:
        """Run one of its programs, not as root."""
        done = subprocess.run(  # noqa: S603
            [self.binaries / program, *arguments],
            user=self.owner,
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
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
def throw_away_server() -> Iterator[Server]:
    """Yield a new server, or say what is missing."""
    binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not binaries or (os.geteuid() == ROOT_USER and "postgres" not in {one.pw_name for one in pwd.getpwall()}):
        missing("a PostgreSQL server (/usr/lib/postgresql)")
    directory = Path(tempfile.mkdtemp(prefix="slatewise-postgres-"))
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


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
