"""Processor time of the server per request of each kind: what a busy machine hardly changes, unlike response times."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.load import server
from benchmarks.load.compare import Runs, by_turns, turns_table
from benchmarks.load.connection import Pool
from benchmarks.load.load_test import Note, Plan, connected
from benchmarks.load.server import Launch, Server
from benchmarks.load.visitors import Visitors
from slatewise.report import Table

CLIENTS = 8
USERS, MORE_THAN_CACHED = 400, 2_200
SETTLE_SECONDS = 1.5
"""What is learned from everyone follows a second later, and belongs to the requests before."""
EXPIRE_SECONDS = 20.0
KINDS = {
    "new": "slate of somebody new",
    "known": "slate of somebody known, who ignored the last one",
    "click": "feedback: one click of several",
    "final": "feedback: the last click",
    "answered": "slate after an answered one",
    "not_cached": "slate of somebody known who is not cached",
    "close": "closing an expired slate",
}


def compare(
    plan: Plan, launches: Mapping[str, Launch], directory: Path, note: Note
) -> dict[str, list[dict[str, float]]]:
    """Measure each launch once per run."""
    return by_turns(list(launches), plan.runs, directory, lambda name, folder: measure(launches[name], folder), note)


async def measure(launch: Launch, directory: Path) -> dict[str, float]:
    """Return the milliseconds of processor time per request of each kind."""
    expiring = Launch(launch.catalog, launch.policy, launch.source, {"SLATEWISE_REWARD_WAIT": str(EXPIRE_SECONDS)})
    costs: dict[str, float] = {}
    with server.service(directory, expiring) as target:
        async with connected(target, CLIENTS) as pool:
            users, others = (Visitors(target.host, name, USERS, events=3) for name in ("cost", "others"))
            await _send(pool, others.next_slate, others.receive, USERS)
            for kind in ("new", "known"):
                users.pending.clear()
                costs[kind] = await _cost(target, pool, users.next_slate, users.receive, USERS)
            clicks = [event for event in users.pending if not event[2]]
            finals = [event for event in users.pending if event[2]]
            for kind, events in (("click", clicks), ("final", finals)):
                users.pending.clear()
                users.pending.extend(events)
                costs[kind] = await _cost(target, pool, users.next_feedback, _ignore, len(events))
            costs["answered"] = await _cost(target, pool, users.next_slate, users.receive, USERS)
            many = Visitors(target.host, "many", MORE_THAN_CACHED, events=0)
            await _send(pool, many.next_slate, _ignore, MORE_THAN_CACHED)
            costs["not_cached"] = await _cost(target, pool, users.next_slate, users.receive, USERS)
            before = target.cpu_seconds
            await asyncio.sleep(EXPIRE_SECONDS + (MORE_THAN_CACHED + 2 * USERS) / 200.0)
            costs["close"] = 1000.0 * (target.cpu_seconds - before) / (MORE_THAN_CACHED + USERS)
    return {kind: round(milliseconds, 3) for kind, milliseconds in costs.items()}


async def _cost(
    target: Server, pool: Pool, request: Callable[[], bytes | None], receive: Callable[..., None], number: int
) -> float:
    """Return the milliseconds per request, with what the server does in the background soon after."""
    await asyncio.sleep(SETTLE_SECONDS)
    before = target.cpu_seconds
    await _send(pool, request, receive, number)
    await asyncio.sleep(SETTLE_SECONDS)
    return 1000.0 * (target.cpu_seconds - before) / number


async def _send(pool: Pool, request: Callable[[], bytes | None], receive: Callable[..., None], number: int) -> None:
    """Send so many requests, a few at a time."""
    left = iter(range(number))

    async def client() -> None:
        for _ in left:
            content = request()
            if content is None:
                raise RuntimeError("there is no slate left to click on")
            response = await pool.fetch(content)
            if not response.is_ok:
                raise ChildProcessError(f"a request failed with status {response.status}; see the server's log")
            receive(response)

    await asyncio.gather(*(client() for _ in range(CLIENTS)))


def _ignore(_: object) -> None:
    """Take no notice of a response."""


def cost_table(runs: Runs) -> Table:
    """Lay out the figures of source trees."""
    caption = "processor time of the server per request, in milliseconds, by turns; median (all runs)"
    return turns_table("cost", caption, KINDS, runs)
