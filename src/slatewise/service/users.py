"""What is known about a user: to look at, to export, to delete."""

from urllib.parse import unquote_to_bytes

from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from slatewise.recommender.types import UnknownUserError
from slatewise.service.errors import MALFORMED, NO_STORE, NOT_FOUND, ProblemError
from slatewise.service.http import JsonResponse, to_json, validate
from slatewise.service.logs import record_of
from slatewise.service.schemas import ExportQuery, Id, MergeBody
from slatewise.service.state import ServiceState

ID: TypeAdapter[str] = TypeAdapter(Id)
NOTHING = "Nothing is stored about this user."


async def show_user(state: ServiceState, request: Request) -> Response:
    """Show what the recommender believes about a user; a user never seen is assumed to be like all users."""
    user = _user(request)
    return JsonResponse(await state.run(lambda: to_json(state.recommender.explain(user))))


async def export_user(state: ServiceState, request: Request, query: ExportQuery) -> Response:
    """Export everything that is stored about a user, page by page."""
    user, export = _user(request), state.recommender.export
    try:
        return JsonResponse(await state.run(lambda: to_json(export(user, after=query.after, limit=query.limit))))
    except UnknownUserError:
        raise ProblemError(NOT_FOUND, NOTHING) from None


async def merge_user(state: ServiceState, request: Request, body: MergeBody) -> Response:
    """Move everything known about another id of the same person to a user; sent again, it moves nothing."""
    return JsonResponse(await state.run(state.recommender.merge, _user(request), body.session))


async def forget_user(state: ServiceState, request: Request) -> Response:
    """Delete everything about a user: slates, feedback and belief."""
    user = _user(request)
    if not await state.run(state.recommender.forget, user):
        raise ProblemError(NOT_FOUND, NOTHING)
    return Response(None, 204, NO_STORE)


def _user(request: Request) -> str:
    """Decode the user's id as it stands in the path (see `middleware`, which keeps the path percent-encoded)."""
    try:
        user = validate(ID, unquote_to_bytes(request.path_params["user"]).decode())
    except UnicodeDecodeError:
        raise ProblemError(MALFORMED, "The path is not UTF-8.") from None
    record_of(request.scope).user = user
    return user
