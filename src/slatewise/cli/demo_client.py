"""The client of the demo: opens a browser if there is a desktop, or checks the service from end to end."""

import json
import os
import signal
import sys
import threading
import time
import webbrowser
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from slatewise.cli.console import stdout

if TYPE_CHECKING:
    from slatewise.data.dataset import Dataset

TIMEOUT_SECONDS = 30.0
DESKTOP_VARIABLES = ("DISPLAY", "WAYLAND_DISPLAY")


@dataclass(frozen=True)
class Customer:
    """A user who has a history, and the ids of the items in it."""

    user: str
    owned: frozenset[int | str]


def customer_of(dataset: "Dataset") -> Customer:
    """Return the first user of a data set."""
    owned = dataset.item_ids[dataset.items[dataset.users == 0]].tolist()
    return Customer(str(dataset.user_ids[0]), frozenset(owned))


class DemoClient(threading.Thread):
    """Waits until the service is ready, then opens the page or checks the service.

    check: request a slate, click, request another, and stop the service; `problem` then says what went wrong, or is
    None. browse: open the page. customer: somebody the service knows, who must not be shown what they own.
    """

    port = 0

    def __init__(self, *, check: bool, browse: bool, customer: Customer | None = None) -> None:
        super().__init__(daemon=True)
        self.check, self.browse, self.customer = check, browse, customer
        self.problem: str | None = "the check did not finish"

    @property
    def address(self) -> str:
        """The address of the page."""
        return f"http://127.0.0.1:{self.port}"

    def run(self) -> None:
        """Wait for the service, then check it or open the page."""
        try:
            self._wait()
            if self.check:
                if self.customer is not None:
                    _check_customer(self.port, self.customer)
                stdout.print(check(self.port), markup=False, soft_wrap=True)
            elif self.browse and has_desktop():
                webbrowser.open(self.address)
            self.problem = None
        except (OSError, HTTPException, ValueError, LookupError) as error:
            self.problem = str(error) or type(error).__name__
        finally:
            if self.check:
                os.kill(os.getpid(), signal.SIGTERM)

    def _wait(self) -> None:
        end = time.monotonic() + TIMEOUT_SECONDS
        while True:
            try:
                request(self.port, "GET", "/health/ready")
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
            else:
                return


def has_desktop() -> bool:
    """Whether a browser with a window can be opened here."""
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in DESKTOP_VARIABLES)


def check(port: int) -> str:
    """Act as a new user: get a slate, click its first item, and check that the next slate is different."""
    user = f"check-{uuid4().hex}"
    request(port, "GET", "/")
    first = request(port, "POST", "/v1/slates", {"user": user})
    clicked = first["items"][0]
    request(port, "POST", "/v1/feedback", {"slate_id": first["slate_id"], "clicked": [clicked["id"]]})
    second = request(port, "POST", "/v1/slates", {"user": user})
    profile = request(port, "GET", f"/v1/users/{user}")
    shown = [[item["id"] for item in slate["items"]] for slate in (first, second)]
    if set(shown[0]) & set(shown[1]) or not shown[1]:
        raise ValueError(f"the slate after a click repeats items: {shown[0]}, then {shown[1]}")
    if profile["clicks"] != 1:
        raise ValueError(f"one click was sent, but the service counts {profile['clicks']}")
    return f"ok: got a slate, clicked {clicked['title']!r} and got another slate"


def _check_customer(port: int, customer: Customer) -> None:
    """Check that the first slate of somebody with a history has nothing of it."""
    slate = request(port, "POST", "/v1/slates", {"user": customer.user})
    repeated = [item["title"] for item in slate["items"] if item["id"] in customer.owned]
    if repeated or not slate["items"]:
        raise ValueError(f"the slate of user {customer.user!r} has items they liked before: {repeated}")


def request(port: int, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """Send a request to this machine, bypassing any proxy; an unsuccessful status is an error."""
    connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    try:
        sent = None if body is None else json.dumps(body)
        connection.request(method, path, sent, {"Content-Type": "application/json"} if sent else {})
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    if not 200 <= response.status < 300:
        raise ValueError(f"{method} {path} returned {response.status}: {content[:300].decode(errors='replace')}")
    return json.loads(content) if "json" in (response.getheader("Content-Type") or "") else content
