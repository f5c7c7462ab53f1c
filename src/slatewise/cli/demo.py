"""`slatewise demo`: from nothing to a page that learns, in one command."""

import os
import socket
import sys
from contextlib import closing, redirect_stderr, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slatewise.cli.console import stdout, tell, transfer
from slatewise.cli.demo_client import DemoClient, customer_of
from slatewise.cli.importing import import_likes
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
    out: Annotated[Path, typer.Option(help="Directory for the catalog and the visitors' slates.")] = Path("demo"),
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Port; if it is in use, the next free one.")] = 8000,
    browser: Annotated[bool, typer.Option(help="Open the page if there is a desktop.")] = True,
    history: Annotated[
        bool, typer.Option(help="Know the users of the data, by their ids, with what they liked.")
    ] = True,
    check: Annotated[bool, typer.Option("--check", help="Request a slate, click, request another, and stop.")] = False,
) -> None:
    """Get ML-100K (or, if it is unavailable, a synthetic world), train, and serve a page that learns from clicks.

    The catalog is reused the next time; clicks are kept next to it in slates.db, and the service logs to service.log.
    """
    from slatewise.service.settings import BadSettingsError
    from slatewise.store import StoreError

    _check_writable(out)
    dataset = _data()
    _train(dataset, out)
    try:
        if history:
            _import(dataset, out)
        client = DemoClient(check=check, browse=browser, customer=customer_of(dataset) if history else None)
        _serve(_settings(out, port), client)
    except (BadSettingsError, StoreError) as error:
        sys.exit(f"error: {error}")


def _check_writable(out: Path) -> None:
    """Refuse a directory that is not writable before anything is fetched."""
    from slatewise.data.tables import DataError

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{out} cannot be created: {error.strerror}; choose another directory with --out") from error
    if not os.access(out, os.W_OK):
        raise DataError(f"{out} cannot be written to; choose another directory with --out")


def _data() -> "Dataset":
    from slatewise.data.sources import load
    from slatewise.data.synthetic import make_world
    from slatewise.data.tables import DataError

    try:
        with transfer("ml-100k") as progress:
            return load("ml-100k", report=tell, progress=progress)
    except DataError:
        tell("ML-100K is unavailable, so this demo uses a synthetic world with made-up titles and users")
        return make_world().dataset


def _train(dataset: "Dataset", out: Path) -> None:
    """Train, unless the catalog is already there."""
    from slatewise.catalog import Catalog, CatalogError
    from slatewise.catalog.embeddings import BprSettings

    settings = BprSettings()
    wanted = (__version__, {"method": "bpr", **asdict(settings)}, dataset.digest)
    with suppress(CatalogError):
        if _origin(Catalog.load(out)) == wanted:
            tell(f"the catalog in {out} is up to date")
            return
    train_catalog(dataset, settings).save(out)


def _origin(catalog: "Catalog") -> tuple[object, ...]:
    about = catalog.about
    return about.get("slatewise"), about.get("training"), about.get("data", {}).get("sha256")


def _import(dataset: "Dataset", out: Path) -> None:
    """Record what the users of the data liked, unless that is done: the last of them would be known."""
    from slatewise.store import open_store

    with closing(open_store(_store_url(out))) as store:
        last = str(dataset.user_ids[-1])
        if not store.read(lambda transaction: transaction.events_of(last, limit=1)):
            tell(str(import_likes(store, dataset)))


def _serve(settings: "Settings", client: DemoClient) -> None:
    """Serve the page until Ctrl-C or the end of the check; the service logs to a file."""
    from slatewise.service.server import make_recommender

    listener = _listen(settings)
    recommender = make_recommender(settings)
    client.port = listener.getsockname()[1]
    if client.port != settings.port:
        tell(f"port {settings.port} is in use, so the demo uses {client.port}")
    stdout.print(f"the page is at {client.address} (press Ctrl-C to stop)", markup=False, soft_wrap=True)
    client.start()
    try:
        _serve_with_log(settings, listener, recommender)
    except SystemExit:
        if not client.check:
            raise
    if client.check and client.problem:
        sys.exit(f"error: {client.problem}")


def _serve_with_log(settings: "Settings", listener: socket.socket, recommender: "Recommender") -> None:
    from slatewise.service.server import run_server

    with (settings.catalog / LOG).open("a", buffering=1, encoding="utf-8") as log, redirect_stderr(log):
        run_server(settings, listener, recommender)


def _settings(out: Path, port: int) -> "Settings":
    """Listen on this machine only, without keys."""
    from slatewise.service.settings import load_settings

    given = {"catalog": out, "store": _store_url(out), "host": "127.0.0.1", "port": port, "keys": out / "keys.json"}
    return load_settings(given)


def _store_url(out: Path) -> str:
    return f"sqlite:///{out / 'slates.db'}"


def _listen(settings: "Settings") -> socket.socket:
    """Open the requested port, or the next free one."""
    from slatewise.service.server import listen
    from slatewise.service.settings import BadSettingsError

    last = min(settings.port + PORTS_TRIED, 65_535)
    for port in range(settings.port, last):
        with suppress(BadSettingsError):
            return listen(settings.model_copy(update={"port": port}))
    return listen(settings.model_copy(update={"port": last}))
