"""What is known about a person: to look at, to take along, to remove."""

import asyncio
from typing import Annotated
from urllib.parse import unquote_to_bytes

from fastapi import Path
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from slatewise.recommender.views import RequestError
from slatewise.service.exchange import exchange_of
from slatewise.service.models import LONGEST_ID, Name
from slatewise.service.problems import MALFORMED, NOT_FOUND, ProblemError
from slatewise.service.reading import validate
from slatewise.service.replies import NEVER_KEPT, reply
from slatewise.service.running import service_of

User = Annotated[
    str,
    Path(
        description="The user's id, percent-encoded: a slash in it is written %2F.",
        json_schema_extra={"minLength": 1, "maxLength": LONGEST_ID},
    ),
]
NAME: TypeAdapter[str] = TypeAdapter(Name)
NOBODY = "Nothing is kept about this user."


async def show_user(request: Request, user: User) -> Response:
    """Show what the recommender thinks of a user; someone never seen is thought of as the crowd."""
    name = _name(request, user)
    return reply(await asyncio.to_thread(service_of(request).recommender.explain, name))


async def export_user(request: Request, user: User) -> Response:
    """Export everything that is kept about a user."""
    name = _name(request, user)
    try:
        return reply(await asyncio.to_thread(service_of(request).recommender.export, name))
    except RequestError:
        raise ProblemError(NOT_FOUND, NOBODY) from None


async def forget_user(request: Request, user: User) -> Response:
    """Remove everything about a user: slates, answers and belief."""
    name = _name(request, user)
    if not await asyncio.to_thread(service_of(request).recommender.forget, name):
        raise ProblemError(NOT_FOUND, NOBODY)
    return Response(None, 204, NEVER_KEPT)


def _name(request: Request, encoded: str) -> str:
    """Decode the id as it stands in the path (see `limits`, which keeps the path encoded)."""
    try:
        name = validate(NAME, unquote_to_bytes(encoded).decode())
    except UnicodeDecodeError:
        raise ProblemError(MALFORMED, "The path is not UTF-8.") from None
    exchange_of(request.scope).user = name
    return name
