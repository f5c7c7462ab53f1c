"""The ways in which a PostgreSQL store can be set up, for tests of what every one of them promises."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from slatewise.store.postgres_partitions import partition_tables
from tests.conftest import missing
from tests.support.postgres import Server, free_port
from tests.support.store_rows import emptied, emptied_at

N_PARTITIONS = 3
SECONDS_TO_START = 10.0
CONFIGURATION = """
[databases]
postgres = host=127.0.0.1 port={server} dbname=postgres user=tester
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 12
server_reset_query =
"""


def plain(request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty store as it is made by default."""
    return emptied(request.getfixturevalue("postgres_server"))


def partitioned(request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty store, in a database of its own, whose tables are hash partitions."""
    server: Server = request.getfixturevalue("postgres_server")
    url = server.url.removesuffix("postgres") + "partitioned"
    with psycopg.connect(server.url, autocommit=True) as connection:
        is_new = not connection.execute("SELECT 1 FROM pg_database WHERE datname = 'partitioned'").fetchall()
        if is_new:
            connection.execute("CREATE DATABASE partitioned")
    if is_new:
        partition_tables(url, N_PARTITIONS)
    return emptied_at(url)


def pooled(request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty store behind PgBouncer, where every transaction may be on another connection."""
    emptied(request.getfixturevalue("postgres_server"))
    url: str = request.getfixturevalue("pgbouncer")
    return url


POSTGRES_KINDS: dict[str, Callable[[pytest.FixtureRequest], str]] = {
    "postgresql": plain,
    "postgresql-partitioned": partitioned,
    "postgresql-pgbouncer": pooled,
}


def url_of(kind: str, request: pytest.FixtureRequest, directory: Path) -> str:
    """Return the URL of an empty store: memory, sqlite, or one of POSTGRES_KINDS."""
    if kind in POSTGRES_KINDS:
        return POSTGRES_KINDS[kind](request)
    return {"memory": "memory://", "sqlite": f"sqlite:///{directory / 'slates.db'}"}[kind]


@contextmanager
def pgbouncer_to(server: Server) -> Iterator[str]:
    """Run PgBouncer in transaction mode in front of a server; yield its URL, or say that it is missing."""
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        missing("PgBouncer (apt-get install pgbouncer)")
    directory, port = Path(tempfile.mkdtemp(prefix="slatewise-pgbouncer-")), free_port()
    (directory / "settings.ini").write_text(CONFIGURATION.format(server=server.port, port=port), encoding="utf-8")
    if server.owner:
        shutil.chown(directory, server.owner)
    command = [program, "-q", str(directory / "settings.ini")]
    process = subprocess.Popen(  # noqa: S603
        command, user=server.owner, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    url = f"postgresql://tester@127.0.0.1:{port}/postgres"
    try:
        _wait_for(url)
        yield url
    finally:
        process.kill()  # SIGTERM waits for clients, of which a failed test may have left some, since PgBouncer 1.23
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _wait_for(url: str) -> None:
    until = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < until:
        with suppress(psycopg.OperationalError), psycopg.connect(url):
            return
        time.sleep(0.05)
    pytest.fail("PgBouncer did not start")
