"""What can be recommended, and by which policies."""

from collections.abc import Awaitable

from starlette.requests import Request
from starlette.responses import Response

from slatewise.catalog import CatalogError
from slatewise.catalog.versions import NoVersionError, Version, versions
from slatewise.policies import POLICIES, policy_options
from slatewise.recommender.types import RequestError
from slatewise.service.errors import DAMAGED_CATALOG, NO_VERSION, ProblemError
from slatewise.service.http import JsonResponse
from slatewise.service.policy_words import CALIBRATED_POLICIES, POLICY_WORDS
from slatewise.service.retraining import read_history
from slatewise.service.schemas import PolicyView, PromoteBody, VersionView
from slatewise.service.state import ServiceState


async def list_policies(state: ServiceState, _: Request) -> Response:
    """List the policies that can be requested by name, and the share of users of each."""
    return JsonResponse(await state.run(_policies, state))


def _policies(state: ServiceState) -> list[PolicyView]:
    return [_policy_view(state, name) for name in state.recommender.policy_names]


def _policy_view(state: ServiceState, name: str) -> PolicyView:
    share = state.recommender.shares.get(name, 0.0)
    policy = state.settings.policy_of(name)
    words, summary = POLICY_WORDS.get(policy, (name, ""))
    title = words if policy == name else name
    if policy not in POLICIES:
        return PolicyView(name, share, has_diversity_knob=False, summary=summary, title=title)
    has_knob = "diversity" in policy_options(policy)
    return PolicyView(name, share, has_knob, summary, title, policy in CALIBRATED_POLICIES)


async def show_catalog(state: ServiceState, _: Request) -> Response:
    """Describe the catalog being served."""
    return JsonResponse(state.catalog_view())


async def reload_catalog(state: ServiceState, _: Request) -> Response:
    """Read the catalog's directory again and serve from it, without a pause.

    Slates already shown still take feedback; each belief is rebuilt from the log when its user comes back. A damaged
    catalog is refused with 409, and the old one keeps serving.
    """
    return await _serve_after(state, state.reload_catalog())


async def list_versions(state: ServiceState, _: Request) -> Response:
    """List the versions of the catalog that are kept, the newest first."""
    kept = await state.run(versions, state.settings.catalog)
    return JsonResponse([_version_view(version) for version in kept])


async def list_trainings(state: ServiceState, _: Request) -> Response:
    """List the trainings on schedule, the newest first, with the decision of the gate."""
    return JsonResponse(await state.run(read_history, state.settings.catalog))


async def promote_version(state: ServiceState, _: Request, body: PromoteBody) -> Response:
    """Put a version of the catalog in use and serve from it, without a pause; 409 if it cannot be used."""
    if body.version not in {version.name for version in await state.run(versions, state.settings.catalog)}:
        raise ProblemError(NO_VERSION, "No such version is kept; GET /v1/catalog/versions lists those that are.")
    return await _serve_after(state, state.change_version(body.version))


async def rollback_version(state: ServiceState, _: Request) -> Response:
    """Go back to the version of the catalog that was in use before, without a pause; 409 if there is none."""
    return await _serve_after(state, state.change_version(None))


async def _serve_after(state: ServiceState, change: Awaitable[None]) -> Response:
    """Describe the catalog after a change; one that cannot be made is logged and refused."""
    try:
        await change
    except NoVersionError:
        raise ProblemError(
            NO_VERSION,
            "No version was in use before this one, which keeps serving; GET /v1/catalog/versions lists others.",
        ) from None
    except (CatalogError, RequestError, OSError) as error:
        state.metrics.reloads.labels("refused").inc()
        state.log.event("catalog refused", why=str(error))
        raise ProblemError(DAMAGED_CATALOG, "The old catalog keeps serving; the log says what is wrong.") from None
    state.metrics.reloads.labels("loaded").inc()
    return JsonResponse(state.catalog_view())


def _version_view(version: Version) -> VersionView:
    about = version.about
    name = str(about.get("data", {}).get("name", "vectors"))
    until = about.get("log", {}).get("until")
    return VersionView(version.name, version.is_current, version.written_at, name, until, about.get("start"))
