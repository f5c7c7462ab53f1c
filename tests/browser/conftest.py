"""A real browser in front of the real server; what a machine lacks is skipped loudly, and is a failure in CI."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, sync_playwright

from slatewise.catalog import Catalog
from slatewise.catalog.embeddings import BprSettings
from slatewise.data.synthetic import make_world
from tests.conftest import REAL_DATA, missing
from tests.support.serving import Server
from tests.support.visitor import Visitor, Watch

Visit = Callable[..., Visitor]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Debian's Chromium; it ends with this package, because its event loop must not run under other tests."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        missing("Chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="package")
def has_films() -> bool:
    return REAL_DATA is not None and (Path(REAL_DATA) / "ml-100k.zip").is_file()


@pytest.fixture(scope="package")
def films(tmp_path_factory: pytest.TempPathFactory, has_films: bool) -> Iterator[Server]:
    """The service on ML-100K, or on a synthetic world where there is none."""
    directory = tmp_path_factory.mktemp("films")
    if has_films:
        shutil.copytree(trained_once(tmp_path_factory.getbasetemp()), directory / "catalog")
    else:
        Catalog.train(make_world().dataset, BprSettings(epochs=10)).save(directory / "catalog")
    with Server(directory) as server:
        prepare(server)
        yield server


def prepare(server: Server) -> None:
    """Choose by every policy that the page offers, and learn: in a fresh clone this compiles for minutes."""
    with server.client() as client:
        client.timeout = 300
        for policy in client.get("/v1/policies").raise_for_status().json():
            for _ in range(2):
                asked = {"user": f"someone who tries {policy['name']}", "policy": policy["name"]}
                slate = client.post("/v1/slates", json=asked).raise_for_status().json()
                said = {"slate_id": slate["slate_id"], "clicked": [slate["items"][0]["id"]]}
                client.post("/v1/feedback", json=said).raise_for_status()


def trained_once(base: Path) -> Path:
    """Return the catalog of ML-100K, which one of several processes that test at once trains for all."""
    directory = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "trained"
    directory.mkdir(exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "catalog").exists():
            train(directory)
    return directory / "catalog"


def train(directory: Path) -> None:
    command = [sys.executable, "-m", "slatewise", "train", "--data", "ml-100k", "--out", "catalog", "--json"]
    places = {"SLATEWISE_DATA": str(REAL_DATA), "SLATEWISE_CACHE": str(directory / "cache")}
    environment = {**os.environ, **places, "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run(command, cwd=directory, env=environment, check=True, capture_output=True)  # noqa: S603


@pytest.fixture
def visit(browser: Browser, films: Server) -> Iterator[Visit]:
    """Open the page as someone new; in every test no script fails, no rule is broken and nothing goes elsewhere."""
    opened: list[tuple[BrowserContext, Watch]] = []

    def open_page(server: Server = films, path: str = "/", **options: Any) -> Visitor:
        origin = f"http://127.0.0.1:{server.port}"
        context = browser.new_context(reduced_motion="reduce", **options)
        context.set_default_timeout(15_000)
        opened.append((context, Watch(context, origin)))
        return Visitor(context.new_page(), server, path)

    yield open_page
    for context, watch in opened:
        context.close()
        assert watch.complaints == []
