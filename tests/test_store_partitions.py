"""Partitions by user: every key begins with the user, rows and indexes stay, and a lookup opens one partition."""

from collections.abc import Iterator
from operator import methodcaller

import psycopg
import pytest
from typer.testing import CliRunner

from slatewise.cli import app
from slatewise.store import StoreError, migrations, open_store, postgres_migration, postgres_pool, statements
from slatewise.store.postgres import PostgresStore
from slatewise.store.postgres_connection import Address, connect
from slatewise.store.postgres_partitions import USER_TABLES, partition_tables
from slatewise.store.postgres_session import Session, numbered
from tests.support.postgres import Server
from tests.support.store_rows import answer, do, emptied, event, fill, one_more, slate

SERVICE_TABLES = {"items", "item_table", "item_rates", "fits", "schema_version"}
"""What is about the whole service, whoever the people are."""
INDEXES = """
    SELECT table_.relname, index_.relname, pg_get_indexdef(indexrelid, 1, true), indisunique
    FROM pg_index JOIN pg_class table_ ON table_.oid = indrelid JOIN pg_class index_ ON index_.oid = indexrelid
    WHERE table_.relnamespace = 'slatewise'::regnamespace AND NOT table_.relispartition ORDER BY 2
"""


@pytest.fixture
def url(postgres_server: Server) -> Iterator[str]:
    """An empty store whose tables are removed afterwards."""
    yield emptied(postgres_server, tables_too=True)
    emptied(postgres_server, tables_too=True)


def asked(url: str, sql: str, *parameters: object) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        connection.execute("SET search_path = slatewise")
        return connection.execute(sql, parameters).fetchall()


def foreign_keys(url: str) -> list[str]:
    """The unique indexes of tables about people whose first column is not the user."""
    found = asked(url, INDEXES)
    return [
        str(index)
        for table, index, first, is_unique in found
        if table in USER_TABLES and is_unique and first != "user_id"
    ]


def test_every_key_of_a_table_about_people_begins_with_the_user(url: str) -> None:
    PostgresStore.open(url).close()
    tables = {name for (name,) in asked(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'slatewise'")}
    assert tables == {*USER_TABLES, *SERVICE_TABLES}
    assert {table for table, _, _, is_unique in asked(url, INDEXES) if is_unique} >= set(USER_TABLES)
    assert foreign_keys(url) == []
    assert (
        asked(url, "SELECT conname FROM pg_constraint WHERE contype = 'f' AND connamespace = 'slatewise'::regnamespace")
        == []
    )


def test_a_key_that_does_not_begin_with_the_user_is_caught(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: PostgreSQL itself refuses to partition such a table, and it stays as it was."""
    key = {"postgresql": "CREATE UNIQUE INDEX slates_by_one_id ON slates (slate_id)", "sqlite": ""}
    monkeypatch.setattr(migrations, "MIGRATIONS", [*migrations.MIGRATIONS, key])
    monkeypatch.setattr(postgres_migration, "MIGRATIONS", migrations.MIGRATIONS)
    store = PostgresStore.open(url)
    fill(store, ["u"])
    assert foreign_keys(url) == ["slates_by_one_id"]
    with pytest.raises(StoreError, match="partition"):
        partition_tables(url, 3)
    assert store.read(lambda t: len(t.slates_of("u"))) == 3
    store.close()


def test_rows_and_indexes_stay_whatever_the_number_of_partitions(url: str) -> None:
    """A store that is open meanwhile goes on with the new tables."""
    store, users = PostgresStore.open(url), [f"user {number}" for number in range(40)]
    fill(store, users)
    do(store, lambda t: t.add_event(event("user 7", 0)))
    before, indexes = [everything(store, user) for user in users], asked(url, INDEXES)
    for n_partitions in (4, 2, 4):
        partition_tables(url, n_partitions)
        assert asked(url, INDEXES) == indexes
        sizes = [asked(url, f"SELECT count(*) FROM slates_{number}")[0][0] for number in range(n_partitions)]  # noqa: S608
        assert sum(map(int, map(str, sizes))) == 3 * len(users)
        assert 0 not in sizes
        assert [everything(store, user) for user in users] == before
    assert do(store, one_more("user 7")) == 4
    store.close()


def everything(store: PostgresStore, user: str) -> object:
    return store.read(
        lambda t: (t.lock(user), t.slates_of(user), t.feedback_of(user), t.events_of(user), t.belief(user))
    )


def partitions_opened(url: str, sql: str, *parameters: object) -> set[str]:
    """The partitions that a statement reads or writes, by its plan."""
    with psycopg.connect(url) as connection:
        connection.execute("SET search_path = slatewise")
        bound = numbered(sql).decode()
        connection.execute(f"PREPARE asked AS {bound}")
        values = psycopg.sql.SQL(", ").join(map(psycopg.sql.Literal, parameters))
        plan = connection.execute(psycopg.sql.SQL("EXPLAIN EXECUTE asked ({})").format(values)).fetchall()
    lines = " ".join(str(line) for (line,) in plan)
    return {f"{table}_{number}" for table in USER_TABLES for number in range(8) if f" on {table}_{number} " in lines}


@pytest.mark.parametrize(
    ("sql", "parameters"),
    [
        (statements.LOCK_USER, ("u",)),
        (statements.FIND_BELIEF, ("u",)),
        (statements.SLATES_OF, ("u", 0, 9)),
        (statements.FEEDBACK_ON, ("u", "s")),
        (statements.FEEDBACK_OF, ("u", 0.0, "", 9)),
        (statements.EVENTS_OF, ("u", 0.0, "", 9)),
        (statements.UPDATE_SLATE, ("closed", 1.0, 7, "u", 0)),
    ],
)
def test_what_is_asked_about_a_user_opens_one_partition(url: str, sql: str, parameters: tuple[object, ...]) -> None:
    partition_tables(url, 8)
    assert len(partitions_opened(url, sql, *parameters)) == 1
    assert len(partitions_opened(url, statements.FIND_SLATE, "s")) == 8  # the control: this one names no user


def test_the_command_partitions_a_store(url: str) -> None:
    done = CliRunner().invoke(app, ["store", "partition", "5", "--store", url])
    assert done.exit_code == 0, done.output
    assert "copying slates (3 of 6 tables)" in done.output
    assert asked(url, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'slates'::regclass") == [(5,)]
    assert CliRunner().invoke(app, ["store", "partition", "5", "--store", "sqlite:///x.db"]).exit_code != 0
    assert CliRunner().invoke(app, ["store", "partition", "0", "--store", url]).exit_code != 0


def test_a_connection_through_a_pooler_is_told_apart(postgres_server: Server, pgbouncer: str) -> None:
    for url, prepares in ((postgres_server.url, True), (pgbouncer, False)):
        session = connect(Address.of(url))
        assert session.prepares == prepares
        session.close()


@pytest.mark.usefixtures("url")
def test_what_a_session_prepares_is_lost_behind_a_pooler(pgbouncer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a session that takes the pooler for a server."""

    def connected(address: Address) -> Session:
        session = connect(address)
        session.prepares = True
        return session

    monkeypatch.setattr(postgres_pool, "connect", connected)
    with pytest.raises(StoreError):
        use_many_connections(pgbouncer)


def use_many_connections(url: str) -> None:
    """Write by turns through several stores, so that every transaction may be on another connection."""
    stores = [open_store(url) for _ in range(4)]
    try:
        for number in range(40):
            one = stores[number % 4]
            do(one, methodcaller("add_slate", slate("w", number)))
            do(one, methodcaller("add_feedback", answer("w", number)))
    finally:
        for one in stores:
            one.close()


@pytest.mark.usefixtures("url")
def test_many_connections_through_a_pooler_work(pgbouncer: str) -> None:
    use_many_connections(pgbouncer)
