"""What both clients share: address, key, timeouts, and when to try again."""

import os
import random
from dataclasses import dataclass
from typing import Any

import httpx

from slatewise.client.calls import Call, Result
from slatewise.client.errors import ServiceError, UnreachableError
from slatewise.version import __version__

URL_VARIABLE, KEY_VARIABLE = "SLATEWISE_URL", "SLATEWISE_KEY"
DEFAULT_URL = "http://127.0.0.1:8000"
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
LONGEST_ASKED_PAUSE = 60.0


@dataclass(frozen=True)
class Patience:
    """How long to wait: seconds for each attempt, and how many attempts there are."""

    timeout: float = 5.0
    attempts: int = 5

    def __post_init__(self) -> None:
        if not self.timeout > 0 or self.attempts < 1:
            raise ValueError("timeout must be positive, and attempts at least 1")


def http_options(url: str | None, key: str | None, patience: Patience) -> dict[str, Any]:
    """Return the options of the httpx client; address and key come from the environment if they are not given."""
    key = os.environ.get(KEY_VARIABLE) if key is None else key
    headers = {"user-agent": f"slatewise-client/{__version__}", "accept": "application/json"}
    if key:
        headers["authorization"] = f"Bearer {key}"
    base_url = url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
    return {"base_url": base_url, "headers": headers, "timeout": patience.timeout, "follow_redirects": False}


def http_request(call: Call[Any]) -> dict[str, Any]:
    """Return a call as arguments of httpx's `request`."""
    body = {} if call.body is None else {"json": call.body}
    query = {} if call.query is None else {"params": call.query}
    return {"method": call.method, "url": call.path, **body, **query}


def read_response(call: Call[Result], response: httpx.Response, attempt: int) -> Result:
    """Read a response, or raise what it says; one that is not JSON did not come from the service."""
    if call.absent_is_done and attempt > 1 and response.status_code == 404:
        return call.read(None)
    if response.status_code == 204:
        return call.read(None)
    content = _content(response)
    if response.is_success:
        return call.read(content)
    raise ServiceError(response.status_code, content)


def _content(response: httpx.Response) -> Any:
    try:
        content = response.json()
    except ValueError as error:
        if response.is_success:
            raise httpx.RemoteProtocolError("the answer is not JSON") from error
        return {}
    return content if response.is_success or isinstance(content, dict) else {}


def pause_after(error: Exception, attempt: int, response: httpx.Response | None) -> float:
    """Return how long to wait before the next attempt: twice as long each time, at random, as asked if asked."""
    asked = 0.0
    if response is not None and isinstance(error, ServiceError):
        asked = _seconds(response.headers.get("retry-after", ""))
    own = min(FIRST_PAUSE * 2.0 ** (attempt - 1), LONGEST_PAUSE)
    return min(max(asked, own * random.uniform(0.5, 1.0)), LONGEST_ASKED_PAUSE)  # noqa: S311


def _seconds(text: str) -> float:
    return float(text) if text.isdecimal() else 0.0


def is_worth_retrying(error: Exception) -> bool:
    """Whether the same call may succeed later; a URL or a key that cannot be sent never will."""
    if isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        return False
    return isinstance(error, httpx.TransportError) or (isinstance(error, ServiceError) and error.is_passing)


def last_error(error: Exception, attempts: int) -> Exception:
    """Return what the caller gets to see when there are no attempts left, or no point in another."""
    if not isinstance(error, httpx.TransportError):
        return error
    times = "once" if attempts == 1 else f"{attempts} times"
    reason = str(error) or type(error).__name__
    return UnreachableError(
        f"the service did not answer (tried {times}: {reason}); is it running, and is the URL right?"
    )
