"""The service as an ASGI application."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from slatewise.catalog import CatalogError
from slatewise.recommender import Recommender
from slatewise.recommender.views import RequestError
from slatewise.service.access import Gate
from slatewise.service.directly import Directly
from slatewise.service.keys import KeyRing
from slatewise.service.limits import Limits
from slatewise.service.logs import Log
from slatewise.service.models import MOST_EVENTS
from slatewise.service.observing import Observing
from slatewise.service.page_files import add_page
from slatewise.service.problems import ProblemError, handle
from slatewise.service.rate import Buckets
from slatewise.service.reference import add_reference
from slatewise.service.routes import ROUTES
from slatewise.service.running import Service
from slatewise.service.scoped import ScopedRoute
from slatewise.service.settings import Settings
from slatewise.store.protocol import StoreError
from slatewise.store.sqlite import SqliteStore
from slatewise.version import __version__

SWEEP_EVERY = 60.0
FOLLOW_EVERY = 1.0


def create_app(recommender: Recommender, settings: Settings, log: Log | None = None) -> Observing:
    """Join a recommender and settings into an application; keys are needed if the file of keys exists."""
    ring = KeyRing(settings.keys) if settings.keys.exists() else None
    buckets = Buckets(settings.rate / settings.workers, max(settings.burst / settings.workers, MOST_EVENTS))
    salt = settings.log_salt.get_secret_value().encode() if settings.log_salt else None
    service = Service(recommender, settings, Gate(ring, buckets), log or Log(salt))
    return Observing(Limits(Directly(create_api(service)), settings), service)


def create_api(service: Service) -> FastAPI:
    """Return all routes, as FastAPI finds and describes them; requests come to it observed and within limits."""
    app = FastAPI(
        title="slatewise",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
    )
    app.state.service = service
    app.router.route_class = ScopedRoute
    for entry in ROUTES:
        app.add_api_route(entry.path, entry.endpoint, **entry.options())
    if service.settings.reference:
        add_reference(app, needs_key=service.gate.ring is not None)
    add_page(app)
    for kind in (ProblemError, RequestValidationError, HTTPException, RequestError, StoreError, Exception):
        app.add_exception_handler(kind, handle)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Sweep and watch while the service runs; at the end finish what was submitted and close the store."""
    service: Service = app.state.service
    store = service.recommender.store
    if isinstance(store, SqliteStore):
        store.work_in(asyncio.get_running_loop().call_soon_threadsafe)
    tasks = [asyncio.create_task(_sweep(service)), asyncio.create_task(_follow(service))]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if isinstance(store, SqliteStore):
            store.work_in(None)
        await asyncio.to_thread(service.recommender.close)
        service.log.event("stopped")


async def _sweep(service: Service) -> None:
    """Close expired slates, at the start and every minute; a store that fails is asked again a minute later."""
    while True:
        try:
            await service.sweep()
        except Exception as error:  # noqa: BLE001
            service.log.failure("sweep", error)
        await asyncio.sleep(SWEEP_EVERY)


async def _follow(service: Service) -> None:
    """Reload the catalogue when another worker did."""
    while service.notice is not None:
        await asyncio.sleep(FOLLOW_EVERY)
        try:
            await service.follow()
        except (CatalogError, RequestError, OSError) as error:
            service.log.event("catalogue refused", why=str(error))
