"""The description of the API: OpenAPI for programs, a plain page for people; nothing is loaded from elsewhere."""

import json
from functools import cache
from html import escape
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from slatewise.service.models import ProblemView
from slatewise.service.scoped import SCOPES_KEY
from slatewise.version import __version__

ABOUT = (
    "Slates that learn. Ask for a slate, show it, send back what was clicked. Errors are problem+json (RFC 9457) "
    "with a request_id; a request that was refused changed nothing."
)
KEY = {"type": "http", "scheme": "bearer", "description": "An API key, `swk_…`; X-API-Key takes it too."}


def describe(app: FastAPI, *, needs_key: bool) -> dict[str, Any]:
    """Return the OpenAPI description."""
    found = get_openapi(title="slatewise", version=__version__, description=ABOUT, routes=app.routes)
    parts = found["components"]
    parts["schemas"]["ProblemView"] = TypeAdapter(ProblemView).json_schema()
    if needs_key:
        parts["securitySchemes"] = {"key": KEY}
        for operation in (one for operations in found["paths"].values() for one in operations.values()):
            operation["security"] = [{"key": []}] if operation[SCOPES_KEY] else []
    return found


def add_reference(app: FastAPI, *, needs_key: bool) -> None:
    """Serve /openapi.json and /docs."""

    @cache
    def described() -> dict[str, Any]:
        return describe(app, needs_key=needs_key)

    async def openapi(_: Request) -> Response:
        return Response(json.dumps(described()), media_type="application/json")

    async def docs(_: Request) -> Response:
        return Response(page(described()), media_type="text/html")

    app.router.add_route("/openapi.json", openapi, methods=["GET"])
    app.router.add_route("/docs", docs, methods=["GET"])


def page(described: dict[str, Any]) -> str:
    """Write the description as HTML."""
    routes = [
        _route(method, path, operation)
        for path, operations in described["paths"].items()
        for method, operation in operations.items()
    ]
    schemas = [
        f'<h3 id="{escape(name)}">{escape(name)}</h3><pre>{escape(json.dumps(schema, indent=1))}</pre>'
        for name, schema in sorted(described["components"]["schemas"].items())
    ]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>slatewise API</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<h1>slatewise API {escape(described['info']['version'])}</h1><p>{escape(ABOUT)}</p>"
        '<p>For programs: <a href="/openapi.json">/openapi.json</a></p>'
        f"{''.join(routes)}<h2>Schemas</h2>{''.join(schemas)}</html>"
    )


def _route(method: str, path: str, operation: dict[str, Any]) -> str:
    scopes = " or ".join(operation[SCOPES_KEY]) or "no key needed"
    names = dict.fromkeys(_references(operation))
    links = ", ".join(f'<a href="#{escape(name)}">{escape(name)}</a>' for name in names)
    return (
        f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation['description'])}</p>"
        f"<p>Scope: {escape(scopes)}. Schemas: {links}</p>"
    )


def _references(part: Any) -> list[str]:
    """Name the schemas that a part of the description points to."""
    if isinstance(part, dict):
        own = [part["$ref"].rsplit("/", 1)[1]] if "$ref" in part else []
        return own + [name for value in part.values() for name in _references(value)]
    return [name for value in part for name in _references(value)] if isinstance(part, list) else []
