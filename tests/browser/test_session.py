"""A session survives a reload, a second tab, an outage and a server that dies."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Request, Route, expect

from tests.browser.conftest import Visit
from tests.support.serving import Server, key_file, small_catalog
from tests.support.visitor import Visitor

DEAF = "addEventListener('storage', (event) => event.stopImmediatePropagation(), true)"


def kept_session(visitor: Visitor) -> dict[str, Any]:
    """The session without what was seen, which grows as time passes."""
    return {name: value for name, value in visitor.session().items() if name not in ("seen", "told")}


def test_a_reload_keeps_the_slate_and_the_likes(visit: Visit) -> None:
    someone = visit()
    someone.like(0)
    someone.more()
    someone.like(1, 3)
    before = (kept_session(someone), someone.titles(), someone.round)
    someone.page.reload()
    someone.settled()
    assert (kept_session(someone), someone.titles(), someone.round) == before
    assert someone.liked() == [1, 3]


@pytest.mark.slow
def test_two_tabs_are_one_person(visit: Visit) -> None:
    one = visit()
    other = Visitor(one.page.context.new_page(), one.server)
    assert other.titles() == one.titles()
    one.like(0)
    other.page.wait_for_function("() => document.querySelector('.like').ariaPressed === 'true'")
    other.like(1)
    one.page.wait_for_function("() => document.querySelectorAll('.like')[1].ariaPressed === 'true'")
    one.like(1, 2)
    with other.another_slate():
        one.more()
    assert one.titles() == other.titles()
    assert [len(items) for items in one.recorded().values()] == [2, 0]
    assert one.known()["clicks"] == 2


def test_two_tabs_that_ask_for_more_at_once_get_one_slate(visit: Visit) -> None:
    one = visit()
    other = Visitor(one.page.context.new_page(), one.server)
    held: list[Route] = []
    go = threading.Event()

    def hold(route: Route) -> None:
        if go.is_set():  # a slow machine may make the page ask again for what was held
            route.continue_()
        else:
            held.append(route)

    one.page.context.route("**/v1/slates", hold)
    with one.another_slate(), other.another_slate():
        one.page.locator("#more").click()
        other.page.locator("#more").click()
        deadline = time.monotonic() + 60
        while not held and time.monotonic() < deadline:
            other.page.wait_for_timeout(50)
        other.page.wait_for_timeout(300)
        go.set()
        for route in held:
            route.continue_()
    assert len(held) == 1
    assert one.titles() == other.titles()
    assert one.known()["slates"] == 1
    assert len(one.recorded()) == 2


def test_a_tab_that_slept_may_still_like_what_it_shows(visit: Visit) -> None:
    one = visit()
    page = one.page.context.new_page()
    page.add_init_script(DEAF)
    sleeper = Visitor(page, one.server)
    old = one.slate()
    one.more()
    assert sleeper.titles() != one.titles(), "the sleeper must not have heard"
    sleeper.like(4)
    sleeper.delivered()
    assert old["items"][4]["id"] in one.recorded()[old["slate_id"]]
    assert one.liked() == []


def test_likes_made_offline_are_sent_later(visit: Visit) -> None:
    someone = visit()
    slate = someone.slate()
    someone.page.context.set_offline(True)
    someone.like(0, 1)
    expect(someone.page.locator("#banner")).to_contain_text("You are offline. 2 changes kept")
    assert someone.recorded()[slate["slate_id"]] == set()
    someone.page.context.set_offline(False)
    someone.delivered()
    expect(someone.page.locator("#banner")).to_be_hidden()
    assert someone.recorded()[slate["slate_id"]] == {slate["items"][0]["id"], slate["items"][1]["id"]}


@pytest.mark.slow
def test_the_server_dies_and_comes_back_and_no_like_is_lost(visit: Visit, tmp_path: Path) -> None:
    small_catalog().save(tmp_path / "catalog")
    with Server(tmp_path) as server:
        someone = visit(server)
        slate = someone.slate()
        someone.like(0)
        someone.delivered()
        assert server.process is not None
        server.process.kill()
        someone.like(1, 2, 1)
        someone.page.locator("#more").click()
        expect(someone.page.locator("#banner")).to_contain_text("The service does not respond.")
    with Server(tmp_path, ["--port", str(server.port)]) as again, someone.another_slate():
        someone.server = again
        someone.page.evaluate("document.querySelector('#banner button')?.click()")
        expect(someone.page.locator("#banner")).to_be_hidden()
        someone.delivered()
        liked = {slate["items"][0]["id"], slate["items"][2]["id"]}
        assert someone.recorded()[slate["slate_id"]] == liked
        assert someone.known()["slates"] == 1
        someone.settled()


def test_a_like_counts_once_although_its_receipt_was_lost_with_the_page(visit: Visit) -> None:
    someone = visit()
    slate = someone.slate()["slate_id"]
    attempts: list[str] = []

    def note(request: Request) -> None:
        """Note likes; that something was seen may be told, too."""
        if "/v1/feedback" in request.url and "clicked" in (request.post_data or ""):
            attempts.append(request.post_data or "")

    def lose_receipt(route: Route) -> None:
        note(route.request)
        route.fetch()
        route.abort()

    someone.page.route("**/v1/feedback", lose_receipt)
    someone.like(0)
    expect(someone.page.locator("#banner")).to_be_visible()
    someone.page.unroute("**/v1/feedback")
    someone.page.on("request", note)
    someone.page.reload()
    someone.delivered()
    assert len(attempts) >= 2
    assert len(set(attempts)) == 1
    someone.settled()
    someone.like(0)
    someone.delivered()
    assert someone.recorded()[slate] == set(), "counted twice, the like would outlive being taken back"


def test_who_starts_over_while_waiting_gets_a_slate_of_their_own(visit: Visit) -> None:
    someone = visit()
    old = someone.session()["user"]
    someone.page.context.set_offline(True)
    someone.page.locator("#more").click()
    expect(someone.page.locator("#banner")).to_be_visible()
    someone.page.locator("#start-over").click()
    someone.page.context.set_offline(False)
    someone.page.wait_for_function("() => JSON.parse(localStorage['slatewise.session']).slate")
    assert someone.slate()["user"] == someone.session()["user"] != old
    someone.settled()
    assert someone.round == "Slate 1"


def test_a_service_that_lost_everything_gives_a_new_slate(visit: Visit) -> None:
    someone = visit()
    with someone.server.client() as client:
        client.delete(f"/v1/users/{someone.session()['user']}")
    with someone.another_slate():
        someone.like(0)
    expect(someone.page.locator("#said")).to_contain_text("no longer knows this slate")


def test_a_problem_is_shown_and_can_be_tried_again(visit: Visit) -> None:
    someone = visit()

    def fail(route: Route) -> None:
        problem = '{"title": "Something went wrong inside", "detail": "The log knows.", "request_id": "r-1"}'
        route.fulfill(status=500, content_type="application/problem+json", body=problem)

    someone.page.route("**/v1/slates", fail)
    someone.page.locator("#more").click()
    panel = someone.page.get_by_role("alert")
    expect(panel).to_contain_text("Something went wrong inside")
    expect(panel).to_contain_text("r-1")
    someone.page.unroute("**/v1/slates")
    with someone.another_slate():
        panel.get_by_role("button", name="Try again").click()
    expect(panel).to_have_count(0)


def test_a_busy_service_is_asked_again(visit: Visit) -> None:
    someone = visit()
    answers = iter([503, 429])

    def busy(route: Route) -> None:
        status = next(answers, None)
        if status is None:
            route.continue_()
        else:
            route.fulfill(status=status, content_type="application/problem+json", body='{"title": "Too busy"}')

    someone.page.route("**/v1/feedback", busy)
    someone.like(0)
    expect(someone.page.locator("#banner")).to_contain_text("Too busy.")
    someone.delivered()
    expect(someone.page.locator("#banner")).to_be_hidden()
    assert [len(items) for items in someone.recorded().values()] == [1]


def test_a_key_is_asked_for(visit: Visit, tmp_path: Path) -> None:
    small_catalog().save(tmp_path / "catalog")
    keys = key_file(tmp_path / "keys.json", page=("serve",), operator=("read",))
    with Server(tmp_path) as server:
        someone = visit(server, path="/live")
        give_key(someone, "swk_wrong")
        expect(someone.page.get_by_role("dialog")).to_contain_text("not accepted")
        give_key(someone, keys["operator"])
        expect(someone.page.locator("#store")).to_contain_text("sqlite")
        other = visit(server, path="/live")
        other.page.goto(f"http://127.0.0.1:{server.port}/")
        give_key(other, keys["page"])
        other.settled()
        other.page.locator("#forget").click()
        other.page.get_by_role("dialog").get_by_role("button", name="Forget me").click()
        expect(other.page.locator("#said")).to_contain_text("may not delete")


def test_a_request_from_before_the_key_does_not_speak_against_it(visit: Visit, tmp_path: Path) -> None:
    small_catalog().save(tmp_path / "catalog")
    keys = key_file(tmp_path / "keys.json", page=("serve",))
    without_key: list[Route] = []

    def hold_the_second(route: Route) -> None:
        if "x-api-key" not in route.request.headers:
            without_key.append(route)
        if "x-api-key" in route.request.headers or len(without_key) != 2:
            route.continue_()

    with Server(tmp_path) as server:
        someone = visit(server, path="/live")
        someone.page.route("**/v1/**", hold_the_second)
        someone.page.goto(f"http://127.0.0.1:{server.port}/")
        give_key(someone, keys["page"])
        assert len(without_key) > 1
        without_key[1].continue_()
        someone.settled()


def give_key(visitor: Visitor, key: str) -> None:
    dialog = visitor.page.get_by_role("dialog")
    dialog.get_by_label("API key").fill(key)
    dialog.get_by_role("button").click()
