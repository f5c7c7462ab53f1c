"""What one person with a long history costs everybody else.

Others ask for slates at a constant rate, while that person does one thing over and over; each thing takes its turn on
the same service.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from urllib.parse import quote
from uuid import UUID

from benchmarks.load import open_loop, server
from benchmarks.load.compare import run_loop
from benchmarks.load.connection import Pool, Response, get, post
from benchmarks.load.load_test import CONNECTIONS, SLATES, Note, Plan, connected, prepare
from benchmarks.load.open_loop import Stream
from benchmarks.load.server import Launch, Server
from benchmarks.load.visitors import SLATE_SIZE, Visitors, ignore
from benchmarks.measure import python
from slatewise.catalog import Catalog
from slatewise.report import Table
from slatewise.store import open_store
from slatewise.store.protocol import FeedbackRecord, SlateRecord, Transaction, UserRecord
from slatewise.store.records import CLOSED, ItemId

PERSON = "person"
SLATES_PER_JOB = 250
N_WARM_UP = 200
PAUSE = 0.02
"""Seconds between two requests of the person, who is quick but not an attacker."""
POLICIES = ("c2ucb", "dc2b")
"""Asked for in turn, so that each time the whole history is learned again."""
FILL = """
import pathlib, sys
from benchmarks.load.histories import fill
fill(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3]))
print("filled")
"""

Requests = Iterator[bytes]


@dataclass
class Person:
    """What the person knows: where to ask, the items clicked on the slates of the history, the latest response."""

    host: str
    clicked: list[ItemId]
    latest: dict[str, object] = field(default_factory=dict)

    def slate(self, **options: object) -> bytes:
        """Return a request for a slate."""
        return post(self.host, "/v1/slates", json.dumps({"user": PERSON, "k": SLATE_SIZE, **options}).encode())

    def ask_for_slates(self) -> Requests:
        """Ask for one slate after another."""
        while True:
            yield self.slate()

    def replace_slates(self) -> Requests:
        """Have each slate replaced by the next."""
        while True:
            yield self.slate(replaces=self.latest.get("slate_id", "none"))

    def retract(self) -> Requests:
        """Take clicks back, the oldest first, and ask for a slate after each."""
        for number, item in enumerate(self.clicked):
            event = {"slate_id": slate_id(number), "retracted": [item], "user": PERSON}
            yield post(self.host, "/v1/feedback", json.dumps(event).encode())
            yield self.slate()

    def change_policies(self) -> Requests:
        """Ask for slates of another policy than before."""
        while True:
            for policy in POLICIES:
                yield self.slate(policy=policy)

    def view(self) -> Requests:
        """Look at what is believed about the person."""
        while True:
            yield get(self.host, f"/v1/users/{PERSON}")

    def export(self) -> Requests:
        """Export everything, page by page, over and over."""
        while True:
            after = self.latest.get("next")
            yield get(self.host, f"/v1/users/{PERSON}/export" + (f"?after={quote(str(after))}" if after else ""))


OPERATIONS: dict[str, Callable[[Person], Requests]] = {
    "nothing": lambda _: iter(()),
    "slates": Person.ask_for_slates,
    "slates that replace the one before": Person.replace_slates,
    "clicks taken back, oldest first, and a slate after each": Person.retract,
    "slates of another policy than before": Person.change_policies,
    "view of the belief": Person.view,
    "export, in pages of 1,000 rows": Person.export,
}


def measure(plan: Plan, launch: Launch, directory: Path, history: int, note: Note) -> Table:
    """Fill a store with one long history, serve it, and measure everybody else during each operation."""
    note(f"writing a history of {history:,} slates")
    python(["-c", FILL, str(directory / "slates.db"), str(launch.catalog), str(history)], source=launch.source)
    items = _items(launch.catalog)
    clicked, rows = [_record(number, items, 0.0).items[0] for number in range(history)], list[tuple[str, ...]]()
    with server.service(directory, launch) as target:
        run_loop(prepare(target, Visitors(target.host, "warm-up"), N_WARM_UP))
        for name in OPERATIONS:
            rows.append(_run(plan, target, Person(target.host, clicked), name))
            note(" | ".join(rows[-1]))
    caption = f"others ask for {plan.slates:g} slates/s while one person with {history:,} slates does something"
    columns = ("the person asks for", "others: median, ms", "p99, ms", "longest, ms", "failed")
    return Table("histories", caption, (*columns, "requests of the person", "median, ms", "longest, ms"), tuple(rows))


def _run(plan: Plan, target: Server, person: Person, name: str) -> tuple[str, ...]:
    return run_loop(_during(plan, target, person, name))


async def _during(plan: Plan, target: Server, person: Person, name: str) -> tuple[str, ...]:
    """Measure everybody else, and the requests of the person, during one operation."""
    visitors = Visitors(target.host, f"others during {name}")
    stream = Stream(SLATES, plan.slates, visitors.next_slate, ignore)
    async with connected(target, CONNECTIONS) as pool, connected(target, 1) as own:
        await own.fetch(person.slate())
        task = asyncio.create_task(_repeat(own, person, OPERATIONS[name](person), plan.seconds))
        record = (await open_loop.run(pool, [stream], plan.seconds))[0]
        waits = await task
    found = record.summary()
    others = (found["p50_ms"], found["p99_ms"], found["max_ms"])
    mine = (1000 * median(waits), 1000 * max(waits)) if waits else ()
    cells = [f"{value:.0f}" for value in (*others, found["failed"])] + [f"{len(waits)}"]
    return (name, *cells, *(f"{value:.0f}" for value in mine), *([] if mine else ["–", "–"]))


async def _repeat(pool: Pool, person: Person, requests: Requests, seconds: float) -> list[float]:
    """Send requests one after the other for so long; return how long each took."""
    waits, until = list[float](), time.perf_counter() + seconds
    for request in requests:
        sent = time.perf_counter()
        if sent > until:
            break
        response: Response = await pool.fetch(request)
        if not response.is_ok:
            raise ChildProcessError(f"a request of the person got {response.status}: {response.body[:200]!r}")
        waits.append(time.perf_counter() - sent)
        person.latest = json.loads(response.body)
        await asyncio.sleep(PAUSE)
    return waits


def fill(path: Path, catalog: Path, number: int) -> None:
    """Write a history of slates, each with a click on its first item, into a new store."""
    items = _items(catalog)
    store, began = open_store(f"sqlite:///{path}"), time.time() - 60.0 * number - 86_400.0
    for first in range(0, number, SLATES_PER_JOB):
        records = [_record(at, items, began) for at in range(first, min(first + SLATES_PER_JOB, number))]
        store.write(partial(_add, records=records)).result()
    store.close()


def slate_id(number: int) -> str:
    """Return the id of a slate of the history."""
    return f"history-{number}"


def _items(catalog: Path) -> list[ItemId]:
    return [item for item in Catalog.load(catalog).item_ids if not isinstance(item, UUID)]


def _record(number: int, items: list[ItemId], began: float) -> SlateRecord:
    shown = tuple(items[(SLATE_SIZE * number + at) % len(items)] for at in range(SLATE_SIZE))
    created = began + 60.0 * number
    return SlateRecord(
        slate_id(number), PERSON, number, created, "catalog", "dc2b-calibrated", shown, 0.5, CLOSED, created + 30.0
    )


def _add(transaction: Transaction, records: list[SlateRecord]) -> None:
    for slate in records:
        transaction.add_slate(slate)
        event_id, at = f"{slate.slate_id}-click", slate.created_at + 20.0
        transaction.add_feedback(FeedbackRecord(event_id, slate.slate_id, PERSON, slate.items[:1], (), True, at))
    last = records[-1]
    transaction.save_user(UserRecord(PERSON, last.slate_id, last.number + 1, last.created_at + 30.0))
