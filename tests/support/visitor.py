"""Someone in front of the page, and someone who watches what the browser complains about."""

from collections.abc import Callable
from typing import Any

from playwright.sync_api import BrowserContext, Locator, Page, Request, expect

from tests.support.serving import Server

LISTEN = "addEventListener('securitypolicyviolation', (event) => breach(event.effectiveDirective))"


class Watch:
    """Notes failing scripts, breaches of the content security policy, and requests that leave the origin."""

    def __init__(self, context: BrowserContext, origin: str) -> None:
        self.origin = origin
        self.complaints: list[str] = []
        context.expose_function("breach", lambda directive: self.complaints.append(f"policy: {directive}"))
        context.add_init_script(LISTEN)
        context.on("request", self._request)
        context.on("weberror", lambda error: self.complaints.append(f"script: {error.error}"))

    def _request(self, request: Request) -> None:
        if not request.url.startswith((self.origin + "/", "data:")):
            self.complaints.append(f"request: {request.url}")


class Visitor:
    """Someone who uses one tab."""

    def __init__(self, page: Page, server: Server, path: str = "/") -> None:
        self.page, self.server = page, server
        page.goto(f"http://127.0.0.1:{server.port}{path}")
        if path == "/":
            self.settled()

    def settled(self) -> None:
        """Wait until cards are there and nothing is on its way."""
        expect(self.page.locator(".card .like").first).to_be_visible()
        expect(self.page.locator("#slate")).to_have_attribute("aria-busy", "false")

    @property
    def cards(self) -> Locator:
        return self.page.locator(".card")

    def titles(self) -> list[str]:
        return self.page.locator(".card h2").all_inner_texts()

    @property
    def round(self) -> str:
        return self.page.locator("#round").inner_text()

    def slate(self) -> dict[str, Any]:
        """What the page has on the table."""
        return self.session()["slate"]  # type: ignore[no-any-return]

    def session(self) -> dict[str, Any]:
        found: dict[str, Any] = self.page.evaluate("JSON.parse(localStorage.getItem('slatewise.session'))")
        return found

    def like(self, *places: int) -> None:
        for place in places:
            self.cards.nth(place).locator("h2").click()

    def liked(self) -> list[int]:
        pressed = self.page.locator(".like").evaluate_all("all => all.map(one => one.ariaPressed === 'true')")
        return [place for place, one in enumerate(pressed) if one]

    def like_all(self, wanted: Callable[[dict[str, Any]], bool]) -> None:
        self.like(*(place for place, item in enumerate(self.slate()["items"]) if wanted(item)))

    def more(self) -> None:
        """Ask for the next slate and wait for it."""
        with self.another_slate():
            self.page.locator("#more").click()

    def another_slate(self) -> "AnotherSlate":
        return AnotherSlate(self)

    def delivered(self) -> None:
        """Wait until everything liked has been acknowledged."""
        self.page.wait_for_function(
            "() => !Object.keys(localStorage).some((name) => name.startsWith('slatewise.event.'))"
        )

    def known(self) -> dict[str, Any]:
        """What the service knows about this person."""
        with self.server.client() as client:
            found: dict[str, Any] = client.get(f"/v1/users/{self.session()['user']}").json()
            return found

    def kept(self) -> dict[str, Any]:
        """Everything that the service keeps about this person."""
        with self.server.client() as client:
            found: dict[str, Any] = client.get(f"/v1/users/{self.session()['user']}/export").json()
            return found

    def recorded(self) -> dict[str, set[Any]]:
        """Which items count as liked, by slate."""
        return {slate: liked - disliked for slate, (liked, disliked) in self.reactions().items()}

    def reactions(self) -> dict[str, tuple[set[Any], set[Any]]]:
        """Which items were clicked and not retracted, and which are disliked, by slate."""
        kept = self.kept()
        clicks: dict[str, dict[Any, int]] = {one["slate_id"]: {} for one in kept["slates"]}
        disliked: dict[str, set[Any]] = {slate: set() for slate in clicks}
        for event in kept["feedback"]:
            times, refused = clicks[event["slate_id"]], disliked[event["slate_id"]]
            for item in set(event["retracted"]) - refused:
                times[item] = times.get(item, 0) - 1
            for item in event["clicked"]:
                times[item] = times.get(item, 0) + 1
            refused -= {*event["retracted"], *event["clicked"]}
            refused |= set(event.get("disliked") or ())
        return {
            slate: ({item for item, n in times.items() if n > 0}, disliked[slate]) for slate, times in clicks.items()
        }


class AnotherSlate:
    """Waits at its end until another slate is on the table."""

    def __init__(self, visitor: Visitor) -> None:
        self.visitor = visitor

    def __enter__(self) -> None:
        self.before = self.visitor.slate()["slate_id"]

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            changed = "(before) => JSON.parse(localStorage.getItem('slatewise.session')).slate?.slate_id !== before"
            self.visitor.page.wait_for_function(changed, arg=self.before)
            self.visitor.settled()
