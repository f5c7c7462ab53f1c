"""The description of the API: OpenAPI 3.1 for programs, a plain page for people; nothing is loaded from elsewhere."""

import inspect
import json
from collections.abc import Sequence
from functools import cache
from html import escape
from typing import Any

from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from slatewise.service.http import Endpoint
from slatewise.service.schemas import MAX_ID_LENGTH, ProblemView
from slatewise.version import __version__

ABOUT = (
    "Slates that learn. Ask for a slate, show it, send back what was clicked. Errors are problem+json (RFC 9457) "
    "with a request_id; a request that was rejected changed nothing."
)
KEY = {"type": "http", "scheme": "bearer", "description": "An API key, `swk_…`; X-API-Key works too."}
SCHEMAS = "#/components/schemas/"
PROBLEMS = {
    "4XX": "The request was rejected and changed nothing.",
    "5XX": "The service could not do it now; nothing was recorded.",
}
IN_PATH = {
    "user": "The user's id, percent-encoded: a slash in it is written as %2F.",
    "item": "The item's id, percent-encoded; it is read as the type that the catalog's ids have.",
}
"""What the ids in paths are."""

Json = dict[str, Any]


def describe(endpoints: Sequence[Endpoint], *, needs_key: bool) -> Json:
    """Return the OpenAPI description of a table of routes."""
    schemas = Schemas(endpoints)
    paths: Json = {}
    for endpoint in endpoints:
        operation = _operation(endpoint, schemas)
        if needs_key:
            operation["security"] = [{"key": []}] if endpoint.scopes else []
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "slatewise", "description": ABOUT, "version": __version__},
        "paths": paths,
        "components": {"schemas": schemas.named} | ({"securitySchemes": {"key": KEY}} if needs_key else {}),
    }


class Schemas:
    """The JSON schemas of everything that is sent and received; `named` are those of classes."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        inputs: list[Any] = [("problem", "serialization", TypeAdapter(ProblemView))]
        for endpoint in endpoints:
            sent = (endpoint.body, endpoint.query)
            inputs += [(id(adapter), "validation", adapter) for adapter in sent if adapter is not None]
            types = {status: kind for status, kind in endpoint.responses.items() if kind is not None}
            inputs += [((endpoint, status), "serialization", TypeAdapter(kind)) for status, kind in types.items()]
        schemas, definitions = TypeAdapter.json_schemas(inputs, ref_template=SCHEMAS + "{model}")
        self._schemas = {key: schema for (key, _), schema in schemas.items()}
        self.named: Json = definitions["$defs"]

    def sent(self, adapter: TypeAdapter[Any]) -> Json:
        """Return the schema of a body or a query."""
        return self._schemas[id(adapter)]

    def returned(self, endpoint: Endpoint, status: int) -> Json:
        """Return the schema of a response."""
        return self._schemas[endpoint, status]


def _operation(endpoint: Endpoint, schemas: Schemas) -> Json:
    words = inspect.cleandoc(endpoint.handler.__doc__ or "")
    operation: Json = {
        "summary": words.split("\n", 1)[0].rstrip("."),
        "description": words,
        "operationId": endpoint.handler.__name__,
        "x-scopes": list(endpoint.scopes),
        "responses": {str(status): _response(endpoint, status, schemas) for status in endpoint.responses} | _problems(),
    }
    if parameters := _parameters(endpoint, schemas):
        operation["parameters"] = parameters
    if endpoint.body is not None:
        content = {"application/json": {"schema": schemas.sent(endpoint.body)}}
        operation["requestBody"] = {"content": content, "required": True}
    return operation


def _parameters(endpoint: Endpoint, schemas: Schemas) -> list[Json]:
    schema = {"type": "string", "minLength": 1, "maxLength": MAX_ID_LENGTH}
    parameters: list[Json] = [
        {"name": name, "in": "path", "required": True, "description": words, "schema": schema}
        for name, words in IN_PATH.items()
        if f"{{{name}}}" in endpoint.path
    ]
    if endpoint.query is None:
        return parameters
    name = schemas.sent(endpoint.query)["$ref"].removeprefix(SCHEMAS)
    fields = schemas.named[name]["properties"]
    return parameters + [{"name": field, "in": "query", "required": False, "schema": fields[field]} for field in fields]


def _response(endpoint: Endpoint, status: int, schemas: Schemas) -> Json:
    kind = endpoint.responses[status]
    if kind is None:
        return {"description": "Done."}
    media_type = "text/plain" if kind is str else "application/json"
    return {"description": "Done.", "content": {media_type: {"schema": schemas.returned(endpoint, status)}}}


def _problems() -> Json:
    content = {"application/problem+json": {"schema": {"$ref": SCHEMAS + "ProblemView"}}}
    return {status: {"description": words, "content": content} for status, words in PROBLEMS.items()}


def reference_routes(endpoints: Sequence[Endpoint], *, needs_key: bool) -> list[Route]:
    """Return the routes of /openapi.json and /docs."""

    @cache
    def described() -> Json:
        return describe(endpoints, needs_key=needs_key)

    async def openapi(request: Request) -> Response:
        return Response(json.dumps(await request.app.state.service.run(described)), media_type="application/json")

    async def docs(request: Request) -> Response:
        return Response(html(await request.app.state.service.run(described)), media_type="text/html")

    return [Route("/openapi.json", openapi, methods=["GET"]), Route("/docs", docs, methods=["GET"])]


def html(described: Json) -> str:
    """Write the description as a page."""
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


def _route(method: str, path: str, operation: Json) -> str:
    scopes = " or ".join(operation["x-scopes"]) or "no key needed"
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
