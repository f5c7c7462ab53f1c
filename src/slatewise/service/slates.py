"""Slates out, feedback in: the two routes that matter."""

import asyncio
from concurrent.futures import Future

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from slatewise.recommender.views import Receipt
from slatewise.service.exchange import exchange_of
from slatewise.service.models import Feedback, FeedbackBatch, FeedbackEvent, SlateRequest
from slatewise.service.problems import INTERNAL, of_exception
from slatewise.service.replies import reply
from slatewise.service.running import Service, service_of
from slatewise.service.waiting import result


async def make_slate(request: Request, body: SlateRequest) -> Response:
    """Choose a slate for a user and record it.

    The answer comes once the slate is durable. The user's earlier open slates are counted, except the one that
    `replaces` names: if nobody clicked in it, its items count as never shown. A preview records nothing, is answered
    with 200, and its slate_id is null.
    """
    service = service_of(request)
    exchange_of(request.scope).user = body.user
    wishes = {name: getattr(body, name) for name in WISHES}
    if body.preview:
        slate = await asyncio.to_thread(service.recommender.preview, body.user, body.k, **wishes)
        service.metrics.previews.labels(slate.policy).inc()
        return reply(slate)
    slate = await result(service.recommender.recommend_later(body.user, body.k, **wishes))
    service.slates.add()
    service.metrics.slate(slate)
    return reply(slate, 201)


WISHES = ("diversity", "candidates", "exclude", "categories", "policy", "replaces")


async def take_feedback(request: Request, body: Feedback) -> Response:
    """Record what was clicked on slates: one event, or up to 100 as `events`.

    The answer comes once the events are durable; an event counts once, however often it is sent. Each event of a batch
    is recorded on its own, in no promised order: one that fails is answered with an `error` in its place and stops
    no other.
    """
    service = service_of(request)
    if isinstance(body, FeedbackEvent):
        receipt = await result(_submit(service, body))
        _count(service, receipt)
        return reply(receipt)
    return await _take_batch(service, request.scope, body)


async def _take_batch(service: Service, scope: Scope, batch: FeedbackBatch) -> Response:
    service.gate.charge(scope, len(batch.events) - 1)
    outcomes = await asyncio.gather(*(_outcome(service, scope, event) for event in batch.events))
    return reply({"results": outcomes})


async def _outcome(service: Service, scope: Scope, event: FeedbackEvent) -> object:
    try:
        receipt = await result(_submit(service, event))
    except Exception as error:  # noqa: BLE001
        problem = of_exception(error)
        if problem.kind is INTERNAL:
            service.log.failure(exchange_of(scope).request_id, error)
        return {"error": problem.view(scope)}
    _count(service, receipt)
    return receipt


def _submit(service: Service, event: FeedbackEvent) -> Future[Receipt]:
    return service.recommender.feedback_later(
        event.slate_id, event.clicked, retracted=event.retracted, event_id=event.event_id, final=event.final
    )


def _count(service: Service, receipt: Receipt) -> None:
    if not receipt.duplicate:
        service.feedback.add()
    service.metrics.receipt(receipt)
