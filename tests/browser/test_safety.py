"""Hostile and odd catalogs stay text, the browser's rules are kept, and nothing leaves the origin."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

from slatewise.catalog import Catalog
from tests.browser.conftest import Visit
from tests.support.serving import Server
from tests.support.visitor import Visitor, Watch

IMAGE = '<img src=x onerror="window.pwned=1">'
SCRIPT = "</script><script>window.pwned=1</script>"
TITLES = (
    IMAGE,
    SCRIPT,
    "x" * 400,
    "ألف ليلة وليلة (1994)",
    "{{7*7}} ${7*7} &amp; ' \"",
    "Two\nlines",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 👩‍🚀 (2001)",
)
CATEGORIES = (IMAGE, "W" * 60, "דרמה", *(f"Category {number}" for number in range(47)))


def odd_catalog(n_items: int = 30, *, categories: bool) -> Catalog:
    """Items with titles from hell; fifty categories or none."""
    vectors = np.random.default_rng(0).normal(size=(n_items, 5))
    places = range(n_items)
    ids, titles = [f"<id>'{place}" for place in places], [TITLES[place % len(TITLES)] for place in places]
    groups = [[*CATEGORIES[place % 3 :: 3][:3], *(CATEGORIES if place == 0 else ())] for place in places]
    return Catalog.from_vectors(ids, vectors, titles=titles, categories=groups if categories else None)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("odd")
    odd_catalog(categories=True).save(directory / "catalog")
    with Server(directory) as server:
        yield server


def markup(visitor: Visitor) -> int:
    """Elements that only markup in a title could have made."""
    return visitor.page.locator("img[src='x'], main script").count()


def use(visitor: Visitor) -> None:
    """Make everything appear that shows titles or categories."""
    visitor.like(0, 1, 2)
    visitor.cards.nth(3).locator(".dislike").click()
    visitor.cards.nth(4).locator(".known").click()
    visitor.page.locator("#compare summary").click()
    expect(visitor.page.locator(".column li").first).to_be_visible()
    visitor.more()
    expect(visitor.page.locator("#rounds svg")).to_be_visible()


def test_a_title_stays_text(visit: Visit, odd: Server) -> None:
    someone = visit(odd, viewport={"width": 320, "height": 640})
    use(someone)
    while IMAGE not in someone.titles():
        someone.more()
    assert markup(someone) == 0
    assert someone.page.evaluate("window.pwned") is None
    assert someone.page.evaluate("document.documentElement.scrollWidth") <= 320


def test_markup_would_be_seen(visit: Visit, odd: Server) -> None:
    someone = visit(odd)
    someone.page.evaluate("(title) => { document.querySelector('.card h2').innerHTML = title }", "<img src=x>")
    assert markup(someone) == 1


def serve_instead(server: Server, catalog: Catalog) -> None:
    catalog.save(server.directory / "catalog")
    with server.client() as client:
        assert client.post("/v1/catalog/reload", headers={"content-type": "application/json"}).is_success


def test_a_catalog_without_categories(visit: Visit, odd: Server) -> None:
    serve_instead(odd, odd_catalog(categories=False))
    someone = visit(odd)
    use(someone)
    expect(someone.page.locator("#taste")).to_contain_text("no categories")
    expect(someone.page.locator("#variety")).to_contain_text("by item vectors")
    assert someone.page.locator(".chip").count() == 0
    for _ in range(3):
        someone.more()
    assert someone.cards.count() == 10, "what was shown long ago comes back when nothing else is left"
    expect(someone.page.locator("#everything")).to_be_hidden()


def test_a_catalog_smaller_than_a_slate(visit: Visit, odd: Server) -> None:
    serve_instead(odd, odd_catalog(6, categories=True))
    someone = visit(odd)
    assert someone.cards.count() == 6
    expect(someone.page.locator("#everything")).to_be_visible()
    someone.like(5)
    someone.more()
    assert someone.cards.count() == 6


def test_breaches_and_foreign_requests_would_be_seen(browser: Browser, odd: Server, tmp_path: Path) -> None:
    context = browser.new_context()
    watch = Watch(context, f"http://127.0.0.1:{odd.port}")
    someone = Visitor(context.new_page(), odd)
    assert watch.complaints == []
    someone.page.evaluate("document.body.setAttribute('style', 'color: red')")
    someone.page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.pwned=1\">')")
    someone.page.wait_for_timeout(200)
    assert {"policy: style-src-attr", "policy: script-src-attr"} <= set(watch.complaints)
    assert someone.page.evaluate("window.pwned") is None, "the policy holds even where markup got in"
    elsewhere = context.new_page()
    (tmp_path / "page.html").write_text("<script>fetch('http://127.0.0.1:9/').catch(() => 0); null.x</script>")
    elsewhere.goto((tmp_path / "page.html").as_uri())
    elsewhere.wait_for_timeout(200)
    assert "request: http://127.0.0.1:9/" in watch.complaints
    assert any(one.startswith("script: ") for one in watch.complaints)
    context.close()
