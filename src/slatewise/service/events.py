"""Events from anywhere: purchases, ratings, views, and whatever else says something about a taste."""

import asyncio
from typing import Annotated

from pydantic import Discriminator, Tag
from starlette.requests import Request
from starlette.responses import Response

from slatewise.recommender.types import EventReceipt
from slatewise.service.http import JsonResponse
from slatewise.service.schemas import EventBatch, EventBody
from slatewise.service.slates import one_or_batch, outcomes_of
from slatewise.service.state import ServiceState

Events = Annotated[
    Annotated[EventBody, Tag("event")] | Annotated[EventBatch, Tag("batch")], Discriminator(one_or_batch)
]


async def record_events(state: ServiceState, request: Request, body: Events) -> Response:
    """Record what users did with items anywhere, or want more or less of: one event, or up to 100 as `events`.

    The response is sent once the events are durable; an event counts once, no matter how often it is sent. Items that
    the catalog does not have are kept for the day it has them. Each event of a batch is recorded on its own: one that
    fails is reported by an `error` in its position and stops no other.
    """
    if isinstance(body, EventBody):
        return JsonResponse(await _receipt(state, body))
    state.auth.charge(request.scope, len(body.events) - 1)
    outcomes = await outcomes_of(state, request.scope, [_receipt(state, event) for event in body.events])
    return JsonResponse({"results": outcomes})


async def _receipt(state: ServiceState, event: EventBody) -> EventReceipt:
    return await asyncio.wrap_future(state.recommender.event_later(event.event()))
