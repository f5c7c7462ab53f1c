"""A log that cannot be written is counted, and neither ends nor stalls the service."""

import errno
import io
import json
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slatewise.service import logs
from slatewise.service.logs import MAX_AT_ONCE, MAX_LINES, LineWriter, Log, LogStream
from tests.support.serving import Server, small_catalog


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("shop")
    small_catalog().save(directory / "catalog")
    return directory


def reader_gone() -> int:
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def disk_full() -> int:
    return os.open("/dev/full", os.O_WRONLY)


def reader_stalled() -> int:
    """A pipe that is full, and whose other end nobody reads (it stays open, so that writing does not fail)."""
    _, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writing, True)
    return writing


TROUBLES = {"reader gone": reader_gone, "disk full": disk_full, "reader stalled": reader_stalled}


def dropped(server: Server) -> float:
    with server.client() as client:
        [number] = re.findall(r"^slatewise_log_lines_dropped_total (\S+)$", client.get("/metrics").text, re.MULTILINE)
        return float(number)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES.keys())
def test_a_log_that_cannot_be_written_stops_nothing(shop: Path, trouble: Callable[[], int]) -> None:
    """Requests are served and slates recorded, the service stops in peace, and lost lines are counted."""
    stderr = trouble()
    with Server(shop, ["--store", "memory://"], {"SLATEWISE_RATE": "0"}, stderr) as server:
        with server.client() as client:
            for number in range(100):
                assert client.post("/v1/slates", json={"user": "anna", "k": 1}).json()["number"] == number
        if trouble is not reader_stalled:
            assert eventually(lambda: dropped(server) > 100)
        assert server.stop() == 0
    os.close(stderr)


@pytest.mark.process
def test_a_log_that_can_be_written_is_complete(shop: Path) -> None:
    """The negative control: nothing is dropped, and every request has its line."""
    (shop / "server.log").unlink(missing_ok=True)
    with Server(shop, ["--store", "memory://"], {"SLATEWISE_RATE": "0"}) as server:
        with server.client() as client:
            ids = {client.get("/v1/catalog").headers["x-request-id"] for _ in range(300)}
        assert dropped(server) == 0
        assert server.stop() == 0
        lines = [json.loads(line) for line in server.logged().splitlines()]
    assert ids <= {line.get("id") for line in lines}
    assert lines[-1]["event"] == "stopped"


def eventually(is_so: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if is_so():
            return True
        time.sleep(0.05)
    return False


class Sink:
    """What a log is written to: it can be held up, full, or take only a part of what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.free, self.is_full, self.takes = threading.Event(), False, 1 << 20
        self.free.set()

    def write(self, data: bytes) -> int:
        self.free.wait()
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.written.append(data[: self.takes])
        self.is_full = self.takes < len(data)
        return len(self.written[-1])


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d %s\n" % (number, b"x" * (number % 300)) for number in range(first, last)]


def test_lines_are_written_whole_in_order_and_together() -> None:
    sink, lines = Sink(), [*numbered(0, 2_000), b"long" * MAX_AT_ONCE + b"\n", *numbered(2_000, 3_000)]
    writer = LineWriter(sink.write)
    for line in lines:
        writer.put(line)
    writer.close()
    assert b"".join(sink.written) == b"".join(lines)
    assert all(part.endswith(b"\n") for part in sink.written)
    assert sum(len(part) > MAX_AT_ONCE for part in sink.written) == 1
    assert len(sink.written) < len(lines) / 10
    writer.put(b"late\n")
    assert sink.written[-1] == b"late\n"


def test_who_logs_never_waits_and_what_does_not_fit_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the reader stands still; what fits is written when it goes on."""
    monkeypatch.setattr(logs, "CLOSE_TIMEOUT", 0.2)
    sink, counted = Sink(), [0]
    writer = LineWriter(sink.write)
    writer.on_drop = lambda number: counted.append(number)
    sink.free.clear()
    for line in numbered(0, MAX_LINES + 5_000):
        writer.put(line)
    writer.close()
    assert 4_000 < sum(counted) <= 5_000
    sink.free.set()
    assert eventually(lambda: b"".join(sink.written).count(b"\n") + sum(counted) == MAX_LINES + 5_000)


def test_a_line_that_was_torn_does_not_spoil_the_next() -> None:
    sink, counted = Sink(), [0]
    writer = LineWriter(sink.write)
    writer.on_drop = lambda number: counted.append(number)
    writer.close()
    sink.takes = 5
    writer.put(b"whole line\n")
    writer.put(b"lost line\n")
    sink.takes, sink.is_full = 1 << 20, False
    writer.put(b"next line\n")
    assert b"".join(sink.written) == b"whole\nnext line\n"
    assert sum(counted) == 2


def test_what_libraries_print_becomes_lines_of_json() -> None:
    written = io.BytesIO()
    log = Log(write=written.write)
    log.close()
    print("one\ntwo", "\ud800", file=LogStream(log))
    assert [json.loads(line)["said"] for line in written.getvalue().splitlines()] == ["one", "two \ud800"]
