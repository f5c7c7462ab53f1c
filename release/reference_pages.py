"""Reference pages written from the code, so that they cannot be out of date: HTTP, settings, errors, metrics."""

import json
from collections.abc import Callable
from typing import Any

from slatewise.service import errors
from slatewise.service.metrics import Gauges, Metrics
from slatewise.service.openapi import describe
from slatewise.service.routes import ROUTES
from slatewise.service.settings import PREFIX, Settings

EXAMPLES: dict[str, Any] = {
    "create_slate": {"user": "ann", "k": 5, "diversity": 0.5, "at_most": [{"n": 2, "per": "category"}]},
    "record_feedback": {"slate_id": "019a…", "clicked": ["tea-7"], "seen": 3, "event_id": "visit-17"},
    "record_events": {"user": "ann", "item": "tea-7", "kind": "purchase", "event_id": "order-4711"},
    "rerank": {"scores": [0.9, 0.8, 0.7], "categories": [["Tea"], ["Tea"], ["Coffee"]], "k": 2},
    "merge_user": {"from": "session-17"},
    "put_items": {"items": [{"id": "tea-8", "title": "Sencha", "categories": ["Tea"], "attributes": {"price": 12.5}}]},
    "put_item": {"title": "Sencha", "categories": ["Tea"], "attributes": {"price": 12.5}, "available": True},
    "patch_item": {"available": False, "attributes": {"price": None}},
    "promote_version": {"version": "3f2a9c0d1e4b5a67"},
    "switch_experiment": {"name": "autumn", "running": False},
}
"""A body for every route that takes one."""


def http_page() -> str:
    """Write the page of all routes, with an example of each and the fields of every schema."""
    described = describe(ROUTES, needs_key=True)
    parts = [
        "# HTTP\n\nWritten from the service's own OpenAPI description, which a running service has at "
        "`/openapi.json`. What the fields mean in context: [serving](../serving.md#routes). Bodies are strict: "
        "an unknown field or a wrong type is a 422.\n"
    ]
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            parts.append(_route(method.upper(), path, operation))
    parts.append("## Schemas\n")
    parts += [_schema(name, schema) for name, schema in sorted(described["components"]["schemas"].items())]
    return "\n".join(parts)


def _route(method: str, path: str, operation: dict[str, Any]) -> str:
    scopes = " or ".join(f"`{scope}`" for scope in operation["x-scopes"])
    needed = f"Scope of the key: {scopes}." if scopes else "No key is needed."
    answers = ", ".join(f"`{status}`" for status in operation["responses"] if status.isdigit())
    return (
        f"## {method} {path}\n\n{operation['description']}\n\n{needed} Success: {answers}.\n\n"
        f"```sh\n{_curl(method, path, operation)}\n```\n"
    )


def _curl(method: str, path: str, operation: dict[str, Any]) -> str:
    url = '"$URL' + path.replace("{user}", "ann").replace("{item}", "tea-7") + '"'
    words = ["curl -sS", *([] if method in ("GET", "POST") and "requestBody" in operation else [f"-X {method}"])]
    if operation["x-scopes"]:
        words.append('-H "Authorization: Bearer $KEY"')
    if method == "POST" or "requestBody" in operation:
        words.append("-H 'Content-Type: application/json'")
    if "requestBody" in operation:
        body = json.dumps(EXAMPLES[operation["operationId"]], ensure_ascii=False)
        return " ".join(words) + f" \\\n  -d '{body}' {url}"
    return " ".join([*words, url])


def _schema(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", [])
    rows = [
        f"| `{field}` | {_type(kind)} | {'yes' if field in required else ''} |"
        for field, kind in schema.get("properties", {}).items()
    ]
    table = "\n".join(["| field | type | required |", "|---|---|---|", *rows]) if rows else ""
    return f"### {name}\n\n{schema.get('description', '')}\n\n{table}\n"


def _type(schema: dict[str, Any]) -> str:
    """Describe a type in a few words."""
    if "$ref" in schema:
        return f"`{schema['$ref'].rsplit('/', 1)[1]}`"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[several]))
    if "const" in schema or "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    kind = str(schema.get("type", "anything"))
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return kind + _bounds(schema)


def _bounds(schema: dict[str, Any]) -> str:
    names = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "maxLength": "length ≤"}
    found = [f"{sign} {schema[name]:g}" for name, sign in names.items() if name in schema]
    return f" ({', '.join(found)})" if found else ""


def settings_page() -> str:
    """Write the page of all settings."""
    rows = [
        f"| `{name}` | `{PREFIX}{name.upper()}` | {_default(name)} | {field.description} |"
        for name, field in Settings.model_fields.items()
    ]
    return (
        "# Settings\n\nOf `slatewise serve`: by flag, by environment, or in `slatewise.toml`, in this order. "
        "More on each: [serving](../serving.md#settings).\n\n| setting | environment | default | |\n|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n"
    )


def _default(name: str) -> str:
    field = Settings.model_fields[name]
    if field.is_required():
        return "required"
    value = field.default.get_secret_value() if hasattr(field.default, "get_secret_value") else field.default
    if value is None or value in ((), {}):
        return "–"
    return "`" + (", ".join(value) if isinstance(value, dict | tuple) else str(value)) + "`"


def errors_page() -> str:
    """Write the page of all kinds of errors."""
    kinds = sorted((kind for kind in vars(errors).values() if isinstance(kind, errors.Kind)), key=lambda it: it.status)
    rows = [f"| {kind.status} | `urn:slatewise:problem:{kind.name}` | {kind.title} |" for kind in kinds]
    return (
        "# Errors\n\nErrors are `application/problem+json` (RFC 9457) with `type`, `title`, `status`, `detail` and "
        "`request_id`; a wrong body has `errors`, too. What was refused changed nothing. "
        "What to do: [serving](../serving.md#routes).\n\n"
        "| status | type | title |\n|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def metrics_page() -> str:
    """Write the page of all metrics."""
    rows = [f"| `{name}` | {kind} | {', '.join(labels)} | {words} |" for name, kind, labels, words in all_metrics()]
    return (
        "# Metrics\n\nWhat `GET /metrics` has; the store adds `slatewise_store_…` figures of its own. How to "
        "watch them: [monitoring](../serving.md#monitoring), [dashboard and alerts](../how-to/containers.md).\n\n"
        "| metric | kind | labels | |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def all_metrics() -> list[tuple[str, str, tuple[str, ...], str]]:
    """Return name, kind, labels and description of every metric."""
    metrics = Metrics()
    counters = [one for one in vars(metrics).values() if hasattr(one, "_labelnames")]
    labels = {one._name: one._labelnames for one in counters}
    sizes = dict.fromkeys(("items", "categories", "dimensions"), 0.0)
    gauges = Gauges({}, [], sizes, 0, dict.fromkeys(("waiting", "oldest_seconds"), 0.0))
    families = [*(family for one in counters for family in one.collect()), *gauges.collect()]
    return [
        (
            family.name + ("_total" if family.type == "counter" else ""),
            family.type,
            tuple(labels.get(family.name, getattr(family, "_labelnames", ()))),
            family.documentation,
        )
        for family in families
    ]


PAGES: dict[str, Callable[[], str]] = {
    "reference/http.md": http_page,
    "reference/settings.md": settings_page,
    "reference/errors.md": errors_page,
    "reference/metrics.md": metrics_page,
}
