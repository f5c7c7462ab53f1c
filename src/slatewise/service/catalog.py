"""What can be recommended, and by which policies."""

from starlette.requests import Request
from starlette.responses import Response

from slatewise.catalog import CatalogError
from slatewise.policies import POLICIES, policy_options
from slatewise.recommender.types import RequestError
from slatewise.service.errors import DAMAGED_CATALOG, ProblemError
from slatewise.service.http import JsonResponse
from slatewise.service.schemas import ItemsQuery, PolicyView
from slatewise.service.state import ServiceState


async def list_items(state: ServiceState, _: Request, query: ItemsQuery) -> Response:
    """List items by text in id or title and by category, most liked first."""
    return JsonResponse(await state.run(state.search().find, query))


async def list_policies(state: ServiceState, _: Request) -> Response:
    """List the policies that can be requested by name, and the share of users of each."""
    return JsonResponse(await state.run(_policies, state))


def _policies(state: ServiceState) -> list[PolicyView]:
    return [_policy_view(state, name) for name in state.recommender.policy_names]


def _policy_view(state: ServiceState, name: str) -> PolicyView:
    share = state.recommender.shares.get(name, 0.0)
    policy = state.settings.policy_of(name)
    if policy not in POLICIES:
        return PolicyView(name, share, has_diversity_knob=False, summary="")
    summary = (POLICIES[policy].__doc__ or "").strip().split("\n", 1)[0]
    return PolicyView(name, share, "diversity" in policy_options(policy), summary)


async def show_catalog(state: ServiceState, _: Request) -> Response:
    """Describe the catalog being served."""
    return JsonResponse(state.catalog_view())


async def reload_catalog(state: ServiceState, _: Request) -> Response:
    """Read the catalog's directory again and serve from it, without a pause.

    Slates already shown still take feedback; each belief is rebuilt from the log when its user comes back. A damaged
    catalog is refused with 409, and the old one keeps serving.
    """
    try:
        await state.reload_catalog()
    except (CatalogError, RequestError, OSError) as error:
        state.metrics.reloads.labels("refused").inc()
        state.log.event("catalog refused", why=str(error))
        raise ProblemError(DAMAGED_CATALOG, "The old catalog keeps serving; the log says what is wrong.") from None
    state.metrics.reloads.labels("loaded").inc()
    return JsonResponse(state.catalog_view())
