"""A million people with histories in PostgreSQL: storage per person, and slates for a random one next to a hot one.

`python -m benchmarks.people --people 1000000` lets some hundred people be served by the recommender itself, copies
their rows under other ids (with checksums of their own) into a throw-away server, and then asks for slates.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg

from benchmarks.machine import load_average, machine
from slatewise.catalog import Catalog
from slatewise.data.synthetic import WorldSize, make_world
from slatewise.recommender import Recommender
from slatewise.store import open_store
from slatewise.store.postgres_partitions import INDEXES, KEYS, USER_TABLES, partition_tables
from slatewise.store.protocol import Transaction
from slatewise.store.rows import (
    CHECKSUM_DIGITS,
    FEEDBACK,
    Values,
    belief_values,
    checksum,
    feedback_values,
    slate_values,
    to_json,
    user_values,
)
from slatewise.store.statements import FEEDBACK_COLUMNS, SLATE_COLUMNS, USER_COLUMNS
from tests.support.postgres import Server, throw_away_server

N_TEMPLATES, MEAN_SLATES, MAX_SLATES, K = 200, 4, 60, 10
CLICK_SHARE = 0.15
N_HOT = 50
COLUMNS = {
    "users": USER_COLUMNS,
    "beliefs": "user_id, key, covers, content, checksum",
    "slates": f"{SLATE_COLUMNS}, choice",
    "feedback": FEEDBACK_COLUMNS,
    "counts": "user_id, policy, slates, shown, clicks, variety, varied",
}
SERVER_SETTINGS = {"shared_buffers": "2GB", "maintenance_work_mem": "512MB", "max_wal_size": "8GB", "jit": "off"}
Rows = dict[str, list[Values]]


@dataclass(frozen=True)
class Template:
    """The rows of a person who was served, and the texts of how their slates were chosen."""

    user: Values
    belief: tuple[Values, bytes] | None
    slates: tuple[Values, ...]
    choices: tuple[str, ...]
    feedback: tuple[Values, ...]
    counts: tuple[Values, ...]

    def rows(self, number: int) -> Rows:
        """Return the rows of a person with the same history."""
        user, ids = f"person {number}", {slate[0]: f"{slate[0]}{number:x}" for slate in self.slates}
        slates = [_signed("slates", (ids[row[0]], user, *row[2:])) for row in self.slates]
        events = [_signed(FEEDBACK, (f"{row[0]}{number:x}", ids[row[1]], user, *row[3:])) for row in self.feedback]
        choices = [_choice(user, at, content) for at, content in enumerate(self.choices)]
        rows: Rows = {"users": [_signed("users", (user, *self.user[1:]))], "feedback": events}
        rows["slates"] = [(*row, choice) for row, choice in zip(slates, choices, strict=True)]
        rows["counts"] = [(user, *row) for row in self.counts]
        if self.belief is not None:
            (_, *head), content = self.belief
            rows["beliefs"] = [(user, *head, content, checksum("beliefs", (user, *head), content))]
        return rows


def _signed(table: str, values: Values) -> Values:
    return (*values, checksum(table, values))


def _choice(user: str, number: int, content: str) -> str:
    return f"{checksum('choices', (user, number, content)) % 2**64:0{CHECKSUM_DIGITS}x}{content}"


def make_catalog(n_items: int) -> Catalog:
    """Return a catalog of a synthetic world: 18 categories, taste vectors of rank 50."""
    world = make_world(WorldSize(n_users=1_000, n_items=n_items, n_categories=18, dim=50))
    names = np.array(world.dataset.category_names)
    categories = [names[row].tolist() for row in world.dataset.categories]
    ids = world.dataset.item_ids.tolist()
    return Catalog.from_vectors(ids, world.vectors, categories=categories, interactions=world.dataset)


def make_templates(catalog: Catalog) -> list[Template]:
    """Serve people of different histories, and return their rows."""
    draw, templates = np.random.default_rng(7), []
    with Recommender(catalog) as recommender:
        for number in range(N_TEMPLATES):
            user = f"template {number}"
            for event in range(min(int(draw.geometric(1.0 / MEAN_SLATES)), MAX_SLATES)):
                slate = recommender.recommend(user, K)
                clicked = [item.id for item in slate.items if draw.random() < CLICK_SHARE]
                recommender.feedback(slate.slate_id, clicked, event_id=f"{number:x}.{event:x}.", user=user)
            templates.append(recommender.store.read(lambda t, user=user: _template(t, user)))  # type: ignore[misc]
    return templates


def _template(t: Transaction, user: str) -> Template:
    slates, feedback, belief = t.slates_of(user), t.feedback_of(user), t.belief(user)
    kept = None
    if belief.content is not None:
        *head, content, _ = belief_values(belief)
        kept = (tuple(head), content)
    return Template(
        user_values(t.lock(user), (len(slates), len(feedback), 0))[:-1],
        kept,
        tuple(slate_values(one)[:-1] for one in slates),
        tuple(map(to_json, t.choices_of(user).values())),
        tuple(feedback_values(one)[:-1] for one in feedback),
        tuple(
            (policy, one.slates, one.shown, one.clicks, one.variety, one.varied)
            for policy, one in t.counts_of(user).items()
        ),
    )


def fill(url: str, templates: Sequence[Template], n_people: int) -> None:
    """Copy people into a store without its indexes, then make these again."""
    with psycopg.connect(url) as connection:
        connection.execute("SET search_path = slatewise")
        restored = [statement for table in USER_TABLES for statement in drop_indexes(connection, table)]
    with ExitStack() as stack:
        copies: dict[str, Callable[[Values], None]] = {}
        for table, columns in COLUMNS.items():
            connection = stack.enter_context(psycopg.connect(url))
            copy = stack.enter_context(connection.cursor().copy(f"COPY slatewise.{table} ({columns}) FROM STDIN"))
            copies[table] = copy.write_row
        for number in range(n_people):
            for table, rows in templates[number % len(templates)].rows(number).items():
                for row in rows:
                    copies[table](row)
            if number % 100_000 == 0:
                print(f"{number:,} people copied", file=sys.stderr, flush=True)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET search_path = slatewise")
        for statement in restored:
            connection.execute(statement)
        connection.execute("VACUUM ANALYZE")


def drop_indexes(connection: psycopg.Connection[Any], table: str) -> list[str]:
    """Drop the keys and indexes of a table; return the statements that make them."""
    keys = connection.execute(KEYS, (table,)).fetchall()
    indexes = connection.execute(INDEXES, (table,)).fetchall()
    for name, _ in keys:
        connection.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
    for (definition,) in indexes:
        connection.execute(f"DROP INDEX {definition.split(' INDEX ')[1].split()[0]}")
    made = [f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}" for name, definition in keys]
    return [*made, *(definition for (definition,) in indexes)]


def latencies(recommender: Recommender, users: Iterator[str], n_requests: int) -> tuple[list[float], float]:
    """Return how long slates took, one after the other, in milliseconds, and the CPU time of each in this process."""
    taken, cpu = [], time.process_time()
    for _, user in zip(range(n_requests), users, strict=False):
        started = time.perf_counter()
        recommender.recommend(user, K)
        taken.append(1e3 * (time.perf_counter() - started))
    return taken, 1e3 * (time.process_time() - cpu) / n_requests


def measure(server: Server, n_people: int, n_requests: int, n_partitions: int | None) -> dict[str, Any]:
    """Fill a store and return what it takes."""
    catalog = make_catalog(10_000)
    templates = make_templates(catalog)
    open_store(server.url).close()
    if n_partitions is not None:
        partition_tables(server.url, n_partitions)
    started = time.monotonic()
    fill(server.url, templates, n_people)
    seconds = time.monotonic() - started
    draw = np.random.default_rng(1)
    hot = [f"person {number}" for number in draw.integers(n_people, size=N_HOT)]
    rest = iter([f"person {number}" for number in draw.permutation(n_people)[: 2 * n_requests + 100]])
    found: dict[str, list[float]] = {"random": [], "hot": []}
    cpu: dict[str, list[float]] = {"random": [], "hot": []}
    with Recommender(catalog, store=server.url) as recommender:
        problems = [recommender._problem(next(rest)) for _ in range(100)]
        latencies(recommender, iter(hot), N_HOT)
        for _ in range(4):
            for kind, users in (("random", rest), ("hot", iter(hot * n_requests))):
                taken, each = latencies(recommender, users, n_requests // 4)
                found[kind] += taken
                cpu[kind].append(each)
        n_rebuilt = recommender.rebuilt
    return {
        "people": n_people,
        "partitions": n_partitions,
        "fill_seconds": round(seconds),
        "slates_per_person": round(float(np.mean([len(one.slates) for one in templates])), 2),
        "share_with_belief": float(np.mean([one.belief is not None for one in templates])),
        "bytes_of_belief": int(np.mean([len(one.belief[1]) for one in templates if one.belief is not None])),
        "bytes_per_person": sizes(server.url, n_people),
        "wrong_of_100": sum(problem is not None for problem in problems),
        "rebuilt": n_rebuilt,
        "slate_ms": {
            kind: {
                **{f"p{share}": round(float(np.percentile(taken, share)), 2) for share in (50, 99)},
                "cpu": round(min(cpu[kind]), 2),
            }
            for kind, taken in found.items()
        },
    }


def sizes(url: str, n_people: int) -> dict[str, int]:
    """Return the bytes per person of each table with its indexes."""
    size = (
        "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class WHERE oid = %(table)s::regclass"
        " OR oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = %(table)s::regclass)"
    )
    with psycopg.connect(url) as connection:
        found = {
            table: int(connection.execute(size, {"table": f"slatewise.{table}"}).fetchall()[0][0]) // n_people
            for table in COLUMNS
        }
    return {**found, "all": sum(found.values())}


def main() -> None:
    """Measure on a throw-away server."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.people", description=__doc__)
    parser.add_argument("--people", type=int, default=1_000_000)
    parser.add_argument(
        "--requests", type=int, default=4_000, help="slates for random people, and as many for hot ones"
    )
    parser.add_argument(
        "--partitions", type=int, help="hash partitions of each table; by default it is not partitioned"
    )
    given = parser.parse_args()
    before = load_average()
    with throw_away_server() as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            for name, setting in SERVER_SETTINGS.items():
                connection.execute(f"ALTER SYSTEM SET {name} = '{setting}'")
        server.stop()
        server.start()
        measured = measure(server, given.people, given.requests, given.partitions)
    print(json.dumps({"machine": machine(), "load_before": before, **measured}))


if __name__ == "__main__":
    main()
