"""A store of an older version is brought up to date while clients are asking already, and while it is killed."""

import json
import os
import random
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import apsw
import psycopg
import pytest

from benchmarks.load.server import free_port
from slatewise.catalog import Catalog
from slatewise.evidence import Attention
from slatewise.recommender import Recommender
from slatewise.service.server import listen, run_server
from slatewise.service.settings import load_settings
from slatewise.store import StoreDamagedError, StoreError, open_store
from slatewise.store.migrations import MIGRATIONS
from tests.support.notes import Notes, complaints
from tests.support.old_store import EXPECTED, FIXTURE, USERS, copied_store, notes_of_old_clients
from tests.support.postgres import Server, wait_for
from tests.support.served import FORKS, Caller, Place
from tests.support.visitors import Visitor

NOT_READY_YET = {0, 503}
N_CLIENTS = 4
N_NEW_EVENTS = 40
DIALECTS = ("sqlite", "postgresql")
PAUSE_LOCK = 0x70617573
WITH_COMPILING = 120.0


class OldStore(Protocol):
    """A copy of the old store; a process that migrates it stops in the middle until it is let go."""

    url: str
    pause: str
    all_versions: list[int]

    def is_paused(self) -> bool: ...

    def let_go(self) -> None: ...

    def versions(self) -> list[int]: ...


@dataclass
class OldSqlite:
    """The migration calls a function that waits for a file."""

    url: str
    directory: Path
    pause: str = "SELECT pause()"
    all_versions: list[int] = field(default_factory=lambda: [1, len(MIGRATIONS)])

    def is_paused(self) -> bool:
        return (self.directory / "paused").exists()

    def let_go(self) -> None:
        (self.directory / "go").touch()

    def versions(self) -> list[int]:
        with closing(apsw.Connection(str(self.directory / "slates.db"))) as connection:
            return [1, int(connection.pragma("user_version"))]


@dataclass
class OldPostgres:
    """The migration waits for a lock that the test holds."""

    url: str
    holder: psycopg.Connection[tuple[Any, ...]]
    pause: str = f"SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock({PAUSE_LOCK})"
    all_versions: list[int] = field(default_factory=lambda: [*range(1, len(MIGRATIONS) + 1)])

    def n_waiting_for(self, lock: int) -> int:
        asked = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND NOT granted"
        return int(self.holder.execute(asked, (lock,)).fetchall()[0][0])

    def is_paused(self) -> bool:
        return self.n_waiting_for(PAUSE_LOCK) > 0

    def let_go(self) -> None:
        self.holder.execute("SELECT pg_advisory_unlock(%s)", (PAUSE_LOCK,))

    def versions(self) -> list[int]:
        return [version for (version,) in self.holder.execute("SELECT version FROM slatewise.schema_version")]

    def n_connections(self) -> int:
        """The connections of others, such as those who migrate or want to, each of which has two."""
        asked = (
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        return int(self.holder.execute(asked).fetchall()[0][0])


@pytest.fixture(params=["sqlite", "postgresql"])
def old_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OldStore]:
    if request.param == "sqlite":
        with copied_store(tmp_path, None) as url:
            yield OldSqlite(url, tmp_path)
        return
    server: Server = request.getfixturevalue("postgres_server")
    with copied_store(tmp_path, server) as url, psycopg.connect(url, autocommit=True) as holder:
        holder.execute("SELECT pg_advisory_lock(%s)", (PAUSE_LOCK,))
        yield OldPostgres(url, holder)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    shutil.copytree(FIXTURE / "catalog", tmp_path / "catalog")
    return Place(tmp_path, free_port())


# --- what runs in processes of its own


def pause_after(share: float, directory: Path, pause: str) -> None:
    """Stop this process, when it migrates, after a share of the statements of the first step from version 1."""
    for dialect in DIALECTS:
        script = MIGRATIONS[1][dialect]
        statements = script.strip().rstrip(";").split(";")
        statements.insert(round(share * len(statements)), pause)
        MIGRATIONS[1][dialect] = ";".join(statements)

    def wait(*_: Any) -> None:
        (directory / "paused").touch()
        while not (directory / "go").exists():
            time.sleep(0.005)

    apsw.connection_hooks.append(lambda connection: connection.create_scalar_function("pause", wait))


def migrate(place: Place, url: str, pause: tuple[float, str]) -> None:
    """Bring the store up to date."""
    share, statement = pause
    pause_after(share, place.directory, statement)
    open_store(url).close()


def serve(place: Place, url: str, pause: str) -> None:
    """Serve as the command does: listen, bring the store up to date, and answer."""
    log = os.open(place.directory / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    pause_after(0.5, place.directory, pause)
    settings = load_settings({"catalog": place.catalog, "port": place.port, "rate": 0.0})
    with listen(settings) as listener:
        run_server(settings, listener, opened(place, url))


# --- clients, and what they find


def opened(place: Place, url: str) -> Recommender:
    """The old version took everything on a slate as seen."""
    return Recommender(Catalog.load(place.catalog), EXPECTED["shares"], url, attention=Attention())


def ask_until(halt: threading.Event, visitor: Visitor) -> None:
    """Ask again and again, whether there is a service or not."""
    with Caller(visitor.place) as caller:
        while not halt.is_set():
            if not visitor.take_one(caller):
                time.sleep(0.01)


@contextmanager
def asking(places: list[Place], notes: Notes) -> Iterator[list[Visitor]]:
    """Let clients of all old users ask, in turn at each place."""
    halt = threading.Event()
    visitors = [Visitor(places[at % len(places)], notes, tuple(USERS), random.Random(at)) for at in range(N_CLIENTS)]
    threads = [threading.Thread(target=ask_until, args=(halt, visitor)) for visitor in visitors]
    for thread in threads:
        thread.start()
    try:
        yield visitors
    finally:
        halt.set()
        for thread in threads:
            thread.join()


@contextmanager
def serving(places: list[Place], old_store: OldStore) -> Iterator[list[Any]]:
    """Services that are not started yet; whichever were are stopped at the end, whatever happened."""
    services = [FORKS.Process(target=serve, args=(one, old_store.url, old_store.pause), daemon=True) for one in places]
    try:
        yield services
    finally:
        for service in services:
            if service.pid is not None:
                service.terminate()
                service.join()


def wrong_in(place: Place, url: str, notes: Notes) -> list[str]:
    """Return what is lost, repeated or wrong in a store that has been brought up to date."""
    with opened(place, url) as recommender:
        found = complaints(notes, {user: json.loads(json.dumps(recommender.export(user))) for user in USERS})
        return found + recommender.store.check() + [str(words) for _, words in recommender.verify() if words]


@pytest.mark.slow
def test_clients_that_ask_meanwhile_lose_nothing(old_store: OldStore, place: Place) -> None:
    """On PostgreSQL a second process starts in the middle; it waits, and does not migrate again."""
    notes = notes_of_old_clients()
    n_slates, n_events, n_asked = len(notes.slates), len(notes.acknowledged), notes.asked.total()
    places = [place, replace(place, port=free_port())] if isinstance(old_store, OldPostgres) else [place]
    with serving(places, old_store) as services, asking(places, notes) as visitors:
        services[0].start()
        wait_for(old_store.is_paused)
        if isinstance(old_store, OldPostgres):
            before = old_store.n_connections()
            services[1].start()
            wait_for(lambda: old_store.n_connections() >= before + 2)
        wait_for(lambda: notes.asked.total() >= n_asked + N_CLIENTS)
        assert len(notes.slates) == n_slates
        old_store.let_go()
        wait_for(lambda: len(notes.acknowledged) >= n_events + N_NEW_EVENTS, WITH_COMPILING)
    assert set().union(*(visitor.refusals for visitor in visitors)) <= NOT_READY_YET, place.log
    assert old_store.versions() == old_store.all_versions
    assert wrong_in(place, old_store.url, notes) == []


def killed_in_the_middle(place: Place, old_store: OldStore, share: float, pause: str) -> None:
    """Start to migrate, and end that process as a power cut would."""
    process = FORKS.Process(target=migrate, args=(place, old_store.url, (share, pause)), daemon=True)
    process.start()
    wait_for(old_store.is_paused)
    process.kill()
    process.join()
    old_store.let_go()


@pytest.mark.parametrize("share", [0.6, 1.0])
def test_a_kill_in_the_middle_leaves_the_old_store(old_store: OldStore, place: Place, share: float) -> None:
    killed_in_the_middle(place, old_store, share, old_store.pause)
    assert wrong_in(place, old_store.url, notes_of_old_clients()) == []
    assert old_store.versions() == old_store.all_versions


def test_a_migration_that_commits_halfway_is_caught(old_store: OldStore, place: Place) -> None:
    """Negative control: what is half done cannot be opened."""
    killed_in_the_middle(place, old_store, 0.6, f"COMMIT; {old_store.pause}")
    with pytest.raises(StoreError):
        opened(place, old_store.url)


def test_a_migration_that_loses_a_row_is_caught(
    old_store: OldStore, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control of the comparison."""
    lossy = "DELETE FROM answers WHERE event_id = 'dan 3 1';"
    for dialect in DIALECTS:
        monkeypatch.setitem(MIGRATIONS[1], dialect, f"{lossy} {MIGRATIONS[1][dialect]}")
    with pytest.raises(StoreDamagedError, match="24 rows where 25 were written"):
        wrong_in(place, old_store.url, notes_of_old_clients())
