"""For those who run the service: results of experiments, live figures, health, metrics."""

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from slatewise.service.errors import NO_STORE, UNAVAILABLE, ProblemError
from slatewise.service.http import JsonResponse
from slatewise.service.metrics import Gauges
from slatewise.service.schemas import ExperimentBody, Health, LiveView
from slatewise.service.state import ServiceState
from slatewise.store.protocol import StoreError

Figures = TypeVar("Figures")


async def show_experiments(state: ServiceState, _: Request) -> Response:
    """Compare the policies: click rate and diversity with 95 % intervals, at most five seconds old."""
    return JsonResponse(await state.experiments())


async def switch_experiment(state: ServiceState, _: Request, body: ExperimentBody) -> Response:
    """Stop the named experiment, or go on with it, without a restart; other workers follow within a second."""
    await state.run_for_operators(state.recommender.switch_experiment, body.name, body.running)
    return JsonResponse(await state.experiments(at_once=True))


async def show_live(state: ServiceState, _: Request) -> Response:
    """Show the service right now, and the last hour: traffic, response times, policies, rates, calibration, store."""
    store, policies, latency, (rates, calibration, trainings) = await asyncio.gather(
        state.store_health(),
        state.experiments(),
        state.run_for_operators(state.metrics.latencies.views),
        state.run_for_operators(state.live.figures),
    )
    view = LiveView(
        slates_per_second=state.metrics.slate_rate.per_second(),
        feedback_per_second=state.metrics.feedback_rate.per_second(),
        uptime=time.monotonic() - state.started,
        latency=latency,
        policies=policies,
        store=store,
        rebuilt=state.recommender.rebuilt,
        history=[*state.live.traffic.points],
        rates=rates,
        calibration=calibration,
        trainings=trainings,
    )
    return JsonResponse(view)


async def show_metrics(state: ServiceState, _: Request) -> Response:
    """Return counters, histograms and the store's figures for Prometheus."""
    store, policies = await asyncio.gather(
        _unless_down(state.store_health(), {}), _unless_down(state.experiments(), [])
    )
    catalog = state.recommender.catalog
    sizes = {"items": catalog.n_items, "categories": catalog.n_categories, "dimensions": catalog.dim}
    gauges = Gauges(store, policies, sizes, state.recommender.rebuilt, state.sweeper.figures())
    text = await state.run_for_operators(state.metrics.text, gauges)
    return Response(text, headers=NO_STORE, media_type=CONTENT_TYPE_LATEST)


async def _unless_down(figures: Awaitable[Figures], otherwise: Figures) -> Figures:
    """Return figures of the store, or something else if it does not respond."""
    try:
        return await figures
    except (StoreError, TimeoutError):
        return otherwise


async def is_live(_state: ServiceState, _: Request) -> Response:
    """Say that the process responds."""
    return JsonResponse(Health("ok"))


async def is_ready(state: ServiceState, _: Request) -> Response:
    """Say that the store responds too, so that requests can be served."""
    try:
        await state.store_health()
    except (StoreError, TimeoutError):
        raise ProblemError(UNAVAILABLE, "The store does not respond.", {"retry-after": "1"}) from None
    return JsonResponse(Health("ok"))
