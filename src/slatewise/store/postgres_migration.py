"""Bringing the tables of a PostgreSQL store up to date while workers of the version before go on serving.

Each step has an online part, whose statements are run one by one outside a transaction and only add to the tables, and
a script that changes their form in one short transaction. Building indexes is what takes long, and is online. A process
that is killed leaves some of them behind; the next one goes on from there.
"""

import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

from slatewise.store.migrations import MIGRATIONS, online_part, steps_from
from slatewise.store.postgres_connection import Address, connect_for_maintenance, translated
from slatewise.store.protocol import StoreError

Connection = psycopg.Connection[tuple[Any, ...]]

MIGRATION_LOCK = 0x736C6174
TRY_TO_MIGRATE = f"SELECT pg_try_advisory_xact_lock({MIGRATION_LOCK})"
"""Without parameters, which would keep its snapshot until the transaction ends and hold up the building of indexes."""
PAUSE = 0.1
"""Seconds between attempts to get a lock. Whoever waited inside a statement would hold up the building of indexes."""
TELL_EVERY = 2.0
MAX_ATTEMPTS = 100
LOCK_PATIENCE = "SET LOCAL lock_timeout = '1s'"
"""Behind a script that waits for a table everybody else waits, too; so it does not wait for long."""
BUILT = re.compile(r"INDEX CONCURRENTLY (\w+)")
IS_VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('slatewise.' || %s)"
N_BUILDING = (
    "SELECT count(*) FROM pg_stat_progress_create_index JOIN pg_class ON pg_class.oid = relid"
    " WHERE relnamespace = 'slatewise'::regnamespace"
)
PROGRESS = (
    "SELECT phase, CASE WHEN blocks_total > 0 THEN 100 * blocks_done / blocks_total"
    " WHEN tuples_total > 0 THEN 100 * tuples_done / tuples_total END FROM pg_stat_progress_create_index"
)


def migrate(address: Address, read_only: bool) -> None:
    """Bring the tables up to date, one process at a time; a reader expects them to be up to date."""
    with translated(address.where), connect_for_maintenance(address) as connection:
        version = _version(connection)
        if not steps_from(version, "postgresql", address.where):
            return
        if read_only:
            raise StoreError(
                f"{address.where} is empty or was written by an older slatewise; let a server open it once"
            )
        with migrating(address):
            for step in range(_version(connection), len(MIGRATIONS)):
                if _version(connection) == 0:
                    _create(connection)
                    return
                _run_online(connection, address, step)
                _run_script(connection, step)


@contextmanager
def migrating(address: Address) -> Iterator[Connection]:
    """Let no other process change the tables; the connection that is yielded holds the lock, in a transaction."""
    with connect_for_maintenance(address) as holder:
        while True:
            with holder.transaction():
                holder.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                if holder.execute(TRY_TO_MIGRATE).fetchall() == [(True,)]:
                    yield holder
                    return
            time.sleep(PAUSE)


def _create(connection: Connection) -> None:
    """Create the tables, in one transaction, as nobody uses them yet."""
    with connection.transaction():
        connection.execute("CREATE SCHEMA IF NOT EXISTS slatewise")
        connection.execute("SET LOCAL search_path = slatewise")
        for step in range(len(MIGRATIONS)):
            for statement in online_part(step):
                connection.execute(statement.replace(" CONCURRENTLY", ""))
            connection.execute(MIGRATIONS[step]["postgresql"])
        connection.execute("CREATE TABLE schema_version (version BIGINT NOT NULL)")
        connection.execute("INSERT INTO schema_version VALUES (%s)", (len(MIGRATIONS),))


def _run_online(connection: Connection, address: Address, step: int) -> None:
    """Run the online part of a step; an index that is there already is not built again."""
    statements = online_part(step)
    for number, statement in enumerate(statements):
        match = BUILT.search(statement)
        if match is None:
            connection.execute(statement)
        elif not _is_built(connection, match[1]):
            with _telling(address, f"step {number + 1} of {len(statements)}, index {match[1]}"):
                connection.execute(statement)


def _is_built(connection: Connection, index: str) -> bool:
    """Return whether an index is complete; what a process that was killed left of it is removed, once it stops."""
    while True:
        ((n_building,),) = connection.execute(N_BUILDING).fetchall()
        if not n_building:
            break
        time.sleep(PAUSE)
    is_valid = connection.execute(IS_VALID, (index,)).fetchall()
    if is_valid == [(False,)]:
        connection.execute(f"DROP INDEX CONCURRENTLY slatewise.{index}")
    return is_valid == [(True,)]


def _run_script(connection: Connection, step: int) -> None:
    """Change the form of the tables; whoever writes meanwhile goes first."""
    for attempt in range(MAX_ATTEMPTS):
        try:
            with connection.transaction():
                connection.execute("SET LOCAL search_path = slatewise")
                connection.execute(LOCK_PATIENCE)
                connection.execute(MIGRATIONS[step]["postgresql"])
                connection.execute("INSERT INTO schema_version VALUES (%s)", (step + 1,))
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            if attempt == MAX_ATTEMPTS - 1:
                raise
            time.sleep(PAUSE)
        else:
            return


@contextmanager
def _telling(address: Address, what: str) -> Iterator[None]:
    """Say on stderr how it goes, unless it is done soon.

    Each look is a transaction of its own. One that went on would keep the building of an index waiting for ever, if it
    looked just when that asks who else is looking at the tables.
    """
    done = threading.Event()

    def tell() -> None:
        if done.wait(TELL_EVERY):
            return
        with suppress(psycopg.Error), connect_for_maintenance(address) as watcher:
            while not done.is_set():
                progress = watcher.execute(PROGRESS).fetchall()
                phase, share = progress[0] if progress else ("starting", None)
                percent = "" if share is None else f" {share} %"
                message = f"slatewise: bringing the store up to date: {what}: {phase}{percent}"
                print(message, file=sys.stderr, flush=True)
                done.wait(TELL_EVERY)

    thread = threading.Thread(target=tell, name="slatewise-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _version(connection: Connection) -> int:
    if connection.execute("SELECT to_regclass('slatewise.schema_version')").fetchall()[0][0] is None:
        return 0
    return int(connection.execute("SELECT max(version) FROM slatewise.schema_version").fetchall()[0][0])
