"""For those who run the service: results, figures of the moment, health, metrics."""

import asyncio
import time

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from slatewise.service.metrics import Figures
from slatewise.service.models import Health, LiveView
from slatewise.service.problems import UNAVAILABLE, ProblemError
from slatewise.service.replies import NEVER_KEPT, reply
from slatewise.service.running import Service, service_of
from slatewise.store.protocol import StoreError

LONGEST_CHECK = 5.0


async def show_experiments(request: Request) -> Response:
    """Compare the policies: click rate and diversity with 95 % intervals, at most five seconds old."""
    return reply(await service_of(request).experiments())


async def show_live(request: Request) -> Response:
    """Show the service at this moment: rates, answering times, policies, store."""
    service = service_of(request)
    store, policies = await asyncio.gather(_store(service), service.experiments())
    view = LiveView(
        slates_per_second=service.slates.per_second(),
        feedback_per_second=service.feedback.per_second(),
        uptime=time.monotonic() - service.started,
        latency=service.latencies.views(),
        policies=policies,
        store=store,
        rebuilt=service.recommender.rebuilt,
    )
    return reply(view)


async def show_metrics(request: Request) -> Response:
    """Return counters, histograms and the store's figures for Prometheus."""
    service = service_of(request)
    try:
        store, policies = await asyncio.gather(_store(service), service.experiments())
    except (StoreError, TimeoutError):
        store, policies = {}, []
    catalog = service.recommender.catalog
    sizes = {"items": catalog.n_items, "categories": catalog.n_categories, "dimensions": catalog.dim}
    counters = {
        "beliefs_rebuilt": ("Beliefs folded anew from the log.", service.recommender.rebuilt),
        "slates_chosen_beside": ("Slates chosen by the process beside.", service.recommender.chosen_beside),
    }
    figures = Figures(store, policies, counters, sizes)
    text = await asyncio.to_thread(service.metrics.text, figures)
    return Response(text, headers=NEVER_KEPT, media_type=CONTENT_TYPE_LATEST)


async def is_live(request: Request) -> Response:
    """Say that the process answers."""
    del request
    return reply(Health("ok"))


async def is_ready(request: Request) -> Response:
    """Say that the store answers too, so that requests can be served."""
    try:
        await _store(service_of(request))
    except (StoreError, TimeoutError):
        raise ProblemError(UNAVAILABLE, "The store does not answer.", {"retry-after": "1"}) from None
    return reply(Health("ok"))


async def _store(service: Service) -> dict[str, float | str]:
    async with asyncio.timeout(LONGEST_CHECK):
        return await asyncio.to_thread(service.recommender.store.health)
