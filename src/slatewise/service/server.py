"""The service as one process or several: what it refuses to start with, how it listens, how it stops."""

import errno
import gc
import json
import logging
import math
import multiprocessing
import os
import resource
import secrets
import signal
import socket
import sys
import threading
import time
from contextlib import closing
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import uvicorn
from prometheus_client import disable_created_metrics
from starlette.applications import Starlette

from slatewise.catalog import Catalog
from slatewise.catalog.mapped_arrays import share_through
from slatewise.catalog.model_files import read_manifest
from slatewise.recommender import Recommender
from slatewise.service.app import create_app
from slatewise.service.connections import ConnectionLimits, GuardedProtocol
from slatewise.service.cpu_affinity import LARGE_CATALOG, pin_to_core
from slatewise.service.keys import KeyRing
from slatewise.service.logs import JsonHandler, Log, LogStream
from slatewise.service.metrics import SHARED_DIRECTORY
from slatewise.service.settings import BadSettingsError, Settings, is_loopback, shadow_share
from slatewise.service.shared_directory import shared_directory, use
from slatewise.service.state import ServiceState
from slatewise.store import Store

KEEP_ALIVE = 65
"""Seconds for which an idle connection is kept: longer than reverse proxies do, so that they hang up first."""
BACKLOG = 2048
OTHER_FILES = 300
"""How many files and connections of its own a server may have open, next to those of its clients."""
LAST_SECONDS = 5
"""What closing the store and the log may take, once pending requests have had their time."""
WORKER_SETTINGS = "SLATEWISE_WORKER_SETTINGS"
FULL_COLLECTION_THRESHOLD = 100
"""After so many collections of the middle generation all objects are looked through: every minute or so under load."""


def check(settings: Settings) -> None:
    """Reject settings that would be unsafe or could not work."""
    if settings.workers > 1 and settings.store_kind != "postgresql":
        raise BadSettingsError(
            f"{settings.workers} workers require a postgresql:// store, because a {settings.store_kind} store belongs "
            "to one process; use --workers 1 (one process handles hundreds of requests per second) or --store "
            "postgresql://…"
        )
    if settings.retrain is not None and settings.store_kind == "memory":
        raise BadSettingsError("a memory:// store has no log to train from; remove the setting retrain")
    if "keys" in settings.model_fields_set and not settings.keys.is_file():
        raise BadSettingsError(f"the key file {settings.keys} does not exist; `slatewise keys add` creates it")
    ring = KeyRing(settings.keys) if settings.keys.exists() else None
    if ring is None or ring.n_active == 0:
        _refuse_others(settings)


def _refuse_others(settings: Settings) -> None:
    """Without keys, nobody but this machine may get in, neither directly nor by way of a proxy."""
    if not settings.on_loopback:
        opens, instead = f"listening on {settings.host}", "listen on 127.0.0.1"
    elif not all(map(is_loopback, settings.allowed_hosts)):
        opens, instead = "the setting allowed_hosts", "leave it out"
    else:
        return
    raise BadSettingsError(
        f"{opens} lets others in, but there is no active API key; create one with "
        f"`slatewise keys add NAME --scope serve --keys {settings.keys}`, or {instead}"
    )


def allow_files(connections: int) -> None:
    """Let this process open as many files as its connections need; those that wait to be accepted come on top."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed, unlimited = connections + OTHER_FILES, most == resource.RLIM_INFINITY
    if not unlimited and most < needed:
        raise BadSettingsError(
            f"{connections} connections need {needed} open files, but this process may have {most}; "
            "raise the limit (ulimit -n, or LimitNOFILE in systemd), or lower the setting connections"
        )
    wanted = max(now, needed + BACKLOG)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if unlimited else min(wanted, most), most))


def make_recommender(settings: Settings, store: Store | None = None) -> Recommender:
    """Load the catalog and open the store, unless one is given."""
    return Recommender(
        Catalog.load(settings.catalog),
        settings.policy_shares(),
        store or settings.store.get_secret_value(),
        seed=settings.seed,
        reward_wait=settings.reward_wait,
        attention=settings.attention_rule(),
        half_life=settings.half_life or math.inf,
        repeat_after=math.inf if settings.repeat_after is None else settings.repeat_after,
        events=settings.events,
        scenarios={name: scenario.rules() for name, scenario in settings.scenarios.items()},
        experiment=None if settings.experiment is None else settings.experiment.experiment(),
        shadow=shadow_share(settings.shadow),
    )


def make_app(settings: Settings, recommender: Recommender) -> Starlette:
    """Create the application of this process, ready for requests, and send what libraries log to its log."""
    recommender.warm_up()
    disable_created_metrics()  # type: ignore[no-untyped-call]
    app = create_app(recommender, settings)
    state: ServiceState = app.state.service
    state.catalog_sha256 = str(read_manifest(settings.catalog)["arrays"]["sha256"])
    if SHARED_DIRECTORY in os.environ:
        state.reload_marker = Path(os.environ[SHARED_DIRECTORY]) / "catalog-reloaded"
    logging.basicConfig(handlers=[JsonHandler(state.log)], level=logging.WARNING, force=True)
    sys.stderr = LogStream(state.log)
    GuardedProtocol.request_timeout = settings.request_timeout
    GuardedProtocol.limits = ConnectionLimits(settings.connections, settings.connections_per_address)
    return app


def listen(settings: Settings) -> socket.socket:
    """Open the port; if that fails, say why in one sentence."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    where = f"port {settings.port} on {settings.host}"
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    except socket.gaierror:
        raise BadSettingsError(f"{settings.host} is not an address of this machine; check --host") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise BadSettingsError(f"{where} is in use; stop what uses it, or choose another with --port") from None
        raise BadSettingsError(f"{where} cannot be opened: {os.strerror(error.errno or 0).lower()}") from None


def address_of(settings: Settings, port: int) -> str:
    """Return the URL of the service."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{port}"


def _uvicorn_options(settings: Settings) -> dict[str, Any]:
    return {
        "http": GuardedProtocol,
        "backlog": BACKLOG,
        "ws": "none",
        "lifespan": "on",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
        "timeout_keep_alive": KEEP_ALIVE,
        "timeout_graceful_shutdown": settings.shutdown_timeout,
    }


def run_server(settings: Settings, listener: socket.socket, recommender: Recommender) -> None:
    """Serve from this process until told to stop; then finish pending requests, commit, and exit."""
    allow_files(settings.connections)
    app, port = make_app(settings, recommender), listener.getsockname()[1]
    set_cpu_affinity(settings, recommender.catalog.n_items)
    app.state.service.log.event("serving", at=address_of(settings, port))
    signal.signal(signal.SIGTERM, _exit)
    tune_garbage_collection()
    try:
        uvicorn.Server(uvicorn.Config(app, **_uvicorn_options(settings))).run(sockets=[listener])
    finally:
        app.state.service.log.close()


def tune_garbage_collection() -> None:
    """Look for reference cycles among new objects as ever, but rarely among old ones.

    What exists now stays, and most of what gets old are cached users. Looking through all of it stopped every request
    for 30 to 75 ms, every seven seconds under load. Nothing large waits for it: a catalog that was replaced is freed at
    once, as it is in no cycle.
    """
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, FULL_COLLECTION_THRESHOLD)


def set_cpu_affinity(settings: Settings, n_items: int) -> None:
    """Keep this process on one core, unless the settings or a large catalog say otherwise."""
    if n_items < LARGE_CATALOG if settings.pin_to_core is None else settings.pin_to_core:
        pin_to_core()


def _exit(_signal: int, _frame: FrameType | None) -> NoReturn:
    """Exit normally: uvicorn has shut down by the time it passes the signal on."""
    sys.exit(0)


def run_workers(settings: Settings) -> None:
    """Serve from several processes behind one port, which share the store, counters, and reloads of the catalog."""
    allow_files(settings.connections)
    log = Log()
    logging.basicConfig(handlers=[JsonHandler(log, logging.INFO)], level=logging.INFO, force=True)
    with closing(log), shared_directory() as shared:
        os.environ[SHARED_DIRECTORY] = str(shared)
        os.environ[WORKER_SETTINGS] = dump_settings(settings)
        uvicorn.run(
            "slatewise.service.server:worker_app",
            factory=True,
            host=settings.host,
            port=settings.port,
            workers=settings.workers,
            **_uvicorn_options(settings),
        )


def dump_settings(settings: Settings) -> str:
    """Write settings with their secrets for the workers; all of them hash users with the same salt."""
    salt = settings.log_salt.get_secret_value() if settings.log_salt else secrets.token_hex(32)
    revealed = {"store": settings.store.get_secret_value(), "log_salt": salt}
    return json.dumps({**settings.model_dump(mode="json"), **revealed})


def exit_with_supervisor(timeout: float) -> None:
    """Stop this process when the one that started it is gone, even by kill -9; after the timeout, stop at once."""
    supervisor = multiprocessing.parent_process()
    if supervisor is not None:
        threading.Thread(target=_follow, args=(supervisor, timeout), name="slatewise-follow", daemon=True).start()


def _follow(supervisor: BaseProcess, timeout: float) -> None:
    supervisor.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(timeout)
    os._exit(1)


def worker_app() -> Starlette:
    """Create the application of one worker from the settings passed down to it."""
    settings = Settings(**json.loads(os.environ.pop(WORKER_SETTINGS)))
    directory = Path(os.environ[SHARED_DIRECTORY])
    use(directory)
    share_through(directory)
    exit_with_supervisor(settings.shutdown_timeout + LAST_SECONDS)
    recommender = make_recommender(settings)
    set_cpu_affinity(settings, recommender.catalog.n_items)
    app = make_app(settings, recommender)
    tune_garbage_collection()
    return app
