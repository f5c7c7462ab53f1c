"""Answers as JSON, written straight from the views."""

from typing import Any

from pydantic import TypeAdapter
from starlette.responses import Response

NEVER_KEPT = {"cache-control": "no-store"}
HEADERS = [(b"cache-control", b"no-store"), (b"content-type", b"application/json")]

_writers: dict[type, TypeAdapter[Any]] = {}


class Json(Response):
    """A response with JSON, whose headers are known beforehand."""

    def __init__(self, body: bytes, status: int) -> None:
        self.body, self.status_code, self.background = body, status, None
        self.raw_headers = [(b"content-length", b"%d" % len(body)), *HEADERS]


def reply(view: Any, status: int = 200) -> Response:
    """Answer with a view; a number that JSON cannot hold is written as null."""
    kind = type(view)
    if kind not in _writers:
        _writers[kind] = TypeAdapter(kind)
    return Json(_writers[kind].dump_json(view), status)
