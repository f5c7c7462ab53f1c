"""How long a full store takes to be brought up to date, and how long its writers are held up meanwhile.

`python -m benchmarks.migration --rows 10000000` fills tables of version 1 on a throw-away PostgreSQL server (a tenth of
the rows are users, the rest slates and answers), lets one writer go on as a worker of version 1 does, and migrates.
Then it divides the tables into hash partitions, as `slatewise store partition` does, while nobody writes.
"""

import argparse
import json
import threading
import time
from typing import Any

import psycopg

from benchmarks.people import drop_indexes
from slatewise.store import open_store
from slatewise.store.migrations import MIGRATIONS
from slatewise.store.postgres_partitions import partition_tables
from tests.support.postgres import throw_away_server

TABLES = ("users", "slates", "answers", "counts")
WRITE = "UPDATE slatewise.users SET n_slates = n_slates WHERE user_id = %s"
FILL = """
    INSERT INTO users SELECT 'user ' || n, 'stamp', 5, 5, 4, n FROM generate_series(1, %(users)s) n;
    INSERT INTO slates SELECT md5(n::text || 's'), 'user ' || 1 + n %% %(users)s, n / %(users)s, 1.7e9 + n, 'catalog',
        'dc2b-calibrated', '[1,2,3,4,5,6,7,8,9,10]', 0.5, 'closed', 1.7e9 + n, n
        FROM generate_series(0, 5 * %(users)s - 1) n;
    INSERT INTO answers (event_id, slate_id, user_id, clicked, retracted, final, received_at, checksum)
        SELECT md5(n::text || 'e'), md5(n::text || 's'), 'user ' || 1 + n %% %(users)s, '[1,2]', '[]', 1, 1.7e9 + n, n
        FROM generate_series(0, 4 * %(users)s - 1) n;
    INSERT INTO counts SELECT 'user ' || n, 'dc2b-calibrated', 5, 50, 8, 2.5 FROM generate_series(1, %(users)s) n
"""


def fill(url: str, n_rows: int) -> None:
    """Make the tables of version 1, with rows whose checksums nobody looks at."""
    with psycopg.connect(url) as connection:
        connection.execute("CREATE SCHEMA slatewise; SET search_path = slatewise")
        connection.execute(MIGRATIONS[0]["postgresql"])
        connection.execute("CREATE TABLE schema_version (version BIGINT NOT NULL)")
        connection.execute("INSERT INTO schema_version VALUES (1)")
        restored = [made for table in TABLES for made in drop_indexes(connection, table)]
        for statement in FILL.split(";"):
            connection.execute(psycopg.ClientCursor(connection).mogrify(statement, {"users": n_rows // 10}))
        for statement in restored:
            connection.execute(statement)


def write_until(halt: threading.Event, url: str, waits: list[float]) -> None:
    """Write one row after the other, and note how long each took."""
    with psycopg.connect(url, autocommit=True) as connection:
        while not halt.wait(0.002):
            started = time.monotonic()
            connection.execute(WRITE, ("user 1",))
            waits.append(time.monotonic() - started)


def measure(url: str, n_rows: int, n_partitions: int = 16) -> dict[str, Any]:
    """Fill, migrate while somebody writes, partition, and return what it took."""
    started, waits, halt = time.monotonic(), list[float](), threading.Event()
    fill(url, n_rows)
    filled = time.monotonic()
    writer = threading.Thread(target=write_until, args=(halt, url, waits))
    writer.start()
    open_store(url).close()
    migrated = time.monotonic()
    halt.set()
    writer.join()
    ordered = sorted(waits)
    joined = time.monotonic()
    partition_tables(url, n_partitions)
    partitioned = time.monotonic()
    return {
        "rows": n_rows,
        "fill_seconds": round(filled - started, 1),
        "migration_seconds": round(migrated - filled, 1),
        "writes_meanwhile": len(ordered),
        "write_p50_ms": round(1e3 * ordered[len(ordered) // 2], 2),
        "write_longest_ms": round(1e3 * ordered[-1], 1),
        "partitions": n_partitions,
        "partition_seconds": round(partitioned - joined, 1),
    }


def main() -> None:
    """Measure on a throw-away server."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.migration", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int, default=16)
    given = parser.parse_args()
    with throw_away_server() as server:
        print(json.dumps(measure(server.url, given.rows, given.partitions)))


if __name__ == "__main__":
    main()
