"""Bodies of requests: counted while they stream in, timed, parsed strictly, and only then validated."""

import asyncio
import json
from typing import Any, NoReturn, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from starlette.types import Receive, Scope

from slatewise.service.problems import MALFORMED, MEDIA_TYPE, TIMEOUT, TOO_LARGE, ProblemError, invalid

Model = TypeVar("Model")

MOST_DRAINED = 16 << 20
CLOSE = {"connection": "close"}
JSON = b"application/json"


class NotJsonError(ValueError):
    """Text that is not JSON in the strict sense."""


def require_json(scope: Scope) -> None:
    """Refuse bodies that a form of a foreign page could send."""
    given = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
    if given != JSON and given.partition(b";")[0].strip().lower() != JSON:
        raise ProblemError(MEDIA_TYPE, "Send the header Content-Type: application/json.")


async def read_body(receive: Receive, largest: int, seconds: float) -> bytes:
    """Return the body; one that is too large is read on, up to a bound, so that its sender hears the answer.

    The alarm is asyncio.timeout at a quarter of its price, which every request pays.
    """
    task, is_late = cast(asyncio.Task[object], asyncio.current_task()), False

    def ring() -> None:
        nonlocal is_late
        is_late = True
        task.cancel()

    alarm = asyncio.get_running_loop().call_later(seconds, ring)
    try:
        return await _received(receive, largest)
    except asyncio.CancelledError:
        if not is_late:
            raise
        task.uncancel()
        raise ProblemError(TIMEOUT, "The body did not arrive in time.", CLOSE) from None
    finally:
        alarm.cancel()


async def _received(receive: Receive, largest: int) -> bytes:
    parts: list[bytes] = []
    size, more = 0, True
    while more and size <= MOST_DRAINED:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ProblemError(MALFORMED, "The body ended too early.", CLOSE)
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
        if size <= largest:
            parts.append(message.get("body", b""))
    if size > largest:
        raise ProblemError(TOO_LARGE, f"A body may have {largest} bytes.", CLOSE)
    return b"".join(parts)


def parse(body: bytes) -> Any:
    """Parse JSON: UTF-8 only, no NaN or Infinity, no name twice in an object."""
    try:
        return DECODER.decode(body.decode())
    except RecursionError:
        raise ProblemError(MALFORMED, "The body is nested too deeply.") from None
    except NotJsonError as error:
        raise ProblemError(MALFORMED, str(error)) from None
    except ValueError:
        raise ProblemError(MALFORMED, "The body is not JSON in UTF-8.") from None


def validate(adapter: TypeAdapter[Model], given: Any) -> Model:
    """Check parsed JSON against a model."""
    try:
        return adapter.validate_python(given)
    except ValidationError as error:
        raise invalid(error.errors(include_url=False, include_context=False, include_input=False)) from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NotJsonError("An object of the body has the same name twice.")
    return found


def _refuse(_: str) -> NoReturn:
    raise NotJsonError("NaN and Infinity are not JSON.")


DECODER = json.JSONDecoder(object_pairs_hook=_without_repeats, parse_constant=_refuse)
