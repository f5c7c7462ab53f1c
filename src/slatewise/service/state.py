"""What a running service shares among its handlers: the recommender, the settings, threads, log and metrics."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from slatewise.catalog import Catalog
from slatewise.catalog.model_files import read_manifest
from slatewise.catalog.versions import promote, rollback
from slatewise.recommender import Recommender
from slatewise.recommender.types import PolicyResult
from slatewise.service.auth import Authorizer, RateLimiter
from slatewise.service.item_follower import ItemFollower
from slatewise.service.keys import KeyRing
from slatewise.service.live import LiveFigures
from slatewise.service.logs import Log
from slatewise.service.metrics import Metrics
from slatewise.service.schemas import MAX_EVENTS, CatalogView
from slatewise.service.search import ItemSearch
from slatewise.service.settings import Settings
from slatewise.service.sweeper import Sweeper
from slatewise.store import StoreError

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

WORKER_THREADS = 8
OPERATOR_THREADS = 2
HEALTH_TIMEOUT = 5.0
EXPERIMENTS_MAX_AGE = 5.0


class ServiceState:
    """Created once per process; keys are required if the key file exists.

    Whatever may compute or wait runs in worker threads by `run`, so that the event loop is always free. What operators
    look at must respond when all workers are busy, so it has threads of its own, and health checks have another one.
    """

    def __init__(self, recommender: Recommender, settings: Settings, log: Log | None = None) -> None:
        salt = settings.log_salt.get_secret_value().encode() if settings.log_salt else None
        self.recommender, self.settings, self.log = recommender, settings, log or Log(salt)
        self.auth, self.metrics = _authorizer(settings), Metrics()
        self.log.writer.on_drop = self.metrics.log_lines_dropped.inc
        self.sweeper = Sweeper(recommender, self.metrics, self.log)
        self.item_follower = ItemFollower(recommender, self.log)
        self.live = LiveFigures(recommender, self.metrics.buffer, settings.catalog)
        self.started = time.monotonic()
        self.catalog_sha256: str | None = None
        self.reload_marker: Path | None = None
        self.workers = ThreadPoolExecutor(WORKER_THREADS, "slatewise-worker")
        self.operators = ThreadPoolExecutor(OPERATOR_THREADS, "slatewise-operator")
        self._health_checker = ThreadPoolExecutor(1, "slatewise-health")
        self._health_check: asyncio.Future[dict[str, float | str]] | None = None
        self._search = ItemSearch(recommender.snapshot)
        self._reload_lock, self._experiments_lock = asyncio.Lock(), asyncio.Lock()
        self._experiments: tuple[float, list[PolicyResult]] = (float("-inf"), [])
        self._reload_seen = 0

    async def run(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Call a function in a worker thread and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self.workers, function, *arguments)

    async def run_for_operators(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Call a function in a thread that serves operators only and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self.operators, function, *arguments)

    async def store_health(self) -> dict[str, float | str]:
        """Return the store's figures; raise StoreError or TimeoutError if it does not respond.

        Anyone may ask for them, so the store is asked once for all who are waiting.
        """
        if self._health_check is None or self._health_check.done():
            loop = asyncio.get_running_loop()
            self._health_check = loop.run_in_executor(self._health_checker, self.recommender.store.health)
        async with asyncio.timeout(HEALTH_TIMEOUT):
            return await asyncio.shield(self._health_check)

    async def experiments(self, at_once: bool = False) -> list[PolicyResult]:
        """Return how the policies compare, at most five seconds old, or now."""
        async with self._experiments_lock:
            if at_once or time.monotonic() - self._experiments[0] > EXPERIMENTS_MAX_AGE:
                results = await self.run_for_operators(self.recommender.experiments)
                self._experiments = (time.monotonic(), results)
            return self._experiments[1]

    def search(self) -> ItemSearch:
        """Return the search over the items being served now."""
        items = self.recommender.snapshot
        if self._search.items is not items:
            self._search = self._search.with_items(items)
        return self._search

    def catalog_view(self) -> CatalogView:
        """Describe the catalog being served now."""
        catalog = self.recommender.catalog
        name = str(catalog.about.get("data", {}).get("name", "vectors"))
        return CatalogView(catalog.n_items, catalog.category_names, name, catalog.dim, self.catalog_sha256)

    async def reload_catalog(self) -> None:
        """Load the catalog's directory again and serve from it, and let other workers know.

        A catalog that cannot be used raises CatalogError, RequestError or OSError; the old one keeps serving.
        """
        async with self._reload_lock:
            await self.run(self._load_catalog)
        self._tell_workers()

    async def change_version(self, version: str | None) -> None:
        """Put a version of the catalog in use and serve from it; without one, go back to the version before.

        Errors are those of `reload_catalog`; nothing has changed then.
        """
        async with self._reload_lock:
            await self.run(self._change_version, version)
        self._tell_workers()

    async def follow_reload(self) -> None:
        """Reload the catalog if another worker has done so since the last check; again if the store was away."""
        latest = 0 if self.reload_marker is None else _modified(self.reload_marker)
        if latest != self._reload_seen:
            seen, self._reload_seen = self._reload_seen, latest
            async with self._reload_lock:
                try:
                    await self.run(self._load_catalog)
                except StoreError:
                    self._reload_seen = seen
                    raise

    def _tell_workers(self) -> None:
        if self.reload_marker is not None:
            self.reload_marker.touch()
            self._reload_seen = _modified(self.reload_marker)

    def _change_version(self, version: str | None) -> None:
        directory = self.settings.catalog
        before = rollback(directory)[1] if version is None else promote(directory, version)
        try:
            self._load_catalog()
        except BaseException:
            promote(directory, before)
            raise

    def _load_catalog(self) -> None:
        directory = self.settings.catalog
        sha256 = str(read_manifest(directory)["arrays"]["sha256"])
        catalog = Catalog.load(directory)
        self.recommender.use_catalog(catalog)
        self.item_follower.expect_new_items()
        self.catalog_sha256 = sha256
        self.log.event("catalog reloaded", items=catalog.n_items, sha256=sha256)

    def close(self) -> None:
        """Let the threads finish what they are doing; what is still queued is dropped."""
        self.workers.shutdown(cancel_futures=True)
        self.operators.shutdown(cancel_futures=True)
        self._health_checker.shutdown(cancel_futures=True)


def _authorizer(settings: Settings) -> Authorizer:
    """With several workers, each takes its part of the rate and the burst."""
    ring = KeyRing(settings.keys) if settings.keys.exists() else None
    rate, burst = settings.rate / settings.workers, max(settings.burst / settings.workers, MAX_EVENTS)
    return Authorizer(ring, RateLimiter(rate, burst))


def _modified(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0
