"""Training on a schedule: in its own process, one at a time, and what is killed leaves nothing half done."""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from slatewise.catalog.versions import current_version, versions
from slatewise.recommender import Recommender
from slatewise.service import retraining
from slatewise.service.retraining import HISTORY, Retraining, TrainingRecord, read_history
from slatewise.service.server import check
from slatewise.service.settings import BadSettingsError, load_settings
from tests.support.recommending import make_catalog
from tests.support.serving import Server
from tests.test_train_from_store import visit

pytestmark = pytest.mark.process


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    make_catalog(60).save(tmp_path / "catalog")
    return tmp_path


def settings(shop: Path, every: str = "1s", **others: Any) -> Any:
    return load_settings(
        {"catalog": shop / "catalog", "store": f"sqlite:///{shop / 's.db'}", "retrain": every, **others}
    )


def make_due(directory: Path) -> None:
    os.utime(directory / "catalog.json", (0, 0))


def run(trainer: Retraining, script: str, monkeypatch: pytest.MonkeyPatch) -> TrainingRecord | None:
    """Train with a child of our own instead of `slatewise train`."""
    monkeypatch.setattr(trainer, "command", lambda: ["/bin/sh", "-c", script])
    return asyncio.run(trainer.run_if_due())


def test_durations_and_stores_are_checked(shop: Path) -> None:
    assert settings(shop, "24h").retrain_every == 86_400
    assert settings(shop, "7d").retrain_every == 7 * 86_400
    for wrong in ("24", "h", "0h", "-1h", "1.5h", "1 h"):
        with pytest.raises(BadSettingsError, match="retrain"):
            settings(shop, wrong)
    with pytest.raises(BadSettingsError, match="no log to train from"):
        check(load_settings({"catalog": shop / "catalog", "store": "memory://", "retrain": "1h"}))


def test_what_came_of_a_training_is_kept(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, directory = Retraining(settings(shop, "1h")), shop / "catalog"
    assert asyncio.run(trainer.run_if_due()) is None  # the catalog is new
    make_due(directory)
    result = {"promoted": False, "version": "0" * 16, "words": ["refused: worse"], "gate": {"missing": 0.5}}
    refused = run(trainer, f"echo '{json.dumps(result)}'; exit 1", monkeypatch)
    assert refused is not None
    assert (refused.outcome, refused.words, refused.gate) == ("refused", ("refused: worse",), {"missing": 0.5})
    assert asyncio.run(trainer.run_if_due()) is None  # not yet due again
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + 3601)
    failed = run(trainer, "echo 'error: the store is empty' >&2; exit 1", monkeypatch)
    assert failed is not None
    assert (failed.outcome, failed.words) == ("failed", ("error: the store is empty",))
    assert [record.outcome for record in read_history(directory)] == ["failed", "refused"]


def test_a_training_that_is_killed_changes_nothing_and_the_next_one_runs(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, directory = Retraining(settings(shop)), shop / "catalog"
    make_due(directory)
    before = current_version(directory)
    killed = run(trainer, "kill -9 $$", monkeypatch)
    assert killed is not None
    assert (killed.outcome, killed.words) == ("failed", ("the training ended with code -9",))
    assert current_version(directory) == before
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + 2)
    assert run(trainer, "exit 1", monkeypatch) is not None


def test_without_the_lock_two_trainings_would_run_at_once(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control."""
    make_due(shop / "catalog")
    monkeypatch.setattr(retraining, "is_free", lambda _descriptor: True)
    first, second = Retraining(settings(shop)), Retraining(settings(shop))
    for trainer in (first, second):
        monkeypatch.setattr(trainer, "command", lambda: ["/bin/sh", "-c", "sleep 2"])
        monkeypatch.setattr(trainer, "is_due", lambda _now: True)

    async def both() -> list[TrainingRecord | None]:
        return [*await asyncio.gather(first.run_if_due(), second.run_if_due())]

    assert None not in asyncio.run(both())


def test_one_training_at_a_time_and_its_priority_is_low(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_due(shop / "catalog")
    first, second = Retraining(settings(shop)), Retraining(settings(shop))
    monkeypatch.setattr(first, "command", lambda: ["/bin/sh", "-c", f"sleep 0.5; nice > {shop}/priority"])
    monkeypatch.setattr(second, "command", lambda: ["/bin/sh", "-c", "exit 7"])

    async def both() -> list[TrainingRecord | None]:
        started = asyncio.create_task(first.run_if_due())
        await asyncio.sleep(0.2)
        assert [record.outcome for record in read_history(shop / "catalog")] == ["running"]
        return [await second.run_if_due(), await started]

    refused, done = asyncio.run(both())
    assert refused is None
    assert done is not None
    assert (shop / "priority").read_text() == "19\n"


def test_a_training_whose_server_was_killed_keeps_the_lock_and_counts_as_interrupted_afterwards(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = shop / "catalog"
    with retraining.training_lock(directory) as descriptor:
        assert descriptor is not None
        child = os.fork()
        if not child:
            time.sleep(0.3)
            os._exit(0)
        (directory / HISTORY).write_text(json.dumps([{"started_at": 1.0, "outcome": "running", "words": []}]))
    assert read_history(directory)[0].outcome == "running"
    os.waitpid(child, 0)
    assert read_history(directory)[0].outcome == "interrupted"
    make_due(directory)
    assert run(Retraining(settings(shop)), "exit 1", monkeypatch) is not None
    assert [record.outcome for record in read_history(directory)] == ["failed", "interrupted"]


@pytest.mark.slow
def test_a_service_trains_and_serves_what_the_gate_accepts_under_load(shop: Path) -> None:
    """Somebody asks for slates and reacts all the time; nothing fails when the catalog changes, also by hand."""
    with Recommender(make_catalog(60), store=f"sqlite:///{shop / 'slates.db'}") as recommender:
        visit(recommender, 60)
    before = current_version(shop / "catalog")
    environment = {"SLATEWISE_RETRAIN": "2s", "SLATEWISE_RATE": "0"}
    make_due(shop / "catalog")
    with Server(shop, ["--store", "sqlite:///slates.db"], environment) as server, server.client() as client:
        deadline, served, n_requests = time.monotonic() + 120, set[str](), 0
        while len(served) < 2 and time.monotonic() < deadline:
            slate = client.post("/v1/slates", json={"user": f"user {n_requests % 40}", "k": 5})
            assert slate.status_code == 201, slate.text
            event = {"slate_id": slate.json()["slate_id"], "clicked": [slate.json()["items"][0]["id"]]}
            assert client.post("/v1/feedback", json=event).status_code == 200
            n_requests += 2
            served.add(client.get("/v1/catalog").json()["sha256"][:16])
        trainings = client.get("/v1/catalog/trainings").json()
        assert before in served, server.logged()
        assert len(served) == 2, trainings
        accepted = next(one for one in trainings if one["outcome"] == "accepted")
        assert accepted["version"] in served
        assert accepted["gate"]["is_accepted"]
        back = client.post("/v1/catalog/rollback", headers={"content-type": "application/json"})
        assert back.status_code == 200
        assert client.post("/v1/slates", json={"user": "user 1"}).status_code == 201
    assert {version.name for version in versions(shop / "catalog")} >= served
