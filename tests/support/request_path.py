"""`python -m tests.support.request_path DIRECTORY`: which files take part in one slate and one feedback event.

Runs the server as `slatewise serve` does, on a SQLite store and with a key, in this process, with a profile on every
thread, and prints the files whose functions were called during one request, as JSON. Rates of items were published
before. Machine code calls no function that a profile sees: of the kernels, only what Python calls is counted.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
from pydantic import SecretStr

import slatewise
from slatewise.recommender import Recommender
from slatewise.service import app, server
from slatewise.service.settings import Settings
from tests.support.serving import key_file, small_catalog

PACKAGE = str(Path(slatewise.__file__).parent)
BACKGROUND = {"slatewise-sweeper", "slatewise-items"}
"""The threads that close expired slates and follow changes of items; they belong to no request."""
SETTLE_SECONDS = 0.3
"""What happens after a response, such as the line in the log, belongs to its request."""


class Profile:
    """Notes the files of the package in which functions are called while it records."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.is_recording = False

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if threading.current_thread().name in BACKGROUND:
            return
        if self.is_recording and event == "call" and code.co_filename.startswith(PACKAGE):
            self.files.add(os.path.relpath(code.co_filename, PACKAGE))


class Client:
    """Sends requests one by one."""

    def __init__(self, port: int, key: str) -> None:
        headers = {"authorization": f"Bearer {key}"}
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, trust_env=False, timeout=30)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self.client.post(path, json=body).raise_for_status().json()

    def slate(self) -> Any:
        return self.post("/v1/slates", {"user": "ann"})

    def click(self, slate: Any) -> Any:
        return self.post("/v1/feedback", {"slate_id": slate["slate_id"], "clicked": [slate["items"][0]["id"]]})


def main(directory: Path) -> None:
    """Serve from the main thread while another thread warms up and records one request of each kind."""
    catalog = small_catalog(300)
    catalog.save(directory / "catalog")
    key = key_file(directory / "keys.json", shop=("serve",))["shop"]
    store = f"sqlite:///{directory / 'slates.db'}"
    settings = Settings(catalog=directory / "catalog", keys=directory / "keys.json", port=0, store=SecretStr(store))
    Recommender(catalog).warm_up()  # compiles the kernels before the profile slows everything down
    app.BACKGROUND = ()  # what is done in the background, however slow this machine, belongs to no request
    profile, listener = Profile(), server.listen(settings)
    threading.setprofile(profile)
    recommender = server.make_recommender(settings)
    client = Client(listener.getsockname()[1], key)
    threading.Thread(target=visit, args=(profile, client, recommender), daemon=True).start()
    sys.setprofile(profile)
    server.run_server(settings, listener, recommender)


def visit(profile: Profile, client: Client, recommender: Recommender) -> None:
    """Print the files that take part in a slate and in a feedback event, and end the process."""
    for _ in range(2):
        client.click(client.slate())
    assert recommender.learn_rates(), "no rates were published"
    client.click(client.slate())
    slate, slate_files = record(profile, client.slate)
    _, feedback_files = record(profile, lambda: client.click(slate))
    print(json.dumps({"slate": slate_files, "feedback": feedback_files}), flush=True)
    os._exit(0)


def record(profile: Profile, request: Any) -> tuple[Any, list[str]]:
    """Send one request; return its response and the files that took part."""
    time.sleep(SETTLE_SECONDS)
    profile.files, profile.is_recording = set(), True
    response = request()
    time.sleep(SETTLE_SECONDS)
    profile.is_recording = False
    return response, sorted(profile.files)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
