"""What `make load` measures, in the order in which it runs, and the bounds that it is held against."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from slatewise.bench.figures import Bound, at_least, at_most
from slatewise.bench.load import closed_loop, open_loop, served
from slatewise.bench.load.connection import Pool
from slatewise.bench.load.open_loop import Record, Stream
from slatewise.bench.load.served import HOST, Served
from slatewise.bench.load.traffic import Crowd, ignore

SLATES, FEEDBACKS = "slates", "feedbacks"
BOUNDS: dict[str, Bound] = {"slates": at_most(30.0), "feedbacks": at_most(50.0)}
"""The 99th percentile of a stream, in milliseconds, alone or beside the other."""
SHARE_OF_BARE = at_least(0.4)
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
    policy: str = "dc2b-calibrated"

    @property
    def events(self) -> float:
        """Feedbacks per slate, where there are both: with more of them than are sent, answers would come ever later."""
        return self.feedbacks / self.slates


@dataclass(frozen=True)
class Row:
    """A figure for people: what, how much, its bound and whether it is kept, if it has one."""

    words: str
    measured: str
    bound: Bound | None = None
    is_met: bool = True

    def cells(self) -> tuple[str, str, str, str]:
        """Return the row of a table."""
        verdict = "" if self.bound is None else "met" if self.is_met else "missed"
        return self.words, self.measured, str(self.bound or ""), verdict


Say = Callable[[str], None]
Run = Mapping[str, Mapping[str, float]]


async def measure(plan: Plan, catalog: Path, directory: Path, say: Say) -> dict[str, Any]:
    """Start both servers on an empty store, measure, and return all runs and the figures made of them."""
    with served.slatewise(directory, catalog, plan.policy) as ours, served.bare(directory) as bare:
        alone: list[Run] = []
        mixed: list[Run] = []
        for number in range(plan.runs):
            say(f"run {number + 1} of {plan.runs}: at a constant rate for {plan.seconds:g} s, three times")
            alone.append({**await slates_alone(ours, plan, number), **await feedbacks_alone(ours, plan, number)})
            mixed.append(await both(ours, plan, number))
        say(f"as much as it takes, beside the bare routes: {plan.runs} times")
        most = [await _most(ours, bare, plan, number) for number in range(plan.runs)]
    return {"alone": alone, "mixed": mixed, "most": most, "store_bytes": _size(ours)}


async def slates_alone(server: Served, plan: Plan, number: int) -> Run:
    """A thousand people ask for slates and never answer them."""
    crowd = Crowd(server.host, f"slates-{number}")
    return await _measured(server, [Stream(SLATES, plan.slates, crowd.ask, ignore)], plan.seconds)


async def feedbacks_alone(server: Served, plan: Plan, number: int) -> Run:
    """People who have a slate click it item by item; enough of them for the whole time."""
    slates = round(plan.feedbacks * plan.seconds / CLICKS_PER_SLATE)
    crowd = Crowd(server.host, f"feedbacks-{number}", people=slates, events=CLICKS_PER_SLATE)
    await prepare(server, crowd, slates)
    return await _measured(server, [Stream(FEEDBACKS, plan.feedbacks, crowd.answer, ignore)], plan.seconds)


async def both(server: Served, plan: Plan, number: int) -> Run:
    """A thousand people ask for slates and click them, both at the full rate."""
    crowd = Crowd(server.host, f"both-{number}", events=plan.events)
    await prepare(server, crowd, min(1_000, round(plan.feedbacks)))
    return await _measured(server, mixture(crowd, plan.slates, plan.feedbacks), plan.seconds)


def mixture(crowd: Crowd, slates: float, feedbacks: float) -> list[Stream]:
    """Return slates and feedbacks of the same people, side by side."""
    return [Stream(SLATES, slates, crowd.ask, crowd.took), Stream(FEEDBACKS, feedbacks, crowd.answer, ignore)]


async def _measured(server: Served, streams: list[Stream], seconds: float) -> Run:
    return {record.stream.name: record.summary() for record in await recorded(server, streams, seconds)}


async def recorded(server: Served, streams: list[Stream], seconds: float) -> list[Record]:
    """Send streams over connections of their own."""
    pool = Pool(HOST, server.port)
    await pool.open(CONNECTIONS)
    try:
        return await open_loop.run(pool, streams, seconds)
    finally:
        pool.close()


async def prepare(server: Served, crowd: Crowd, slates: int) -> None:
    """Let people get slates, before anything is measured."""
    pool = Pool(HOST, server.port)
    await pool.open(16)
    await closed_loop.prepare(pool, crowd, slates)
    pool.close()


async def _most(ours: Served, bare: Served, plan: Plan, number: int) -> dict[str, float]:
    """Requests per second of many clients and of one, and our share of the bare routes' rate."""
    figures: dict[str, float] = {}
    for clients in (plan.clients, 1):
        rates = await _by_turns((ours, bare), clients, plan.seconds / 4, f"most-{number}-{clients}")
        figures |= {f"{name}_{clients}": rate for name, rate in zip(("ours", "bare"), rates, strict=True)}
    return figures | {"share": figures[f"ours_{plan.clients}"] / figures[f"bare_{plan.clients}"]}


async def _by_turns(servers: Sequence[Served], clients: int, seconds: float, name: str) -> list[float]:
    """Return the rates of servers that take short turns, since a machine shared with others changes its speed."""
    pools = [Pool(HOST, server.port) for server in servers]
    crowds = [Crowd(server.host, name, events=1) for server in servers]
    for pool in pools:
        await pool.open(clients)
    turns = max(1, round(seconds / TURN_SECONDS))
    rates: list[list[float]] = [[] for _ in servers]
    for _ in range(turns):
        for pool, crowd, found in zip(pools, crowds, rates, strict=True):
            found.append(await closed_loop.throughput(pool, crowd, clients, seconds / turns))
    for pool in pools:
        pool.close()
    return [fmean(found) for found in rates]


def _size(server: Served) -> int:
    return 0 if server.store is None or not server.store.exists() else server.store.stat().st_size


def verdicts(plan: Plan, measured: Mapping[str, Any]) -> list[Row]:
    """Return every figure beside its bound; of several runs the median counts, and all are listed."""
    rows = [_latency(measured[setting], setting, name) for setting in ("alone", "mixed") for name in BOUNDS]
    shares = [run["share"] for run in measured["most"]]
    words = f"slates and feedbacks in turn, {plan.clients} clients: share of the bare routes' rate"
    rows.append(Row(words, _listed(shares), SHARE_OF_BARE, SHARE_OF_BARE.is_met(median(shares))))
    for clients in (plan.clients, 1):
        for name, whose in (("ours", "requests per second"), ("bare", "the bare routes' requests per second")):
            rates = [run[f"{name}_{clients}"] for run in measured["most"]]
            rows.append(Row(f"the same, {clients} client{'s' * (clients > 1)}: {whose}", _listed(rates)))
    return rows


def _latency(runs: Sequence[Run], setting: str, name: str) -> Row:
    found, bound = [run[name] for run in runs], BOUNDS[name]
    latencies, failed = [run["p99_ms"] for run in found], sum(int(run["failed"]) for run in found)
    words = f"{found[0]['rate']:g} {name}/s, {setting}: 99th percentile, ms" + f" ({failed} failed)" * (failed > 0)
    return Row(words, _listed(latencies), bound, bound.is_met(median(latencies)) and not failed)


def _listed(values: Sequence[float]) -> str:
    return f"{_short(median(values))} ({', '.join(map(_short, values))})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
