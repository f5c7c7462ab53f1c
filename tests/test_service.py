"""The HTTP service in this process: what each route returns, and what trouble looks like from outside."""

import asyncio
import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import httpx
import pytest

from slatewise.recommender import Recommender
from slatewise.recommender.recommend import Draft, SlateRequest
from slatewise.recommender.types import Preview, Receipt, Slate, SlateItem
from slatewise.service import app as app_module
from slatewise.service import page
from slatewise.service.metrics import Latencies, Rate, percentile
from slatewise.service.openapi import EXAMPLES
from slatewise.service.routes import ROUTES
from slatewise.service.schemas import FIELDS, StrictModel
from slatewise.service.state import WORKER_THREADS
from slatewise.store.protocol import StoreDamagedError, StoreFullError, StoreUnavailableError
from tests.conftest import ROOT
from tests.support.serving import Local, key_file, local, new_slate, reload, small_catalog


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Local]:
    with local(tmp_path) as started:
        yield started


def test_a_slate_has_what_the_contract_says(service: Local) -> None:
    slate = new_slate(service, k=4)
    assert list(slate) == list(Slate.__dataclass_fields__)
    assert (slate["user"], slate["number"], slate["policy"]) == ("anna", 0, "dc2b-calibrated")
    assert len(slate["items"]) == 4
    assert list(slate["items"][0]) == list(SlateItem.__dataclass_fields__)


def test_a_preview_records_nothing(service: Local) -> None:
    response = service.client.post("/v1/slates", json={"user": "anna", "preview": True})
    assert response.status_code == 200
    assert list(response.json()) == list(Preview.__dataclass_fields__)
    assert "slate_id" not in response.json()
    assert service.client.get("/v1/users/anna/export").status_code == 404
    assert new_slate(service)["items"] == response.json()["items"]


def test_options_reach_the_recommender(service: Local) -> None:
    slate = new_slate(service, candidates=[1, 2, 3, 6], exclude=[2], categories=["Drama"], k=9, policy="popular")
    assert {item["id"] for item in slate["items"]} == {1, 6}
    assert slate["policy"] == "popular"
    again = new_slate(service, candidates=[1, 2, 3, 6], exclude=[2], categories=["Drama"], replaces=slate["slate_id"])
    assert {item["id"] for item in again["items"]} == {1, 6}


def test_feedback_is_counted_once(service: Local) -> None:
    slate = new_slate(service)
    event = {"slate_id": slate["slate_id"], "clicked": [slate["items"][0]["id"]], "event_id": "e1"}
    first, second = (service.client.post("/v1/feedback", json=event) for _ in range(2))
    assert list(first.json()) == list(Receipt.__dataclass_fields__)
    assert (first.json()["duplicate"], second.json()["duplicate"]) == (False, True)
    assert service.client.get("/v1/users/anna").json()["clicks"] == 1
    changed = service.client.post("/v1/feedback", json={**event, "clicked": []})
    assert (changed.status_code, changed.json()["type"]) == (409, "urn:slatewise:problem:conflict")


def test_a_request_id_for_another_request_is_a_conflict_of_ids(service: Local) -> None:
    new_slate(service, k=3, request_id="visit-1")
    other = service.client.post("/v1/slates", json={"user": "anna", "k": 4, "request_id": "visit-1"})
    problem = other.json()
    assert (other.status_code, problem["type"]) == (409, "urn:slatewise:problem:conflict")
    assert problem["title"] == "The id was used before with different content"
    assert "request_id" in problem["detail"]


def test_feedback_on_what_was_not_shown(service: Local) -> None:
    slate = new_slate(service)
    shown = {item["id"] for item in slate["items"]}
    stranger = next(item for item in range(60) if item not in shown)
    for clicked in ([stranger], [str(slate["items"][0]["id"])]):
        response = service.client.post("/v1/feedback", json={"slate_id": slate["slate_id"], "clicked": clicked})
        assert response.status_code == 422
    assert service.client.post("/v1/feedback", json={"slate_id": "forged", "clicked": []}).status_code == 404
    assert service.client.get("/v1/users/anna").json()["slates"] == 0


def test_one_bad_event_stops_no_other(service: Local) -> None:
    slate = new_slate(service)
    good = {"slate_id": slate["slate_id"], "clicked": [slate["items"][0]["id"]]}
    response = service.client.post("/v1/feedback", json={"events": [{"slate_id": "forged", "clicked": []}, good, good]})
    assert response.status_code == 200
    bad, first, second = response.json()["results"]
    assert (bad["error"]["status"], bad["error"]["type"]) == (404, "urn:slatewise:problem:unknown-slate")
    assert (first["duplicate"], second["duplicate"]) == (False, True)
    too_many = service.client.post("/v1/feedback", json={"events": [good] * 101})
    assert too_many.status_code == 422
    assert too_many.json()["errors"][0]["where"] == "/events"


USERS = ["a/b", "a/export", "..", "ä ö", "a%2Fb", "a?b#c", "'; DROP TABLE users;--", "x" * 256, "\n", "<b>"]


@pytest.mark.parametrize("user", USERS)
def test_any_user_id_is_itself(service: Local, user: str) -> None:
    """An id with a slash is not another user's export, and a quote is only a quote."""
    from urllib.parse import quote

    new_slate(service, user="a")
    new_slate(service, user=user)
    path = f"/v1/users/{quote(user, safe='')}".replace("..", "%2E%2E")
    assert service.client.get(path).json()["user"] == user
    assert service.client.get(path + "/export").json()["user"] == user
    assert service.client.delete(path).status_code == 204
    assert service.client.delete(path).status_code == 404
    assert service.client.get(path + "/export").status_code == 404
    assert service.client.get("/v1/users/a/export").status_code == 200


@pytest.mark.parametrize("path", ["%ff", "%00", "x" * 257, "a/b", "a/b/export", ""])
def test_paths_that_name_no_user(service: Local, path: str) -> None:
    assert service.client.get(f"/v1/users/{path}").status_code in (400, 404, 422)


def test_items_are_listed_and_searched(service: Local) -> None:
    def listed(**query: Any) -> dict[str, Any]:
        items: dict[str, Any] = service.client.get("/v1/items", params=query).json()
        return items

    assert listed()["total"] == 60
    assert len(listed()["items"]) == 50
    seventh = {"id": 7, "title": "Film 7", "categories": ["Drama", "Horror"], "available": True}
    assert listed(query="FILM 7")["items"] == [seventh]
    assert {item["title"] for item in listed(query="film 1", limit=200)["items"]} == {
        f"Film {number}" for number in range(60) if str(number).startswith("1")
    }
    drama = listed(category="Drama", limit=200)
    n_drama = sum("Drama" in item["categories"] for item in listed(limit=200)["items"])
    assert drama["total"] == len(drama["items"]) == n_drama
    pages = [listed(limit=7, offset=offset)["items"] for offset in range(0, 60, 7)]
    assert [item for page in pages for item in page] == listed(limit=200)["items"]
    assert listed(query="no such film") == listed(category="no such") == {"total": 0, "items": []}
    assert service.client.get("/v1/items", params={"limit": 201}).status_code == 422
    assert service.client.get("/v1/items", params={"unknown": 1}).status_code == 422


def test_policies_and_catalog(service: Local) -> None:
    policies = {policy["name"]: policy for policy in service.client.get("/v1/policies").json()}
    assert policies["dc2b-calibrated"]["share"] == 1.0
    assert policies["dc2b-calibrated"]["has_diversity_knob"] is True
    assert policies["popular"] | {"summary": ""} == {
        "name": "popular", "share": 0.0, "has_diversity_knob": False, "summary": "",
        "title": "Most popular", "is_calibrated": False,
    }  # fmt: skip
    assert [policy["name"] for policy in policies.values() if policy["is_calibrated"]] == ["dc2b-calibrated"]
    assert all(policy["title"] and policy["summary"] for policy in policies.values())
    catalog = service.client.get("/v1/catalog").json()
    assert (catalog["items"], catalog["dim"], sorted(catalog["categories"])) == (
        60, 6, ["Comedy", "Drama", "Horror", "Sci-Fi", "War"],
    )  # fmt: skip


def test_a_policy_with_options_is_described_by_its_name(tmp_path: Path) -> None:
    policies = {"popular": 0.5, "bold": {"policy": "dc2b-calibrated", "share": 0.5, "options": {"diversity": 0.9}}}
    with local(tmp_path, policies=policies) as service:
        recommender = Recommender(small_catalog(), service.state.settings.policy_shares())
    with local(tmp_path, recommender, policies=policies) as service:
        described = {policy["name"]: policy for policy in service.client.get("/v1/policies").json()}
        assert described["bold"] == {**described["dc2b-calibrated"], "name": "bold", "share": 0.5, "title": "bold"}
        assert new_slate(service, policy="bold")["policy"] == "bold"


def test_a_new_catalog_is_served_and_old_slates_still_take_feedback(service: Local, tmp_path: Path) -> None:
    slate = new_slate(service)
    sha256 = small_catalog(80, seed=1).save(tmp_path / "catalog")
    response = reload(service)
    assert (response.status_code, response.json()["items"], response.json()["sha256"]) == (200, 80, sha256)
    event = {"slate_id": slate["slate_id"], "clicked": [slate["items"][0]["id"]]}
    assert service.client.post("/v1/feedback", json=event).status_code == 200
    assert service.client.get("/v1/items").json()["total"] == 80


def test_a_damaged_catalog_is_refused_and_the_old_one_keeps_serving(service: Local, tmp_path: Path) -> None:
    [arrays] = (tmp_path / "catalog").glob("*.safetensors")
    content = bytearray(arrays.read_bytes())
    content[-1] ^= 1
    arrays.write_bytes(content)
    response = reload(service)
    assert (response.status_code, response.json()["type"]) == (409, "urn:slatewise:problem:damaged-catalog")
    assert str(tmp_path) not in response.text
    assert new_slate(service)["items"]


def test_operators_see_what_happens(service: Local) -> None:
    slate = new_slate(service)
    service.client.post("/v1/feedback", json={"slate_id": slate["slate_id"], "clicked": [slate["items"][0]["id"]]})
    [result] = service.client.get("/v1/experiments").json()
    assert (result["policy"], result["users"], result["slates"], result["clicks"]) == ("dc2b-calibrated", 1, 1, 1)
    response = service.client.get("/v1/live")
    assert response.status_code == 200, service.lines
    live = response.json()
    assert live["slates_per_second"] > 0 < live["feedback_per_second"]
    assert {entry["route"] for entry in live["latency"]} >= {"/v1/slates", "/v1/feedback"}
    assert live["store"]["kind"] == "memory"
    text = service.client.get("/metrics").text
    for line in (
        'slatewise_slates_total{policy="dc2b-calibrated"} 1.0',
        "slatewise_feedback_total 1.0",
        'slatewise_policy_clicks{policy="dc2b-calibrated"} 1.0',
        'slatewise_requests_total{method="POST",route="/v1/slates",status="201"} 1.0',
        "slatewise_store_up 1.0",
        "slatewise_catalog_items 60.0",
    ):
        assert line in text
    assert "anna" not in text


def test_experiments_are_at_most_seconds_old(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    compare = service.recommender.experiments

    def counted() -> Any:
        calls.append(1)
        return compare()

    monkeypatch.setattr(service.recommender, "experiments", counted)
    for _ in range(3):
        service.client.get("/v1/experiments")
    assert len(calls) == 1
    monkeypatch.setattr("slatewise.service.state.EXPERIMENTS_MAX_AGE", 0.0)
    service.client.get("/v1/experiments")
    assert len(calls) == 2


class Failing(Recommender):
    """A recommender whose store has trouble."""

    error: Exception = ValueError()

    def draft(self, *_: Any, **__: Any) -> Draft:
        raise self.error

    def feedback_later(self, *_: Any, **__: Any) -> Any:
        raise self.error


SECRET = "postgresql://me:secret-word@db/x at /srv/slates.db"  # noqa: S105
TROUBLES = [
    (StoreFullError(SECRET), 507, "full"),
    (StoreUnavailableError(SECRET), 503, "unavailable"),
    (StoreDamagedError(SECRET), 500, "damaged-store"),
    (KeyError(SECRET), 500, "internal"),
    (RecursionError(SECRET), 500, "internal"),
]


@pytest.mark.parametrize(("error", "status", "kind"), TROUBLES, ids=lambda value: str(value)[:20])
def test_trouble_inside_stays_inside(tmp_path: Path, error: Exception, status: int, kind: str) -> None:
    recommender = Failing(small_catalog())
    recommender.error = error
    with local(tmp_path, recommender) as service:
        slate = service.client.post("/v1/slates", json={"user": "anna"})
        feedback = service.client.post("/v1/feedback", json={"slate_id": "a", "clicked": []})
        batch = service.client.post("/v1/feedback", json={"events": [{"slate_id": "a", "clicked": []}]})
    for response in (slate, feedback):
        assert response.status_code == response.json()["status"] == status
        assert response.json()["type"] == f"urn:slatewise:problem:{kind}"
        assert response.headers["content-type"] == "application/problem+json"
        assert response.json()["request_id"] == response.headers["x-request-id"]
        assert ("retry-after" in response.headers) == (status in (503, 507))
    assert batch.json()["results"][0]["error"]["status"] == status
    assert "secret-word" not in slate.text + feedback.text + batch.text + service.logged.getvalue().decode()
    failures = [line for line in service.lines if line["event"] == "failure"]
    assert len(failures) == (3 if kind == "internal" else 0)
    assert all(line["kind"] == type(error).__name__ and line["at"] for line in failures)


def test_trouble_on_a_route_without_a_body_stays_inside_too(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: str) -> None:
        raise KeyError(SECRET)

    monkeypatch.setattr(service.recommender, "explain", fails)
    response = service.client.get("/v1/users/anna")
    assert response.status_code == response.json()["status"] == 500
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["request_id"] == response.headers["x-request-id"]
    assert "secret-word" not in response.text + service.logged.getvalue().decode()
    assert [line["event"] for line in service.lines] == ["failure", "request"]


@pytest.mark.parametrize("overtaken", [2, 3])
def test_a_slate_that_another_overtakes_is_drafted_again(
    service: Local, monkeypatch: pytest.MonkeyPatch, overtaken: int
) -> None:
    """A user who changes during every attempt is served in one transaction in the end."""
    recommender = service.recommender
    draft, attempts = recommender.draft, iter(range(1, 100))

    def overtaken_draft(request: SlateRequest) -> Draft:
        outdated = draft(request)
        if next(attempts) <= overtaken:
            assert recommender.record(draft(request)).result() is not None
        return outdated

    monkeypatch.setattr(recommender, "draft", overtaken_draft)
    monkeypatch.setattr(recommender, "max_drafts", 3)
    response = service.client.post("/v1/slates", json={"user": "anna"})
    assert response.status_code == 201
    assert response.json()["number"] == overtaken
    assert len(recommender.export("anna")["slates"]) == overtaken + 1


def test_a_store_that_does_not_respond_is_not_ready(service: Local) -> None:
    assert service.client.get("/health/ready").status_code == 200
    service.recommender.close()
    assert service.client.get("/health/ready").status_code == 503
    assert service.client.get("/health/live").status_code == 200
    assert "slatewise_store_up 0.0" in service.client.get("/metrics").text


def test_a_store_is_asked_once_for_all_who_want_to_know_if_it_is_ready(
    service: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody needs a key for that, so it must not cost the store more if more people ask."""
    calls, release, health = list[int](), threading.Event(), service.recommender.store.health

    def slow_health() -> Any:
        calls.append(1)
        release.wait(30)
        return health()

    async def visit() -> list[int]:
        asked = [asyncio.create_task(service.client.client.get("/health/ready")) for _ in range(50)]
        while not calls:
            await asyncio.sleep(0.01)
        alive = await service.client.client.get("/health/live")
        release.set()
        return [alive.status_code, *[(await one).status_code for one in asked]]

    monkeypatch.setattr(service.recommender.store, "health", slow_health)
    assert service.client.loop.run_until_complete(visit()) == [200] * 51
    assert len(calls) == 1
    assert service.client.get("/health/ready").status_code == 200
    assert len(calls) == 2


def test_a_store_that_hangs_is_not_ready_and_the_next_check_finds_it_well(
    service: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, health = threading.Event(), service.recommender.store.health
    monkeypatch.setattr("slatewise.service.state.HEALTH_TIMEOUT", 0.1)
    monkeypatch.setattr(service.recommender.store, "health", lambda: release.wait(30) and health())
    assert [service.client.get("/health/ready").status_code for _ in range(2)] == [503, 503]
    release.set()
    monkeypatch.setattr("slatewise.service.state.HEALTH_TIMEOUT", 30.0)
    assert service.client.get("/health/ready").status_code == 200


SLOW: dict[str, tuple[str, str, dict[str, Any] | None]] = {
    "draft": ("POST", "/v1/slates", {"user": "anna"}),
    "preview_of": ("POST", "/v1/slates", {"user": "anna", "preview": True}),
    "explain": ("GET", "/v1/users/anna", None),
    "export": ("GET", "/v1/users/anna/export", None),
    "forget": ("DELETE", "/v1/users/anna", None),
    "experiments": ("GET", "/v1/experiments", None),
    "use_catalog": ("POST", "/v1/catalog/reload", {}),
}


ONE_AT_A_TIME = ("experiments", "use_catalog")
OPERATORS_SEE = ("/metrics", "/v1/live", "/v1/experiments")


class SlowCalls:
    """Makes one method of the recommender wait until it is released; notes whether it was, and in which thread."""

    def __init__(self, service: Local, name: str, patience: float) -> None:
        self.release, self.was_released = threading.Event(), list[bool]()
        self.threads = list[str]()
        self.method, self.patience = getattr(service.recommender, name), patience

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.threads.append(threading.current_thread().name)
        self.was_released.append(self.release.wait(self.patience))
        return self.method(*arguments, **options)


async def visit(client: httpx.AsyncClient, name: str, slow: SlowCalls) -> list[int]:
    """Make more slow calls than there are worker threads, look at the service as operators do, then release them."""
    method, path, body = SLOW[name]
    calls = [asyncio.create_task(client.request(method, path, json=body)) for _ in range(WORKER_THREADS + 1)]
    while len(slow.threads) < (1 if name in ONE_AT_A_TIME else WORKER_THREADS):
        await asyncio.sleep(0.001)
    seen = [(await client.get(path)).status_code for path in OPERATORS_SEE if name != "experiments"]
    ready = await client.get("/health/ready")
    slow.release.set()
    return [max([ready.status_code, *seen]), *[(await call).status_code for call in calls]]


def statuses(service: Local, name: str, slow: SlowCalls, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    new_slate(service)
    monkeypatch.setattr(service.recommender, name, slow)
    return service.client.loop.run_until_complete(visit(service.client.client, name, slow))


@pytest.mark.parametrize("name", SLOW)
def test_nothing_slow_runs_on_the_event_loop(service: Local, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowCalls(service, name, patience=30.0)
    ready, *others = statuses(service, name, slow, monkeypatch)
    assert ready == 200
    assert {status // 100 for status in others} <= {2, 4}
    assert all(slow.was_released)
    kind = "slatewise-operator" if name == "experiments" else "slatewise-worker"
    assert all(thread.startswith(kind) for thread in slow.threads)


def test_what_runs_on_the_event_loop_is_noticed(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: without worker threads nobody can release the first slow call."""

    class OnTheLoop(Executor):
        def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.set_result(function(*arguments, **options))
            return future

    monkeypatch.setattr(service.state, "workers", OnTheLoop())
    slow = SlowCalls(service, "draft", patience=0.05)
    statuses(service, "draft", slow, monkeypatch)
    assert not slow.was_released[0]


def test_operators_without_threads_of_their_own_would_wait(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: a thread is free for them once two slow calls have given up: the first goes to a third."""
    monkeypatch.setattr(service.state, "operators", service.state.workers)
    slow = SlowCalls(service, "draft", patience=0.05)
    statuses(service, "draft", slow, monkeypatch)
    assert not any(slow.was_released[:2])


def test_rates_and_percentiles() -> None:
    now = [1000.0]
    rate = Rate(lambda: now[0])
    for _ in range(120):
        now[0] += 1.0
        rate.add(3)
    assert rate.per_second() == pytest.approx(3.0, rel=0.05)
    now[0] += 60
    assert rate.per_second() == 0.0
    assert [percentile(list(range(1, 101)), share) for share in (0.5, 0.95, 0.99, 1.0)] == [50, 95, 99, 100]
    latencies = Latencies(lambda: now[0])
    latencies.add("/old", 1.0)
    now[0] += 301
    latencies.add("/new", 0.002)
    assert [(view.route, view.p99) for view in latencies.views()] == [("/new", 2.0)]


def test_the_page_comes_from_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "page"
    (directory / "charts").mkdir(parents=True)
    for name in ("index.html", "live.html", "page.css", "charts/path.js"):
        (directory / name).write_text(name)
    (tmp_path / "secret.txt").write_text("secret")
    monkeypatch.setattr(app_module, "page_routes", lambda **_: page.page_routes(directory))
    key_file(tmp_path / "keys.json", admin=("admin",))
    with local(tmp_path) as service:
        files = {path: service.client.get(path) for path in ("/", "/live", "/page/page.css", "/page/charts/path.js")}
        assert [file.text for file in files.values()] == ["index.html", "live.html", "page.css", "charts/path.js"]
        kinds = [file.headers["content-type"].partition(";")[0] for file in files.values()]
        assert kinds == ["text/html", "text/html", "text/css", "text/javascript"]
        tag = files["/"].headers["etag"]
        assert service.client.get("/", headers={"if-none-match": tag}).status_code == 304
        for trick in (
            "../secret.txt",
            "%2e%2e/secret.txt",
            "..%2fsecret.txt",
            "/etc/passwd",
            "charts/../../secret.txt",
        ):
            assert service.client.get(f"/page/{trick}").status_code == 404
        assert service.client.get("/v1/catalog").status_code == 401
        routes = {line["route"]: line["status"] for line in service.lines}
    assert routes == {"files": 304, "unmatched": 404, "/v1/catalog": 401}


def test_the_description_is_complete_and_loads_nothing_from_elsewhere(service: Local) -> None:
    described = service.client.get("/openapi.json").json()
    assert {(method.upper(), path) for path, operations in described["paths"].items() for method in operations} == {
        (endpoint.method, endpoint.path) for endpoint in ROUTES
    }
    for endpoint in ROUTES:
        operation = described["paths"][endpoint.path][endpoint.method.lower()]
        assert operation["x-scopes"] == list(endpoint.scopes)
        assert operation["summary"]
        assert set(operation["responses"]) == {*map(str, endpoint.responses), "4XX", "5XX"}
    body = described["components"]["schemas"]["SlateBody"]
    assert body["additionalProperties"] is False
    assert body["properties"]["k"]["maximum"] == 500
    parameters = {entry["name"]: entry["schema"] for entry in described["paths"]["/v1/items"]["get"]["parameters"]}
    assert set(parameters) == {"query", "category", "available", "offset", "limit"}
    assert parameters["limit"]["maximum"] == 200
    text = service.client.get("/docs").text
    assert not re.search(r"(src|href)=.?(https?:)?//", text)


def test_examples_of_bodies_are_valid() -> None:
    examples = {endpoint.handler.__name__: endpoint for endpoint in ROUTES if endpoint.body is not None}
    assert set(EXAMPLES) == set(examples)
    for name, endpoint in examples.items():
        assert endpoint.body is not None
        endpoint.body.validate_json(json.dumps(EXAMPLES[name]))


def test_every_reference_in_the_description_leads_somewhere(service: Local) -> None:
    text = service.client.get("/openapi.json").text
    names = set(re.findall(r'"\$ref": "#/components/schemas/(\w+)"', text))
    assert {"Slate", "Preview", "ProblemView"} <= names
    assert names <= set(json.loads(text)["components"]["schemas"])


def test_the_description_says_which_routes_need_a_key(tmp_path: Path) -> None:
    key_file(tmp_path / "keys.json", shop=("serve",))
    with local(tmp_path) as service:
        described = service.client.get("/openapi.json").json()
    assert described["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    assert described["paths"]["/v1/slates"]["post"]["security"] == [{"key": []}]
    assert described["paths"]["/health/live"]["get"]["security"] == []


def test_the_description_can_be_switched_off(tmp_path: Path) -> None:
    with local(tmp_path, reference=False) as service:
        assert service.client.get("/docs").status_code == service.client.get("/openapi.json").status_code == 404


def test_problems_are_json_even_for_odd_requests(service: Local) -> None:
    """Unknown paths, methods and versions of HTTP verbs get the same kind of response."""
    for method, path in (
        ("GET", "/v2/slates"),
        ("PATCH", "/v1/slates"),
        ("BREW", "/v1/slates"),
        ("GET", "/v1/slates/"),
    ):
        response = service.client.request(method, path)
        assert response.status_code in (404, 405)
        assert json.loads(response.content)["request_id"]
        assert response.headers["content-type"] == "application/problem+json"


MAX_FILES = 9
"""How many files of the service a slate or a feedback event may pass through, of which connections is one."""


def files_called(action: Callable[[], Any]) -> set[str]:
    """The files of the service in which a function is called during an action, in any thread.

    Modules being imported and the generated code of dataclasses do not count.
    """
    source = str(ROOT / "src" / "slatewise" / "service")
    files: set[str] = set()

    def profile(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(source) and code.co_name != "<module>":
            files.add(Path(code.co_filename).name)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return files


def test_a_request_passes_through_few_files(tmp_path: Path) -> None:
    """Counted with keys, once everything is warm."""
    key = key_file(tmp_path / "keys.json", shop=("serve",))["shop"]
    with local(tmp_path) as service:
        service.client.client.headers["authorization"] = f"Bearer {key}"
        slate = new_slate(service)
        service.client.post("/v1/feedback", json={"slate_id": slate["slate_id"], "clicked": []})
        slates: list[dict[str, Any]] = []
        of_slate = files_called(lambda: slates.append(new_slate(service)))
        event = {"slate_id": slates[0]["slate_id"], "clicked": [slates[0]["items"][0]["id"]]}
        of_feedback = files_called(lambda: service.client.post("/v1/feedback", json=event).raise_for_status())
    assert {"slates.py", "http.py", "auth.py", "keys.py"} <= of_slate & of_feedback
    assert len(of_slate | {"connections.py"}) <= MAX_FILES, of_slate
    assert len(of_feedback | {"connections.py"}) <= MAX_FILES, of_feedback


def test_errors_can_point_at_every_field_of_every_body(service: Local) -> None:
    wrong = service.client.post("/v1/catalog/promote", json={"version": "newest"})
    assert (wrong.status_code, wrong.json()["errors"][0]["where"]) == (422, "/version")
    fields = {field for model in subclasses(StrictModel) for field in model.model_json_schema()["properties"]}
    assert fields <= FIELDS


def subclasses(model: type[StrictModel]) -> list[type[StrictModel]]:
    return [one for child in model.__subclasses__() for one in (child, *subclasses(child))]


def test_versions_are_listed_promoted_and_rolled_back(service: Local, tmp_path: Path) -> None:
    slate, directory = new_slate(service), tmp_path / "catalog"
    before = service.client.get("/v1/catalog/versions").json()[0]["version"]
    candidate = small_catalog(80, seed=1).save(directory, promote=False)[:16]
    assert service.client.get("/v1/catalog").json()["items"] == 60
    listed = service.client.get("/v1/catalog/versions").json()
    assert {row["version"]: row["is_current"] for row in listed} == {before: True, candidate: False}
    promoted = service.client.post("/v1/catalog/promote", json={"version": candidate})
    assert (promoted.status_code, promoted.json()["items"], promoted.json()["sha256"][:16]) == (200, 80, candidate)
    event = {"slate_id": slate["slate_id"], "clicked": [slate["items"][0]["id"]]}
    assert service.client.post("/v1/feedback", json=event).status_code == 200
    empty = {"content-type": "application/json"}
    assert service.client.post("/v1/catalog/rollback", headers=empty).json()["items"] == 60
    nothing_before = service.client.post("/v1/catalog/rollback", headers=empty)
    assert (nothing_before.status_code, nothing_before.json()["type"]) == (409, "urn:slatewise:problem:no-version")
    assert nothing_before.json()["detail"].startswith("No version was in use before this one, which keeps serving; ")
    unknown = service.client.post("/v1/catalog/promote", json={"version": "0" * 16})
    assert unknown.json()["type"] == "urn:slatewise:problem:no-version"
    assert (unknown.status_code, service.client.get("/v1/catalog").json()["items"]) == (409, 60)
    assert "GET /v1/catalog/versions" in unknown.json()["detail"]


def test_a_service_that_stops_has_learned_the_last_clicks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates are learned once a second; what was clicked since then is not left to `rebuild_rates`."""
    monkeypatch.setattr(app_module, "LEARN_RATES_EVERY", 3600.0)
    catalog, store = small_catalog(), f"sqlite:///{tmp_path / 'slates.db'}"
    catalog.save(tmp_path / "catalog")
    with local(tmp_path, Recommender(catalog, store=store)) as service:

        async def visit() -> Any:
            async with service.app.router.lifespan_context(service.app):
                slate = (await service.client.client.post("/v1/slates", json={"user": "anna"})).json()
                event = {"slate_id": slate["slate_id"], "clicked": [slate["items"][0]["id"]], "seen": 10}
                await service.client.client.post("/v1/feedback", json=event)
                return slate["items"][0]["id"]

        clicked = service.client.loop.run_until_complete(asyncio.wait_for(visit(), 30))
    with Recommender(catalog, store=store) as again:
        rates = again.store.read(lambda transaction: transaction.rates())
    assert rates[clicked].clicked == 1.0
    assert len(rates) == 10
