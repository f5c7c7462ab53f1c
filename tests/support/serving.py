"""A small catalog, the service in this process, and the service as a process of its own."""

import asyncio
import io
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx
import numpy as np
from starlette.applications import Starlette

from slatewise.catalog import Catalog
from slatewise.recommender import Recommender
from slatewise.service.app import create_app
from slatewise.service.keys import edit_keys, new_key
from slatewise.service.logs import Log
from slatewise.service.settings import Settings
from slatewise.service.state import ServiceState

CATEGORIES = ("Comedy", "Drama", "Horror", "Sci-Fi", "War")


def small_catalog(n_items: int = 60, seed: int = 0) -> Catalog:
    """Items 0, 1, … with titles and one or two categories each."""
    random = np.random.default_rng(seed)
    names = [f"{CATEGORIES[item % 5]}|{CATEGORIES[(item // 5) % 5]}" for item in range(n_items)]
    titles = [f"Film {item}" for item in range(n_items)]
    return Catalog.from_vectors(range(n_items), random.normal(size=(n_items, 6)), titles=titles, categories=names)


def key_file(path: Path, **scopes: tuple[str, ...]) -> dict[str, str]:
    """Write a key file with one key per name; return the keys themselves."""
    keys = {}
    with edit_keys(path) as known:
        for name, wanted in scopes.items():
            keys[name], key = new_key(name, wanted)
            known.append(key)
    return keys


class Client:
    """Calls an application in this process, as if by HTTP, from ordinary functions."""

    def __init__(self, app: Starlette) -> None:
        self.loop = asyncio.new_event_loop()
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.loop.run_until_complete(self.client.request(method, path, **options))

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.request("POST", path, **options)

    def delete(self, path: str, **options: Any) -> httpx.Response:
        return self.request("DELETE", path, **options)

    def close(self) -> None:
        self.loop.run_until_complete(self.client.aclose())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


@dataclass
class Local:
    """The service in this process, with what it logged."""

    app: Starlette
    client: Client
    recommender: Recommender
    logged: io.BytesIO

    @property
    def state(self) -> ServiceState:
        state: ServiceState = self.app.state.service
        return state

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.logged.getvalue().splitlines()]


def written_at_once(logged: io.BytesIO) -> Log:
    """A log that keeps nothing back: once it is closed, lines are written by whoever logs them."""
    log = Log(write=logged.write)
    log.close()
    return log


@contextmanager
def local(directory: Path, recommender: Recommender | None = None, **settings: Any) -> Iterator[Local]:
    """Start the service, on a memory store unless a recommender is given; its catalog is saved in the directory."""
    if recommender is None:
        catalog = small_catalog()
        catalog.save(directory / "catalog")
        recommender = Recommender(catalog)
    logged = io.BytesIO()
    given = {"catalog": directory / "catalog", "keys": directory / "keys.json", **settings}
    app = create_app(recommender, Settings(**given), written_at_once(logged))
    client = Client(app)
    try:
        yield Local(app, client, recommender, logged)
    finally:
        client.close()
        app.state.service.close()


def new_slate(service: Local, user: str = "anna", **options: Any) -> dict[str, Any]:
    response = service.client.post("/v1/slates", json={"user": user, **options})
    assert response.status_code == 201, response.text
    slate: dict[str, Any] = response.json()
    return slate


def reload(service: Local) -> httpx.Response:
    return service.client.post("/v1/catalog/reload", headers={"content-type": "application/json"})


@dataclass
class Server:
    """`slatewise serve` as its own process."""

    directory: Path
    arguments: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    stderr: int | None = None
    process: subprocess.Popen[str] | None = None
    port: int = 0

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "slatewise", "serve", "--catalog", "catalog", *self.arguments]
        if "--port" not in self.arguments:
            command += ["--port", "0"]
        self.log = (self.directory / "server.log").open("a+")
        self.process = subprocess.Popen(  # noqa: S603
            command,
            cwd=self.directory,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **self.environment},
            stdout=subprocess.PIPE,
            stderr=self.log if self.stderr is None else self.stderr,
            text=True,
            start_new_session=True,
        )
        try:
            self._wait_for_start(self.process)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait_for_start(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        found = re.search(r"at http://\S+?:(\d+) ", process.stdout.readline())
        assert found, self.logged()
        self.port = int(found[1])
        self.wait_until_ready()

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # its workers too: they would hold on to its output
        self.process.communicate()
        self.log.close()

    def wait_until_ready(self) -> None:
        for _ in range(300):
            with self.client() as client, suppress(httpx.TransportError):
                if client.get("/health/ready").status_code == 200:
                    return
            time.sleep(0.1)
        raise AssertionError(self.logged())

    def client(self, key: str | None = None) -> httpx.Client:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers=headers, trust_env=False, timeout=30)

    def stop(self) -> int:
        """Stop in peace; return the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)

    def logged(self) -> str:
        return (self.directory / "server.log").read_text()

    def raw(self, *parts: bytes, wait: float = 15.0, pause: float = 0.0) -> bytes:
        """Send bytes over a plain connection; return all that comes until the server hangs up or falls silent."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=wait) as connection:
            try:
                for part in parts:
                    connection.sendall(part)
                    time.sleep(pause)
            except (BrokenPipeError, ConnectionResetError):
                pass
            return _answer(connection, wait)


def _answer(connection: socket.socket, wait: float) -> bytes:
    """Read until one whole answer is there."""
    found = b""
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        while not _is_whole(found) and selector.select(wait):
            try:
                part = connection.recv(65_536)
            except ConnectionResetError:
                break
            if not part:
                break
            found += part
    return found


def _is_whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    return bool(end) and length is not None and len(body) >= int(length[1])
