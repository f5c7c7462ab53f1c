"""The page: a handful of files read when the service starts and served from memory, so no path can lead elsewhere."""

import hashlib
import mimetypes
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

DIRECTORY = Path(__file__).parent / "page"
TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".svg": "image/svg+xml"}
HTML = {"/": "index.html", "/live": "live.html"}


def add_page(app: FastAPI, directory: Path = DIRECTORY) -> None:
    """Serve the page's HTML under its own addresses and everything else under /page/; without a page, nothing."""
    if not (directory / "index.html").is_file():
        return
    files = {path.relative_to(directory).as_posix(): path for path in directory.rglob("*") if path.is_file()}
    for address, name in HTML.items():
        if name in files:
            app.router.add_route(address, _serving(files.pop(name)), methods=["GET"])
    for name, path in files.items():
        app.router.add_route(f"/page/{name}", _serving(path), methods=["GET"])


def _serving(path: Path) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    content = path.read_bytes()
    kind = TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"etag": tag, "cache-control": "no-cache"}

    async def serve(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(None, 304, headers)
        return Response(content, headers=headers, media_type=kind)

    return serve
