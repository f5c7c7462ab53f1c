"""The page without a mouse, read aloud, on every screen, in light and dark."""

import importlib.util
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from tests.browser.conftest import Visit
from tests.conftest import missing
from tests.support.visitor import Visitor

SCREENSHOTS = Path(__file__).parent / "screenshots"
PHONE, DESKTOP = ViewportSize(width=390, height=844), ViewportSize(width=1280, height=900)
SCHEMES: tuple[Literal["light"], Literal["dark"]] = ("light", "dark")


@pytest.fixture(scope="module")
def axe() -> str:
    """The script of axe-core, from the package that carries it."""
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        missing("axe-core (the package axe-playwright-python)")
    return (Path(found.origin).parent / "axe.min.js").read_text()


def findings(page: Page, axe: str) -> list[str]:
    page.evaluate(axe)
    result: dict[str, Any] = page.evaluate("axe.run({ resultTypes: ['violations'] })")
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in result["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


def use(visitor: Visitor, rounds: int = 2) -> None:
    for _ in range(rounds):
        visitor.like(0, 2)
        visitor.more()
    visitor.like(1)
    visitor.page.locator("#compare summary").click()
    expect(visitor.page.locator(".column li").first).to_be_visible()
    expect(visitor.page.locator("#rounds svg")).to_be_visible()
    visitor.delivered()


def test_everything_can_be_done_with_the_keyboard(visit: Visit) -> None:
    someone = visit(viewport=DESKTOP)
    press, focused = someone.page.keyboard.press, someone.page.locator(":focus")
    press("Tab")
    expect(focused).to_have_text("Skip to the slate")
    press("Enter")
    expect(focused).to_have_id("round")
    reach(someone, ".like")
    press("Space")
    press("ArrowRight")
    press("Enter")
    press("ArrowDown")
    press("Enter")
    press("Enter")
    assert someone.liked() == [0, 1]
    reach(someone, "#more")
    with someone.another_slate():
        press("Enter")
    expect(focused).to_have_id("round")
    expect(someone.page.locator("#announcer")).to_contain_text("Slate 2: 10 picks, variety")
    reach(someone, "#knob")
    with someone.another_slate():
        press("End")
    reach(someone, "#policy")
    with someone.another_slate():
        press("m")
    assert someone.slate()["policy"] == "popular"
    reach(someone, "summary")
    press("Enter")
    expect(someone.page.locator(".column li").first).to_be_visible()


def reach(visitor: Visitor, selector: str) -> None:
    """Go on by Tab until an element has the focus; it must then be visible that it has."""
    for _ in range(60):
        visitor.page.keyboard.press("Tab")
        if visitor.page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            assert visitor.page.evaluate("document.activeElement.matches(':focus-visible')")
            return
    raise AssertionError(f"{selector} cannot be reached")


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "screen"), [("light", DESKTOP), ("dark", PHONE)])
def test_nothing_serious_is_found(visit: Visit, axe: str, scheme: Any, screen: Any) -> None:
    someone = visit(viewport=screen, color_scheme=scheme)
    use(someone)
    assert findings(someone.page, axe) == []
    someone.page.goto(f"http://127.0.0.1:{someone.server.port}/live")
    expect(someone.page.locator(".mean").first).to_be_visible()
    assert findings(someone.page, axe) == []


@pytest.mark.slow
def test_screens_are_written_for_review(visit: Visit) -> None:
    someone = visit(viewport=DESKTOP)
    use(someone)
    live = someone.page.context.new_page()
    live.goto(f"http://127.0.0.1:{someone.server.port}/live")
    expect(live.locator(".mean").first).to_be_visible()
    SCREENSHOTS.mkdir(exist_ok=True)
    for name, screen in (("desktop", DESKTOP), ("phone", PHONE)):
        for scheme in SCHEMES:
            for kind, page in (("page", someone.page), ("live", live)):
                page.set_viewport_size(screen)
                page.emulate_media(color_scheme=scheme)
                page.screenshot(path=SCREENSHOTS / f"{kind}-{name}-{scheme}.png", full_page=True)


def test_what_is_serious_would_be_found(visit: Visit, axe: str) -> None:
    someone = visit()
    someone.page.evaluate(
        "document.querySelector('h1').style.color = '#ccc'; document.querySelector('#knob').labels[0].remove()"
    )
    found = findings(someone.page, axe)
    assert {"color-contrast", "label"} <= {one.split(":")[0] for one in found}


def test_the_page_fits_every_width(visit: Visit) -> None:
    someone = visit()
    use(someone, rounds=1)
    for width in (320, 390, 600, 768, 900, 1024, 1280, 1600):
        someone.page.set_viewport_size({"width": width, "height": 800})
        assert someone.page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_theme_can_be_chosen_and_stays(visit: Visit) -> None:
    someone = visit(color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = someone.page.evaluate(ground)
    someone.page.locator("#theme").click()
    assert someone.page.evaluate(ground) == light
    someone.page.locator("#theme").click()
    dark = someone.page.evaluate(ground)
    assert dark != light
    someone.page.reload()
    assert someone.page.evaluate(ground) == dark
