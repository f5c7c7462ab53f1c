"""Slates out, feedback in: the two routes that matter."""

import asyncio
import random
from collections.abc import Awaitable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Annotated, Any

from pydantic import Discriminator, Tag
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from slatewise.recommender.feedback import FeedbackEvent as ReceivedFeedback
from slatewise.recommender.recommend import Draft, SlateRequest
from slatewise.recommender.slate_rules import NO_RULES
from slatewise.recommender.types import Receipt, Slate
from slatewise.service.errors import INTERNAL, problem_of
from slatewise.service.http import JsonResponse
from slatewise.service.logs import record_of
from slatewise.service.schemas import RULES, FeedbackBatch, FeedbackEvent, SlateBody
from slatewise.service.state import ServiceState

NO_REQUEST = {"preview", *RULES}
"""The fields of a body that a request for a slate does not have under these names."""
_RANDOM = random.Random()  # noqa: S311
"""Its own generator, so that a program that seeds `random` and runs the service in its process stays reproducible."""


async def create_slate(state: ServiceState, request: Request, body: SlateBody) -> Response:
    """Choose a slate for a user and record it.

    The response is sent once the slate is durable. The user's earlier open slates are closed, except the one that
    `replaces` names: if nothing on it was clicked, its items count as never shown. A preview records nothing, has
    status 200, and no slate_id.
    """
    record_of(request.scope).user = body.user
    asked = {name: value for name, value in vars(body).items() if name not in NO_REQUEST}
    rules = NO_RULES if RULES.isdisjoint(body.model_fields_set) else body.rules()
    wanted = state.recommender.request(**asked, rules=rules)
    if body.preview:
        preview = await state.run(state.recommender.preview_of, wanted)
        state.metrics.count_preview(preview)
        return JsonResponse(preview)
    return JsonResponse(await _recorded_slate(state, wanted), 201)


async def _recorded_slate(state: ServiceState, wanted: SlateRequest) -> Slate:
    """Draft a slate and record it; if the user changed in between, draft again, a few times."""
    recommender = state.recommender
    for _ in range(recommender.max_drafts):
        earlier = None if wanted.request_id is None else await state.run(recommender.recorded, wanted)
        if earlier is not None:
            return earlier
        drafted: Future[Slate | None] = Future()
        state.workers.submit(_draft_and_queue, state, wanted, drafted)
        slate = await asyncio.wrap_future(drafted)
        if slate is not None:
            state.metrics.count_slate(slate)
            return slate
    slate = await asyncio.wrap_future(recommender.draft_and_record(wanted))
    state.metrics.count_slate(slate)
    return slate


def _draft_and_queue(state: ServiceState, wanted: SlateRequest, drafted: Future[Slate | None]) -> None:
    """Draft a slate and queue it to be recorded; the event loop hears of it only when that is done, or has failed."""
    if drafted.set_running_or_notify_cancel():
        try:
            draft = state.recommender.draft(wanted)
            state.recommender.record(draft).add_done_callback(partial(_pass_on, drafted))
        except BaseException as error:  # noqa: BLE001
            drafted.set_exception(error)
        else:
            _check_some(state, draft)


def _check_some(state: ServiceState, draft: Draft) -> None:
    """Choose a share of the approximate slates exactly too, and count how many are the same; nobody waits for it."""
    if _RANDOM.random() < state.settings.approximate_checks:
        is_exact = state.recommender.is_exact(draft)
        if is_exact is not None:
            state.metrics.count_check(is_exact)


def _pass_on(drafted: Future[Slate | None], recorded: Future[Slate | None]) -> None:
    error = recorded.exception()
    if error is None:
        drafted.set_result(recorded.result())
    else:
        drafted.set_exception(error)


def one_or_batch(body: Any) -> str:
    """Return whether a body holds one event or several."""
    return "batch" if isinstance(body, dict) and "events" in body else "event"


Feedback = Annotated[
    Annotated[FeedbackEvent, Tag("event")] | Annotated[FeedbackBatch, Tag("batch")], Discriminator(one_or_batch)
]


async def record_feedback(state: ServiceState, request: Request, body: Feedback) -> Response:
    """Record how somebody reacted to slates: one event, or up to 100 as `events`.

    The response is sent once the events are durable; an event counts once, no matter how often it is sent. Each event
    of a batch is recorded on its own, in no promised order: one that fails is reported by an `error` in its position
    and stops no other.
    """
    if isinstance(body, FeedbackEvent):
        return JsonResponse(await _receipt(state, body))
    state.auth.charge(request.scope, len(body.events) - 1)
    outcomes = await outcomes_of(state, request.scope, [_receipt(state, event) for event in body.events])
    return JsonResponse({"results": outcomes})


async def _receipt(state: ServiceState, event: FeedbackEvent) -> Receipt:
    received = ReceivedFeedback(**vars(event))
    receipt = await asyncio.wrap_future(state.recommender.feedback_later(received))
    state.metrics.count_feedback(received, receipt)
    return receipt


async def outcomes_of(state: ServiceState, scope: Scope, recording: Sequence[Awaitable[object]]) -> list[object]:
    """Wait for the events of a batch to be recorded; the failure of one is part of the response."""
    outcomes = await asyncio.gather(*recording, return_exceptions=True)
    return [_failed(state, scope, outcome) if isinstance(outcome, Exception) else outcome for outcome in outcomes]


def _failed(state: ServiceState, scope: Scope, error: Exception) -> dict[str, Any]:
    problem = problem_of(error)
    if problem.kind is INTERNAL:
        state.log.failure(record_of(scope).request_id, error)
    return {"error": problem.view(scope)}
