"""What runs in the background of a service goes on after any failure, and takes up what it could not do."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from slatewise.recommender import Recommender
from slatewise.service import app
from slatewise.service.state import ServiceState
from slatewise.store import StoreUnavailableError
from tests.support.recommending import make_catalog
from tests.support.serving import Local, local, small_catalog

PATIENCE = 30.0


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PAUSE_AFTER_FAILURE", "FOLLOW_RELOADS_EVERY"):
        monkeypatch.setattr(app, name, 0.01)


async def runs_of_a_task_that_fails_once(service: Local, monkeypatch: pytest.MonkeyPatch, patience: float) -> int:
    """Return how often it was begun while a service ran, until it was begun twice."""
    n_runs, has_ended = 0, asyncio.Event()

    async def _learn(_: ServiceState) -> None:
        nonlocal n_runs
        n_runs += 1
        if n_runs == 1:
            raise ValueError("nobody expected this")
        has_ended.set()

    monkeypatch.setattr(app, "BACKGROUND", (_learn,))
    async with service.app.router.lifespan_context(service.app):
        with suppress(TimeoutError):
            await asyncio.wait_for(has_ended.wait(), patience)
    return n_runs


def test_a_background_task_begins_again_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nothing would be learned from anybody, or followed, until the next start, and nobody would know."""
    with local(tmp_path) as service:
        assert asyncio.run(runs_of_a_task_that_fails_once(service, monkeypatch, PATIENCE)) == 2
        (failure,) = [line for line in service.lines if line["event"] == "failure"]
        assert (failure["id"], failure["kind"]) == ("learn", "ValueError")


def test_a_task_that_ends_with_its_first_failure_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: tasks as they are."""
    monkeypatch.setattr(app, "keep_running", lambda job, state: job(state))
    with local(tmp_path) as service:
        assert asyncio.run(runs_of_a_task_that_fails_once(service, monkeypatch, 0.5)) == 1


def test_a_service_that_cannot_learn_the_last_clicks_ends_as_usual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: Recommender) -> int:
        raise ValueError("nobody expected this")

    async def run(service: Local) -> None:
        async with service.app.router.lifespan_context(service.app):
            pass

    monkeypatch.setattr(Recommender, "learn_rates", failing)
    with local(tmp_path) as service:
        asyncio.run(run(service))
        ends = [(line["event"], line.get("id")) for line in service.lines][-2:]
        assert ends == [("failure", "learn_rates"), ("stopped", None)]
        with pytest.raises(StoreUnavailableError):
            service.recommender.recommend("ann")


def test_items_are_followed_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: Recommender) -> bool:
        raise ValueError("nobody expected this")

    with local(tmp_path) as service:
        follower = service.state.item_follower
        with monkeypatch.context() as patch:
            patch.setattr(Recommender, "follow_items", failing)
            assert follower.step() > 0.0
            assert follower.step() > 0.0
        assert follower.step() > 0.0
        assert [line["kind"] for line in service.lines if line["event"] == "failure"] == ["ValueError"]


def test_a_catalog_is_followed_although_the_store_was_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker has put a catalog in use just before; this one takes it up as soon as the store responds."""
    plain, attempts = Recommender.use_catalog, [StoreUnavailableError("away"), StoreUnavailableError("away")]

    def use_catalog(recommender: Recommender, catalog: object) -> None:
        if attempts:
            raise attempts.pop()
        plain(recommender, catalog)  # type: ignore[arg-type]

    with local(tmp_path) as service:
        state = service.state
        state.reload_marker = tmp_path / "catalog-reloaded"
        sha256 = make_catalog(7).save(tmp_path / "catalog")
        state.reload_marker.touch()
        monkeypatch.setattr(Recommender, "use_catalog", use_catalog)
        asyncio.run(followed(service, sha256))
        assert service.recommender.catalog.n_items == 7 != small_catalog().n_items


async def followed(service: Local, sha256: str) -> None:
    """Follow other workers until a catalog is served."""
    state = service.state
    task = asyncio.create_task(app.follow_reloads(state))
    for _ in range(int(PATIENCE / 0.01)):
        if state.catalog_sha256 == sha256 or task.done():
            break
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert state.catalog_sha256 == sha256
