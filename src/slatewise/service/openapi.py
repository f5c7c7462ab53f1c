"""The description of the API in OpenAPI 3.1, with an example of each body; the page /docs is drawn from it."""

import inspect
import json
from collections.abc import Sequence
from functools import cache
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

EXAMPLES: Json = {
    "create_slate": {"user": "anna", "k": 5, "preview": True},
    "record_feedback": {"slate_id": "the slate_id of a slate", "clicked": [1], "seen": 5},
    "record_events": {"user": "anna", "item": 1, "kind": "like"},
    "rerank": {"scores": [0.9, 0.8, 0.7], "vectors": [[1, 0], [1, 0.1], [0, 1]], "k": 2},
    "merge_user": {"from": "session-17"},
    "put_items": {"items": [{"id": 7, "title": "Tea", "categories": ["Drinks"]}]},
    "put_item": {"title": "Tea", "categories": ["Drinks"], "attributes": {"price": 4.5}},
    "patch_item": {"available": False},
    "promote_version": {"version": "0123456789abcdef"},
    "switch_experiment": {"name": "autumn", "running": False},
}
"""Bodies to try, by the name of the handler."""


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
        content: Json = {"schema": schemas.sent(endpoint.body)}
        if endpoint.handler.__name__ in EXAMPLES:
            content["example"] = EXAMPLES[endpoint.handler.__name__]
        operation["requestBody"] = {"content": {"application/json": content}, "required": True}
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
    """Return the route of /openapi.json, which the page /docs is drawn from."""

    @cache
    def described() -> Json:
        return describe(endpoints, needs_key=needs_key)

    async def openapi(request: Request) -> Response:
        return Response(json.dumps(await request.app.state.service.run(described)), media_type="application/json")

    return [Route("/openapi.json", openapi, methods=["GET"])]
