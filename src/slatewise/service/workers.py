"""Several processes behind one port; they share the store, their counters, and the news of a reloaded catalogue."""

import json
import os
import secrets
import shutil
import tempfile

import uvicorn

from slatewise.service.metrics import SHARED_DIRECTORY
from slatewise.service.observing import Observing
from slatewise.service.server import make_app, make_recommender, uvicorn_options
from slatewise.service.settings import Settings

HANDED_DOWN = "SLATEWISE_WORKER_SETTINGS"


def serve_together(settings: Settings) -> None:
    """Start the workers and keep them running until told to stop."""
    shared = tempfile.mkdtemp(prefix="slatewise-")
    os.environ[SHARED_DIRECTORY] = shared
    os.environ[HANDED_DOWN] = handed_down(settings)
    try:
        uvicorn.run(
            "slatewise.service.workers:worker_app",
            factory=True,
            host=settings.host,
            port=settings.port,
            workers=settings.workers,
            **uvicorn_options(settings),
        )
    finally:
        shutil.rmtree(shared, ignore_errors=True)


def handed_down(settings: Settings) -> str:
    """Write settings with their secrets; all workers hash users with the same key."""
    salt = settings.log_salt.get_secret_value() if settings.log_salt else secrets.token_hex(32)
    revealed = {"store": settings.store.get_secret_value(), "log_salt": salt}
    return json.dumps({**settings.model_dump(mode="json"), **revealed})


def worker_app() -> Observing:
    """Make the application of one worker from the settings handed down to it."""
    settings = Settings(**json.loads(os.environ.pop(HANDED_DOWN)))
    return make_app(settings, make_recommender(settings))
