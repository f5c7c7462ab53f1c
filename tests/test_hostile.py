"""Hostile input against the real server: each gets a 4xx, changes nothing, leaks nothing, and the server stays up."""

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import pytest
import uvicorn
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from slatewise.service.connections import GuardedProtocol
from slatewise.service.routes import ROUTES
from slatewise.service.schemas import ItemList, ItemsQuery
from slatewise.service.search import ItemSearch
from tests.support.serving import Server, local, small_catalog

if TYPE_CHECKING:
    from schemathesis.generation import GenerationMode

pytestmark = pytest.mark.process

MARKER = "payload-marker-7f3a"
LEAKS = re.compile(
    r"Traceback|File \"|\.py\b|/work/|/home/|/usr/|site-packages|SELECT |sqlite|pydantic|uvicorn|0x[0-9a-f]{6}"
)
LARGEST_GROWTH = 50 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("hostile")
    small_catalog().save(directory / "catalog")
    timeouts = {"SLATEWISE_REQUEST_TIMEOUT": "1", "SLATEWISE_RATE": "0"}
    with Server(directory, ["--store", "sqlite:///slates.db"], timeouts) as running:
        yield running


def in_user(text: str) -> bytes:
    return b'{"user": %s, "preview": false}' % text.encode()


SLATES: dict[str, bytes] = {
    "NaN": b'{"user": "m", "diversity": NaN}',
    "Infinity": b'{"user": "m", "diversity": -Infinity}',
    "1e999": b'{"user": "m", "diversity": 1e999}',
    "1e999 in a list": b'{"user": "m", "exclude": [1e999]}',
    "lone surrogate": in_user('"m\\ud800"'),
    "lone surrogate as a name": b'{"user": "m", "\\udfff": 1}',
    "invalid UTF-8": b'{"user": "m\xff\xfe"}',
    "overlong UTF-8": b'{"user": "m\xc0\xaf"}',
    "UTF-16": '{"user": "m"}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"user": "m"}',
    "NUL": in_user('"m\\u0000"'),
    "raw NUL": b'{"user": "m\x00"}',
    "raw newline in text": b'{"user": "m\n"}',
    "nested brackets": b"[" * 100_000,
    "nested brackets in a field": b'{"user": "m", "exclude": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "nested objects": b'{"a":' * 40_000,
    "5000 digits": b'{"user": "m", "k": ' + b"9" * 5_000 + b"}",
    "5000 digits as an item": b'{"user": "m", "exclude": [' + b"9" * 5_000 + b"]}",
    "65 bits as an item": b'{"user": "m", "exclude": [%d]}' % 2**64,
    "the same name twice": b'{"user": "m", "user": "m"}',
    "the same name twice, deeper": b'{"user": "m", "exclude": [{"a": 1, "a": 2}]}',
    "unknown field": b'{"user": "m", "%s": 1}' % MARKER.encode(),
    "false as a number": b'{"user": "m", "k": false}',
    "true as an item": b'{"user": "m", "exclude": [true]}',
    "text as a number": b'{"user": "m", "k": "10"}',
    "10.0 as a whole number": b'{"user": "m", "k": 10.0}',
    "a number as text": b'{"user": 7}',
    "a number as a truth": b'{"user": "m", "preview": 1}',
    "null user": b'{"user": null}',
    "empty user": b'{"user": ""}',
    "long user": in_user(f'"{MARKER}{"m" * 257}"'),
    "k = 0": b'{"user": "m", "k": 0}',
    "k = 501": b'{"user": "m", "k": 501}',
    "negative k": b'{"user": "m", "k": -1}',
    "diversity above one": b'{"user": "m", "diversity": 1.0000001}',
    "too many candidates": b'{"user": "m", "candidates": [' + b",".join([b"1"] * 10_001) + b"]}",
    "too many categories": b'{"user": "m", "categories": [' + b",".join([b'"a"'] * 101) + b"]}",
    "unknown candidate": b'{"user": "m", "candidates": ["%s"]}' % MARKER.encode(),
    "unknown category": b'{"user": "m", "categories": ["%s"]}' % MARKER.encode(),
    "unknown policy": b'{"user": "m", "policy": "%s"}' % MARKER.encode(),
    "nothing": b"",
    "null": b"null",
    "a list": b"[]",
    "a text": b'"%s"' % MARKER.encode(),
    "two documents": b'{"user": "m"}{"user": "m"}',
    "a comment": b'{"user": "m" /* %s */}' % MARKER.encode(),
    "a trailing comma": b'{"user": "m",}',
    "single quotes": b"{'user': 'm'}",
    "pickle": b"\x80\x04\x95\x1e\x00\x00\x00\x00\x00\x00\x00\x8c\x08builtins",
    "just above 256 KB": b'{"user": "m"}'.ljust(262_145),
    "10 MB": b'{"user": "m"}'.ljust(10_000_000),
}
FEEDBACK: dict[str, bytes] = {
    "unknown slate": b'{"slate_id": "%s", "clicked": []}' % MARKER.encode(),
    "NUL in the slate": b'{"slate_id": "a\\u0000", "clicked": []}',
    "no clicks": b'{"slate_id": "a"}',
    "null clicks": b'{"slate_id": "a", "clicked": null}',
    "text clicks": b'{"slate_id": "a", "clicked": "%s"}' % MARKER.encode(),
    "false click": b'{"slate_id": "a", "clicked": [false]}',
    "float click": b'{"slate_id": "a", "clicked": [1.0]}',
    "NaN click": b'{"slate_id": "a", "clicked": [NaN]}',
    "501 clicks": b'{"slate_id": "a", "clicked": [' + b",".join([b"1"] * 501) + b"]}",
    "text final": b'{"slate_id": "a", "clicked": [], "final": "true"}',
    "no events": b'{"events": []}',
    "101 events": b'{"events": [' + b",".join([b'{"slate_id": "a", "clicked": []}'] * 101) + b"]}",
    "events in events": b'{"events": [{"events": []}]}',
    "events and more": b'{"events": [{"slate_id": "a", "clicked": []}], "%s": 1}' % MARKER.encode(),
    "SQL": b'{"slate_id": "\' OR 1=1; DROP TABLE slates;--", "clicked": []}',
}
RERANK: dict[str, bytes] = {
    "nothing to rerank": b'{"scores": [1, 2]}',
    "no scores": b'{"scores": [], "items": []}',
    "items and vectors": b'{"scores": [1], "items": [1], "vectors": [[1]]}',
    "items and categories": b'{"scores": [1], "items": [1], "categories": [["a"]]}',
    "unknown item to rerank": b'{"scores": [1], "items": ["%s"]}' % MARKER.encode(),
    "item of another type": b'{"scores": [1], "items": ["1"]}',
    "item twice": b'{"scores": [1, 2], "items": [1, 1]}',
    "more scores than items": b'{"scores": [1, 2], "items": [1]}',
    "fewer scores than vectors": b'{"scores": [1], "vectors": [[1], [2]], "method": "mmr"}',
    "fewer categories than scores": b'{"scores": [1, 2], "categories": [["a"]]}',
    "vectors of two lengths": b'{"scores": [1, 2], "vectors": [[1], [1, 2]], "method": "dpp"}',
    "vectors without numbers": b'{"scores": [1], "vectors": [[]], "method": "dpp"}',
    "no vectors": b'{"scores": [1], "vectors": [], "method": "dpp"}',
    "NaN score": b'{"scores": [NaN], "items": [1]}',
    "huge score": b'{"scores": [1e300], "items": [1]}',
    "huge vector": b'{"scores": [1], "vectors": [[1e31]], "method": "dpp"}',
    "text score": b'{"scores": ["%s"], "items": [1]}' % MARKER.encode(),
    "unknown method": b'{"scores": [1], "items": [1], "method": "%s"}' % MARKER.encode(),
    "too many to rerank": b'{"scores": [' + b",".join([b"1"] * 10_001) + b'], "items": []}',
    "too diverse": b'{"scores": [1], "items": [1], "diversity": 1.5}',
    "overlap of vectors": b'{"scores": [1], "vectors": [[1]], "method": "overlap"}',
    "mmr of categories": b'{"scores": [1], "categories": [["a"]], "method": "mmr"}',
}
BODIES = {"/v1/slates": SLATES, "/v1/feedback": FEEDBACK, "/v1/rerank": RERANK}
CASES = [(path, name, body) for path, bodies in BODIES.items() for name, body in bodies.items()]


def assert_harmless(answer: httpx.Response) -> None:
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == answer.status_code
    assert MARKER not in answer.text
    assert not LEAKS.search(answer.text), answer.text


def everything(server: Server) -> Any:
    """What the service remembers, as far as anyone can see it."""
    with server.client() as client:
        figures = client.get("/metrics").text
        return re.findall(r"slatewise_(?:slates|feedback|policy_\w+)(?:_total)?\{?.*", figures), [
            client.get(f"/v1/users/{user}/export").status_code for user in ("m", "x")
        ]


def test_the_hostile_list(server: Server) -> None:
    """With and without a length; the server's memory does not grow."""
    load_code(server)
    before, memory = everything(server), _memory(server)
    with server.client() as client:
        for path, name, body in CASES:
            headers = {"content-type": "application/json"}
            for content in (body, iter([body[:100], body[100:]])):
                answer = client.post(path, content=content, headers=headers)
                try:
                    assert_harmless(answer)
                    assert (answer.status_code == 413) == (len(body) > 262_144)
                except AssertionError as error:
                    raise AssertionError(f"{path}: {name}: {error}") from error
    assert everything(server) == before
    assert _memory(server) - memory < LARGEST_GROWTH


def test_the_same_requests_are_served_when_they_are_not_hostile(server: Server) -> None:
    """The negative control: what the list varies is fine, and does change what the service remembers."""
    before = everything(server)
    with server.client() as client:
        slate = client.post("/v1/slates", json={"user": "x", "k": 500, "diversity": -0.0, "exclude": [2**63 - 1, "a"]})
        assert slate.status_code == 201, slate.text
        assert (
            client.post("/v1/feedback", json={"slate_id": slate.json()["slate_id"], "clicked": []}).status_code == 200
        )
        largest = json.dumps({"user": "x", "preview": True}).encode().ljust(262_144)
        headers = {"content-type": "application/json"}
        assert client.post("/v1/slates", content=largest, headers=headers).status_code == 200
        tiny = client.post("/v1/slates", json={"user": "x", "diversity": 1e-320, "preview": True})
        assert tiny.status_code == 200
    assert everything(server) != before


def load_code(server: Server) -> None:
    """Use what is only loaded when it is needed, so that it does not count as growth; this records nothing."""
    with server.client() as client:
        client.post("/v1/slates", json={"user": "m", "preview": True}).raise_for_status()
        for method in ("overlap", "dpp", "mmr"):
            client.post("/v1/rerank", json={"items": [1, 2], "scores": [1, 2], "method": method}).raise_for_status()


def _memory(server: Server) -> int:
    assert server.process is not None
    return int(psutil.Process(server.process.pid).memory_info().rss)


HEAD = b"POST /v1/slates HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
RAW: dict[str, tuple[list[bytes], tuple[bytes, ...]]] = {
    "path with dots": ([b"GET /page/../../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n"], (b"404",)),
    "path with encoded dots": ([b"GET /page/%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n"], (b"404",)),
    "path with NUL": ([b"GET /v1/users/a%00b HTTP/1.1\r\nHost: localhost\r\n\r\n"], (b"400",)),
    "path not UTF-8": ([b"GET /v1/users/%ff%fe HTTP/1.1\r\nHost: localhost\r\n\r\n"], (b"400",)),
    "path not ASCII": ([b"GET /v1/users/\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n"], (b"400",)),
    "absolute address": ([b"GET http://evil.example/v1/catalog HTTP/1.1\r\nHost: evil.example\r\n\r\n"], (b"400",)),
    "address of a proxy": ([b"CONNECT a:80 HTTP/1.1\r\nHost: localhost\r\n\r\n"], (b"400",)),
    "address that is none": ([b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n"], (b"400",)),
    "backslashes": ([b"GET /page\\..\\..\\secret HTTP/1.1\r\nHost: localhost\r\n\r\n"], (b"400", b"404")),
    "no Host": ([b"GET /v1/catalog HTTP/1.1\r\n\r\n"], (b"400",)),
    "two Hosts": ([b"GET /v1/catalog HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n"], (b"400",)),
    "not HTTP": ([b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"], (b"400",)),
    "two lengths": ([HEAD + b"Content-Length: 2\r\nContent-Length: 20\r\n\r\n{}"], (b"400",)),
    "length and chunks": ([HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"], (b"400",)),
    "negative length": ([HEAD + b"Content-Length: -1\r\n\r\n{}"], (b"400",)),
    "broken chunks": ([HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"], (b"400",)),
    "head without end": ([b"GET /v1/catalog HTTP/1.1\r\nHost: localhost\r\nX: "] + [b"a" * 8_000] * 6, (b"431",)),
    "many headers without end": ([b"GET / HTTP/1.1\r\n"] + [b"X-Name: value\r\n" * 100] * 50, (b"431",)),
    "head that never comes": ([b"GET /v1/catalog HTTP/1.1\r\nHost: loc"], (b"408",)),
    "silence": ([], (b"408",)),
    "body that never comes": ([HEAD + b"Content-Length: 100\r\n\r\n{"], (b"408",)),
    "body too large to wait for": ([HEAD + b"Content-Length: 99999999999\r\n\r\n"], (b"413",)),
    "chunks that never end": ([HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"], (b"408",)),
    "endless body": ([HEAD + b"Content-Length: 99999999999\r\n\r\n"] + [b" " * 1_000_000] * 20, (b"413",)),
    "upgrade": (
        [b"GET /v1/nothing HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"],
        (b"404",),
    ),
}


@pytest.mark.parametrize(("parts", "expected"), RAW.values(), ids=RAW.keys())
def test_raw_bytes(server: Server, parts: list[bytes], expected: tuple[bytes, ...]) -> None:
    answer = server.raw(*parts)
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1] if head else b""
    assert status in expected, answer[:500]
    assert not LEAKS.search(body.decode())
    with server.client() as client:
        assert client.get("/health/live").status_code == 200


def test_a_later_head_must_arrive_in_time_too(server: Server) -> None:
    """The second on a connection: with the end of the first request, or after its answer."""
    whole, part = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /health/live HTTP/1.1\r\nHo"
    for parts in ([whole + part], [whole, part]):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            for one in parts:
                connection.sendall(one)
                time.sleep(0.1)
            with connection.makefile("rb") as answers:
                assert b"HTTP/1.1 408" in answers.read()


def test_a_slow_body_does_not_hold_up_others(server: Server) -> None:
    """A byte at a time: the sender is cut off after the body's time, and meanwhile everyone else is served."""
    slow: list[bytes] = []
    drip = [HEAD + b"Content-Length: 100\r\n\r\n"] + [b" "] * 30
    thread = threading.Thread(target=lambda: slow.append(server.raw(*drip, pause=0.1)))
    thread.start()
    with server.client() as client:
        served = [client.post("/v1/slates", json={"user": "x", "preview": True}).status_code for _ in range(5)]
    thread.join()
    assert served == [200] * 5
    assert slow[0].startswith(b"HTTP/1.1 408")


def test_idle_connections_are_hung_up_and_nobody_is_locked_out(server: Server) -> None:
    idle = [socket.create_connection(("127.0.0.1", server.port), timeout=20) for _ in range(200)]
    with server.client() as client:
        assert client.get("/v1/catalog").status_code == 200
    assert all(connection.recv(1000).startswith(b"HTTP/1.1 408") for connection in idle)
    for connection in idle:
        connection.close()


async def large_answer(_: Any, __: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"x" * 50_000_000})


class Impatient(GuardedProtocol):
    write_timeout = 0.3


@pytest.mark.parametrize(("protocol", "hangs_up"), [(Impatient, True), (GuardedProtocol, False)])
def test_who_does_not_take_an_answer_is_hung_up_on(protocol: type[GuardedProtocol], hangs_up: bool) -> None:
    config = uvicorn.Config(large_answer, http=protocol, lifespan="off", log_config=None)
    running = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=running.run, args=([listener],))
    thread.start()
    with socket.create_connection(listener.getsockname()) as lazy:
        lazy.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while not running.server_state.tasks:
            time.sleep(0.01)
        deadline = time.monotonic() + (20.0 if hangs_up else 1.0)
        while running.server_state.connections and time.monotonic() < deadline:
            time.sleep(0.05)
        assert (not running.server_state.connections) == hangs_up
    running.should_exit = True
    thread.join()


def test_nothing_hostile_reached_the_log(server: Server) -> None:
    """Runs last in this file: the log holds JSON lines only, without what was sent."""
    logged = server.logged()
    assert MARKER not in logged
    assert "Traceback" not in logged
    assert "DROP TABLE" not in logged
    lines = [json.loads(line) for line in logged.splitlines()]
    assert len([line for line in lines if line["event"] == "request"]) > 2 * len(CASES)
    assert not [line for line in lines if line["event"] == "failure"]


EXAMPLES = 12
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
UNFIT = {"ignored_auth", "positive_data_acceptance", "unsupported_method"}
"""Checks of schemathesis, which is imported where it is used, as that takes long.

Keys are not needed here (the walk over all routes tests them); well-formed input may name what does not exist; and
which methods a path has is tested elsewhere."""


def faults(operation: Any, mode: "GenerationMode") -> None:
    """Send generated requests to one route; schemathesis checks the answers against the description."""
    from schemathesis.checks import CHECKS

    every = {check.__name__: check for check in CHECKS.get_all()}
    assert every.keys() > UNFIT
    chosen = [check for name, check in every.items() if name not in UNFIT]

    @settings(max_examples=EXAMPLES, phases=PHASES, suppress_health_check=list(HealthCheck), deadline=None)
    @given(case=operation.as_strategy(generation_mode=mode))
    def probe(case: Any) -> None:
        response = case.call()
        case.validate_response(response, checks=chosen)
        assert response.status_code < 500
        assert response.status_code < 400 or not LEAKS.search(response.text)

    probe()


@pytest.mark.slow
def test_no_generated_request_breaks_the_service(tmp_path: Path) -> None:
    import schemathesis
    from schemathesis.generation import GenerationMode

    with local(tmp_path, rate=0, allowed_hosts="testserver") as service:
        schema = schemathesis.openapi.from_asgi("/openapi.json", service.app)
        schema.config.checks.negative_data_rejection.expected_statuses = ["4xx"]  # the default leaves out 413
        operations = [result.ok() for result in schema.get_all_operations()]  # type: ignore[union-attr]
        assert len(operations) == len(ROUTES)
        for operation in operations:
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                try:
                    faults(operation, mode)
                except Unsatisfiable:
                    assert mode is GenerationMode.NEGATIVE
        assert not [line for line in service.lines if line["event"] == "failure"]


def test_the_fuzzer_finds_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: a route that fails on some input is found out."""
    import schemathesis
    from schemathesis.core.failures import FailureGroup
    from schemathesis.generation import GenerationMode

    def fails_for_some(_: ItemSearch, wanted: ItemsQuery) -> ItemList:
        return ItemList(10 // wanted.offset, [])

    monkeypatch.setattr(ItemSearch, "find", fails_for_some)
    with local(tmp_path, rate=0, allowed_hosts="testserver") as service:
        schema = schemathesis.openapi.from_asgi("/openapi.json", service.app)
        with pytest.raises(FailureGroup):
            faults(schema["/v1/items"]["GET"], GenerationMode.POSITIVE)
