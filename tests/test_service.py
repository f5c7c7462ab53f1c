"""The HTTP service in this process: what each route answers, and what trouble looks like from outside."""

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from slatewise.recommender import Recommender
from slatewise.recommender.views import Receipt, Slate, SlateItem
from slatewise.service import page_files
from slatewise.service.live import Latencies, Rate, percentile
from slatewise.service.routes import ROUTES
from slatewise.service.waiting import result
from slatewise.store.protocol import StoreDamagedError, StoreFullError, StoreUnavailableError
from tests.serving import Local, key_file, local, new_slate, reload, small_catalog


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Local]:
    with local(tmp_path) as made:
        yield made


def test_a_slate_has_what_the_contract_says(service: Local) -> None:
    slate = new_slate(service, k=4)
    assert list(slate) == list(Slate.__dataclass_fields__)
    assert (slate["user"], slate["number"], slate["policy"]) == ("anna", 0, "dc2b-calibrated")
    assert len(slate["items"]) == 4
    assert list(slate["items"][0]) == list(SlateItem.__dataclass_fields__)


def test_a_preview_records_nothing(service: Local) -> None:
    answer = service.client.post("/v1/slates", json={"user": "anna", "preview": True})
    assert answer.status_code == 200
    assert answer.json()["slate_id"] is None
    assert service.client.get("/v1/users/anna/export").status_code == 404
    assert new_slate(service)["items"] == answer.json()["items"]


def test_wishes_reach_the_recommender(service: Local) -> None:
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


def test_feedback_on_what_was_not_shown(service: Local) -> None:
    slate = new_slate(service)
    stranger = next(item for item in range(60) if item not in {one["id"] for one in slate["items"]})
    for clicked in ([stranger], [str(slate["items"][0]["id"])]):
        answer = service.client.post("/v1/feedback", json={"slate_id": slate["slate_id"], "clicked": clicked})
        assert answer.status_code == 422
    assert service.client.post("/v1/feedback", json={"slate_id": "forged", "clicked": []}).status_code == 404
    assert service.client.get("/v1/users/anna").json()["slates"] == 0


def test_one_bad_event_stops_no_other(service: Local) -> None:
    slate = new_slate(service)
    good = {"slate_id": slate["slate_id"], "clicked": [slate["items"][0]["id"]]}
    answer = service.client.post("/v1/feedback", json={"events": [{"slate_id": "forged", "clicked": []}, good, good]})
    assert answer.status_code == 200
    bad, first, second = answer.json()["results"]
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


def test_items_are_found(service: Local) -> None:
    def found(**query: Any) -> dict[str, Any]:
        answer: dict[str, Any] = service.client.get("/v1/items", params=query).json()
        return answer

    assert found()["total"] == 60
    assert len(found()["items"]) == 50
    assert found(query="FILM 7")["items"] == [{"id": 7, "title": "Film 7", "categories": ["Drama", "Horror"]}]
    assert {item["title"] for item in found(query="film 1", limit=200)["items"]} == {
        f"Film {number}" for number in range(60) if str(number).startswith("1")
    }
    drama = found(category="Drama", limit=200)
    assert (
        drama["total"]
        == len(drama["items"])
        == sum("Drama" in item["categories"] for item in found(limit=200)["items"])
    )
    pages = [found(limit=7, offset=at)["items"] for at in range(0, 60, 7)]
    assert [item for page in pages for item in page] == found(limit=200)["items"]
    assert found(query="no such film") == found(category="no such") == {"total": 0, "items": []}
    assert service.client.get("/v1/items", params={"limit": 201}).status_code == 422
    assert service.client.get("/v1/items", params={"unknown": 1}).status_code == 422


def test_policies_and_catalogue(service: Local) -> None:
    policies = {one["name"]: one for one in service.client.get("/v1/policies").json()}
    assert policies["dc2b-calibrated"]["share"] == 1.0
    assert policies["dc2b-calibrated"]["has_diversity_knob"] is True
    assert policies["popular"] | {"summary": ""} == {
        "name": "popular", "share": 0.0, "has_diversity_knob": False, "summary": "",
    }  # fmt: skip
    catalog = service.client.get("/v1/catalog").json()
    assert (catalog["items"], catalog["dim"], sorted(catalog["categories"])) == (
        60, 6, ["Comedy", "Drama", "Horror", "Sci-Fi", "War"],
    )  # fmt: skip


def test_a_new_catalogue_is_served_and_old_slates_still_take_feedback(service: Local, tmp_path: Path) -> None:
    slate = new_slate(service)
    sha256 = small_catalog(80, seed=1).save(tmp_path / "catalog")
    answer = reload(service)
    assert (answer.status_code, answer.json()["items"], answer.json()["sha256"]) == (200, 80, sha256)
    event = {"slate_id": slate["slate_id"], "clicked": [slate["items"][0]["id"]]}
    assert service.client.post("/v1/feedback", json=event).status_code == 200
    assert service.client.get("/v1/items").json()["total"] == 80


def test_a_damaged_catalogue_is_refused_and_the_old_one_goes_on(service: Local, tmp_path: Path) -> None:
    [arrays] = (tmp_path / "catalog").glob("*.safetensors")
    content = bytearray(arrays.read_bytes())
    content[-1] ^= 1
    arrays.write_bytes(content)
    answer = reload(service)
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:slatewise:problem:damaged-catalogue")
    assert str(tmp_path) not in answer.text
    assert new_slate(service)["items"]


def test_operators_see_what_happens(service: Local) -> None:
    slate = new_slate(service)
    service.client.post("/v1/feedback", json={"slate_id": slate["slate_id"], "clicked": [slate["items"][0]["id"]]})
    [result] = service.client.get("/v1/experiments").json()
    assert (result["policy"], result["users"], result["slates"], result["clicks"]) == ("dc2b-calibrated", 1, 1, 1)
    answer = service.client.get("/v1/live")
    assert answer.status_code == 200, service.lines
    live = answer.json()
    assert live["slates_per_second"] > 0 < live["feedback_per_second"]
    assert {one["route"] for one in live["latency"]} >= {"/v1/slates", "/v1/feedback"}
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
    ask = service.recommender.experiments

    def counted() -> Any:
        calls.append(1)
        return ask()

    monkeypatch.setattr(service.recommender, "experiments", counted)
    for _ in range(3):
        service.client.get("/v1/experiments")
    assert len(calls) == 1
    at, results = service.app.service.counted
    service.app.service.counted = (at - 5.1, results)
    service.client.get("/v1/experiments")
    assert len(calls) == 2


class Failing(Recommender):
    """A recommender whose store has trouble."""

    error: Exception = ValueError()

    def recommend_later(self, *_: Any, **__: Any) -> Future[Slate]:
        future: Future[Slate] = Future()
        future.set_exception(self.error)
        return future

    def feedback_later(self, *_: Any, **__: Any) -> Future[Receipt]:
        raise self.error


SECRET = "postgresql://me:secret-word@db/x at /srv/slates.db"  # noqa: S105
TROUBLES = [
    (StoreFullError(SECRET), 507, "full"),
    (StoreUnavailableError(SECRET), 503, "unavailable"),
    (StoreDamagedError(SECRET), 500, "damaged-store"),
    (KeyError(SECRET), 500, "internal"),
    (RecursionError(SECRET), 500, "internal"),
]


@pytest.mark.parametrize(("error", "status", "kind"), TROUBLES, ids=lambda one: str(one)[:20])
def test_trouble_inside_stays_inside(tmp_path: Path, error: Exception, status: int, kind: str) -> None:
    recommender = Failing(small_catalog())
    recommender.error = error
    with local(tmp_path, recommender) as service:
        slate = service.client.post("/v1/slates", json={"user": "anna"})
        feedback = service.client.post("/v1/feedback", json={"slate_id": "a", "clicked": []})
        batch = service.client.post("/v1/feedback", json={"events": [{"slate_id": "a", "clicked": []}]})
    for answer in (slate, feedback):
        assert answer.status_code == answer.json()["status"] == status
        assert answer.json()["type"] == f"urn:slatewise:problem:{kind}"
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["request_id"] == answer.headers["x-request-id"]
        assert ("retry-after" in answer.headers) == (status in (503, 507))
    assert batch.json()["results"][0]["error"]["status"] == status
    assert "secret-word" not in slate.text + feedback.text + batch.text + service.logged.getvalue()
    failures = [line for line in service.lines if line["event"] == "failure"]
    assert len(failures) == (3 if kind == "internal" else 0)
    assert all(line["kind"] == type(error).__name__ and line["at"] for line in failures)


def test_trouble_on_a_route_without_a_body_stays_inside_too(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: str) -> None:
        raise KeyError(SECRET)

    monkeypatch.setattr(service.recommender, "explain", fails)
    answer = service.client.get("/v1/users/anna")
    assert answer.status_code == answer.json()["status"] == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["request_id"] == answer.headers["x-request-id"]
    assert "secret-word" not in answer.text + service.logged.getvalue()
    assert [line["event"] for line in service.lines] == ["failure", "request"]


def test_a_result_comes_from_another_thread() -> None:
    async def outcome(finish: Callable[[Future[int]], None]) -> int:
        future: Future[int] = Future()
        asyncio.get_running_loop().call_later(0.01, threading.Thread(target=finish, args=(future,)).start)
        return await result(future)

    assert asyncio.run(outcome(lambda future: future.set_result(3))) == 3
    with pytest.raises(KeyError):
        asyncio.run(outcome(lambda future: future.set_exception(KeyError())))


def test_who_stops_waiting_takes_the_work_back() -> None:
    future: Future[int] = Future()

    async def impatient() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(result(future), 0.01)

    asyncio.run(impatient())
    assert future.cancelled()


def test_a_result_after_the_end_is_nobodys(caplog: pytest.LogCaptureFixture) -> None:
    future: Future[int] = Future()
    future.set_running_or_notify_cancel()

    async def impatient() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(result(future), 0.01)

    asyncio.run(impatient())
    future.set_result(3)
    assert caplog.records == []


def test_a_store_that_does_not_answer_is_not_ready(service: Local) -> None:
    assert service.client.get("/health/ready").status_code == 200
    service.recommender.close()
    assert service.client.get("/health/ready").status_code == 503
    assert service.client.get("/health/live").status_code == 200
    assert "slatewise_store_up 0.0" in service.client.get("/metrics").text


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
    page = tmp_path / "page"
    (page / "charts").mkdir(parents=True)
    for name in ("index.html", "live.html", "page.css", "charts/path.js"):
        (page / name).write_text(name)
    (tmp_path / "secret.txt").write_text("secret")
    monkeypatch.setattr(page_files.add_page, "__defaults__", (page,))
    key_file(tmp_path / "keys.json", one=("admin",))
    with local(tmp_path) as service:
        found = {path: service.client.get(path) for path in ("/", "/live", "/page/page.css", "/page/charts/path.js")}
        assert [answer.text for answer in found.values()] == ["index.html", "live.html", "page.css", "charts/path.js"]
        kinds = [answer.headers["content-type"].partition(";")[0] for answer in found.values()]
        assert kinds == ["text/html", "text/html", "text/css", "text/javascript"]
        tag = found["/"].headers["etag"]
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
        (entry.method, entry.path) for entry in ROUTES
    }
    for entry in ROUTES:
        assert described["paths"][entry.path][entry.method.lower()]["x-scopes"] == list(entry.scopes)
    body = described["components"]["schemas"]["SlateRequest"]
    assert body["additionalProperties"] is False
    assert body["properties"]["k"]["maximum"] == 500
    page = service.client.get("/docs").text
    assert all(entry.path in page for entry in ROUTES)
    assert not re.search(r"(src|href)=.?(https?:)?//", page)
    assert "<script" not in page


def test_the_description_can_be_switched_off(tmp_path: Path) -> None:
    with local(tmp_path, reference=False) as service:
        assert service.client.get("/docs").status_code == service.client.get("/openapi.json").status_code == 404


def test_problems_are_json_even_for_odd_requests(service: Local) -> None:
    """Unknown paths, methods and versions of HTTP verbs get the same kind of answer."""
    calls: list[Callable[[], Any]] = [
        lambda: service.client.get("/v2/slates"),
        lambda: service.client.request("PATCH", "/v1/slates"),
        lambda: service.client.request("BREW", "/v1/slates"),
        lambda: service.client.get("/v1/slates/"),
    ]
    for call in calls:
        answer = call()
        assert answer.status_code in (404, 405)
        assert json.loads(answer.content)["request_id"]
        assert answer.headers["content-type"] == "application/problem+json"
