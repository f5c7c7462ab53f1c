"""The page learns, explains itself, and does what its knobs say."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit
from tests.conftest import missing
from tests.support.serving import Server
from tests.support.visitor import Visitor


def variety(visitor: Visitor) -> int:
    return int(visitor.page.locator("#variety").inner_text().removesuffix(" %"))


def look_at_everything(visitor: Visitor) -> None:
    visitor.page.wait_for_function("() => JSON.parse(localStorage['slatewise.session']).seen.length === 10")


@pytest.mark.slow
def test_who_likes_science_fiction_gets_more_of_it_and_still_variety(
    visit: Visit, films: Server, has_films: bool
) -> None:
    """What is learned by itself: no other visitors, whose likes would change rates, and no exploration.

    With exploration, the first slate has three or four such films, which differs as much as what four slates teach.
    """
    if not has_films:
        missing("the real data (ml-100k.zip)")
    alone = {"SLATEWISE_EXPLORE": "0", "SLATEWISE_STORE": "sqlite:///science-fiction.db"}
    with Server(films.directory, environment=alone) as server:
        _like_science_fiction(visit(server, viewport={"width": 1440, "height": 1800}))


def _like_science_fiction(someone: Visitor) -> None:
    shares, breadths = [], []
    for round_number in range(4):
        if round_number:
            someone.more()
        look_at_everything(someone)
        items = someone.slate()["items"]
        shares.append(sum("Sci-Fi" in item["categories"] for item in items) / len(items))
        breadths.append(len({name for item in items for name in item["categories"]}))
        someone.like_all(lambda item: "Sci-Fi" in item["categories"])
    assert sum(shares[1:]) / 3 > shares[0]
    assert min(breadths) >= 3
    someone.more()
    expect(someone.page.locator("#taste .label").first).to_have_text("Sci-Fi")


def test_the_knob_picks_again_and_what_it_replaced_was_never_shown(visit: Visit) -> None:
    someone = visit()
    someone.more()
    knob = someone.page.locator("#knob")
    varieties = []
    for key in ("End", "Home", "End"):
        with someone.another_slate():
            knob.press(key)
        varieties.append(variety(someone))
    assert varieties[0] > varieties[1] < varieties[2]
    assert someone.round == "Slate 2"
    assert someone.known()["slates"] == 1


def test_the_knob_leaves_a_slate_alone_on_which_something_is_liked(visit: Visit) -> None:
    someone = visit()
    before = someone.titles()
    someone.like(0)
    someone.page.locator("#knob").press("End")
    expect(someone.page.locator("#knob-note")).to_contain_text("next slate")
    someone.delivered()
    someone.page.wait_for_timeout(400)
    assert someone.titles() == before
    someone.more()
    assert variety(someone) > 90


def test_policies_side_by_side_and_the_switch(visit: Visit) -> None:
    someone = visit()
    someone.like(0, 1)
    someone.page.locator("#compare summary").click()
    columns = someone.page.locator(".column")
    expect(columns.locator("h3")).to_have_text(["DC²B calibrated", "DC²B", "Popular"])
    shown = [columns.nth(place).locator("li").all_inner_texts() for place in range(3)]
    assert all(len(one) == 10 for one in shown)
    assert len({tuple(one) for one in shown}) == 3
    before = someone.known()
    assert before["slates"] == 0, "a preview records nothing"
    someone.more()
    with someone.another_slate():
        columns.nth(2).get_by_role("button").click()
    assert someone.slate()["policy"] == "popular"
    expect(someone.page.locator("#knob")).to_be_disabled()
    with someone.another_slate():
        someone.page.locator("#policy").select_option("random")
    expect(someone.page.locator(".chance dd").first).to_have_text("No estimate from this policy")


def test_a_like_can_be_taken_back(visit: Visit) -> None:
    someone = visit()
    slate = someone.slate()
    someone.like(0, 2, 0)
    someone.delivered()
    assert someone.liked() == [2]
    assert someone.recorded() == {slate["slate_id"]: {slate["items"][2]["id"]}}


def test_a_card_says_why_it_is_here(visit: Visit) -> None:
    someone = visit()
    expect(someone.cards.first.locator(".reason")).to_contain_text("Popular with everyone")
    item = someone.slate()["items"][0]
    words = f"{round(100 * item['probability'])} % ± {round(100 * item['deviation'])}"
    expect(someone.cards.first.locator(".chance .value")).to_have_text(words)
    expect(someone.cards.first.locator(".addition .value")).to_contain_text(f"Adds {item['categories'][0]}")
    liked = set()
    while not (close := [item for item in someone.slate()["items"] if item["because"] is not None]):
        someone.like(0, 1, 2)
        liked |= {item["id"] for item in someone.slate()["items"]}
        someone.more()
    assert {item["because"] for item in close} <= liked
    expect(someone.page.locator(".reason.learned cite")).to_have_count(len(close))


@pytest.mark.parametrize("again", ["start-over", "forget"])
def test_someone_can_start_over(visit: Visit, again: str) -> None:
    someone = visit()
    old = someone.session()["user"]
    someone.like(1)
    someone.delivered()
    with someone.another_slate():
        someone.page.locator(f"#{again}").click()
    assert someone.session()["user"] != old
    assert someone.liked() == []
    with someone.server.client() as client:
        assert client.get(f"/v1/users/{old}/export").is_success == (again == "start-over")


def test_the_operators_view(visit: Visit) -> None:
    someone = visit()
    someone.like(0)
    someone.more()
    page = someone.page.context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/v1/live" in request.url else None)
    page.clock.install()
    page.goto(f"http://127.0.0.1:{someone.server.port}/live")
    expect(page.locator(".big").first).to_be_visible()
    expect(page.locator("#policies")).to_contain_text("DC²B calibrated")
    expect(page.locator("#latency")).to_contain_text("/v1/slates")
    expect(page.locator("#store")).to_contain_text("sqlite")
    with page.expect_response("**/v1/live"):
        page.clock.run_for(2_000)
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Pause")).to_have_attribute("aria-pressed", "true")
    before = len(asked)
    page.clock.run_for(20_000)
    assert len(asked) == before


def test_titles_are_written_as_people_write_them(visit: Visit) -> None:
    someone = visit()
    read = (
        "async (titles) => { const { nameAndYear } = await import('/page/titles.js'); return titles.map(nameAndYear) }"
    )
    titles = [
        "Godfather, The (1972)",
        "Alien (1979)",
        "L'Avventura",
        "Amants, Les (1958)",
        "2001",
        "(1999)",
        "M (x) (1931)",
    ]
    assert [(one["name"], one["year"]) for one in someone.page.evaluate(read, titles)] == [
        ("The Godfather", "1972"),
        ("Alien", "1979"),
        ("L'Avventura", None),
        ("Les Amants", "1958"),
        ("2001", None),
        ("(1999)", None),
        ("M (x)", "1931"),
    ]
