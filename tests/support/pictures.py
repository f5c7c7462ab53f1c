"""The README's pictures, from a running demo: python -m tests.support.pictures http://127.0.0.1:8000."""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
CATEGORY = "Sci-Fi"
SETTLED = "(round) => document.querySelector('#round').textContent === round && document.querySelector('#rounds svg')"
FIRST_CARD = "() => scrollTo(0, document.querySelector('.card').getBoundingClientRect().top + scrollY - 16)"


def like(page: Page, most: int = 10) -> None:
    cards = page.locator(".card").filter(has_text=CATEGORY)
    for place in range(min(cards.count(), most)):
        cards.nth(place).locator(".like").click()


def take(browser: Browser, address: str, name: str, width: int, height: int) -> None:
    """Show someone who likes one category, in front of the fourth slate."""
    page = browser.new_page(viewport={"width": width, "height": height}, reduced_motion="reduce")
    page.goto(address)
    page.locator(".card .like").first.wait_for()
    for number in (2, 3, 4):
        like(page)
        page.locator("#more").click()
        page.wait_for_function(SETTLED, arg=f"Slate {number}")
        page.locator("#slate[aria-busy=false]").wait_for()
    like(page, most=2)
    page.evaluate(FIRST_CARD if width < 500 else "() => scrollTo(0, 0)")
    page.mouse.move(0, 0)
    page.wait_for_timeout(1_000)
    page.screenshot(path=IMAGES / f"{name}.png")
    page.close()


def main(address: str) -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        take(browser, address, "page-desktop", 1280, 960)
        take(browser, address, "page-phone", 390, 844)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
