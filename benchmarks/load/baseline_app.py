"""The least that a web service can do: parse and validate the same bodies, and respond with a constant."""

import sys
from typing import Annotated

import uvicorn
from pydantic import BaseModel, ConfigDict, Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

Name = Annotated[str, Field(min_length=1, max_length=256)]
Items = Annotated[list[int | Name], Field(max_length=10_000)]


class SlateRequest(BaseModel):
    """A request for a slate."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    user: Name
    k: Annotated[int, Field(ge=1, le=500)] = 10
    diversity: Annotated[float, Field(ge=0, le=1)] | None = None
    candidates: Items | None = None
    exclude: Items | None = None


class FeedbackEvent(BaseModel):
    """Clicks on a slate."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    slate_id: Name
    clicked: Items = []
    event_id: Name | None = None
    final: bool = True


async def slates(request: Request) -> Response:
    """Validate a request for a slate."""
    SlateRequest.model_validate_json(await request.body())
    return JSONResponse({"slate_id": "0123456789abcdefghijkl", "items": [{"id": 0}]}, 201)


async def feedback(request: Request) -> Response:
    """Validate a feedback event."""
    FeedbackEvent.model_validate_json(await request.body())
    return JSONResponse({"duplicate": False})


async def health(_request: Request) -> Response:
    """Say that the server is up."""
    return JSONResponse({})


app = Starlette(
    routes=[
        Route("/v1/slates", slates, methods=["POST"]),
        Route("/v1/feedback", feedback, methods=["POST"]),
        Route("/health/ready", health),
        Route("/health/live", health),
    ]
)

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), ws="none", access_log=False, log_level="warning", server_header=False)
