"""The page: a few files read when the service starts and served from memory, so that no path can lead elsewhere."""

import hashlib
import mimetypes
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

DIRECTORY = Path(__file__).parent / "page"
TYPES = {".ts": "text/plain", ".js": "text/javascript", ".mjs": "text/javascript", ".svg": "image/svg+xml"}
HTML = {"index.html": "/", "live.html": "/live", "docs.html": "/docs"}


def page_routes(directory: Path = DIRECTORY, *, has_reference: bool = True) -> list[Route]:
    """Serve the page's HTML at its own addresses and everything else below /page/; without a page, nothing."""
    if not (directory / "index.html").is_file():
        return []
    files = {path.relative_to(directory).as_posix(): path for path in directory.rglob("*") if path.is_file()}
    if not has_reference:
        files.pop("docs.html", None)
    return [Route(HTML.get(name, f"/page/{name}"), _file(path), methods=["GET"]) for name, path in files.items()]


def _file(path: Path) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """Return an endpoint that serves a file as it is now."""
    content = path.read_bytes()
    media_type = TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"etag": tag, "cache-control": "no-cache"}

    async def serve(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(None, 304, headers)
        return Response(content, headers=headers, media_type=media_type)

    return serve
