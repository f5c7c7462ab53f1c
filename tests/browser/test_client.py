"""The JavaScript client, as a shop's own page would use it: nothing is lost or counted twice on a bad network."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from slatewise.client import responses
from slatewise.service import page as served_page
from slatewise.service.schemas import EventBody, FeedbackEvent, SlateBody
from tests.support.bad_network import FAULTS, BadNetwork, bad_network
from tests.support.serving import Server, small_catalog

ROUNDS = 12
TYPES = (served_page.DIRECTORY / "client.d.ts").read_text(encoding="utf-8")
SCRIPT = (served_page.DIRECTORY / "client.js").read_text(encoding="utf-8")
VISIT = """async ([user, rounds]) => {
  const { Client } = await import("/page/client.js");
  const client = new Client({ timeout: 500 });
  const hurry = setInterval(() => client.tryNow(), 20);
  for (let round = 0; round < rounds; round++) {
    const slate = await client.slate(user, { k: 3 });
    await client.feedback(slate.slate_id, { clicked: [slate.items[0].id], seen: 2 });
    await client.event(user, round, "view", { value: 0.5 });
  }
  clearInterval(hurry);
  return client.waiting();
}"""
OFFLINE = """async (user) => {
  const { Client } = await import("/page/client.js");
  window.client = new Client({ timeout: 500 });
  let lost = 0;
  client.addEventListener("lost", () => lost++);
  client.put({ user, item: 1, kind: "like" });
  client.put({ user, item: 2, kind: "like" });
  window.sending = client.send();
  while (!lost) await new Promise((resolve) => setTimeout(resolve, 10));
  return client.waiting();
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("service")
    small_catalog(200).save(directory / "catalog")
    with Server(directory, ["--store", "memory://"], {"SLATEWISE_RATE": "0"}) as running:
        yield running


@pytest.fixture
def network(server: Server) -> Iterator[BadNetwork]:
    with bad_network(server.port, seed=3) as network:
        yield network


@pytest.fixture
def page(browser: Browser, network: BadNetwork) -> Iterator[Page]:
    """A page of the service's origin, through the bad network, without the service's own scripts."""
    with browser.new_page() as page:
        page.goto(f"{network.url}/docs")
        yield page


def kept(server: Server, user: str) -> dict[str, Any]:
    with server.client() as client:
        return dict(client.get(f"/v1/users/{user}/export", params={"limit": 10_000}).json())


def test_nothing_is_lost_or_counted_twice_on_a_bad_network(server: Server, network: BadNetwork, page: Page) -> None:
    assert page.evaluate(VISIT, ["ann", ROUNDS]) == 0, "nothing waits any more"
    assert set(FAULTS) <= set(network.suffered)
    found = kept(server, "ann")
    assert {name: len(found[name]) for name in ("slates", "feedback", "events")} == dict.fromkeys(
        ("slates", "feedback", "events"), ROUNDS
    )


def test_events_wait_while_the_service_is_away_and_survive_a_reload(
    server: Server, network: BadNetwork, page: Page
) -> None:
    network.share, network.is_down = 0.0, True
    assert page.evaluate(OFFLINE, "ben") == 2
    page.reload()
    network.is_down = False
    left = page.evaluate(
        "async () => { const { Client } = await import('/page/client.js');"
        " const client = new Client(); const refused = await client.send(); return [client.waiting(), refused]; }"
    )
    assert left == [0, []]
    assert [event["item"] for event in kept(server, "ben")["events"]] == [1, 2]


def test_a_refused_event_is_dropped_and_reported(network: BadNetwork, page: Page) -> None:
    network.share = 0.0
    refused = page.evaluate(
        "async () => { const { Client } = await import('/page/client.js'); const client = new Client();"
        " const refused = await client.feedback('no-such-slate', { clicked: [] });"
        " return [client.waiting(), refused.map(({ problem, slateId }) => [problem.status, slateId])]; }"
    )
    assert refused == [0, [[404, "no-such-slate"]]]


def interface(name: str) -> set[str]:
    found = re.search(rf"export interface {name} {{\n(.*?)\n}}", TYPES, re.DOTALL)
    assert found, name
    return set(re.findall(r"^  (\w+)\??:", found[1], re.MULTILINE))


def test_types_are_those_of_the_service() -> None:
    assert interface("Slate") == set(responses.Slate.__annotations__)
    assert interface("SlateItem") == set(responses.SlateItem.__annotations__)
    assert interface("SlateOptions") == set(SlateBody.model_fields) - {"user"}
    assert interface("Reaction") == set(FeedbackEvent.model_fields) - {"slate_id"}
    assert interface("EventOptions") == set(EventBody.model_fields) - {"user", "item", "kind", "category", "retracts"}


def test_types_list_every_public_method() -> None:
    declared = re.search(r"export class Client extends EventTarget {\n(.*?)\n}", TYPES, re.DOTALL)
    assert declared
    written = set(re.findall(r"^  (?:async )?([a-z]\w*)\(.*\) {$", SCRIPT, re.MULTILINE))
    assert set(re.findall(r"^  (\w+)(?:<.+>)?\(", declared[1], re.MULTILINE)) == written - {"get"}


def test_the_page_itself_uses_the_client() -> None:
    assert 'from "./client.js"' in Path(served_page.DIRECTORY / "api.js").read_text(encoding="utf-8")
