"""`slatewise demo`: from nothing to a page that learns, in one command."""

import os
import socket
import sys
from contextlib import redirect_stderr, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slatewise.cli.console import stdout, tell, transfer
from slatewise.cli.train import train_catalog
from slatewise.version import __version__

if TYPE_CHECKING:
    from slatewise.catalog import Catalog
    from slatewise.data.dataset import Dataset
    from slatewise.recommender import Recommender
    from slatewise.service.settings import Settings

EXAMPLE = "Example: slatewise demo --port 9000 --no-browser"
PORTS_TRIED = 20
LOG = "service.log"


def demo(
    out: Annotated[Path, typer.Option(help="Directory for the catalogue and the visitors' slates.")] = Path("demo"),
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Port; if it is taken, the next free one.")] = 8000,
    browser: Annotated[bool, typer.Option(help="Open the page where there is a desktop.")] = True,
    check: Annotated[bool, typer.Option("--check", help="Ask for a slate, click, ask again, and stop.")] = False,
) -> None:
    """Get ML-100K (or, where it cannot be had, a synthetic world), train, and serve a page that learns from clicks.

    What was trained is used again the next time; what visitors clicked is kept beside it in slates.db, and what the
    service logs in service.log.
    """
    from slatewise.service.settings import BadSettingsError
    from slatewise.store import StoreError

    _check_place(out)
    _train(_data(), out)
    try:
        _serve(out, port, browser, check)
    except (BadSettingsError, StoreError) as error:
        sys.exit(f"error: {error}")


def _check_place(out: Path) -> None:
    """Refuse a directory that cannot be written before anything is fetched."""
    from slatewise.data.tables import DataError

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{out} cannot be made: {error.strerror}; choose another directory with --out") from error
    if not os.access(out, os.W_OK):
        raise DataError(f"{out} cannot be written; choose another directory with --out")


def _data() -> "Dataset":
    from slatewise.data.sources import load
    from slatewise.data.synthetic import make_world
    from slatewise.data.tables import DataError

    try:
        with transfer("ml-100k") as progress:
            return load("ml-100k", report=tell, progress=progress)
    except DataError:
        tell("ML-100K cannot be had here, so this demo uses a synthetic world: its titles and people are made up")
        return make_world().dataset


def _train(dataset: "Dataset", out: Path) -> None:
    """Train, unless the very same was trained before."""
    from slatewise.catalog import Catalog, CatalogError
    from slatewise.catalog.embeddings import BprSettings

    settings = BprSettings()
    wanted = (__version__, {"method": "bpr", **asdict(settings)}, dataset.digest)
    with suppress(CatalogError):
        if _made_from(Catalog.load(out)) == wanted:
            tell(f"the catalogue in {out} is up to date")
            return
    train_catalog(dataset, settings).save(out)


def _made_from(catalog: "Catalog") -> tuple[object, ...]:
    about = catalog.about
    return about.get("slatewise"), about.get("training"), about.get("data", {}).get("sha256")


def _serve(out: Path, port: int, browser: bool, check: bool) -> None:
    """Serve the page until Ctrl-C, or until the check is done; the service's log goes to a file."""
    from slatewise.cli.visitor import Visitor
    from slatewise.service.server import make_recommender

    settings = _settings(out, port)
    listener = _listen(settings)
    recommender = make_recommender(settings)
    visitor = Visitor(listener.getsockname()[1], checks=check, browses=browser)
    if visitor.port != port:
        tell(f"port {port} is taken, so the demo takes {visitor.port}")
    stdout.print(f"the page is at {visitor.address} (Ctrl-C stops)", markup=False, soft_wrap=True)
    visitor.start()
    try:
        _serve_with_log(settings, listener, recommender)
    except SystemExit:
        if not check:
            raise
    if check and visitor.problem:
        sys.exit(f"error: {visitor.problem}")


def _serve_with_log(settings: "Settings", listener: socket.socket, recommender: "Recommender") -> None:
    from slatewise.service.server import run_server

    with (settings.catalog / LOG).open("a", buffering=1, encoding="utf-8") as log, redirect_stderr(log):
        run_server(settings, listener, recommender)


def _settings(out: Path, port: int) -> "Settings":
    """Serve this machine only, and without keys."""
    from slatewise.service.settings import load_settings

    store, keys = f"sqlite:///{out / 'slates.db'}", out / "keys.json"
    return load_settings({"catalog": out, "store": store, "host": "127.0.0.1", "port": port, "keys": keys})


def _listen(settings: "Settings") -> socket.socket:
    """Open the port that was asked for, or the next free one."""
    from slatewise.service.server import listen
    from slatewise.service.settings import BadSettingsError

    last = min(settings.port + PORTS_TRIED, 65_535)
    for port in range(settings.port, last):
        with suppress(BadSettingsError):
            return listen(settings.model_copy(update={"port": port}))
    return listen(settings.model_copy(update={"port": last}))
