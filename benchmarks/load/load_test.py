"""What `make load` measures, in the order in which it runs, and the bounds that it has to keep."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.figures import Bound, at_most
from benchmarks.load import closed_loop, health_probe, open_loop, server
from benchmarks.load.closed_loop import Throughput
from benchmarks.load.connection import Pool
from benchmarks.load.health_probe import Waits
from benchmarks.load.open_loop import Record, Stream
from benchmarks.load.server import HOST, Launch, Server
from benchmarks.load.visitors import Visitors, ignore

SLATES, FEEDBACKS, HEALTH = "slates", "feedbacks", "health"
BOUNDS: dict[str, Bound] = {SLATES: at_most(30.0), FEEDBACKS: at_most(50.0)}
"""The 99th percentile of a stream in milliseconds, by itself and with the other."""
CLICKS_PER_SLATE = 5
CONNECTIONS = 64
TURN_SECONDS = 1.0


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    slates: float = 300.0
    feedbacks: float = 500.0
    seconds: float = 20.0
    runs: int = 3
    clients: int = 32

    @property
    def events(self) -> float:
        """Feedback events per slate: with more of them than are sent, clicks would come ever later."""
        return self.feedbacks / self.slates


@dataclass(frozen=True)
class Row:
    """A figure for people: what, how much, its bound and whether it is kept, if it has one."""

    label: str
    measured: str
    bound: Bound | None = None
    is_met: bool = True

    def cells(self) -> tuple[str, str, str, str]:
        """Return the row of a table."""
        verdict = "" if self.bound is None else "met" if self.is_met else "missed"
        return self.label, self.measured, str(self.bound or ""), verdict


Note = Callable[[str], None]
Run = dict[str, dict[str, float]]
"""The summary of each stream by its name."""


async def measure(plan: Plan, launch: Launch, directory: Path, note: Note) -> dict[str, Any]:
    """Start the service on an empty store and the baseline application, measure, and return all runs."""
    with server.service(directory, launch) as ours, server.baseline(directory) as baseline:
        separate, mixed = [], []
        for number in range(plan.runs):
            note(f"run {number + 1} of {plan.runs}: at a constant rate for {plan.seconds:g} s, three times")
            separate.append({**await slates_only(ours, plan, number), **await feedbacks_only(ours, plan, number)})
            mixed.append(await mixed_load(ours, plan, f"mixed-{number}"))
        note(f"as many requests as it takes, in turn with the baseline application: {plan.runs} times")
        throughput = [await _against_baseline(ours, baseline, plan, number) for number in range(plan.runs)]
        size = ours.store_bytes
    return {"separate": separate, "mixed": mixed, "throughput": throughput, "store_bytes": size}


async def slates_only(target: Server, plan: Plan, number: int) -> Run:
    """Measure a thousand visitors who ask for slates and never click."""
    visitors = Visitors(target.host, f"slates-{number}")
    return summaries(await record(target, [Stream(SLATES, plan.slates, visitors.next_slate, ignore)], plan.seconds))


async def feedbacks_only(target: Server, plan: Plan, number: int) -> Run:
    """Measure visitors who have a slate each and click it item by item; enough of them for the whole time."""
    slates = round(plan.feedbacks * plan.seconds / CLICKS_PER_SLATE)
    visitors = Visitors(target.host, f"feedbacks-{number}", slates, events=CLICKS_PER_SLATE)
    await prepare(target, visitors, slates)
    stream = Stream(FEEDBACKS, plan.feedbacks, visitors.next_feedback, ignore)
    return summaries(await record(target, [stream], plan.seconds))


async def mixed_load(target: Server, plan: Plan, name: str) -> Run:
    """Measure a thousand visitors who ask for slates and click them, and how late /health/live responds meanwhile."""
    visitors = Visitors(target.host, name, events=plan.events)
    await prepare(target, visitors, min(1_000, round(plan.feedbacks)))
    records, waits = await asyncio.gather(
        record(target, mixed_streams(visitors, plan), plan.seconds), watch_health(target, plan.seconds)
    )
    return {**summaries(records), HEALTH: waits.summary()}


def mixed_streams(visitors: Visitors, plan: Plan) -> list[Stream]:
    """Return slates and feedbacks of the same visitors."""
    return [
        Stream(SLATES, plan.slates, visitors.next_slate, visitors.receive),
        Stream(FEEDBACKS, plan.feedbacks, visitors.next_feedback, ignore),
    ]


async def record(target: Server, streams: list[Stream], seconds: float) -> list[Record]:
    """Send streams over connections of their own."""
    async with connected(target, CONNECTIONS) as pool:
        return await open_loop.run(pool, streams, seconds)


async def watch_health(target: Server, seconds: float) -> Waits:
    """Watch /health/live over a connection of its own."""
    async with connected(target, 1) as pool:
        return await health_probe.watch(pool, target.host, seconds)


@asynccontextmanager
async def connected(target: Server, connections: int) -> AsyncIterator[Pool]:
    """Open connections to a server, and close them."""
    pool = Pool(HOST, target.port)
    await pool.open(connections)
    try:
        yield pool
    finally:
        pool.close()


def summaries(records: Sequence[Record]) -> Run:
    """Return the summary of each record by the name of its stream."""
    return {part.stream.name: part.summary() for part in records}


async def prepare(target: Server, visitors: Visitors, slates: int) -> None:
    """Give visitors slates, before anything is measured."""
    async with connected(target, 16) as pool:
        await closed_loop.prepare(pool, visitors, slates)


async def _against_baseline(ours: Server, baseline: Server, plan: Plan, number: int) -> dict[str, float]:
    """Return requests per second of many clients and of one client, and our share of the baseline's rate."""
    figures: dict[str, float] = {}
    for clients in (plan.clients, 1):
        rates = await _by_turns((ours, baseline), clients, plan.seconds / 4, f"throughput-{number}-{clients}")
        figures |= {f"{name}_{clients}": rate for name, rate in zip(("ours", "baseline"), rates, strict=True)}
    return figures | {"share": figures[f"ours_{plan.clients}"] / figures[f"baseline_{plan.clients}"]}


async def _by_turns(servers: Sequence[Server], clients: int, seconds: float, name: str) -> list[float]:
    """Return the rates of servers that take short turns, since a machine shared with others changes its speed."""
    pools = [Pool(HOST, target.port) for target in servers]
    visitors = [Visitors(target.host, name, events=1) for target in servers]
    for pool in pools:
        await pool.open(clients)
    turns = max(1, round(seconds / TURN_SECONDS))
    rates: list[list[float]] = [[] for _ in servers]
    for _ in range(turns):
        for pool, users, measured in zip(pools, visitors, rates, strict=True):
            turn = await closed_loop.throughput(pool, users, clients, seconds / turns)
            measured.append(checked(turn).requests_per_second)
    for pool in pools:
        pool.close()
    return [fmean(measured) for measured in rates]


def checked(throughput: Throughput) -> Throughput:
    """Refuse a rate with failures in it: failing is faster than serving, so it would say nothing."""
    if throughput.failed:
        raise ChildProcessError(f"{throughput.failed} requests failed at the full rate; see the server's log")
    return throughput


def verdicts(plan: Plan, measured: Mapping[str, Any]) -> list[Row]:
    """Return every figure with its bound; of several runs the median counts, and all are listed."""
    rows = [_latency(measured[setting], setting, name) for setting in ("separate", "mixed") for name in BOUNDS]
    rows.append(Row("mixed: longest wait for /health/live, ms", listed(_each(measured["mixed"], HEALTH, "max_ms"))))
    shares = [run["share"] for run in measured["throughput"]]
    rows.append(Row(f"slates and feedbacks in turn, {plan.clients} clients: share of the baseline", listed(shares)))
    for clients in (plan.clients, 1):
        for name, whose in (("ours", "requests per second"), ("baseline", "the baseline's requests per second")):
            rates = [run[f"{name}_{clients}"] for run in measured["throughput"]]
            rows.append(Row(f"the same, {clients} client{'s' * (clients > 1)}: {whose}", listed(rates)))
    return rows


def _latency(runs: Sequence[Run], setting: str, name: str) -> Row:
    latencies, failed = _each(runs, name, "p99_ms"), int(sum(_each(runs, name, "failed")))
    label = f"{runs[0][name]['rate']:g} {name}/s, {setting}: 99th percentile, ms" + f" ({failed} failed)" * (failed > 0)
    return Row(label, listed(latencies), BOUNDS[name], BOUNDS[name].is_met(median(latencies)) and not failed)


def _each(runs: Sequence[Run], stream: str, figure: str) -> list[float]:
    return [run[stream][figure] for run in runs]


def listed(values: Sequence[float]) -> str:
    """Write the median and, in brackets, all values."""
    return f"{_short(median(values))} ({', '.join(map(_short, values))})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
