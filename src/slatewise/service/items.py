"""What a shop does with its items: add, change, withdraw, look at, list."""

import re
from urllib.parse import unquote_to_bytes

from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from slatewise.recommender import Item
from slatewise.recommender.types import ItemDetails, RuleError
from slatewise.service.errors import MALFORMED, NO_STORE, ProblemError
from slatewise.service.http import JsonResponse, validate
from slatewise.service.schemas import Id, ItemBatch, ItemBatchResult, ItemBody, ItemPatch, ItemsQuery
from slatewise.service.state import ServiceState
from slatewise.store.records import ItemId

ID: TypeAdapter[str] = TypeAdapter(Id)
WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,18}")


async def list_items(state: ServiceState, _: Request, query: ItemsQuery) -> Response:
    """List items by text in id or title, by category and by availability, most liked first."""
    return JsonResponse(await state.run(state.search().find, query))


async def show_item(state: ServiceState, request: Request) -> Response:
    """Show what is known about an item: by training, and by what was said about it since."""
    return JsonResponse(await state.run(state.recommender.item, _item(state, request)))


async def put_item(state: ServiceState, request: Request, body: ItemBody) -> Response:
    """Add an item, or replace everything that was said about it before.

    It is in force from the next slate on, on other workers within a second. Without a title or categories, those that
    the catalog was trained with count.
    """
    item = _item(state, request)
    return JsonResponse(await state.run(_put, state, Item(item, **body.model_dump())))


async def patch_item(state: ServiceState, request: Request, body: ItemPatch) -> Response:
    """Change some of what was said about an item: the fields that are sent, and of attributes those that are named.

    An attribute that is null is removed; `"available": true` offers a withdrawn item again.
    """
    item, changes = _item(state, request), body.model_dump(exclude_unset=True)
    return JsonResponse(await state.run(_patch, state, item, changes))


async def withdraw_item(state: ServiceState, request: Request) -> Response:
    """Withdraw an item: from the next slate on it is not offered, but feedback on it still counts."""
    await state.run(state.recommender.withdraw_items, [_item(state, request)])
    return Response(None, 204, NO_STORE)


async def put_items(state: ServiceState, _: Request, body: ItemBatch) -> Response:
    """Add or replace up to 1,000 items together: all of them or, if one is refused, none."""
    return JsonResponse(await state.run(_put_all, state, body))


def _put(state: ServiceState, item: Item) -> ItemDetails:
    try:
        state.recommender.put_items([item])
    except RuleError as error:
        raise error.within("items/0") from None
    return state.recommender.item(item.id)


def _put_all(state: ServiceState, body: ItemBatch) -> ItemBatchResult:
    version = state.recommender.put_items(item.model_dump() for item in body.items)
    return ItemBatchResult(len(body.items), version)


def _patch(state: ServiceState, item: ItemId, changes: dict[str, object]) -> ItemDetails:
    state.recommender.patch_item(item, changes)
    return state.recommender.item(item)


def _item(state: ServiceState, request: Request) -> ItemId:
    """Read the id in the path as the type that the catalog's ids have."""
    try:
        text = validate(ID, unquote_to_bytes(request.path_params["item"]).decode())
    except UnicodeDecodeError:
        raise ProblemError(MALFORMED, "The path is not UTF-8.") from None
    is_number = state.recommender.catalog.item_ids.kind == "int" and WHOLE_NUMBER.fullmatch(text)
    return int(text) if is_number else text
