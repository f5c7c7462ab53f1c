"""Evidence over HTTP: what was seen and graded, events from anywhere, requests sent again, users merged."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.serving import Local, local


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Local]:
    with local(tmp_path) as started:
        yield started


def test_feedback_takes_what_was_seen_graded_and_disliked(service: Local) -> None:
    slate = service.client.post("/v1/slates", json={"user": "anna", "k": 4}).json()
    first, second, third, _ = (item["id"] for item in slate["items"])
    said = {"seen": 3, "values": [[first, 0.9]], "disliked": [second], "user": "anna"}
    assert service.client.post("/v1/feedback", json={"slate_id": slate["slate_id"], **said}).status_code == 200
    (kept,) = service.client.get("/v1/users/anna/export").json()["feedback"]
    assert (kept["seen"], kept["values"], kept["disliked"]) == ([first, second, third], [[first, 0.9]], [second])
    for wrong in ({"seen": -1}, {"seen": True}, {"values": [[first, 2]]}, {"values": {"1": 0.5}}, {"disliked": [999]}):
        sent = service.client.post("/v1/feedback", json={"slate_id": slate["slate_id"], **wrong})
        assert sent.status_code == 422, wrong


def test_events_one_by_one_and_in_batches(service: Local) -> None:
    like = {"user": "anna", "item": 3, "kind": "like", "event_id": "e"}
    answers = [service.client.post("/v1/events", json=like).json() for _ in range(2)]
    assert [answer["duplicate"] for answer in answers] == [False, True]
    events = [{**like, "event_id": "f"}, {**like, "kind": "no"}, {"user": "anna", "item": "new", "kind": "owned"}]
    results = service.client.post("/v1/events", json={"events": events}).json()["results"]
    assert [result.get("known") for result in results] == [True, None, False]
    assert results[1]["error"]["status"] == 422
    assert service.client.post("/v1/events", json={**like, "item": 4}).status_code == 409
    page = service.client.get("/v1/users/anna/export?limit=2").json()
    assert (len(page["events"]), page["next"] is None) == (2, False)
    assert service.client.get("/v1/users/anna/export?after=nonsense").status_code == 422
    assert service.client.delete("/v1/users/anna").status_code == 204
    assert service.client.get("/v1/users/anna/export").status_code == 404


def test_the_same_request_gets_the_same_slate(service: Local) -> None:
    request = {"user": "anna", "k": 3, "request_id": "r"}
    first, again = (service.client.post("/v1/slates", json=request) for _ in range(2))
    assert (first.status_code, first.json()) == (again.status_code, again.json())
    assert service.client.post("/v1/slates", json={**request, "k": 4}).status_code == 409


def test_a_session_is_merged_into_a_user(service: Local) -> None:
    slate = service.client.post("/v1/slates", json={"user": "session", "k": 3}).json()
    moved = [service.client.post("/v1/users/anna/merge", json={"from": "session"}).json() for _ in range(2)]
    assert [one["slates"] for one in moved] == [1, 0]
    event = {"slate_id": slate["slate_id"], "clicked": [slate["items"][0]["id"]]}
    assert service.client.post("/v1/feedback", json=event).status_code == 200
    assert service.client.get("/v1/users/anna").json()["clicks"] == 1
    for body in ({"from": "anna"}, {}, {"session": "x"}):
        assert service.client.post("/v1/users/anna/merge", json=body).status_code == 422
