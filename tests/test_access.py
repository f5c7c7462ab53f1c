"""Who may use the service and how often, where it may be called from, and what it keeps to itself."""

import ast
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route

from slatewise.service.auth import MAX_CALLERS, RateLimiter
from slatewise.service.http import Endpoint
from slatewise.service.middleware import HeadCheck
from slatewise.service.operations import is_live
from slatewise.service.routes import ROUTES
from slatewise.service.settings import Settings
from tests.conftest import ROOT
from tests.support.serving import Local, key_file, local, new_slate, reload


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Local]:
    with local(tmp_path) as made:
        yield made


PUBLIC = {"/health/live", "/health/ready", "/openapi.json", "/docs"}


def test_a_route_must_say_who_may_use_it() -> None:
    with pytest.raises(TypeError, match="scopes"):
        Endpoint("GET", "/v1/new", is_live, responses={})  # type: ignore[call-arg]


def test_every_route_is_behind_a_key(tmp_path: Path) -> None:
    """Walks the table that Starlette really uses; a route of another kind must be a listed public one."""
    every = ("serve", "read", "items", "admin")
    keys = key_file(tmp_path / "keys.json", **{scope: (scope,) for scope in every})
    with local(tmp_path) as service:
        walked = 0
        for route in service.app.routes:
            assert isinstance(route, Route)
            if route.path in PUBLIC:
                continue
            if not isinstance(route.endpoint, Endpoint):
                assert route.path in ("/", "/live") or route.path.startswith("/page/")
                continue
            walked += 1
            assert set(route.endpoint.scopes) <= set(every)
            assert (route.methods or set()) - {"HEAD"} == {route.endpoint.method}
            path = route.path.replace("{user}", "anna").replace("{item}", "1")

            def status(key: str | None, method: str, path: str = path) -> int:
                headers = {} if key is None else {"authorization": f"Bearer {key}"}
                return service.client.request(method, path, headers=headers).status_code

            for method in route.methods or ():
                for wrong in (None, "wrong", "swk_" + "0" * 51, keys["serve"][:-1]):
                    assert status(wrong, method) == 401
                for scope in every:
                    is_rejected = status(keys[scope], method) in (401, 403)
                    assert is_rejected == (scope not in route.endpoint.scopes), (path, scope)
        assert walked == sum(bool(endpoint.scopes) for endpoint in ROUTES) == 25


def test_keys_are_taken_from_two_headers_but_not_from_both(tmp_path: Path) -> None:
    keys = key_file(tmp_path / "keys.json", one=("read",), other=("read",))
    with local(tmp_path) as service:

        def status(**headers: str) -> int:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return service.client.get("/v1/catalog", headers=named).status_code

        assert status(x_api_key=keys["one"]) == status(authorization=f"bearer {keys['one']}") == 200
        assert status(authorization=f"Basic {keys['one']}") == status(authorization=keys["one"]) == 401
        assert status(x_api_key=keys["one"], authorization=f"Bearer {keys['other']}") == 401


def test_too_many_requests(tmp_path: Path) -> None:
    keys = key_file(tmp_path / "keys.json", one=("read",), other=("read",))

    def statuses(service: Local, key: str, number: int) -> list[int]:
        headers = {"authorization": f"Bearer {key}"}
        spoofed = [{**headers, "x-forwarded-for": f"10.0.0.{at}"} for at in range(number)]
        return [service.client.get("/v1/catalog", headers=one).status_code for one in spoofed]

    with local(tmp_path, rate=0.01, burst=100) as service:
        assert statuses(service, keys["one"], 102) == [200] * 100 + [429] * 2
        assert statuses(service, keys["other"], 1) == [200]
        refused = service.client.get("/v1/catalog", headers={"x-api-key": keys["one"]})
        assert 0 < int(refused.headers["retry-after"]) <= 100
        assert statuses(service, "swk_" + "0" * 51, 102) == [401] * 100 + [429] * 2
    with local(tmp_path, rate=0) as service:
        assert statuses(service, keys["one"], 150) == [200] * 150


def test_each_event_of_a_batch_counts(tmp_path: Path) -> None:
    batch = {"events": [{"slate_id": "x", "clicked": []}] * 60}
    with local(tmp_path, rate=0.01, burst=100) as service:
        assert [service.client.post("/v1/feedback", json=batch).status_code for _ in range(2)] == [200, 429]


def test_buckets_fill_again_and_do_not_grow_for_ever() -> None:
    now = [0.0]
    buckets = RateLimiter(2.0, 4.0, lambda: now[0])
    assert [buckets.take("a") for _ in range(5)] == [0.0, 0.0, 0.0, 0.0, 0.5]
    now[0] = 0.5
    assert [buckets.take("a"), buckets.take("a")] == [0.0, 0.5]
    for caller in range(MAX_CALLERS + 5):
        buckets.take(str(caller))
    assert len(buckets.callers) == MAX_CALLERS


HOSTS = [
    ("localhost", True), ("LOCALHOST:8000", True), ("127.0.0.1:8000", True), ("[::1]:8000", True), ("127.0.0.1", True),
    ("evil.example", False), ("localhost.evil.example", False), ("127.0.0.1.evil.example", False), ("", False),
    ("10.0.0.1", False), ("localhost@evil.example", False), ("shop.example:80", False),
]  # fmt: skip


@pytest.mark.parametrize(("host", "known"), HOSTS)
def test_only_known_hosts(service: Local, host: str, known: bool) -> None:
    answer = service.client.get("/v1/catalog", headers={"host": host})
    assert answer.status_code == (200 if known else 400)
    assert host == "" or known or host not in answer.text


def test_hosts_beyond_loopback(tmp_path: Path) -> None:
    """An address cannot be rebound by DNS, a name can: names must be listed."""
    settings = Settings(catalog=tmp_path, host="0.0.0.0", allowed_hosts=("shop.example",))  # noqa: S104
    check = HeadCheck(settings)
    known = [host for host in ("shop.example", "Shop.Example:443", "10.1.2.3:8000", "[2001:db8::1]:80", "evil.example",
                               "10.1.2.3.evil.example") if check.knows(host.encode())]  # fmt: skip
    assert known == ["shop.example", "Shop.Example:443", "10.1.2.3:8000", "[2001:db8::1]:80"]


def test_forms_of_foreign_pages_change_nothing(service: Local) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", None):
        headers = {} if kind is None else {"content-type": kind}
        for path in ("/v1/slates", "/v1/feedback", "/v1/rerank", "/v1/catalog/reload"):
            assert service.client.post(path, content=b'{"user":"anna"}', headers=headers).status_code == 415
    assert service.client.get("/v1/users/anna/export").status_code == 404
    preflight = service.client.request("OPTIONS", "/v1/slates", headers={"origin": "https://evil.example"})
    assert preflight.status_code == 405
    assert not any(name.startswith("access-control") for name in preflight.headers)


def test_compressed_bodies_are_refused(service: Local) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    assert service.client.post("/v1/slates", content=b"x", headers=headers).status_code == 415


def test_every_answer_has_safe_headers(service: Local) -> None:
    for path in ("/v1/catalog", "/nothing", "/health/live", "/docs"):
        headers = service.client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-request-id"]
        assert "server" not in headers
    assert service.client.get("/v1/catalog").headers["cache-control"] == "no-store"


def test_the_log_tells_neither_keys_nor_people_nor_bodies(tmp_path: Path) -> None:
    key = key_file(tmp_path / "keys.json", shop=("serve", "read", "admin"))["shop"]
    person = 'mallory"\n{"level": "info"}'
    with local(tmp_path) as service:
        service.client.client.headers["authorization"] = f"Bearer {key}"
        slate = new_slate(service, user=person, exclude=["payload-marker"])
        service.client.post("/v1/feedback", json={"slate_id": slate["slate_id"], "clicked": []})
        service.client.post("/v1/slates", content=b"payload-marker", headers={"content-type": "application/json"})
        service.client.get("/v1/users/mallory")
        service.client.get("/v1/users/mallory")
        service.client.get("/payload-marker?key=payload-marker")
    text = service.logged.getvalue().decode()
    assert len(service.lines) == 6
    for secret in (key, key[12:], "mallory", "payload-marker", slate["slate_id"], "authorization"):
        assert secret not in text
    hashes = [line["user"] for line in service.lines]
    assert hashes[0]
    assert hashes[3] == hashes[4] != hashes[0]
    assert all(line["key"] == key[4:12] for line in service.lines[:5])
    assert [line["route"] for line in service.lines][-2:] == ["/v1/users/{user}", "unmatched"]


CONNECTED: list[Any] = []
WATCHING: list[bool] = []


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect" and WATCHING:
        CONNECTED.append(arguments[1])


@pytest.fixture
def connections() -> Iterator[list[Any]]:
    """Every outgoing connection of this process while the test runs; audit hooks stay, so this one can rest."""
    sys.addaudithook(_watch)
    CONNECTED.clear()
    WATCHING.append(True)
    yield CONNECTED
    WATCHING.clear()


def test_nothing_in_a_request_makes_the_service_call_out(service: Local, connections: list[Any]) -> None:
    address = "http://127.0.0.1:9/x"
    slate = new_slate(service, user=address, exclude=[address])
    service.client.post("/v1/feedback", json={"slate_id": slate["slate_id"], "clicked": [], "event_id": address})
    for path in ("/v1/users/http%3A%2F%2F127.0.0.1%3A9", f"/v1/items?query={address}", "/v1/live", "/metrics", "/docs"):
        service.client.get(path, headers={"referer": address, "origin": address, "x-forwarded-host": "127.0.0.1:9"})
    reload(service)
    assert connections == []
    with socket.socket() as probe, pytest.raises(OSError, match="refused"):
        probe.connect(("127.0.0.1", 9))
    assert connections == [("127.0.0.1", 9)]


def test_keys_are_compared_in_constant_time() -> None:
    """In the module of keys no hash is compared with ==."""
    source = (ROOT / "src" / "slatewise" / "service" / "keys.py").read_text()
    compared = [ast.unparse(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Compare)]
    assert not [text for text in compared if "sha256" in text or "digest" in text]
    assert "hmac.compare_digest(key.sha256, _digest(text))" in source
