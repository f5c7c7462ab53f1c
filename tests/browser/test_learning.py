"""Learning that can be seen: visitors by script on a catalog without categories, and wishes for more or less of one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Locator, expect

from slatewise.catalog import Catalog
from slatewise.catalog.embeddings import BprSettings
from slatewise.data.synthetic import WorldSize, make_world
from slatewise.lab.fans import without_categories
from tests.browser.conftest import Visit
from tests.support.serving import Server
from tests.support.visitor import Visitor

WORLD = make_world(WorldSize(dim=16, taste_spread=2.0)).dataset
TALL = {"width": 1440, "height": 2400}


@pytest.mark.slow
def test_a_visitor_with_a_taste_that_nobody_has_named_gets_more_of_it(visit: Visit, tmp_path: Path) -> None:
    """Whoever likes the largest category of a world sees more of it, though the catalog has never heard of categories.

    The control likes nothing, and does not.
    """
    Catalog.train(without_categories(WORLD), BprSettings(epochs=1)).save(tmp_path / "catalog")
    wanted = WORLD.categories[:, int(np.argmax(WORLD.categories.sum(axis=0)))]
    with Server(tmp_path, environment={"SLATEWISE_EXPLORE": "0"}) as server:
        fan, nobody = (_shares(visit(server, viewport=TALL), wanted, likes=likes) for likes in (True, False))
    assert fan[0] == nobody[0]
    assert np.mean(fan[2:]) > 1.5 * fan[0]
    assert np.mean(fan[2:]) > np.mean(nobody[2:])


def _shares(someone: Visitor, wanted: Any, likes: bool) -> list[float]:
    """The share of wanted items on each of five slates, which are looked at."""
    shares = []
    for number in range(5):
        if number:
            someone.more()
        someone.page.wait_for_function("() => JSON.parse(localStorage['slatewise.session']).seen.length === 10")
        items = someone.slate()["items"]
        shares.append(float(np.mean([wanted[item["id"]] for item in items])))
        if likes:
            someone.like_all(lambda item: bool(wanted[item["id"]]))
    if likes:
        expect(someone.page.locator(".reason.learned cite").first).to_be_visible()
        expect(someone.page.locator("#taste")).to_contain_text("no categories")
        expect(someone.page.locator(".wish")).to_have_count(0)
    return shares


def wish(someone: Visitor, words: str) -> Locator:
    return someone.page.locator(f'[data-wish="{words}"]')


def lift(someone: Visitor, name: str) -> float:
    """What the service believes about a category."""
    (found,) = [one["lift"] for one in someone.known()["categories"] if one["name"] == name]
    return float(found)


def test_a_wish_is_heard_at_once_kept_and_undone(visit: Visit) -> None:
    someone = visit()
    someone.like(0)
    someone.more()
    someone.page.locator("#taste .toggle").click()
    name = someone.page.locator("#taste .name").last.inner_text()
    before = lift(someone, name)
    more = wish(someone, f"more {name}")
    with someone.another_slate():
        more.press("Enter")
    expect(more).to_have_attribute("aria-pressed", "true")
    expect(more).to_be_focused()
    expect(someone.page.locator("#taste")).to_contain_text(f"You asked for more {name}.")
    someone.delivered()
    assert [event["kind"] for event in someone.kept()["events"]] == ["more"]
    assert lift(someone, name) > before + 0.5
    assert someone.round == "Slate 2"
    someone.page.reload()
    someone.settled()
    expect(wish(someone, f"more {name}")).to_have_attribute("aria-pressed", "true")
    with someone.another_slate():
        someone.page.get_by_role("button", name="Undo").click()
    expect(wish(someone, f"more {name}")).to_have_attribute("aria-pressed", "false")
    someone.delivered()
    assert [event["kind"] for event in someone.kept()["events"]] == ["more", "retract"]
    assert lift(someone, name) == pytest.approx(before)


def test_less_after_more_takes_the_wish_back_first(visit: Visit) -> None:
    someone = visit()
    someone.more()
    name = someone.page.locator("#taste .name").first.inner_text()
    lifts = []
    for kind in ("more", "less", "less"):
        wish(someone, f"{kind} {name}").click()
        someone.page.wait_for_timeout(300)
        someone.delivered()
        someone.settled()
        lifts.append(lift(someone, name))
    assert [event["kind"] for event in someone.kept()["events"]] == ["more", "retract", "less", "retract"]
    assert lifts[0] > lifts[2] > lifts[1]


def test_a_touched_slate_waits_for_the_next_one(visit: Visit) -> None:
    someone = visit()
    someone.more()
    someone.cards.nth(9).locator(".dislike").click()
    before = someone.titles()
    words = f"more {someone.slate()['items'][0]['categories'][0]}"
    someone.page.locator("#taste .toggle").click()
    wish(someone, words).click()
    expect(wish(someone, words)).to_have_attribute("aria-pressed", "true")
    someone.delivered()
    assert someone.titles() == before
    someone.more()
    expect(someone.page.locator(".reason.asked").first).to_contain_text(f"You asked for {words}")
