"""The service as a process that can be killed: forked in a moment from one loaded before, or by its command."""

import http.client
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from unittest.mock import patch
from urllib.parse import quote

from slatewise.service.server import listen, make_recommender, run_server
from slatewise.service.settings import load_settings
from slatewise.store import Store, open_store, sqlite, sqlite_checkpoints, sqlite_writer
from slatewise.store.sqlite import SqliteStore
from tests.support.broken import Careless, Forgetful, HastyWriter, Shrugging

HOST = "127.0.0.1"
PATIENCE = 120.0
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__])


@dataclass(frozen=True)
class Place:
    """Where a service keeps its things; it comes back on the same port."""

    directory: Path
    port: int
    url: str | None = None

    @property
    def catalog(self) -> Path:
        return self.directory / "catalog"

    @property
    def store(self) -> str:
        """The URL that was given, or that of a file."""
        return self.url or f"sqlite:///{self.directory / 'slates.db'}"

    @property
    def log(self) -> str:
        """The end of what the service wrote."""
        return (self.directory / "log").read_text()[-2000:]


def plain(store: Store) -> Store:
    return store


def dying_in_a_checkpoint(store: Store) -> Store:
    """Copy the WAL into the database all the time, and once there is a file `trap`, die in the middle of it."""
    assert isinstance(store, SqliteStore)
    trap = store.path.with_name("trap")
    sqlite_writer.CHECKPOINT_PAGES = 40
    checkpoint = sqlite_checkpoints.Checkpoints.checkpoint

    def die_soon(self: sqlite_checkpoints.Checkpoints) -> bool:
        if trap.exists():
            threading.Timer(random.uniform(0.0, 0.004), partial(os.kill, os.getpid(), signal.SIGKILL)).start()
        return checkpoint(self)

    sqlite_checkpoints.Checkpoints.checkpoint = die_soon  # type: ignore[method-assign]
    return store


def on_a_small_disk(store: Store) -> Store:
    """Let the database grow by a few pages only, until there is a file `space`; it is gone when there is space."""
    assert isinstance(store, SqliteStore)
    assert store.writer is not None
    store.writer.between_commits(lambda one: one.pragma("max_page_count", one.pragma("page_count") + 2)).result()
    threading.Thread(target=_make_space, args=(store,), daemon=True).start()
    return store


def _make_space(store: SqliteStore) -> None:
    wanted = store.path.parent / "space"
    while not wanted.exists():
        time.sleep(0.02)
    assert store.writer is not None
    store.writer.between_commits(lambda one: one.pragma("max_page_count", 1_000_000)).result()
    wanted.unlink()


WAYS: dict[str, Callable[[Store], Store]] = {
    "plain": plain,
    "dying in a checkpoint": dying_in_a_checkpoint,
    "small disk": on_a_small_disk,
    "hasty": plain,
    "careless": Careless,
    "forgetful": Forgetful,
    "shrugging": lambda store: Shrugging(on_a_small_disk(store)),
}


def serve(place: Place, way: str) -> None:
    """Serve in this process until killed."""
    log = os.open(place.directory / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if way == "hasty":
        patch.object(sqlite, "SqliteWriter", HastyWriter).start()
    settings = load_settings({"catalog": place.catalog, "port": place.port, "rate": 0.0})
    store = WAYS[way](open_store(place.store))
    run_server(settings, listen(settings), make_recommender(settings, store))


@dataclass
class Running:
    """A service that answers, and how long it took to."""

    place: Place
    process: Any
    ready_after: float = 0.0

    @property
    def is_alive(self) -> bool:
        alive = self.process.is_alive if hasattr(self.process, "is_alive") else lambda: self.process.poll() is None
        return bool(alive())

    def kill(self) -> None:
        """End it as a power cut ends a process: at once, whatever it was doing."""
        self.process.kill()
        self.gone()

    def gone(self) -> None:
        """Wait until it has died."""
        wait = self.process.join if hasattr(self.process, "join") else self.process.wait
        wait(PATIENCE)

    def stop(self) -> None:
        """End it in peace."""
        self.process.terminate()
        self.gone()


def start(place: Place, way: str = "plain") -> Running:
    """Fork a service, and wait until it is ready."""
    process = FORKS.Process(target=serve, args=(place, way), daemon=True)
    began = time.monotonic()
    process.start()
    return _ready(Running(place, process), began)


def start_by_command(place: Place, *words: str) -> Running:
    """Start `slatewise serve`, and wait until it is ready."""
    given = ["--catalog", str(place.catalog), "--port", str(place.port), *(words or ("--store", place.store))]
    environment = {**os.environ, "SLATEWISE_RATE": "0", "OPENBLAS_NUM_THREADS": "1"}
    began = time.monotonic()
    with (place.directory / "log").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "slatewise", "serve", *given],
            env=environment,
            cwd=place.directory,
            stdout=log,
            stderr=log,
        )
    return _ready(Running(place, process), began)


def _ready(running: Running, began: float) -> Running:
    try:
        _wait_for(running, began + PATIENCE)
    except BaseException:
        running.kill()
        raise
    running.ready_after = time.monotonic() - began
    return running


def _wait_for(running: Running, until: float) -> None:
    with Caller(running.place) as caller:
        while caller.ask("GET", "/health/ready").status != 200:
            assert running.is_alive, running.place.log
            assert time.monotonic() < until, running.place.log
            time.sleep(0.02)


@dataclass(frozen=True)
class Answer:
    """What was heard; status 0 if nothing was."""

    status: int
    body: Any = None


class Caller:
    """One client with one connection, which it opens again when it breaks."""

    def __init__(self, place: Place) -> None:
        self.connection = http.client.HTTPConnection(HOST, place.port, timeout=PATIENCE)

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """Ask once; an answer that does not come whole is none."""
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            self.connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = self.connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException):
            self.connection.close()
            return Answer(0)
        is_json = "json" in response.headers.get("content-type", "")
        return Answer(response.status, json.loads(content) if is_json and content else None)

    def export(self, user: str) -> dict[str, Any]:
        """Return everything kept about a user; nothing if nobody is known by that name."""
        answer = self.ask("GET", f"/v1/users/{quote(user, safe='')}/export")
        assert answer.status in (200, 404), answer
        empty: dict[str, Any] = {"slates": [], "feedback": []}
        return dict(answer.body) if answer.status == 200 else empty

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connection.close()
