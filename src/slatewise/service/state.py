"""The parts that a running service shares among its routes."""

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path

from starlette.requests import Request

from slatewise.catalog import Catalog
from slatewise.catalog.model_files import read_manifest
from slatewise.recommender import Recommender
from slatewise.recommender.views import PolicyResult
from slatewise.service.access import Gate
from slatewise.service.live import Latencies, Rate
from slatewise.service.logs import Log
from slatewise.service.metrics import Metrics
from slatewise.service.models import CatalogView
from slatewise.service.search import ItemSearch
from slatewise.service.settings import Settings

EXPERIMENTS_KEPT = 5.0
SERVICE = "slatewise.service"
"""Where a request's scope holds the service."""


@dataclass
class Service:
    """Everything at hand; made once per process. notice: the file by which workers tell each other of a reload."""

    recommender: Recommender
    settings: Settings
    gate: Gate
    log: Log
    metrics: Metrics = field(default_factory=Metrics)
    slates: Rate = field(default_factory=Rate)
    feedback: Rate = field(default_factory=Rate)
    latencies: Latencies = field(default_factory=Latencies)
    started: float = field(default_factory=time.monotonic)
    sha256: str | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    counting: asyncio.Lock = field(default_factory=asyncio.Lock)
    counted: tuple[float, list[PolicyResult]] = (float("-inf"), [])
    items: ItemSearch | None = None
    notice: Path | None = None
    noticed: int = 0

    async def experiments(self) -> list[PolicyResult]:
        """Return how policies compare, at most five seconds old."""
        async with self.counting:
            if time.monotonic() - self.counted[0] > EXPERIMENTS_KEPT:
                results = await asyncio.to_thread(self.recommender.experiments)
                self.counted = (time.monotonic(), results)
            return self.counted[1]

    def search(self) -> ItemSearch:
        """Return the search over the catalogue that is served now."""
        catalog = self.recommender.catalog
        if self.items is None or self.items.catalog is not catalog:
            self.items = ItemSearch(catalog)
        return self.items

    async def reload(self) -> CatalogView:
        """Load the catalogue's directory anew and serve from it; if it cannot be used, the old one goes on."""
        async with self.turn:
            await asyncio.to_thread(self._load)
        if self.notice is not None:
            self.notice.touch()
            self.noticed = _changed(self.notice)
        return self.catalog_view()

    async def follow(self) -> None:
        """Reload if another worker did since the last look."""
        latest = _changed(self.notice) if self.notice is not None else 0
        if latest != self.noticed:
            self.noticed = latest
            async with self.turn:
                await asyncio.to_thread(self._load)

    def _load(self) -> None:
        directory = self.settings.catalog
        sha256 = str(read_manifest(directory)["arrays"]["sha256"])
        catalog = Catalog.load(directory)
        self.recommender.use_catalog(catalog)
        if self.recommender.chooses_beside:
            self.recommender.choose_beside(directory)
        self.sha256 = sha256
        self.log.event("catalogue reloaded", items=catalog.n_items, sha256=sha256)

    def catalog_view(self) -> CatalogView:
        """Describe the catalogue that is served now."""
        catalog = self.recommender.catalog
        name = str(catalog.about.get("data", {}).get("name", "vectors"))
        return CatalogView(catalog.n_items, catalog.category_names, name, catalog.dim, self.sha256)

    async def sweep(self) -> int:
        """Close slates that waited too long for an answer, and replace a chooser that was lost."""
        closed = 0
        while True:
            now = await asyncio.to_thread(self.recommender.close_expired)
            closed += now
            if now == 0:
                break
        self.metrics.expired.inc(closed)
        if self.recommender.has_lost_chooser:
            self.log.event("chooser lost, another one starts")
            await asyncio.to_thread(self.recommender.choose_beside, self.settings.catalog)
        return closed


def service_of(request: Request) -> Service:
    """Return the service that a request came to."""
    found: Service = request.scope[SERVICE]
    return found


def _changed(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0
