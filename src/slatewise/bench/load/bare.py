"""The least that a web service can do: FastAPI validates the same bodies, and answers with a constant."""

import sys
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from slatewise.service.models import FeedbackEvent, SlateRequest
from slatewise.service.server import listen, uvicorn_options
from slatewise.service.settings import load_settings

SLATE: dict[str, object] = {"slate_id": "0123456789abcdefghijkl", "items": [{"id": 0}]}
RECEIPT: dict[str, object] = {"duplicate": False}


def create_app() -> FastAPI:
    """Return an application with the two routes under load."""
    app = FastAPI(openapi_url=None)

    @app.post("/v1/slates", status_code=201)
    async def slates(request: SlateRequest) -> dict[str, object]:  # noqa: ARG001
        return SLATE

    @app.post("/v1/feedback")
    async def feedback(event: FeedbackEvent) -> dict[str, object]:  # noqa: ARG001
        return RECEIPT

    @app.get("/health/ready")
    async def ready() -> dict[str, object]:
        return {}

    return app


def main() -> None:
    """Serve on a port of this machine, with the options that the service gives to uvicorn."""
    settings = load_settings({"catalog": Path(), "port": int(sys.argv[1])})
    uvicorn.Server(uvicorn.Config(create_app(), **uvicorn_options(settings))).run(sockets=[listen(settings)])


if __name__ == "__main__":
    main()
