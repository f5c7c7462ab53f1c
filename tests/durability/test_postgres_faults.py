"""PostgreSQL that freezes, breaks or crashes: writes fail in time, say what is unknown, and go on once it is back."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from slatewise.recommender import Recommender
from slatewise.store import StoreUnavailableError, postgres_batch, postgres_connection, postgres_pool, postgres_session
from slatewise.store.postgres import PostgresStore
from slatewise.store.protocol import StoreUncertainError, Transaction
from tests.support.postgres import Server, until_it_works, wait_for
from tests.support.postgres_proxy import Proxy, proxy_to
from tests.support.serving import local, small_catalog
from tests.support.store_rows import at_once, do, emptied, one_more

pytestmark = pytest.mark.slow

N_WRITES = 8
FOREVER = 600.0


@pytest.fixture
def proxy(postgres_server: Server) -> Iterator[Proxy]:
    emptied(postgres_server)
    with proxy_to(postgres_server) as one:
        yield one


@pytest.fixture
def store(proxy: Proxy) -> Iterator[PostgresStore]:
    opened = PostgresStore.open(proxy.url)
    at_once([lambda: do(opened, one_more("u"))] * N_WRITES)
    yield opened
    proxy.thaw()
    opened.close()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up a silent server sooner, so that the test takes less time."""
    monkeypatch.setattr(postgres_session, "MAX_SILENCE", 0.5)


def n_slates(server: Server, user: str) -> int:
    """What the server has about a user, whatever the store says."""
    with psycopg.connect(server.url) as connection:
        rows = connection.execute("SELECT n_slates FROM slatewise.users WHERE user_id = %s", (user,)).fetchall()
    return int(rows[0][0]) if rows else 0


@pytest.mark.usefixtures("hasty")
def test_connections_that_freeze_are_replaced(store: PostgresStore, proxy: Proxy) -> None:
    proxy.freeze()
    futures = [store.write(one_more(f"user {number}")) for number in range(N_WRITES)]
    errors = [future.exception(timeout=30) for future in futures]
    assert all(error is None or isinstance(error, StoreUnavailableError) for error in errors)
    assert until_it_works(lambda: do(store, one_more("v"))) == 1
    assert until_it_works(lambda: store.read(lambda t: t.lock("u"))).n_slates == N_WRITES


@pytest.mark.usefixtures("hasty")
def test_reading_from_connections_that_freeze_ends(store: PostgresStore, proxy: Proxy) -> None:
    proxy.freeze()
    with pytest.raises(StoreUnavailableError, match="no response"):
        store.read(lambda t: t.lock("u"))
    assert until_it_works(lambda: store.read(lambda t: t.lock("u"))).n_slates == N_WRITES


def test_a_store_that_cannot_write_does_not_say_that_it_is_healthy(
    store: PostgresStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connections of the writers are frozen, new ones work.

    The controls: with a patience that never ends, no write ends; and a health check that only reads would pass.
    """
    monkeypatch.setattr(postgres_session, "MAX_SILENCE", FOREVER)
    proxy.freeze()
    futures = [store.write(one_more(f"user {number}")) for number in range(N_WRITES)]

    def is_noticed() -> bool:
        try:
            store.health()
        except StoreUnavailableError:
            return True
        return False

    wait_for(is_noticed)
    assert not any(future.done() for future in futures)
    session = postgres_connection.connect(store.address)
    assert session.rows(session.send("SELECT 1")) == [(1,)]
    session.close()
    proxy.cut()
    for number, future in enumerate(futures):
        try:
            assert future.result(timeout=30) == 1
        except StoreUnavailableError:  # cut while it connected again: nothing was written, and it can be repeated
            assert until_it_works(lambda user=f"user {number}": do(store, one_more(user))) == 1  # type: ignore[misc]
    until_it_works(store.health)


@pytest.mark.usefixtures("hasty")
def test_the_service_is_not_ready_while_its_database_is_frozen(proxy: Proxy, tmp_path: Path) -> None:
    catalog = small_catalog()
    catalog.save(tmp_path / "catalog")
    recommender = Recommender(catalog, store=proxy.url)

    def status(method: str, path: str, **options: Any) -> int:
        return service.client.request(method, path, **options).status_code

    with local(tmp_path, recommender) as service:
        assert status("GET", "/health/ready") == 200
        proxy.freeze_everything()
        wait_for(lambda: status("GET", "/health/ready") == 503)
        assert status("POST", "/v1/slates", json={"user": "ann"}) == 503
        proxy.thaw()
        wait_for(lambda: status("POST", "/v1/slates", json={"user": "ann"}) == 201)
        assert status("GET", "/health/ready") == 200
    recommender.close()


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("postmaster", [True, False])
def test_a_server_that_is_stopped_is_said_and_its_return_noticed(
    store: PostgresStore, postgres_server: Server, postmaster: bool
) -> None:
    with postgres_server.stopped(postmaster=postmaster):
        futures = [store.write(one_more(f"user {number}")) for number in range(N_WRITES)]
        for future in futures:
            with suppress(StoreUnavailableError):
                future.result(timeout=30)
        if postmaster:
            for attempt in (lambda: do(store, one_more("v")), lambda: store.read(lambda t: t.lock("u")), store.health):
                with pytest.raises(StoreUnavailableError, match="cannot be reached"):
                    attempt()
    assert until_it_works(lambda: do(store, one_more("w"))) == 1
    until_it_works(store.health)


@pytest.mark.usefixtures("hasty")
def test_while_the_server_is_away_only_the_probe_tries_to_reach_it(store: PostgresStore, proxy: Proxy) -> None:
    """And it keeps trying at a steady pace, however long it takes: no ever longer pauses."""
    proxy.server.stop("immediate")
    try:
        with pytest.raises(StoreUnavailableError):
            do(store, one_more("u"))
        before = len(proxy.links)
        for _ in range(1_000):
            with pytest.raises(StoreUnavailableError):
                do(store, one_more("u"))
            with pytest.raises(StoreUnavailableError):
                store.read(lambda t: t.lock("u"))
        assert len(proxy.links) - before < 500
        wait_for(lambda: len(proxy.links) - before >= 12)
    finally:
        proxy.server.start()
    until_it_works(lambda: do(store, one_more("u")))


def test_a_pool_that_always_tries_to_connect_is_caught(
    store: PostgresStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: every write knocks at the door of a server that is away."""
    monkeypatch.setattr(postgres_pool.ConnectionPool, "stop_connecting", lambda _pool, _why: None)
    proxy.server.stop("immediate")
    try:
        before = len(proxy.links)
        for _ in range(50):
            with pytest.raises(StoreUnavailableError):
                do(store, one_more("u"))
        assert len(proxy.links) - before >= 50
    finally:
        proxy.server.start()


def write_after(store: PostgresStore, proxy: Proxy, outage: str, seconds: float) -> None:
    """Let the database freeze or stop for so long after a write failed; write within five seconds of its return."""
    if outage == "frozen":
        proxy.freeze_everything()
    else:
        proxy.server.stop("immediate")
    try:
        with pytest.raises((StoreUnavailableError, StoreUncertainError)):
            do(store, one_more("u"))
        time.sleep(seconds)
    finally:
        if outage == "frozen":
            proxy.thaw()
        else:
            proxy.server.start()
    until_it_works(lambda: do(store, one_more("u")), seconds=5.0)


@pytest.mark.parametrize("outage", ["frozen", "stopped"])
def test_the_first_write_succeeds_within_five_seconds_of_the_return(
    store: PostgresStore, proxy: Proxy, outage: str
) -> None:
    """An attempt may begin just before the server is back and get no response; the next one succeeds."""
    write_after(store, proxy, outage, 6.0)


def test_a_probe_that_pauses_for_long_is_caught(
    store: PostgresStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: pauses of a minute, as a store takes them that waits longer after every failure."""
    monkeypatch.setattr(postgres_pool, "PROBE_PAUSE", 60.0)
    with pytest.raises(StoreUnavailableError):
        write_after(store, proxy, "stopped", 1.0)


Break = Callable[[Proxy], None]
BREAKS: dict[str, Break] = {
    "responses are lost": lambda proxy: proxy.freeze("response"),
    "requests are lost": lambda proxy: proxy.freeze("request"),
    "the connection breaks": lambda proxy: proxy.cut(),
}


def contradiction(store: PostgresStore, proxy: Proxy, how: Break) -> str | None:
    """Break the connection when everything but the COMMIT was sent; return where the store and the server disagree."""

    def job(transaction: Transaction) -> None:
        one_more("v")(transaction)
        if not broken:
            broken.append(True)
            how(proxy)

    broken: list[bool] = []
    written: Future[Any] = store.write(job)
    error = written.exception(timeout=30)
    kept = n_slates(proxy.server, "v")
    if error is None and kept != 1:
        return f"acknowledged once, and the server has it {kept} times"
    if error is not None and not isinstance(error, StoreUncertainError) and kept:
        return "said not to be recorded, but it is"
    return None


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("how", BREAKS.values(), ids=list(BREAKS))
def test_what_is_unknown_about_a_commit_is_said(store: PostgresStore, proxy: Proxy, how: Break) -> None:
    assert contradiction(store, proxy, how) is None


@pytest.mark.usefixtures("hasty")
def test_a_store_that_calls_an_unknown_commit_failed_is_caught(
    store: PostgresStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_batch, "is_outcome_unknown", lambda _: False)
    assert contradiction(store, proxy, BREAKS["responses are lost"]) == "said not to be recorded, but it is"


def lost_in_crash(server: Server, n_users: int = 40) -> int:
    """Return how many acknowledged writes are gone after a crash of the server."""
    store = PostgresStore.open(emptied(server))
    until_it_works(store.health)
    futures = [store.write(one_more(f"user {number}")) for number in range(n_users)]
    for future in futures:
        future.result(timeout=30)
    server.stop("immediate")
    server.start()
    kept = sum(n_slates(server, f"user {number}") for number in range(n_users))
    until_it_works(lambda: do(store, one_more("another")))
    store.close()
    return n_users - kept


def test_what_was_acknowledged_survives_a_crash_of_the_server(postgres_server: Server) -> None:
    assert lost_in_crash(postgres_server) == 0


def test_a_store_that_lets_the_server_commit_lazily_is_caught(
    postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    lazily = "SELECT set_config('search_path', 'slatewise', true), set_config('synchronous_commit', 'off', true)"
    monkeypatch.setattr(postgres_session, "SETTINGS", lazily)
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
        connection.execute("SELECT pg_reload_conf()")
    try:
        assert any(lost_in_crash(postgres_server) for _ in range(5))
    finally:
        with psycopg.connect(postgres_server.url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM RESET wal_writer_delay")
            connection.execute("SELECT pg_reload_conf()")
