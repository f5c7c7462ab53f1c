"""Like, "Not for me" and "Seen it": one answer per card, visible, undone by the same button, and never lost."""

from typing import Any

import pytest
from playwright.sync_api import Route, expect

from tests.browser.conftest import Visit
from tests.browser.test_access import axe, findings, reach
from tests.browser.test_seen import PHONE, sent
from tests.support.visitor import Visitor

pytestmark = pytest.mark.slow

__all__ = ["axe"]

BOXES = "all => all.map((one) => JSON.stringify(one.getBoundingClientRect()))"
CRAMPED = """all => all.filter((one) => {
    const [inner, outer] = [one.getBoundingClientRect(), one.closest(".card").getBoundingClientRect()];
    return one.scrollWidth > one.clientWidth || inner.left < outer.left - 1 || inner.right > outer.right + 1;
}).length"""


def press(visitor: Visitor, kind: str, *places: int) -> None:
    for place in places:
        visitor.cards.nth(place).locator(f".{kind}").click()


def pressed(visitor: Visitor) -> dict[int, str]:
    """Which button of which card is down."""
    read = "all => all.map((card) => [...card.querySelectorAll('[aria-pressed=true]')].map((one) => one.className))"
    found: list[list[str]] = visitor.cards.evaluate_all(read)
    assert all(len(one) < 2 for one in found), "one answer per card"
    return {place: one[0] for place, one in enumerate(found) if one}


def item(visitor: Visitor, place: int) -> Any:
    return visitor.slate()["items"][place]["id"]


def events_of(visitor: Visitor) -> list[tuple[Any, str]]:
    return [(one["item"], one["kind"]) for one in visitor.kept()["events"]]


def test_what_is_not_for_me_is_told_and_can_be_undone(visit: Visit) -> None:
    someone = visit()
    slate, refused = someone.slate()["slate_id"], item(someone, 1)
    press(someone, "dislike", 0, 1, 0)
    assert pressed(someone) == {1: "dislike"}
    someone.delivered()
    assert someone.reactions()[slate] == (set(), {refused})
    press(someone, "dislike", 1)
    someone.more()
    assert someone.reactions()[slate] == (set(), set())


def test_one_answer_replaces_another(visit: Visit) -> None:
    someone = visit()
    slate = someone.slate()["slate_id"]
    someone.like(0, 1)
    press(someone, "dislike", 0)
    press(someone, "known", 1)
    assert pressed(someone) == {0: "dislike", 1: "known"}
    someone.delivered()
    assert someone.reactions()[slate] == (set(), {item(someone, 0)})
    someone.like(0)
    assert pressed(someone) == {0: "like", 1: "known"}
    someone.delivered()
    assert someone.reactions()[slate] == ({item(someone, 0)}, set())
    someone.like(0)
    someone.delivered()
    assert someone.reactions()[slate] == (set(), set())


def test_what_was_seen_elsewhere_is_told_with_the_next_slate_and_not_shown_again(visit: Visit) -> None:
    someone = visit()
    bodies = sent(someone.page)
    known = item(someone, 2)
    press(someone, "known", 1, 2, 1)
    assert pressed(someone) == {2: "known"}
    someone.like(0)
    someone.delivered()
    assert events_of(someone) == [], "until the next slate it can be undone"
    someone.more()
    assert events_of(someone) == [(known, "owned")]
    assert all(known not in one["seen"] for one in bodies), "that it was not liked here means nothing"
    for _ in range(3):
        assert known not in {one["id"] for one in someone.slate()["items"]}
        someone.more()


def test_what_was_seen_is_not_called_liked(visit: Visit) -> None:
    """What a slate cites is up to the belief, so that the server is made to cite both."""
    someone = visit()
    sources = [item(someone, 0), item(someone, 1)]
    press(someone, "known", 0)
    someone.like(1)

    def cite(route: Route) -> None:
        response = route.fetch()
        slate = response.json()
        for one, source in zip(slate["items"], sources, strict=False):
            one.update(reason="learned", because=source, because_title="a film")
        route.fulfill(response=response, json=slate)

    someone.page.route("**/v1/slates", cite)
    someone.more()
    for place, words in enumerate(["Because you’ve seen a film", "Because you liked a film"]):
        expect(someone.cards.nth(place).locator(".reason dd")).to_contain_text(words)


def test_seen_it_outlives_a_reload(visit: Visit) -> None:
    someone = visit()
    known = item(someone, 3)
    press(someone, "known", 3)
    someone.page.reload()
    someone.settled()
    assert pressed(someone) == {3: "known"}
    someone.more()
    assert events_of(someone) == [(known, "owned")]


def test_reactions_made_offline_are_sent_later(visit: Visit) -> None:
    someone = visit()
    known, disliked, slate = item(someone, 0), item(someone, 1), someone.slate()["slate_id"]
    someone.page.context.set_offline(True)
    press(someone, "known", 0)
    press(someone, "dislike", 1)
    expect(someone.page.locator("#banner")).to_contain_text("You are offline. 1 change kept")
    someone.page.locator("#more").click()
    expect(someone.page.locator("#banner")).to_contain_text("3 changes kept")
    with someone.another_slate():
        someone.page.context.set_offline(False)
    assert events_of(someone) == [(known, "owned")]
    assert someone.reactions()[slate] == (set(), {disliked})


def test_reactions_reach_the_other_tab(visit: Visit) -> None:
    one = visit()
    other = Visitor(one.page.context.new_page(), one.server)
    press(one, "dislike", 0)
    press(one, "known", 1)
    expect(other.page.locator(".card.owned")).to_have_count(1)
    assert pressed(other) == {0: "dislike", 1: "known"}
    press(other, "dislike", 0)
    expect(one.page.locator(".card.disliked")).to_have_count(0)


def test_the_knob_leaves_a_slate_alone_that_has_been_reacted_to(visit: Visit) -> None:
    someone = visit()
    before = someone.titles()
    press(someone, "known", 0)
    someone.page.locator("#knob").press("End")
    expect(someone.page.locator("#knob-note")).to_contain_text("next slate")
    someone.page.wait_for_timeout(400)
    assert someone.titles() == before


def test_reactions_work_with_the_keyboard_and_are_named(visit: Visit) -> None:
    someone = visit()
    first, second = someone.titles()[:2]
    key, focused = someone.page.keyboard.press, someone.page.locator(":focus")
    reach(someone, ".dislike")
    expect(focused).to_have_accessible_name(f"Not for me: {first}")
    key("Space")
    expect(someone.page.get_by_role("button", name=f"Not for me: {first}", pressed=True)).to_be_visible()
    key("ArrowRight")
    expect(focused).to_have_accessible_name(f"Not for me: {second}")
    key("Tab")
    expect(focused).to_have_accessible_name(f"Seen it: {second}")
    expect(focused).to_have_accessible_description("I know this already: learn from it, and don’t show it again")
    key("Enter")
    assert pressed(someone) == {0: "dislike", 1: "known"}
    key("Enter")
    assert pressed(someone) == {0: "dislike"}


def test_nothing_moves_when_a_button_is_pressed(visit: Visit) -> None:
    someone = visit(viewport=PHONE)
    parts = someone.page.locator(".card, .card button, .card h2")
    before = parts.evaluate_all(BOXES)
    for kind in ("dislike", "known", "like"):
        someone.cards.nth(0).locator(f".{kind}").evaluate("button => button.click()")
        assert parts.evaluate_all(BOXES) == before


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_reactions_can_be_read_by_everyone(visit: Visit, axe: str, scheme: Any) -> None:
    someone = visit(color_scheme=scheme)
    press(someone, "dislike", 0)
    press(someone, "known", 1)
    press(someone, "like", 2)
    someone.page.mouse.move(0, 0)
    assert findings(someone.page, axe) == []


def test_the_buttons_fit_every_width(visit: Visit) -> None:
    someone = visit()
    for width in (320, 390, 577, 600, 768, 865, 900, 993, 1024, 1153, 1200, 1313, 1440, 1521, 1920):
        someone.page.set_viewport_size({"width": width, "height": 800})
        assert someone.page.locator(".reactions button").evaluate_all(CRAMPED) == 0, width
