"""What was looked at is told, and nothing else: a second on screen, in a tab that is in front."""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from playwright.sync_api import Error, Page, Request, Route, ViewportSize, expect

from tests.browser.conftest import Visit
from tests.support.visitor import Visitor

pytestmark = pytest.mark.slow

PHONE = ViewportSize(width=390, height=844)
IN_VIEW = """() => {
    const end = innerHeight;
    return [...document.querySelectorAll(".card")].map((card) => {
        const { top, bottom, height } = card.getBoundingClientRect();
        return Math.min(bottom, end) - Math.max(top, 0) >= height / 2;
    });
}"""
FRAME = """() => new Promise((done) => {
    new IntersectionObserver((_, observer) => { observer.disconnect(); done(); }).observe(document.body);
})"""
HIDE = """(state) => {
    Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""

Sent = list[dict[str, Any]]


def sent(page: Page, path: str = "/v1/feedback") -> Sent:
    """Collect the bodies that are sent to a path from now on."""
    bodies: Sent = []

    def note(request: Request) -> None:
        if request.url.endswith(path) and request.post_data:
            bodies.append(json.loads(request.post_data))

    page.on("request", note)
    return bodies


def stand_still(visitor: Visitor) -> None:
    """Take the clock of the page into our hands, and begin with a slate at which nobody has looked."""
    visitor.page.clock.install()
    visitor.page.clock.pause_at(visitor.page.evaluate("Date.now() + 1000"))
    visitor.more()


def look(visitor: Visitor, milliseconds: int = 1000) -> None:
    """Let time pass, once the browser knows what is on screen."""
    visitor.page.evaluate(FRAME)
    visitor.page.clock.run_for(milliseconds)


def in_view(visitor: Visitor) -> list[Any]:
    return [item["id"] for item, is_in in zip(items(visitor), visitor.page.evaluate(IN_VIEW), strict=True) if is_in]


def items(visitor: Visitor) -> list[dict[str, Any]]:
    return visitor.slate()["items"]  # type: ignore[no-any-return]


def seen(visitor: Visitor) -> set[Any]:
    return set(visitor.session()["seen"])


def test_a_card_is_seen_after_a_second_on_screen(visit: Visit) -> None:
    someone = visit(viewport=PHONE)
    stand_still(someone)
    look(someone, 999)
    assert seen(someone) == set()
    first = in_view(someone)
    assert 0 < len(first) < 5
    look(someone, 1)
    assert seen(someone) == set(first)
    someone.cards.last.scroll_into_view_if_needed()
    look(someone, 900)
    someone.page.evaluate("scrollTo(0, 0)")
    look(someone, 5000)
    assert seen(someone) == set(first), "what passed by was not seen"
    someone.cards.last.scroll_into_view_if_needed()
    look(someone)
    assert seen(someone) == {*first, *in_view(someone)}
    assert len(seen(someone)) < 10


def test_a_tab_in_the_background_is_not_looked_at(visit: Visit) -> None:
    someone = visit(viewport=PHONE)
    stand_still(someone)
    look(someone, 900)
    someone.page.evaluate(HIDE, "hidden")
    look(someone, 5000)
    assert seen(someone) == set()
    someone.page.evaluate(HIDE, "visible")
    look(someone, 900)
    assert seen(someone) == set()
    look(someone, 100)
    assert seen(someone) == set(in_view(someone))


def test_cards_larger_than_the_window_can_be_seen(visit: Visit) -> None:
    someone = visit(viewport={"width": 390, "height": 160})
    stand_still(someone)
    someone.cards.nth(4).evaluate("card => card.scrollIntoView({ block: 'start' })")
    look(someone)
    assert items(someone)[4]["id"] in seen(someone)


def test_what_was_seen_goes_along_with_what_is_sent_anyway(visit: Visit) -> None:
    someone = visit(viewport=PHONE)
    stand_still(someone)
    bodies = sent(someone.page)
    look(someone)
    looked_at = seen(someone)
    someone.page.wait_for_timeout(300)
    assert bodies == [], "looking alone sends nothing"
    someone.like(0)
    someone.delivered()
    (like,) = bodies
    assert set(like["seen"]) == looked_at
    assert not like["final"]
    someone.more()
    assert len(bodies) == 2
    assert bodies[1]["final"]
    assert set(bodies[1]["seen"]) == looked_at


def test_nothing_is_said_of_a_slate_that_nobody_looked_at(visit: Visit) -> None:
    someone = visit()
    stand_still(someone)
    bodies = sent(someone.page)
    someone.more()
    someone.page.evaluate(HIDE, "hidden")
    someone.more()
    assert bodies == []


def test_what_was_not_seen_is_offered_again(visit: Visit) -> None:
    someone = visit(viewport=PHONE)
    with someone.another_slate():
        someone.page.locator("#policy").select_option("popular")
    stand_still(someone)
    shown = [item["id"] for item in items(someone)]
    look(someone)
    looked_at = seen(someone)
    assert 0 < len(looked_at) < 5
    someone.more()
    offered = [item["id"] for item in items(someone)]
    assert [item for item in offered if item in shown] == [item for item in shown if item not in looked_at]


@pytest.mark.parametrize("is_online", [True, False])
def test_who_leaves_has_said_what_they_saw(visit: Visit, is_online: bool) -> None:
    someone = visit(viewport=PHONE)
    stand_still(someone)
    look(someone)
    slate, looked_at = someone.slate()["slate_id"], seen(someone)
    someone.page.context.set_offline(not is_online)
    user = someone.session()["user"]
    with suppress(Error):  # the browser says that it is offline
        someone.page.goto("about:blank")
    if not is_online:
        someone.page.context.set_offline(False)
        someone.page.goto(f"http://127.0.0.1:{someone.server.port}/")
        someone.delivered()
    told = eventually(lambda: [one["seen"] for one in feedback_of(someone, user) if one["slate_id"] == slate])
    assert [set(one) for one in told] == [looked_at], "once, however often it was sent"


def feedback_of(visitor: Visitor, user: str) -> Sent:
    with visitor.server.client() as client:
        found: Sent = client.get(f"/v1/users/{user}/export").json()["feedback"]
        return found


def eventually(find: Callable[[], list[Any]]) -> list[Any]:
    """Wait until something is there: nobody is left who could say that it has arrived."""
    for _ in range(100):
        if found := find():
            return found
    raise AssertionError("nothing has arrived")


def test_a_tab_that_is_put_aside_says_what_was_seen_once(visit: Visit) -> None:
    someone = visit(viewport=PHONE)
    stand_still(someone)
    look(someone)
    bodies = sent(someone.page)
    for state in ("hidden", "visible", "hidden"):
        someone.page.evaluate(HIDE, state)
        someone.delivered()
    assert [set(one["seen"]) for one in bodies] == [seen(someone)]


def test_what_one_tab_saw_another_tells(visit: Visit) -> None:
    one = visit(viewport=PHONE)
    stand_still(one)
    other = Visitor(one.page.context.new_page(), one.server)
    look(one)
    looked_at = seen(one)
    bodies = sent(other.page)
    other.more()
    assert looked_at <= set(bodies[-1]["seen"])


def test_a_lost_slate_arrives_when_it_is_asked_for_again(visit: Visit) -> None:
    someone = visit()
    asked = sent(someone.page, "/v1/slates")
    answers: list[str] = []

    def lose(route: Route) -> None:
        answers.append(route.fetch().json()["slate_id"])
        route.abort()

    someone.page.route("**/v1/slates", lose)
    someone.page.locator("#more").click()
    expect(someone.page.locator("#banner")).to_be_visible()
    someone.page.unroute("**/v1/slates")
    someone.page.reload()
    someone.settled()
    someone.more()
    assert someone.slate()["slate_id"] == answers[0]
    assert len({one["request_id"] for one in asked}) == 1
    someone.more()
    assert len({one["request_id"] for one in asked}) == 2
