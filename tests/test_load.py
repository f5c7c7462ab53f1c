"""The load generator sees what is there: stalls, failures, lost connections; and the verdicts can be bad."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from benchmarks import serving_ablation
from benchmarks.load import __main__ as load_main
from benchmarks.load import (
    baseline_app,
    closed_loop,
    compare,
    health_probe,
    histories,
    load_test,
    open_loop,
    soak,
    sweeps,
)
from benchmarks.load.connection import LOST, Pool, Response, get, post
from benchmarks.load.health_probe import Waits
from benchmarks.load.load_test import Plan
from benchmarks.load.open_loop import Record, Stream
from benchmarks.load.server import HOST, Launch, Server, check_source, save_catalog
from benchmarks.load.soak import Soak
from benchmarks.load.visitors import Visitors, ignore
from slatewise.report import Table, markdown_table
from tests.conftest import ROOT

SLATE = json.dumps({"slate_id": "s", "items": [{"id": 7}, {"id": 8}, {"id": 9}]}).encode()
REQUEST = post("here", "/v1/slates", b"{}")


class Fake:
    """A server that gives every request the same response, in pieces; it may be slow, stall, refuse, or hang up."""

    def __init__(self, piece: int = 1_000_000, status: int = 200, hang_up: bool = False, seconds: float = 0.0) -> None:
        self.piece, self.status, self.hang_up, self.seconds = piece, status, hang_up, seconds
        self.stall: tuple[float, float] = (0.0, 0.0)
        self.visits: list[asyncio.Task[Any] | None] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visits.append(asyncio.current_task())
        while head := await self.head(reader):
            length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
            await reader.readexactly(int(length or 0))
            await asyncio.sleep(self.seconds + self.remaining())
            if self.hang_up:
                break
            response = b"HTTP/1.1 %d OK\r\nContent-Length: %d\r\n\r\n" % (self.status, len(SLATE)) + SLATE
            for start in range(0, len(response), self.piece):
                writer.write(response[start : start + self.piece])
                await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def head(self, reader: asyncio.StreamReader) -> bytes:
        try:
            return await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""

    def remaining(self) -> float:
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


def run_open(fake: Fake, rate: float = 200.0, seconds: float = 1.0, stall: float = 0.0, connections: int = 4) -> Record:
    """Send requests at a constant rate to a server that stalls for a part of the time."""

    async def run() -> Record:
        async with pool_of(fake, connections) as pool:
            now = asyncio.get_running_loop().time()
            fake.stall = (now + 0.3, now + 0.3 + stall)
            return (await open_loop.run(pool, [Stream("all", rate, lambda: REQUEST, ignore)], seconds))[0]

    return asyncio.run(run())


def test_a_stall_is_seen_by_everyone_who_was_due_in_it() -> None:
    """For half of the time there are no responses: a quarter of the requests and more must have waited long.

    The control: clients that wait for responses see the same stall once each, and so hardly at all.
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
                sent = loop.time()
                await pool.fetch(REQUEST)
                latencies.append(loop.time() - sent)
        return latencies

    hidden = asyncio.run(closed())
    assert sum(latency > 0.1 for latency in hidden) < 0.25 * len(hidden)


class FakePool:
    """A server in a time of its own: it needs a millisecond, or as long as its stall lasts, for a response."""

    def __init__(self, stall: tuple[float, float] = (0.0, 0.0), status: int = 200, seconds: float = 0.001) -> None:
        self.now, self.stall, self.status, self.seconds = 0.0, stall, status, seconds

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def fetch(self, _: bytes) -> Response:
        begin, end = self.stall
        self.now = self.seconds + (end if begin <= self.now < end else self.now)
        return Response(self.status, b"")


def run_probe(pool: FakePool, monkeypatch: pytest.MonkeyPatch) -> Waits:
    """Watch the health of a server for a second of its time."""
    monkeypatch.setattr(health_probe, "asyncio", SimpleNamespace(sleep=pool.sleep))
    monkeypatch.setattr(health_probe, "time", SimpleNamespace(perf_counter=lambda: pool.now))
    return asyncio.run(health_probe.watch(cast(Pool, pool), "here", 1.0))


def test_the_health_probe_sees_the_length_of_a_stall_and_all_who_would_have_waited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control is a server that does not stall."""
    stalled, steady = (run_probe(FakePool(stall), monkeypatch) for stall in ((0.3, 0.8), (0.0, 0.0)))
    assert max(stalled.seconds) == pytest.approx(0.5, abs=0.01)
    assert sum(wait > 0.1 for wait in stalled.seconds) == pytest.approx(80, abs=2)
    assert max(steady.seconds) == pytest.approx(0.001)
    assert len(stalled.seconds) == len(steady.seconds) == 200
    assert run_probe(FakePool(status=503), monkeypatch).failed == 200


def test_a_slow_server_does_not_pile_up_the_requests_of_the_health_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: one connection at the same constant rate waits ever longer."""
    probed = run_probe(FakePool(seconds=0.02), monkeypatch)
    queued = run_open(Fake(seconds=0.02), seconds=0.25, connections=1)
    assert max(probed.seconds) < 0.04 < max(queued.latencies)


@pytest.mark.parametrize("piece", [1, 7, 50])
def test_responses_in_pieces_are_put_together(piece: int) -> None:
    async def run() -> list[Response]:
        async with pool_of(Fake(piece), 1) as pool:
            return [await pool.fetch(request) for request in (REQUEST, get("here", "/health/live"), REQUEST)]

    assert asyncio.run(run()) == [Response(200, SLATE)] * 3


def test_refusals_and_lost_connections_are_failures() -> None:
    refused = run_open(Fake(status=503), seconds=0.2)
    assert refused.failures == {503: 40}
    assert refused.summary()["failed"] == 40
    assert run_open(Fake(hang_up=True), seconds=0.2).failures == {LOST: 40}


def test_a_request_that_could_not_be_made_is_told_from_one_that_the_server_failed() -> None:
    """A server that is late with slates leaves nothing to click on; it has refused nothing."""
    requests = iter([REQUEST, None] * 20)

    async def run() -> Record:
        async with pool_of(Fake(status=503), 4) as pool:
            return (await open_loop.run(pool, [Stream("all", 200.0, lambda: next(requests), ignore)], 0.2))[0]

    record = asyncio.run(run())
    assert record.failures == {503: 20, open_loop.NOT_SENT: 20}
    assert (record.summary()["failed"], record.summary()["not_sent"]) == (40, 20)


def test_a_generator_that_is_late_says_so() -> None:
    """A request that takes long to make holds up the ones after it, and that is not the server's fault."""

    def slow_request() -> bytes:
        time.sleep(0.05)
        return REQUEST

    async def run() -> Record:
        async with pool_of(Fake(), 4) as pool:
            return (await open_loop.run(pool, [Stream("all", 200.0, slow_request, ignore)], 0.05))[0]

    assert asyncio.run(run()).summary()["sent_late_ms"] > 100.0


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1.0), (0.5, 2.0), (0.51, 3.0), (0.99, 4.0), (1.0, 4.0)])
def test_a_percentile_is_a_value_that_was_measured(share: float, expected: float) -> None:
    assert open_loop.percentile([1.0, 2.0, 3.0, 4.0], share) == expected


def test_visitors_click_the_slates_they_got_and_close_each_once() -> None:
    visitors = Visitors("here", "visitor", number=2, visits=1, events=2)
    assert visitors.next_feedback() is None
    users = [json.loads(visitors.next_slate().split(b"\r\n\r\n")[1])["user"] for _ in range(4)]
    assert users == ["visitor-0-0", "visitor-1-0", "visitor-0-1", "visitor-1-1"]
    visitors.receive(Response(201, SLATE))
    visitors.receive(Response(503, b""))
    events = [json.loads((visitors.next_feedback() or b"").split(b"\r\n\r\n")[1]) for _ in range(2)]
    assert [(event["clicked"], event["final"]) for event in events] == [([7], False), ([8], True)]
    assert len({event["event_id"] for event in events}) == 2
    assert visitors.next_feedback() is None


def test_slates_get_as_many_feedbacks_as_are_sent() -> None:
    visitors = Visitors("here", "visitor", events=5 / 3)
    counts = []
    for _ in range(300):
        before = len(visitors.pending)
        visitors.receive(Response(201, SLATE))
        counts.append(len(visitors.pending) - before)
    assert set(counts) == {1, 2}
    assert sum(counts) == pytest.approx(500, abs=1)
    assert sum(final for _, _, final in visitors.pending) == 300


def test_every_second_slate_can_be_ignored() -> None:
    visitors = Visitors("here", "visitor", events=3 / 2, ignored=1)
    counts = []
    for _ in range(100):
        before = len(visitors.pending)
        visitors.receive(Response(201, SLATE))
        counts.append(len(visitors.pending) - before)
    assert counts[1::2] == [0] * 50
    assert set(counts[::2]) == {3}


def test_preparing_fails_loudly() -> None:
    async def run() -> None:
        async with pool_of(Fake(status=500), 2) as pool:
            await closed_loop.prepare(pool, Visitors("here", "visitor"), 5, clients=2)

    with pytest.raises(ChildProcessError, match="slates were refused"):
        asyncio.run(run())


@pytest.mark.parametrize(("status", "is_ok"), [(200, True), (503, False)])
def test_failures_are_no_throughput(status: int, is_ok: bool) -> None:
    async def run() -> closed_loop.Throughput:
        async with pool_of(Fake(status=status), 2) as pool:
            return await closed_loop.throughput(pool, Visitors("here", "visitor", events=1), 2, 0.1)

    measured = asyncio.run(run())
    assert (measured.requests_per_second > 0.0, measured.failed == 0) == (is_ok, is_ok)
    if not is_ok:
        with pytest.raises(ChildProcessError, match="requests failed"):
            load_test.checked(measured)


def test_the_baseline_app_validates_bodies_of_visitors_and_nothing_else() -> None:
    visitors = Visitors("here", "visitor", events=1)
    visitors.receive(Response(201, SLATE))

    async def send(path: str, body: bytes) -> int:
        transport = httpx.ASGITransport(baseline_app.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return (await client.post(path, content=body)).status_code

    for request in (visitors.next_slate(), visitors.next_feedback() or b""):
        head, _, body = request.partition(b"\r\n\r\n")
        assert asyncio.run(send(head.split()[1].decode(), body)) in (200, 201)
    with pytest.raises(ValueError, match="user"):
        asyncio.run(send("/v1/slates", b"{}"))


def run_of(p99: float, failed: int = 0) -> dict[str, dict[str, float]]:
    figures = {"rate": 1.0, "p99_ms": p99, "max_ms": p99, "failed": failed}
    return dict.fromkeys((*load_test.BOUNDS, load_test.HEALTH), figures)


@pytest.mark.parametrize(("p99", "failed", "expected"), [(9, 0, 4), (40, 0, 2), (99, 0, 0), (9, 1, 0)])
def test_verdicts_follow_the_bounds(p99: float, failed: int, expected: int) -> None:
    runs = [run_of(p99, failed)]
    rates = {"share": 0.5, "ours_32": 9, "baseline_32": 9, "ours_1": 9, "baseline_1": 9}
    rows = load_test.verdicts(Plan(), {"separate": runs, "mixed": runs, "throughput": [rates]})
    assert sum(row.is_met for row in rows if row.bound) == expected


STEADY = {"resident_mb": [100.0, 101.0] * 20, "wal_mb": [16.0] * 40, "p99_ms": [10.0, 11.0] * 6, "closed_per_second": 9}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, 0),
        ({"resident_mb": [100.0 + at for at in range(40)]}, 1),
        ({"wal_mb": [10.0 * at for at in range(40)]}, 1),
        ({"p99_ms": [10.0] * 6 + [30.0] * 6}, 1),
        ({"overall_p99_ms": 70.0}, 1),
        ({"failed": 1}, 1),
        ({"closed_per_second": 0.0}, 1),
        ({"oldest_seconds": 60.0}, 1),
    ],
)
def test_a_soak_that_leaks_or_drifts_is_reported(change: dict[str, Any], expected: int) -> None:
    rows = soak.verdicts(Soak(40.0, **{**STEADY, **change}))
    assert sum(not row.is_met for row in rows) == expected


def test_windows_follow_when_requests_were_due() -> None:
    record = Record(Stream("all", 1.0, lambda: None, ignore), 12.0, [0.0, 0.5, 11.5], [0.001, 0.002, 0.5])
    assert soak.windows([record], 12.0) == pytest.approx([2.0, 500.0])


@pytest.mark.process
def test_a_directory_without_the_package_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not hold the package slatewise"):
        check_source(tmp_path)
    assert check_source(ROOT / "src") == ROOT / "src"


def test_servers_take_turns_and_no_one_always_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[str] = []

    async def measure(_plan: Plan, launch: Launch, directory: Path) -> dict[str, float]:
        assert list(directory.iterdir()) == []
        served.append(launch.policy)
        return {"requests_per_second": 1.0}

    monkeypatch.setattr(compare, "measure", measure)
    launches = {name: Launch(tmp_path, name) for name in ("a", "b", "c")}
    runs = compare.compare(Plan(runs=2), launches, tmp_path, lambda _: None)
    assert served == ["a", "b", "c", "c", "b", "a"]
    assert {name: len(measured) for name, measured in runs.items()} == {"a": 2, "b": 2, "c": 2}


def test_a_comparison_gives_ratios_of_medians_to_the_first() -> None:
    first = [dict.fromkeys(compare.FIGURES, value) for value in (10.0, 20.0, 90.0)]
    second = [dict.fromkeys(compare.FIGURES, value) for value in (9.0, 18.0, 1.0)]
    lines = markdown_table(compare.comparison_table(Plan(), {"old": first, "new": second})).splitlines()
    assert "| requests/s, 32 clients | 20 (10, 20, 90) | 9 (9, 18, 1) | 0.45 |" in lines


SOURCE = {
    "service/app.py": "Limits(Directly(create_api(service)), settings)\n        store.work_in(asyncio)",
    "frozen.py": "unchanged",
}


def test_an_ablation_changes_one_thing_and_fails_if_there_is_nothing_to_change(tmp_path: Path) -> None:
    for name, text in SOURCE.items():
        (tmp_path / "src" / "slatewise" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / "slatewise" / name).write_text(text)
    edit = serving_ablation.Edit("service/app.py", "store.work_in(asyncio)", "pass")
    variant = serving_ablation.write_variant(tmp_path, tmp_path / "variant", (edit,))
    assert (variant / "slatewise" / "service" / "app.py").read_text().endswith("        pass")
    assert (variant / "slatewise" / "frozen.py").read_text() == "unchanged"
    with pytest.raises(ValueError, match=r"service/app\.py does not contain"):
        serving_ablation.write_variant(
            tmp_path, tmp_path / "again", (serving_ablation.Edit("service/app.py", "x(", ""),)
        )


def run_load(*arguments: str) -> subprocess.CompletedProcess[str]:
    sizes = ["--items", "200", "--slates", "20", "--feedbacks", "30", "--clients", "2", "--json"]
    command = [sys.executable, "-m", "benchmarks.load", *arguments, *sizes]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)  # noqa: S603


@pytest.mark.slow
def test_the_whole_load_test_on_a_small_scale() -> None:
    done = run_load("--seconds", "1", "--runs", "1")
    document = json.loads(done.stdout)
    for setting, name in (("separate", "slates"), ("separate", "feedbacks"), ("mixed", "slates"), ("mixed", "health")):
        assert document[setting][0][name]["failed"] == document[setting][0][name].get("not_sent", 0), done.stderr
        assert document[setting][0][name]["max_ms"] > 0
    assert document["throughput"][0]["share"] > 0


@pytest.mark.slow
def test_a_long_history_next_to_others_on_a_small_scale() -> None:
    done = run_load("histories", "--seconds", "1", "--history", "40")
    rows = json.loads(done.stdout)["histories"]
    assert [row[0] for row in rows] == list(histories.OPERATIONS)
    assert {row[4] for row in rows} == {"0"}, done.stderr
    assert [int(row[5]) > 0 for row in rows] == [False, *[True] * (len(rows) - 1)]


@pytest.mark.slow
def test_a_comparison_of_a_source_tree_with_itself() -> None:
    done = run_load("compare", "--source", str(ROOT / "src"), "--seconds", "1", "--runs", "1")
    ((run,),) = json.loads(done.stdout)["compare"].values()
    assert run.keys() == compare.FIGURES.keys()
    assert run["failed"] == 0, done.stderr
    assert run["requests_per_second"] > 0


@pytest.mark.process
def test_compare_needs_a_source() -> None:
    done = run_load("compare")
    assert done.returncode == 2
    assert "need --source DIR" in done.stderr


@pytest.mark.slow
def test_a_short_soak(tmp_path: Path) -> None:
    save_catalog(tmp_path / "catalog", 200)
    plan = Plan(slates=20.0, feedbacks=30.0, seconds=3.0)
    seen = asyncio.run(soak.watch(plan, Launch(tmp_path / "catalog"), tmp_path, lambda _: None, early=20))
    assert seen.failed == seen.not_sent
    assert min(seen.resident_mb) > 20.0
    assert max(seen.wal_mb) > 0.0
    assert seen.p99_ms
    assert seen.overall_p99_ms > 0.0
    assert seen.closed_per_second > 0.0


class Exited:
    """A process that has ended."""

    returncode = 3

    def poll(self) -> int:
        return self.returncode


def test_a_soak_ends_when_the_server_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def unanswered(*_: object) -> AsyncIterator[SimpleNamespace]:
        yield SimpleNamespace(send=lambda *_: None)

    monkeypatch.setattr(soak, "connected", unanswered)
    record = Record(Stream("all", 10.0, lambda: REQUEST, ignore), 3_600.0)
    server = Server(cast(Any, Exited()), 1)
    with pytest.raises(ChildProcessError, match="exited with 3"):
        asyncio.run(soak.load_and_watch(server, [record], Soak(3_600.0), lambda _: None))


def test_results_can_be_appended_to_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "load.md"
    page.write_text("# Load\n")
    table = Table("soak", "", ("figure", "measured"), (("failed", "0"),))
    monkeypatch.setitem(load_main.COMMANDS, "soak", lambda *_: ({}, table, True))
    monkeypatch.setattr(sys, "argv", ["load", "soak", "--hours", "8", "--append", str(page)])
    assert load_main.main() == 0
    text = page.read_text()
    assert text.startswith("# Load\n\n### ")
    assert "`python -m benchmarks.load soak --hours 8" in text
    assert "| failed | 0 |" in text
    assert "| failed | 0 |" in capsys.readouterr().out


def sweep_runs(*p99s: float) -> dict[str, list[dict[str, float]]]:
    return {str(at): [{**dict.fromkeys(sweeps.FIGURES, 0.0), "slates_p99_ms": p99}] for at, p99 in enumerate(p99s)}


@pytest.mark.parametrize(("p99s", "is_met"), [((10, 14, 12), True), ((10, 16, 12), False), ((10, 12, 16), False)])
def test_sweeps_have_a_bound(p99s: tuple[float, ...], is_met: bool) -> None:
    table, verdict = sweeps.outcome(Plan(150.0, 15.0), sweep_runs(*p99s))
    assert verdict == is_met
    assert len(table.rows) == len(sweeps.FIGURES)


@pytest.mark.slow
def test_a_comparison_with_and_without_sweeps_on_a_small_scale() -> None:
    done = run_load("sweeps", "--seconds", "2", "--runs", "1", "--expired", "2000")  # eight seconds of sweeping
    without, _, restarted = json.loads(done.stdout)["sweeps"].values()
    assert without[0]["closed_per_second"] == 0.0 < restarted[0]["closed_per_second"], done.stderr
    for run in (without[0], restarted[0]):
        assert run["failed"] == run["not_sent"], done.stderr
