"""The service as an ASGI application."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.applications import Starlette
from starlette.routing import Route

from slatewise.catalog import CatalogError
from slatewise.recommender import Recommender
from slatewise.recommender.rules import FOLLOW_FIT
from slatewise.recommender.types import RequestError
from slatewise.service.live_history import STEP
from slatewise.service.logs import Log
from slatewise.service.middleware import RequestMiddleware
from slatewise.service.openapi import reference_routes
from slatewise.service.page import page_routes
from slatewise.service.retraining import ACCEPTED, Retraining
from slatewise.service.routes import ROUTES
from slatewise.service.settings import Settings
from slatewise.service.state import ServiceState
from slatewise.store import StoreError

FOLLOW_RELOADS_EVERY = 1.0
FOLLOW_FITS_EVERY = 30.0
LOOK_FOR_TRAINING_EVERY = 5.0
LEARN_RATES_EVERY, PAUSE_FACTOR = 1.0, 10.0
"""Seconds from one learning of rates to the next, or so many times as long as it takes."""
PAUSE_AFTER_FAILURE = 5.0

Background = Callable[[ServiceState], Coroutine[Any, Any, None]]


def create_app(recommender: Recommender, settings: Settings, log: Log | None = None) -> Starlette:
    """Join a recommender and settings into an application; its state is at `app.state.service`."""
    state = ServiceState(recommender, settings, log)
    routes = [Route(endpoint.path, endpoint, methods=[endpoint.method]) for endpoint in ROUTES]
    if settings.reference:
        routes += reference_routes(ROUTES, needs_key=state.auth.ring is not None)
    app = Starlette(routes=routes + page_routes(has_reference=settings.reference), lifespan=_lifespan)
    app.router.redirect_slashes = False
    app.middleware_stack = RequestMiddleware(app.router, state)  # it handles errors too, instead of Starlette's layers
    app.state.service = state
    return app


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    """Run the background tasks while the service runs; at the end finish and learn what was submitted."""
    state: ServiceState = app.state.service
    tasks = [asyncio.create_task(keep_running(job, state)) for job in BACKGROUND]
    state.sweeper.start()
    state.item_follower.start()
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(state.sweeper.stop)
        await asyncio.to_thread(state.item_follower.stop)
        await asyncio.to_thread(state.close)
        await _learn_the_last(state)
        await asyncio.to_thread(state.recommender.close)
        state.log.event("stopped")
        await asyncio.to_thread(state.log.close)


async def keep_running(job: Background, state: ServiceState) -> None:
    """Run a background task; begin again after a failure that it did not expect, with a line in the log."""
    while True:
        try:
            return await job(state)
        except Exception as error:  # noqa: BLE001
            state.log.failure(job.__name__.removeprefix("_"), error)
        await asyncio.sleep(PAUSE_AFTER_FAILURE)


async def _once_the_store_responds(job: Callable[[], Awaitable[None]]) -> None:
    """Do something; while the store is away, try again."""
    while True:
        with suppress(StoreError):
            return await job()
        await asyncio.sleep(FOLLOW_RELOADS_EVERY)


async def _follow_fits(state: ServiceState) -> None:
    """Learn by the attention that was last fitted from the log, if the settings say so."""
    while state.settings.attention == FOLLOW_FIT:
        await asyncio.sleep(FOLLOW_FITS_EVERY)
        with suppress(StoreError):
            if await state.run(state.recommender.follow_fit):
                state.log.event("attention fitted")


async def _retrain(state: ServiceState) -> None:
    """Train on schedule, and serve what the gate accepted."""
    retraining = Retraining(state.settings)
    every = state.settings.retrain_every or 0.0
    while every:
        await asyncio.sleep(min(every / 4.0, LOOK_FOR_TRAINING_EVERY))
        try:
            record = await retraining.run_if_due()
            if record is not None:
                state.log.event("catalog trained", outcome=record.outcome, version=record.version, why=record.words)
            if record is not None and record.outcome == ACCEPTED:
                await _once_the_store_responds(state.reload_catalog)
        except (CatalogError, RequestError, OSError) as error:
            state.log.event("catalog refused", why=str(error))


async def _learn_rates(state: ServiceState) -> None:
    """Learn from everyone which items are liked; where that takes long, it is done less often."""
    pause = LEARN_RATES_EVERY
    while True:
        await asyncio.sleep(pause)
        started = time.monotonic()
        with suppress(StoreError):
            await state.run(state.recommender.learn_rates)
        pause = max(LEARN_RATES_EVERY, PAUSE_FACTOR * (time.monotonic() - started))


async def _learn_the_last(state: ServiceState) -> None:
    """Learn what was clicked since the last time; whatever happens, the service goes on to end."""
    try:
        with suppress(StoreError):
            await asyncio.to_thread(state.recommender.learn_rates)
    except Exception as error:  # noqa: BLE001
        state.log.failure("learn_rates", error)


async def _keep_history(state: ServiceState) -> None:
    """Add a point to the history of the page /live, again and again."""
    while True:
        await asyncio.sleep(STEP)
        await state.run_for_operators(state.live.tick)


async def follow_reloads(state: ServiceState) -> None:
    """Reload the catalog when another worker has done so."""
    while state.reload_marker is not None:
        await asyncio.sleep(FOLLOW_RELOADS_EVERY)
        try:
            await _once_the_store_responds(state.follow_reload)
        except (CatalogError, RequestError, OSError) as error:
            state.log.event("catalog refused", why=str(error))


BACKGROUND: tuple[Background, ...] = (follow_reloads, _follow_fits, _learn_rates, _keep_history, _retrain)
"""What runs while the service runs."""
