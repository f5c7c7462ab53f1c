"""Answers as JSON, written straight from the views."""

from typing import Any

from pydantic import TypeAdapter
from starlette.responses import Response

NEVER_KEPT = {"cache-control": "no-store"}

_writers: dict[type, TypeAdapter[Any]] = {}


def reply(view: Any, status: int = 200) -> Response:
    """Answer with a view; a number that JSON cannot hold is written as null."""
    kind = type(view)
    if kind not in _writers:
        _writers[kind] = TypeAdapter(kind)
    return Response(_writers[kind].dump_json(view), status, NEVER_KEPT, media_type="application/json")
