"""The service as a process: what it refuses to start with, how it listens, how it stops."""

import errno
import gc
import logging
import os
import signal
import socket
import sys
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import uvicorn
from prometheus_client import disable_created_metrics

from slatewise.catalog import Catalog
from slatewise.catalog.model_files import read_manifest
from slatewise.recommender import Recommender
from slatewise.service.app import create_app
from slatewise.service.connections import GuardedProtocol
from slatewise.service.keys import KeyRing
from slatewise.service.logs import JsonHandler
from slatewise.service.metrics import SHARED_DIRECTORY
from slatewise.service.observing import Observing
from slatewise.service.settings import BadSettingsError, Settings

KEEP_ALIVE = 65
"""Seconds an idle connection is kept: longer than reverse proxies keep theirs, so that they hang up first."""


def check(settings: Settings) -> None:
    """Refuse settings that would be unsafe or could not work."""
    if settings.workers > 1 and settings.store_kind != "postgresql":
        raise BadSettingsError(
            f"{settings.workers} workers need a postgresql:// store: one of kind {settings.store_kind} belongs to one "
            "process; use --workers 1 (one process takes hundreds of requests per second) or --store postgresql://…"
        )
    if "keys" in settings.model_fields_set and not settings.keys.is_file():
        raise BadSettingsError(f"the file of keys {settings.keys} does not exist; `slatewise keys add` makes it")
    ring = KeyRing(settings.keys) if settings.keys.exists() else None
    if not settings.on_loopback and (ring is None or ring.n_active == 0):
        raise BadSettingsError(
            f"listening on {settings.host} lets others in, and there is no active API key; make one with "
            f"`slatewise keys add NAME --scope serve --keys {settings.keys}`, or listen on 127.0.0.1"
        )


def make_recommender(settings: Settings) -> Recommender:
    """Load the catalogue and open the store."""
    recommender = Recommender(
        Catalog.load(settings.catalog),
        settings.policies,
        settings.store.get_secret_value(),
        seed=settings.seed,
        reward_wait=settings.reward_wait,
    )
    if settings.chooses_beside:
        recommender.choose_beside(settings.catalog)
    return recommender


def make_app(settings: Settings, recommender: Recommender) -> Observing:
    """Make the application for this process, and take what libraries log into its log."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    app = create_app(recommender, settings)
    service = app.service
    service.sha256 = str(read_manifest(settings.catalog)["arrays"]["sha256"])
    if SHARED_DIRECTORY in os.environ:
        service.notice = Path(os.environ[SHARED_DIRECTORY]) / "catalogue-reloaded"
    logging.basicConfig(handlers=[JsonHandler(service.log)], level=logging.WARNING, force=True)
    GuardedProtocol.header_timeout = settings.header_timeout
    return app


def listen(settings: Settings) -> socket.socket:
    """Open the port; if that cannot be, say why in one sentence."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    where = f"port {settings.port} on {settings.host}"
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except socket.gaierror:
        raise BadSettingsError(f"{settings.host} is no address of this machine; check --host") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise BadSettingsError(f"{where} is taken; stop what holds it, or choose another with --port") from None
        raise BadSettingsError(f"{where} cannot be opened: {os.strerror(error.errno or 0).lower()}") from None


def uvicorn_options(settings: Settings) -> dict[str, Any]:
    """Return how uvicorn is run, alone or with several workers."""
    return {
        "http": GuardedProtocol,
        "ws": "none",
        "lifespan": "on",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
        "limit_concurrency": settings.connections,
        "timeout_keep_alive": KEEP_ALIVE,
        "timeout_graceful_shutdown": settings.shutdown_timeout,
    }


def address_of(settings: Settings, port: int) -> str:
    """Return the URL to tell people."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{port}"


def serve_alone(settings: Settings, listener: socket.socket, recommender: Recommender) -> None:
    """Serve from this process until it is told to stop; then finish what runs, commit, and leave."""
    app = make_app(settings, recommender)
    app.service.log.event("serving", at=address_of(settings, listener.getsockname()[1]))
    signal.signal(signal.SIGTERM, _leave)
    gc.collect()
    gc.freeze()  # what is there now stays: looking through it again and again would hold up requests
    uvicorn.Server(uvicorn.Config(app, **uvicorn_options(settings))).run(sockets=[listener])


def _leave(_signal: int, _frame: FrameType | None) -> NoReturn:
    """Exit in peace: uvicorn has shut down by the time it passes the signal on."""
    sys.exit(0)
