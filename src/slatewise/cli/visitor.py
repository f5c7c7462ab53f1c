"""Who comes to the demo: a browser where there is a desktop, or a made-up visitor that checks the whole way."""

import json
import os
import signal
import sys
import threading
import time
import webbrowser
from http.client import HTTPConnection, HTTPException
from typing import Any
from uuid import uuid4

from slatewise.cli.console import stdout

PATIENCE = 30.0
DESKTOPS = ("DISPLAY", "WAYLAND_DISPLAY")


class Visitor(threading.Thread):
    """Waits until the service answers, then does its errand beside it.

    checks: ask for a slate, click, ask again, and stop the service; `problem` then says what went wrong, or is None.
    """

    def __init__(self, port: int, *, checks: bool, browses: bool) -> None:
        super().__init__(daemon=True)
        self.port, self.checks, self.browses = port, checks, browses
        self.problem: str | None = "the check did not finish"

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.port}"

    def run(self) -> None:
        """Do the errand."""
        try:
            self._wait()
            if self.checks:
                stdout.print(_check(self.port), markup=False, soft_wrap=True)
            elif self.browses and has_desktop():
                webbrowser.open(self.address)
            self.problem = None
        except (OSError, HTTPException, ValueError, LookupError) as error:
            self.problem = str(error) or type(error).__name__
        finally:
            if self.checks:
                os.kill(os.getpid(), signal.SIGTERM)

    def _wait(self) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                _ask(self.port, "GET", "/health/ready")
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
            else:
                return


def has_desktop() -> bool:
    """Whether a browser with a window can be opened here."""
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in DESKTOPS)


def _check(port: int) -> str:
    """Be someone new: get a slate, click its first item, and see that the next slate is another one."""
    user = f"check-{uuid4().hex}"
    _ask(port, "GET", "/")
    first = _ask(port, "POST", "/v1/slates", {"user": user})
    clicked = first["items"][0]
    _ask(port, "POST", "/v1/feedback", {"slate_id": first["slate_id"], "clicked": [clicked["id"]]})
    second = _ask(port, "POST", "/v1/slates", {"user": user})
    person = _ask(port, "GET", f"/v1/users/{user}")
    shown = [[item["id"] for item in slate["items"]] for slate in (first, second)]
    if set(shown[0]) & set(shown[1]) or not shown[1]:
        raise ValueError(f"the slate after a click shows the same items again: {shown[0]}, then {shown[1]}")
    if person["clicks"] != 1:
        raise ValueError(f"one click was sent, the service counts {person['clicks']}")
    return f"ok: a slate, a click on {clicked['title']!r}, and another slate"


def _ask(port: int, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """Send one request to this machine, past any proxy; an answer that is no success is an error."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        sent = None if body is None else json.dumps(body)
        connection.request(method, path, sent, {"Content-Type": "application/json"} if sent else {})
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    if not 200 <= answer.status < 300:
        raise ValueError(f"{method} {path} was answered with {answer.status}: {content[:300].decode(errors='replace')}")
    return json.loads(content) if "json" in (answer.getheader("Content-Type") or "") else content
