"""The load generator sees what is there: stalls, failures, lost connections; and the verdicts can be bad."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from slatewise.bench.load import closed_loop, measuring, open_loop, soak
from slatewise.bench.load.connection import LOST, Answer, Pool, post
from slatewise.bench.load.measuring import Plan
from slatewise.bench.load.open_loop import Record, Stream
from slatewise.bench.load.served import HOST, save_catalog
from slatewise.bench.load.soak import Soak
from slatewise.bench.load.traffic import Crowd, ignore

SLATE = json.dumps({"slate_id": "s", "items": [{"id": 7}, {"id": 8}, {"id": 9}]}).encode()
REQUEST = post("here", "/v1/slates", b"{}")


class Fake:
    """A server that answers everything the same, in pieces; it may stall for a time, refuse, or hang up."""

    def __init__(self, piece: int = 1_000_000, status: int = 200, hang_up: bool = False) -> None:
        self.piece, self.status, self.hang_up = piece, status, hang_up
        self.stall: tuple[float, float] = (0.0, 0.0)
        self.visits: list[asyncio.Task[Any] | None] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visits.append(asyncio.current_task())
        while head := await self.head(reader):
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            await asyncio.sleep(self.still())
            if self.hang_up:
                break
            answer = b"HTTP/1.1 %d OK\r\nContent-Length: %d\r\n\r\n" % (self.status, len(SLATE)) + SLATE
            for start in range(0, len(answer), self.piece):
                writer.write(answer[start : start + self.piece])
                await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def head(self, reader: asyncio.StreamReader) -> bytes:
        try:
            return await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""

    def still(self) -> float:
        """Seconds until the stall is over, if there is one now."""
        begin, end = self.stall
        now = asyncio.get_running_loop().time()
        return end - now if begin <= now < end else 0.0


@asynccontextmanager
async def pool_of(fake: Fake, connections: int) -> AsyncIterator[Pool]:
    server = await asyncio.start_server(fake, HOST, 0)
    pool = Pool(HOST, server.sockets[0].getsockname()[1])
    await pool.open(connections)
    try:
        yield pool
    finally:
        pool.close()
        server.close()
        await asyncio.gather(*(visit for visit in fake.visits if visit is not None))


def run_open(fake: Fake, rate: float = 200.0, seconds: float = 1.0, stall: float = 0.0) -> Record:
    """Send requests at a constant rate to a server that stalls for a part of the time."""

    async def run() -> Record:
        async with pool_of(fake, 4) as pool:
            now = asyncio.get_running_loop().time()
            fake.stall = (now + 0.3, now + 0.3 + stall)
            return (await open_loop.run(pool, [Stream("all", rate, lambda: REQUEST, ignore)], seconds))[0]

    return asyncio.run(run())


def test_a_stall_is_seen_by_everyone_who_was_due_in_it() -> None:
    """Half of the time nothing is answered: a quarter of the requests and more must have waited long.

    The control: clients that wait for answers see the same stall once each, and so hardly at all.
    """
    stalled = run_open(Fake(), stall=0.5)
    assert sum(latency > 0.1 for latency in stalled.latencies) > 0.25 * len(stalled.latencies)
    assert stalled.summary()["failed"] == 0

    async def closed() -> list[float]:
        fake, latencies = Fake(), []
        loop = asyncio.get_running_loop()
        async with pool_of(fake, 1) as pool:
            begin = loop.time()
            fake.stall = (begin + 0.2, begin + 0.7)
            while loop.time() < begin + 1.0:
                asked = loop.time()
                await pool.answer_to(REQUEST)
                latencies.append(loop.time() - asked)
        return latencies

    hidden = asyncio.run(closed())
    assert sum(latency > 0.1 for latency in hidden) < 0.25 * len(hidden)


@pytest.mark.parametrize("piece", [1, 7, 50])
def test_answers_in_pieces_are_put_together(piece: int) -> None:
    async def run() -> list[Answer]:
        async with pool_of(Fake(piece), 1) as pool:
            return [await pool.answer_to(REQUEST) for _ in range(3)]

    assert asyncio.run(run()) == [Answer(200, SLATE)] * 3


def test_refusals_and_lost_connections_are_failures() -> None:
    refused = run_open(Fake(status=503), seconds=0.2)
    assert refused.failures == {503: 40}
    assert refused.summary()["failed"] == 40
    assert run_open(Fake(hang_up=True), seconds=0.2).failures == {LOST: 40}


def test_a_crowd_clicks_the_slates_it_got_and_closes_each_once() -> None:
    crowd = Crowd("here", "crowd", people=2, visits=1, events=2)
    assert crowd.answer() is None
    users = [json.loads(crowd.ask().split(b"\r\n\r\n")[1])["user"] for _ in range(4)]
    assert users == ["crowd-0-0", "crowd-1-0", "crowd-0-1", "crowd-1-1"]
    crowd.took(Answer(201, SLATE))
    crowd.took(Answer(503, b""))
    events = [json.loads((crowd.answer() or b"").split(b"\r\n\r\n")[1]) for _ in range(2)]
    assert [(event["clicked"], event["final"]) for event in events] == [([7], False), ([8], True)]
    assert len({event["event_id"] for event in events}) == 2
    assert crowd.answer() is None


def test_slates_give_as_many_answers_as_are_sent() -> None:
    crowd = Crowd("here", "crowd", events=5 / 3)
    slate = {"slate_id": "s", "items": [{"id": 7}, {"id": 8}, {"id": 9}]}
    counts = []
    for _ in range(300):
        before = len(crowd.pending)
        crowd.took(Answer(201, json.dumps(slate).encode()))
        counts.append(len(crowd.pending) - before)
    assert set(counts) == {1, 2}
    assert sum(counts) == pytest.approx(500, abs=1)
    assert sum(final for _, _, final in crowd.pending) == 300


def test_preparing_fails_loudly() -> None:
    async def run() -> None:
        async with pool_of(Fake(status=500), 2) as pool:
            await closed_loop.prepare(pool, Crowd("here", "crowd"), 5, clients=2)

    with pytest.raises(ChildProcessError, match="slates were refused"):
        asyncio.run(run())


def run_of(p99: float, failed: int = 0) -> dict[str, dict[str, float]]:
    return {name: {"rate": 1.0, "p99_ms": p99, "failed": failed} for name in measuring.BOUNDS}


@pytest.mark.parametrize(("p99", "failed", "share", "expected"), [(9, 0, 0.5, 5), (99, 0, 0.5, 1), (9, 1, 0.3, 0)])
def test_verdicts_follow_the_bounds(p99: float, failed: int, share: float, expected: int) -> None:
    runs = [run_of(p99, failed)]
    rows = measuring.verdicts(
        Plan(),
        {
            "alone": runs,
            "mixed": runs,
            "most": [{"share": share, "ours_32": 9, "bare_32": 9, "ours_1": 9, "bare_1": 9}],
        },
    )
    assert sum(row.is_met for row in rows if row.bound) == expected


STEADY = {"resident_mb": [100.0, 101.0] * 20, "wal_mb": [16.0] * 40, "p99_ms": [10.0, 11.0] * 6}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, 0),
        ({"resident_mb": [100.0 + at for at in range(40)]}, 1),
        ({"wal_mb": [10.0 * at for at in range(40)]}, 1),
        ({"p99_ms": [10.0] * 6 + [30.0] * 6}, 1),
        ({"failed": 1}, 1),
    ],
)
def test_a_soak_that_leaks_or_drifts_is_told(change: dict[str, Any], expected: int) -> None:
    rows = soak.verdicts(Soak(40.0, **{**STEADY, **change}))
    assert sum(not row.is_met for row in rows) == expected


def test_windows_follow_when_requests_were_due() -> None:
    record = Record(Stream("all", 1.0, lambda: None, ignore), 12.0, [0.0, 0.5, 11.5], [0.001, 0.002, 0.5])
    assert soak.windows([record], 12.0) == pytest.approx([2.0, 500.0])


def run_load(*words: str) -> Callable[[], subprocess.CompletedProcess[str]]:
    sizes = ["--items", "200", "--slates", "20", "--feedbacks", "30", "--clients", "2", "--json"]
    command = [sys.executable, "-m", "slatewise.bench.load", *words, *sizes]
    return lambda: subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603


@pytest.mark.slow
def test_the_whole_load_test_on_a_small_scale() -> None:
    done = run_load("--seconds", "1", "--runs", "1")()
    found = json.loads(done.stdout)
    for setting, name in (("alone", "slates"), ("alone", "feedbacks"), ("mixed", "slates"), ("mixed", "feedbacks")):
        assert found[setting][0][name]["failed"] == 0, done.stderr
        assert found[setting][0][name]["answered"] > 0
    assert found["most"][0]["share"] > 0


@pytest.mark.slow
def test_a_short_soak(tmp_path: Path) -> None:
    save_catalog(tmp_path / "catalog", 200)
    plan = Plan(slates=20.0, feedbacks=30.0, seconds=3.0)
    seen = asyncio.run(soak.watch(plan, tmp_path / "catalog", tmp_path, lambda _: None, early=20))
    assert seen.failed == 0
    assert len(seen.resident_mb) >= 3
    assert min(seen.resident_mb) > 20.0
    assert max(seen.wal_mb) > 0.0
    assert seen.p99_ms
