"""Containers and monitoring, as far as that goes without a container engine: steps, schemas, and a real Prometheus."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
import yaml

from slatewise.service.settings import Settings
from tests.conftest import ROOT, missing
from tests.support.postgres import Server as PostgresServer
from tests.support.serving import Server, key_file, small_catalog

DEPLOY = ROOT / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana/dashboards/slatewise.json").read_text())
ALERTS = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PANEL_QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
ALERT_QUERIES = [rule["expr"] for group in ALERTS["groups"] for rule in group["rules"]]
COMPARISON = re.compile(r" [<>] [0-9.]+$")
PATIENCE = 240.0


def instructions(stage: int) -> list[tuple[str, str]]:
    """The instructions of a stage of the Dockerfile."""
    lines = [line for line in DOCKERFILE.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    found = [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]
    starts = [number for number, (word, _) in enumerate(found) if word == "FROM"] + [len(found)]
    return found[starts[stage] : starts[stage + 1]]


def environment() -> dict[str, str]:
    text = next(rest for word, rest in instructions(1) if word == "ENV")
    return dict(part.split("=", 1) for part in shlex.split(text))


def test_the_image_is_not_run_by_root_and_has_a_health_check() -> None:
    last = dict(instructions(1))
    assert int(last["USER"].partition(":")[0]) > 0
    assert "/health/ready" in last["HEALTHCHECK"]
    assert set(json.loads(last["VOLUME"])) == {"/catalog", "/data"}
    unknown = {name for name in environment() if name.startswith("SLATEWISE_")} - {
        f"SLATEWISE_{name.upper()}" for name in Settings.model_fields
    }
    assert not unknown


def test_what_the_image_copies_is_not_ignored() -> None:
    kept = {line[1:].removesuffix("/*.toml") for line in (ROOT / ".dockerignore").read_text().split() if line[0] == "!"}
    copied = {name for word, rest in instructions(0) if word == "COPY" for name in rest.split()[:-1]}
    assert copied == kept
    assert all((ROOT / name).exists() for name in copied)


def test_compose_names_what_exists() -> None:
    assert set(COMPOSE["services"]) == {"slatewise", "postgres", "prometheus", "grafana"}
    for service in COMPOSE["services"].values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            made_by_hand = source in ("./catalog", "./deploy/prometheus.key")
            assert made_by_hand or source in COMPOSE["volumes"] or (ROOT / source).exists(), source
    assert COMPOSE["services"]["slatewise"]["read_only"] is True
    published = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_the_dashboard_is_one() -> None:
    assert {"uid", "title", "panels", "schemaVersion"} <= set(DASHBOARD)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    source = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"][0]
    assert {panel["datasource"]["uid"] for panel in DASHBOARD["panels"]} == {source["uid"]}


@pytest.mark.process
def test_promtool_accepts_configuration_and_rules(tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        missing("promtool (Debian's package prometheus)")
    shutil.copytree(DEPLOY / "prometheus", tmp_path / "prometheus")
    configuration = tmp_path / "prometheus" / "prometheus.yml"
    (tmp_path / "key").write_text("swk_")
    configuration.write_text(configuration.read_text().replace("/etc/prometheus.key", str(tmp_path / "key")))
    for check in (["check", "config", str(configuration)], ["check", "rules", str(DEPLOY / "prometheus/alerts.yml")]):
        done = subprocess.run(["promtool", *check], capture_output=True, text=True, check=False)  # noqa: S603, S607
        assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def prometheus(folder: Path, port: int, key: str) -> Iterator[httpx.Client]:
    """A Prometheus with our configuration, except for where the service is and how often it is asked."""
    if shutil.which("prometheus") is None:
        missing("prometheus (Debian's package)")
    shutil.copytree(DEPLOY / "prometheus", folder)
    (folder / "key").write_text(key)
    text = (folder / "prometheus.yml").read_text()
    for ours, here in {
        "/etc/prometheus.key": f"{folder}/key",
        "slatewise:8000": f"127.0.0.1:{port}",
        "15s": "1s",
    }.items():
        text = text.replace(ours, here)
    (folder / "prometheus.yml").write_text(text)
    with socket.create_server(("127.0.0.1", 0)) as free:
        own = free.getsockname()[1]
    options = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(  # noqa: S603
            ["prometheus", *options, f"--web.listen-address=127.0.0.1:{own}"],  # noqa: S607
            stdout=log,
            stderr=log,
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{own}", trust_env=False, timeout=30) as client:
            yield client
    finally:
        process.terminate()
        process.wait(30)


def data_of(client: httpx.Client, query: str) -> list[Any]:
    with suppress(httpx.TransportError):
        answer = client.get("/api/v1/query?" + urlencode({"query": query})).json()
        assert answer["status"] == "success", answer
        return [one for one in answer["data"]["result"] if one["value"][1] != "NaN"]
    return []


def without_data(client: httpx.Client, queries: list[str]) -> list[str]:
    """Which queries have no data, however long one waits."""
    left, end = queries, time.monotonic() + PATIENCE
    while left and time.monotonic() < end:
        time.sleep(0.5)
        left = [query for query in left if not data_of(client, query)]
    return left


def traffic(client: httpx.Client) -> None:
    slate = client.post("/v1/slates", json={"user": "ann"}).json()
    event = {"slate_id": slate["slate_id"], "clicked": [slate["items"][0]["id"]]}
    for _ in range(2):
        assert client.post("/v1/feedback", json=event).is_success
    assert client.post("/v1/slates", json={"user": ""}).status_code == 422
    assert client.post("/v1/catalog/reload", headers={"content-type": "application/json"}).is_success


@pytest.mark.slow
@pytest.mark.process
def test_every_query_of_dashboard_and_alerts_returns_data(postgres_server: PostgresServer, tmp_path: Path) -> None:
    small_catalog().save(tmp_path / "catalog")
    keys = key_file(tmp_path / "keys.json", all=("serve", "admin", "read"))
    arguments = ["--keys", "keys.json"]
    with (
        Server(tmp_path, arguments, {"SLATEWISE_STORE": postgres_server.url}) as server,
        server.client(keys["all"]) as client,
        prometheus(tmp_path / "p", server.port, keys["all"]) as watcher,
    ):
        traffic(client)
        left = without_data(watcher, ["up == 1"])
        assert not left, (tmp_path / "p" / "log").read_text()[-2000:]
        traffic(client)
        queries = [*PANEL_QUERIES, *(COMPARISON.sub("", query) for query in ALERT_QUERIES)]
        assert without_data(watcher, queries) == []
        assert data_of(watcher, "slatewise_no_such_metric") == [], "the check can fail"
        firing = [query for query in ALERT_QUERIES[:3] if data_of(watcher, query)]
        assert firing == [], "a healthy service raises no critical alert"


@pytest.mark.slow
@pytest.mark.process
def test_the_steps_of_the_image_install_a_service_that_starts(tmp_path: Path) -> None:
    """The same steps as `docker build`, in a clean directory instead of a container."""
    for name in ("src", "opt", "data", "catalog"):
        (tmp_path / name).mkdir()
    for word, rest in instructions(0):
        if word == "COPY":
            _copy(rest.split(), tmp_path / "src")
        if word == "RUN":
            place = rest.replace("/opt/slatewise", str(tmp_path / "opt/slatewise"))
            _run(place.replace("python -m", f"{sys.executable} -m"), tmp_path / "src")
    shutil.rmtree(tmp_path / "src")
    try:
        _start_and_ask(tmp_path)
    finally:
        shutil.rmtree(tmp_path / "opt")


def _run(command: str, folder: Path) -> None:
    words = ["bash", "-c", command]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr[-3000:]


def _copy(words: list[str], target: Path) -> None:
    for name in words[:-1]:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "results")
            shutil.copytree(source, target / words[-1], ignore=ignored)
        else:
            shutil.copy(source, target)


def _start_and_ask(root: Path) -> None:
    """Start what was installed with the settings of the image, and run its health check."""
    small_catalog().save(root / "catalog")
    keys = key_file(root / "data/keys.json", shop=("serve",))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {name: re.sub(r"/(data|catalog|opt)\b", rf"{root}/\1", value) for name, value in environment().items()}
    settings = {**os.environ, **settings, "SLATEWISE_PORT": str(port), "NO_PROXY": "*"}
    settings["PATH"] = settings["PATH"].replace("$PATH", os.environ["PATH"])
    settings.pop("PYTHONPATH", None)
    with (root / "log").open("w") as log:
        process = subprocess.Popen(  # noqa: S603
            [root / "opt/slatewise/bin/slatewise", "serve"], cwd=root / "data", env=settings, stdout=log, stderr=log
        )
    try:
        check = json.loads(dict(instructions(1))["HEALTHCHECK"].partition(" CMD ")[2])
        check[0] = str(root / "opt/slatewise/bin/python")
        end = time.monotonic() + PATIENCE
        while subprocess.run(check, env=settings, capture_output=True, check=False).returncode:  # noqa: S603
            assert process.poll() is None, (root / "log").read_text()[-2000:]
            assert time.monotonic() < end, (root / "log").read_text()[-2000:]
            time.sleep(0.5)
        headers = {"authorization": f"Bearer {keys['shop']}"}
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}", headers=headers, trust_env=False, timeout=PATIENCE
        ) as client:
            assert len(client.post("/v1/slates", json={"user": "ann", "k": 3}).json()["items"]) == 3
    finally:
        process.terminate()
        process.wait(60)
