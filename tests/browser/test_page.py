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
    expect(someone.page.locator("#taste .name").first).to_have_text("Sci-Fi")
    expect(someone.page.locator("#taste-line")).to_contain_text("more Sci-Fi")


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
    expect(columns.locator("h3")).to_have_text(["Learns your taste", "The paper’s method", "Most popular"])
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
    expect(someone.page.locator(".difference").first).to_be_visible()
    expect(someone.page.locator(".chance")).to_have_count(0)


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
    expect(someone.cards.first.locator(".chance .value")).to_contain_text(f"{round(100 * item['probability'])} %")
    expect(someone.cards.first.locator(".difference .value")).to_have_text(f"{round(100 * item['distance'])} %")
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
        if again == "forget":
            someone.page.get_by_role("button", name="Forget me").last.click()
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
    expect(page.locator("#policies")).to_contain_text("Learns your taste")
    expect(page.locator("#latency")).to_contain_text("/v1/slates")
    expect(page.locator("#store")).to_contain_text("sqlite")
    with page.expect_response("**/v1/live"):
        page.clock.run_for(2_000)
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Pause")).to_have_attribute("aria-pressed", "true")
    before = len(asked)
    page.clock.run_for(20_000)
    assert len(asked) == before


def test_titles_are_the_same_in_the_api_and_on_the_page(visit: Visit, has_films: bool) -> None:
    someone = visit()
    titles = [item["title"] for item in someone.slate()["items"]]
    assert someone.page.locator(".card h2").evaluate_all("all => all.map((one) => one.textContent)") == titles
    if has_films:
        with someone.server.client() as client:
            found = client.get("/v1/items", params={"query": "the godfather (1972)"}).json()
        assert [item["title"] for item in found["items"]] == ["The Godfather (1972)"]


def test_who_changes_their_mind_is_not_forgotten(visit: Visit) -> None:
    someone = visit()
    before = someone.session()["user"]
    someone.page.locator("#forget").click()
    someone.page.get_by_role("button", name="Keep it").click()
    expect(someone.page.get_by_role("dialog")).to_have_count(0)
    assert someone.session()["user"] == before
    assert someone.cards.count() == 10


COLUMNS = """() => {
    const tops = [...document.querySelectorAll(".card")].map((one) => Math.round(one.getBoundingClientRect().top));
    const rows = new Map();
    for (const top of tops) rows.set(top, (rows.get(top) ?? 0) + 1);
    const sizes = [...new Set(rows.values())];
    const floating = [...document.querySelectorAll("main *")].filter((one) =>
        ["fixed", "sticky"].includes(getComputedStyle(one).position));
    return { sizes, overflow: document.documentElement.scrollWidth - innerWidth, floating: floating.length };
}"""


def test_rows_of_cards_are_full_at_every_width(visit: Visit) -> None:
    someone = visit()
    for width in (320, 390, 600, 768, 1024, 1100, 1280, 1440, 1920, 2560):
        someone.page.set_viewport_size({"width": width, "height": 900})
        found = someone.page.evaluate(COLUMNS)
        assert len(found["sizes"]) == 1, (width, found)
        assert 10 % found["sizes"][0] == 0
        assert found["overflow"] <= 0, width
        assert found["floating"] == 0


def test_the_reference_can_be_tried(visit: Visit) -> None:
    someone = visit(path="/docs")
    page = someone.page
    page.locator("#post-v1-slates summary").click()
    operation = page.locator("#post-v1-slates")
    expect(operation).to_contain_text("Response 201: Slate")
    expect(operation.locator(".fields").first).to_contain_text("diversity")
    operation.get_by_role("button", name="Send").click()
    expect(operation.locator("output")).to_contain_text('"items"')
    operation.locator("textarea").fill('{"k": 5}')
    operation.get_by_role("button", name="Send").click()
    expect(operation.locator("output")).to_contain_text("422")
