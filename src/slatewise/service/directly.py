"""The way to the routes that matter: found by one look-up, without the layers that only other routes need."""

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from slatewise.service.scoped import ScopedRoute


class Directly:
    """Passes requests with a body straight to their route and all others through FastAPI; errors are left to others."""

    def __init__(self, api: FastAPI) -> None:
        self.api: ASGIApp = api
        routes = [route for route in api.routes if isinstance(route, ScopedRoute) and route.takes_body]
        self.routes = {(method, route.path): route for route in routes for method in route.methods or ()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request, or a message about the lifespan."""
        route = self.routes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if route is None:
            await self.api(scope, receive, send)
        else:
            scope["route"] = route
            await route.app(scope, receive, send)
