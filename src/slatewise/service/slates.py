"""Slates out, feedback in: the two routes that matter."""

import asyncio
from concurrent.futures import Future
from typing import Annotated, Any

from pydantic import Discriminator, Tag
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from slatewise.recommender.recommend import SlateRequest
from slatewise.recommender.types import Receipt, Slate
from slatewise.service.errors import INTERNAL, problem_of
from slatewise.service.http import JsonResponse
from slatewise.service.logs import record_of
from slatewise.service.schemas import FeedbackBatch, FeedbackEvent, SlateBody
from slatewise.service.state import ServiceState


async def create_slate(state: ServiceState, request: Request, body: SlateBody) -> Response:
    """Choose a slate for a user and record it.

    The response is sent once the slate is durable. The user's earlier open slates are closed, except the one that
    `replaces` names: if nothing on it was clicked, its items count as never shown. A preview records nothing, has
    status 200, and no slate_id.
    """
    record_of(request.scope).user = body.user
    wanted = SlateRequest(**{name: value for name, value in body if name != "preview"})
    if body.preview:
        preview = await state.run(state.recommender.preview_of, wanted)
        state.metrics.count_preview(preview)
        return JsonResponse(preview)
    slate = await _recorded_slate(state, wanted)
    state.metrics.count_slate(slate)
    return JsonResponse(slate, 201)


async def _recorded_slate(state: ServiceState, wanted: SlateRequest) -> Slate:
    """Draft a slate in a worker thread, then record it; if the user changed in between, draft again, a few times."""
    recommender, loop = state.recommender, asyncio.get_running_loop()
    for _ in range(recommender.max_drafts):
        draft = await loop.run_in_executor(state.workers, recommender.draft, wanted)
        slate = await asyncio.wrap_future(recommender.record(draft))
        if slate is not None:
            return slate
    return await asyncio.wrap_future(recommender.draft_and_record(wanted))


def _feedback_kind(body: Any) -> str:
    return "batch" if isinstance(body, dict) and "events" in body else "event"


Feedback = Annotated[
    Annotated[FeedbackEvent, Tag("event")] | Annotated[FeedbackBatch, Tag("batch")], Discriminator(_feedback_kind)
]


async def record_feedback(state: ServiceState, request: Request, body: Feedback) -> Response:
    """Record what was clicked on slates: one event, or up to 100 as `events`.

    The response is sent once the events are durable; an event counts once, no matter how often it is sent. Each event
    of a batch is recorded on its own, in no promised order: one that fails is reported by an `error` in its position
    and stops no other.
    """
    if isinstance(body, FeedbackEvent):
        return JsonResponse(await _receipt(state, body))
    state.auth.charge(request.scope, len(body.events) - 1)
    outcomes = await asyncio.gather(*(_outcome(state, request.scope, event) for event in body.events))
    return JsonResponse({"results": outcomes})


async def _receipt(state: ServiceState, event: FeedbackEvent) -> Receipt:
    recorded: Future[Receipt] = state.recommender.feedback_later(
        event.slate_id, event.clicked, retracted=event.retracted, event_id=event.event_id, final=event.final
    )
    receipt = await asyncio.wrap_future(recorded)
    state.metrics.count_feedback(receipt)
    return receipt


async def _outcome(state: ServiceState, scope: Scope, event: FeedbackEvent) -> object:
    """Record one event of a batch; its failure is part of the response."""
    try:
        return await _receipt(state, event)
    except Exception as error:  # noqa: BLE001
        problem = problem_of(error)
        if problem.kind is INTERNAL:
            state.log.failure(record_of(scope).request_id, error)
        return {"error": problem.view(scope)}
