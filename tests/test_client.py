"""The Python client: the same calls with and without asyncio, and nothing counted twice on a bad network."""

import asyncio
import inspect
import sys
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from slatewise.client import AsyncClient, Client, ServiceError, UnreachableError, calls, connection, responses
from slatewise.recommender import types
from slatewise.service.schemas import EventBody, FeedbackEvent, RerankBody, SlateBody
from tests.support.bad_network import FAULTS, BadNetwork, bad_network
from tests.support.serving import Server, key_file, local, small_catalog

ROUNDS = 15


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("service")
    small_catalog(300).save(directory / "catalog")
    with Server(directory, ["--store", "memory://"], {"SLATEWISE_RATE": "0"}) as running:
        yield running


@pytest.fixture(autouse=True)
def quick_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "FIRST_PAUSE", 0.001)


def kept(server: Server, user: str) -> dict[str, int]:
    """What the service has recorded about a user."""
    with server.client() as client:
        export = client.get(f"/v1/users/{user}/export", params={"limit": 10_000}).json()
    return {name: len(export[name]) for name in ("slates", "feedback", "events")}


def visit(client: Client, user: str) -> None:
    for number in range(ROUNDS):
        slate = client.slate(user, 3)
        client.feedback(slate.slate_id, [slate.items[0].id], seen=2)
        client.event(user, number, "view", value=0.5)


@pytest.mark.process
def test_nothing_is_lost_or_counted_twice_on_a_bad_network(server: Server) -> None:
    with bad_network(server.port) as network:
        with Client(network.url, timeout=0.4, attempts=100, transport=httpx.HTTPTransport()) as client:
            visit(client, "ann")
        assert set(FAULTS) <= set(network.suffered), "every fault occurred"
    assert kept(server, "ann") == {"slates": ROUNDS, "feedback": ROUNDS, "events": ROUNDS}


@pytest.mark.process
def test_without_ids_of_the_first_attempt_something_is_counted_twice(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a client whose every attempt has a new id."""
    made = connection.http_request

    def with_new_ids(call: calls.Call[Any]) -> dict[str, Any]:
        request = made(call)
        names = [name for name in ("request_id", "event_id") if name in request["json"]]
        return request | {"json": request["json"] | {name: uuid4().hex for name in names}}

    monkeypatch.setattr("slatewise.client.synchronous.http_request", with_new_ids)
    with (
        bad_network(server.port) as network,
        Client(network.url, timeout=0.4, attempts=100, transport=httpx.HTTPTransport()) as client,
    ):
        visit(client, "ben")
    assert kept(server, "ben")["slates"] > ROUNDS
    assert kept(server, "ben")["events"] > ROUNDS


async def visit_together(network: BadNetwork, users: list[str]) -> None:
    async with AsyncClient(network.url, timeout=0.4, attempts=100, transport=httpx.AsyncHTTPTransport()) as client:

        async def one(user: str) -> None:
            for _ in range(5):
                slate = await client.slate(user, 3)
                await client.feedback(slate.slate_id, [slate.items[0].id])

        await asyncio.gather(*map(one, users))


@pytest.mark.process
def test_many_visitors_at_once_by_asyncio(server: Server) -> None:
    users = [f"visitor-{number}" for number in range(8)]
    with bad_network(server.port, seed=1) as network:
        asyncio.run(visit_together(network, users))
    assert [kept(server, user) for user in users] == [{"slates": 5, "feedback": 5, "events": 0}] * 8


@pytest.mark.process
def test_every_call_of_the_service(server: Server) -> None:
    with Client(f"http://127.0.0.1:{server.port}", transport=httpx.HTTPTransport()) as client:
        slate = client.slate("a/b", 5, exclude={1, 2}, at_most=[{"n": 2, "per": "category"}])
        assert len(slate.items) == 5
        assert isinstance(slate.items[0].categories, tuple)
        assert client.feedback(slate.slate_id, [slate.items[0].id]).closed
        assert client.preview("a/b", 2).number == 1
        batch = client.events([{"user": "a/b", "item": 7, "kind": "like"}, {"user": "a/b", "item": 7, "kind": "?"}])
        assert isinstance(batch.results[0], responses.EventReceipt)
        assert [error.status for error in batch.failed] == [422]
        assert [one.id for one in client.rerank([0.5, 0.9], items=[3, 4], k=1, diversity=0.0)] == [4]
        assert client.merge("carl", "a/b").slates == 1
        assert client.user("carl")["slates"] == 1
        client.put_items([{"id": 1000, "title": "New", "categories": ["Drama"], "attributes": {"price": 3}}])
        assert client.change_item(1000, title="Newer").title == "Newer"
        assert client.item(1000).attributes == {"price": 3}
        assert client.items(query="Newer", limit=5)[0].id == 1000
        client.withdraw_item(1000)
        client.forget("carl")
        assert client.catalog()["items"] >= 300


def test_both_clients_have_the_same_methods() -> None:
    def public(kind: type) -> dict[str, list[str]]:
        found = inspect.getmembers(kind, inspect.isfunction)
        return {name: list(inspect.signature(it).parameters) for name, it in found if not name.startswith("_")}

    assert public(Client) == public(AsyncClient)


@pytest.mark.process
def test_a_wish_is_recorded_and_retracted(server: Server) -> None:
    with Client(f"http://127.0.0.1:{server.port}") as client:
        wish = client.wish("wisher", "Horror", "more")
        assert wish.known
        assert client.retract("wisher", wish.event_id).known
        with pytest.raises(ServiceError, match="no such event"):
            client.retract("wisher", "never sent")
    assert kept(server, "wisher")["events"] == 2


@pytest.mark.parametrize(
    "name", ["Slate", "SlateItem", "Preview", "Receipt", "EventReceipt", "MergeReceipt", "UnmetRule"]
)
def test_answers_have_the_fields_of_the_service(name: str) -> None:
    ours, theirs = getattr(responses, name), getattr(types, name)
    assert [field.name for field in fields(ours)] == [field.name for field in fields(theirs)]


@pytest.mark.parametrize(
    ("options", "body", "elsewhere"),
    [
        (calls.SlateOptions, SlateBody, {"user", "k", "preview"}),
        (calls.Reaction, FeedbackEvent, {"slate_id", "clicked"}),
        (calls.EventOptions, EventBody, {"user", "item", "kind", "category", "retracts"}),
        (calls.RerankOptions, RerankBody, {"scores"}),
    ],
)
def test_options_are_those_of_the_service(options: Any, body: Any, elsewhere: set[str]) -> None:
    assert set(options.__annotations__) | elsewhere == set(body.model_fields)


def test_address_and_key_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def respond(request: httpx.Request) -> httpx.Response:
        seen.append((str(request.url), request.headers["authorization"]))
        return httpx.Response(200, json={})

    monkeypatch.setenv("SLATEWISE_URL", "http://shop.example")
    monkeypatch.setenv("SLATEWISE_KEY", "swk_secret")
    with Client(transport=httpx.MockTransport(respond)) as client:
        client.catalog()
    assert seen == [("http://shop.example/v1/catalog", "Bearer swk_secret")]


def test_a_refusal_says_why_and_is_not_sent_again(tmp_path: Path) -> None:
    key_file(tmp_path / "keys.json", shop=("serve",))
    with local(tmp_path) as service:
        attempts = []

        def respond(request: httpx.Request) -> httpx.Response:
            attempts.append(request)
            given = {"content": request.content, "headers": dict(request.headers)}
            answer = service.client.request(request.method, request.url.path, **given)
            return httpx.Response(answer.status_code, json=answer.json())

        with (
            Client("http://localhost", key="", transport=httpx.MockTransport(respond)) as client,
            pytest.raises(ServiceError, match="A valid API key is required") as refused,
        ):
            client.slate("ann")
    assert (refused.value.status, refused.value.kind, len(attempts)) == (401, "unauthenticated", 1)
    assert refused.value.request_id


def test_a_service_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    with (
        Client("http://127.0.0.1:9", attempts=2) as client,
        pytest.raises(UnreachableError, match=r"did not answer \(tried 2 times: .+\); is it running"),
    ):
        client.catalog()


def test_a_url_without_a_scheme_is_refused_at_once() -> None:
    with Client("127.0.0.1:8000", attempts=50) as client, pytest.raises(UnreachableError, match="tried once"):
        client.catalog()


def test_the_pause_is_as_long_as_the_service_asks() -> None:
    response = httpx.Response(429, headers={"retry-after": "7"})
    assert connection.pause_after(ServiceError(429, {}), 1, response) == 7.0
    assert connection.pause_after(httpx.ConnectError("no"), 30, None) <= connection.LONGEST_PAUSE


def test_forgetting_succeeds_if_the_first_answer_was_lost() -> None:
    attempts = []

    def respond(request: httpx.Request) -> httpx.Response:
        attempts.append(request)
        if len(attempts) == 1:
            raise httpx.ReadError("lost")
        return httpx.Response(404, json={})

    with Client(transport=httpx.MockTransport(respond)) as client:
        client.forget("ann")
    assert len(attempts) == 2


def test_without_httpx_the_way_to_get_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("slatewise.client")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ModuleNotFoundError, match=r"the client needs httpx: pip install '\.\[client\]'"):
        import_module("slatewise.client")


@pytest.mark.parametrize("wrong", [{"timeout": 0.0}, {"attempts": 0}])
def test_patience_must_be_possible(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="timeout must be positive"):
        Client(**wrong)
