"""`slatewise serve` as a process: how it starts, what it refuses, how it stops; nothing acknowledged is lost."""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from typer.testing import CliRunner

from slatewise.cli import app
from slatewise.service.routes import ROUTES
from slatewise.service.settings import Settings
from slatewise.service.shared_directory import PREFIX, remove_abandoned, shared_directory, use
from tests.conftest import ROOT
from tests.support.command_line import run_here
from tests.support.postgres import throw_away_server
from tests.support.serving import Server, key_file, small_catalog

pytestmark = pytest.mark.process

GUIDE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("shop")
    small_catalog().save(directory / "catalog")
    return directory


@pytest.fixture(scope="module")
def server(shop: Path) -> Iterator[Server]:
    with Server(shop, ["--store", "memory://"]) as running:
        yield running


def test_a_port_that_is_taken(server: Server, shop: Path) -> None:
    """As a person sees it: one sentence on stderr, nothing else."""
    command = [sys.executable, "-m", "slatewise", "serve", "--catalog", "catalog", "--port", str(server.port)]
    done = subprocess.run(command, cwd=shop, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"error: port {server.port} on 127.0.0.1 is in use; stop what uses it, or choose another with --port\n"
    )


REFUSALS: dict[str, tuple[list[str], str]] = {
    "others without keys": (["--host", "0.0.0.0"], "there is no active API key; create one with `slatewise keys add"),  # noqa: S104
    "two workers on SQLite": (["--workers", "2"], "a sqlite store belongs to one process"),
    "an unknown policy": (["--policy", "best", "--store", "memory://"], "there is no policy of that name"),
    "a store of no kind": (["--store", "mysql://x"], "store URL of kind 'mysql' is not known"),
    "no such address": (["--host", "192.0.2.1", "--keys", "keys.json"], "port 0 on 192.0.2.1 cannot be opened"),
    "no catalog": (["--catalog", "nowhere", "--store", "memory://"], "nowhere"),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSALS.values(), ids=REFUSALS.keys())
def test_what_is_refused_is_said_in_one_sentence(
    arguments: list[str], message: str, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shop)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    if "--keys" in arguments:
        key_file(shop / "keys.json", shop=("serve",))
    done = CliRunner().invoke(app, ["serve", "--catalog", "catalog", "--port", "0", *arguments])
    (shop / "keys.json").unlink(missing_ok=True)
    assert done.exit_code == 1
    assert done.output.startswith("error: ")
    assert message in done.output
    assert done.output.count("\n") == 1


def test_keys_and_hosts_of_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that others can reach asks for keys, and revoking one works at once; other names are refused."""
    monkeypatch.chdir(tmp_path)
    small_catalog().save(tmp_path / "catalog")
    key = key_file(tmp_path / "keys.json", shop=("serve",))["shop"]
    with Server(tmp_path, ["--store", "memory://", "--host", "0.0.0.0", "--allow-host", "shop.example"]) as server:  # noqa: S104
        with server.client(key) as client:
            ask: dict[str, Any] = {"json": {"user": "anna"}}
            assert client.post("/v1/slates", **ask).status_code == 201
            assert client.post("/v1/slates", **ask, headers={"host": "shop.example"}).status_code == 201
            assert client.post("/v1/slates", **ask, headers={"host": "evil.example"}).status_code == 400
            assert run_here("keys", "revoke", key[4:12]).returncode == 0
            assert client.post("/v1/slates", **ask).status_code == 401
        assert server.stop() == 0
        logged = server.logged()
    assert key not in logged
    assert "anna" not in logged
    assert [json.loads(line)["event"] for line in logged.splitlines()][-1] == "stopped"


def clicking(server: Server, user: str, acknowledged: list[tuple[str, str, list[int]]]) -> None:
    """Ask for slates and answer them until the server is gone; note what it acknowledged."""
    with server.client() as client:
        for number in range(10_000):
            try:
                slate = client.post("/v1/slates", json={"user": user, "k": 2}).json()
                event = f"{user}-{number}"
                clicked = [slate["items"][0]["id"]]
                client.post(
                    "/v1/feedback", json={"slate_id": slate["slate_id"], "clicked": clicked, "event_id": event}
                ).raise_for_status()
                acknowledged.append((event, slate["slate_id"], clicked))
            except (httpx.HTTPError, KeyError):
                return


@pytest.mark.slow
def test_stopping_under_load_loses_nothing_acknowledged(tmp_path: Path) -> None:
    small_catalog().save(tmp_path / "catalog")
    acknowledged: dict[str, list[tuple[str, str, list[int]]]] = {f"user{number}": [] for number in range(4)}
    with Server(tmp_path, ["--store", "sqlite:///slates.db"], {"SLATEWISE_RATE": "0"}) as server:
        threads = [threading.Thread(target=clicking, args=(server, *one)) for one in acknowledged.items()]
        for thread in threads:
            thread.start()
        while sum(map(len, acknowledged.values())) < 40:
            assert any(thread.is_alive() for thread in threads), server.logged()[-2000:]
        assert server.stop() == 0
        for thread in threads:
            thread.join()
        lines = [json.loads(line) for line in server.logged().splitlines()]
        assert not [line for line in lines if line["event"] == "failure"]
        noted = [line for line in lines if line.get("route") == "/v1/feedback" and line["status"] == 200]
        assert len(noted) >= sum(map(len, acknowledged.values()))
    with Server(tmp_path, ["--store", "sqlite:///slates.db"]) as server, server.client() as client:
        for user, events in acknowledged.items():
            kept = {one["event_id"]: one for one in client.get(f"/v1/users/{user}/export").json()["feedback"]}
            for event, slate, clicked in events:
                assert (kept[event]["slate_id"], kept[event]["clicked"]) == (slate, clicked)
            repeated = {"slate_id": events[0][1], "clicked": events[0][2], "event_id": events[0][0]}
            assert client.post("/v1/feedback", json=repeated).json()["duplicate"] is True


def test_a_server_loads_only_what_it_needs() -> None:
    """A PostgreSQL server does without SQLite, and nothing needs FastAPI; control: the SQLite store does need apsw."""

    def loaded(module: str) -> set[str]:
        code = f"import sys, {module}; print(*sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
        return set(done.stdout.split())

    assert not {"apsw", "fastapi"} & loaded("slatewise.service.server")
    assert "apsw" in loaded("slatewise.store.sqlite")


def test_the_guide_names_every_route_and_setting() -> None:
    for entry in ROUTES:
        assert f"| `{entry.method} {entry.path}` |" in GUIDE, entry.path
    for name in Settings.model_fields:
        assert f"| `{name}` |" in GUIDE, name


def test_the_guide_names_every_metric(server: Server) -> None:
    with server.client() as client:
        slate = client.post("/v1/slates", json={"user": "anna"}).json()
        client.post("/v1/slates", json={"user": "anna", "preview": True})
        client.post("/v1/feedback", json={"slate_id": slate["slate_id"], "clicked": []})
        client.post("/v1/catalog/reload", headers={"content-type": "application/json"})
        client.get("/nothing")
        found = re.findall(r"^# TYPE (\w+)", client.get("/metrics").text, flags=re.MULTILINE)
    assert len(found) > 15
    assert [name for name in found if f"`{name}" not in GUIDE and not name.startswith("slatewise_store_")] == []


def test_the_client_of_the_guide_works(server: Server) -> None:
    [code] = re.findall(r"```python\n(.*?)```", GUIDE, flags=re.DOTALL)
    code = code.replace("http://127.0.0.1:8000", f"http://127.0.0.1:{server.port}")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    assert "Film " in done.stdout


def test_the_curl_session_of_the_guide_works(server: Server) -> None:
    """Runs the session as it is printed; every answer must be what a person would hope for."""
    [session] = re.findall(r"```sh\n(# a session.*?)```", GUIDE, flags=re.DOTALL)
    session = session.replace("http://127.0.0.1:8000", f"http://127.0.0.1:{server.port}")
    done = subprocess.run(  # noqa: S603
        ["bash", "-euo", "pipefail", "-c", session.replace("curl ", "curl --fail ")],  # noqa: S607
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    assert '"duplicate":false' in done.stdout
    assert '"clicks":1' in done.stdout


@pytest.mark.slow
def test_two_workers_on_postgresql_act_as_one(tmp_path: Path) -> None:
    """They share state, count together, and follow each other to a new catalogue; stopping stops both."""
    small_catalog().save(tmp_path / "catalog")
    with throw_away_server() as database:
        port = str(free_port())
        arguments = ["--store", database.url, "--workers", "2", "--port", port]
        with Server(tmp_path, arguments, {"SLATEWISE_RATE": "0"}) as server:
            for number in range(20):
                with server.client() as client:
                    slate = client.post("/v1/slates", json={"user": "anna", "k": 2}).json()
                    assert slate["number"] == number
                with server.client() as client:
                    event = {"slate_id": slate["slate_id"], "clicked": [slate["items"][0]["id"]]}
                    client.post("/v1/feedback", json=event).raise_for_status()
            with server.client() as client:
                figures = client.get("/metrics").text
            assert 'slatewise_slates_total{policy="dc2b-calibrated"} 20.0' in figures
            assert 'slatewise_policy_clicks{policy="dc2b-calibrated"} 20.0' in figures
            small_catalog(80, seed=1).save(tmp_path / "catalog")
            with server.client() as client:
                client.post("/v1/catalog/reload", headers={"content-type": "application/json"}).raise_for_status()
            assert eventually(lambda: {items_served(server) for _ in range(20)} == {80})
            assert server.stop() == 0
        processes = {json.loads(line)["id"].split("-")[0] for line in server.logged().splitlines() if '"id"' in line}
        assert len(processes) == 2
        assert server.logged().count('"stopped"') == 2


@pytest.mark.slow
def test_workers_do_not_outlive_a_supervisor_that_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kill -9 of the supervisor: both workers stop, the port is free for the next, and it cleans up."""
    small_catalog().save(tmp_path / "catalog")
    with throw_away_server() as database:
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        arguments = ["--store", database.url, "--workers", "2", "--port", str(free_port())]
        with Server(tmp_path, arguments) as server:
            assert server.process is not None
            family = psutil.Process(server.process.pid).children(recursive=True)
            assert len(family) >= 2
            server.process.kill()
            assert eventually(lambda: not any(one.is_running() and one.status() != "zombie" for one in family))
            assert server.logged().count('"stopped"') == 2
            socket.create_server(("127.0.0.1", server.port)).close()
            assert len(list(tmp_path.glob(f"{PREFIX}*"))) == 1
            remove_abandoned()
            assert not list(tmp_path.glob(f"{PREFIX}*"))


def test_a_directory_of_workers_is_removed_once_nobody_uses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that another server uses stays, and so does what a link leads to; the control is one that nobody uses."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "elsewhere")
    with shared_directory() as first:
        (first / "counter_1.db").touch()
        with shared_directory() as second:
            assert first.is_dir()
            lock = use(second)
        assert not second.exists()
        os.close(lock)
        (tmp_path / f"{PREFIX}abandoned").mkdir()
        remove_abandoned()
        assert sorted(one.name for one in tmp_path.iterdir()) == sorted(["elsewhere", first.name, f"{PREFIX}link"])
    assert not first.exists()


FAMILY = """
import multiprocessing, os, sys, time
from slatewise.service.server import exit_with_supervisor

def work(follows):
    if follows:
        exit_with_supervisor(timeout=10)
    time.sleep(60)

if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    children = [spawn.Process(target=work, args=(follows,)) for follows in (True, False)]
    for child in children:
        child.start()
    print(*[child.pid for child in children], flush=True)
    time.sleep(60)
"""


def test_a_process_follows_its_parent_only_if_it_says_so(tmp_path: Path) -> None:
    """The negative control: without `exit_with_supervisor` a child lives on."""
    (tmp_path / "family.py").write_text(FAMILY)
    with subprocess.Popen([sys.executable, "family.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        follower, other = (psutil.Process(int(pid)) for pid in parent.stdout.readline().split())
        try:
            parent.kill()
            assert eventually(lambda: not follower.is_running())
            assert other.is_running()
        finally:
            other.kill()


def items_served(server: Server) -> int:
    with server.client() as client:
        return int(client.get("/v1/catalog").json()["items"])


def eventually(is_so: Callable[[], bool]) -> bool:
    """Whether something becomes true within half a minute."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if is_so():
            return True
        time.sleep(0.2)
    return False


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
