"""What can be recommended, and by which policies."""

import asyncio
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from slatewise.catalog import CatalogError
from slatewise.policies import POLICIES, policy_options
from slatewise.recommender.views import RequestError
from slatewise.service.models import ItemsQuery, PolicyView
from slatewise.service.problems import DAMAGED_CATALOG, ProblemError
from slatewise.service.replies import reply
from slatewise.service.running import service_of


async def list_items(request: Request, wanted: Annotated[ItemsQuery, Query()]) -> Response:
    """List items by text in id or title and by category, most liked first."""
    search = service_of(request).search()
    return reply(await asyncio.to_thread(search.find, wanted))


async def list_policies(request: Request) -> Response:
    """List the policies that can be asked for by name, and the share of users of each."""
    recommender = service_of(request).recommender
    names = await asyncio.to_thread(lambda: recommender.policy_names)
    return reply([_policy(name, recommender.shares.get(name, 0.0)) for name in names])


def _policy(name: str, share: float) -> PolicyView:
    words = (POLICIES[name].__doc__ or "").strip().split("\n", 1)[0]
    return PolicyView(name, share, "diversity" in policy_options(name), words)


async def show_catalog(request: Request) -> Response:
    """Describe the catalogue that is served."""
    return reply(service_of(request).catalog_view())


async def reload_catalog(request: Request) -> Response:
    """Read the catalogue's directory again and serve from it, without a pause.

    Slates already shown still take feedback; each belief is rebuilt from the log when its user comes back. A catalogue
    that is damaged is refused with 409, and the old one goes on serving.
    """
    service = service_of(request)
    try:
        view = await service.reload()
    except (CatalogError, RequestError, OSError) as error:
        service.metrics.reloads.labels("refused").inc()
        service.log.event("catalogue refused", why=str(error))
        raise ProblemError(DAMAGED_CATALOG, "The old catalogue goes on serving; the log says what is wrong.") from None
    service.metrics.reloads.labels("loaded").inc()
    return reply(view)
