"""Attributes of items: text, numbers, booleans, lists of text and times, as they are given and as they are kept."""

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from slatewise.recommender.types import RequestError

TEXT, NUMBER, BOOLEAN, LIST, TIME = "text", "number", "boolean", "list", "time"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
RESERVED = frozenset({"id", "title", "categories", "available", "published_at"})
MAX_ATTRIBUTES = 100
MAX_TEXT = 1_000
MAX_LIST = 100

KINDS: dict[type, str] = {str: TEXT, bool: BOOLEAN, int: NUMBER, float: NUMBER, list: LIST, tuple: LIST, dict: TIME}
"""The kind of an attribute by the type of its value as it is kept."""


def kind_of(value: Any) -> str:
    """Return the kind of a value as it is kept."""
    return KINDS[type(value)]


def checked_attributes(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as they are kept, by name; refuse what cannot be kept. Those that are None are left out."""
    if len(given) > MAX_ATTRIBUTES:
        raise RequestError(f"an item has {len(given)} attributes; {MAX_ATTRIBUTES} are allowed")
    kept = {}
    for name in sorted(given):
        if not isinstance(name, str) or not NAME.fullmatch(name) or name in RESERVED:
            raise RequestError(
                "the name of an attribute has 1 to 64 letters, digits and underscores, does not begin with a digit, "
                f"and is none of {', '.join(sorted(RESERVED))}"
            )
        if given[name] is not None:
            kept[name] = _checked(name, given[name])
    return kept


def seconds(name: str, value: Any) -> float:
    """Return a time in seconds since 1970, given as such, as a datetime or as text such as 2026-01-31T12:00:00Z.

    What has no time zone is UTC.
    """
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise RequestError(f"{name} is no time; write 2026-01-31T12:00:00Z or seconds since 1970") from None
    if isinstance(value, datetime):
        value = (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e11:
        raise RequestError(f"{name} is no time; write 2026-01-31T12:00:00Z or seconds since 1970")
    return float(value)


def check_text(name: str, value: str, longest: int = MAX_TEXT) -> str:
    """Return a text; refuse one that is too long or contains what some store cannot keep."""
    if not isinstance(value, str) or len(value) > longest:
        raise RequestError(f"{name} must be text of at most {longest} characters")
    if "\0" in value or (not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value)):
        raise RequestError(f"{name} must not contain NUL or half of a surrogate pair")
    return value


def _checked(name: str, value: Any) -> Any:
    for kinds, check in CHECKS.items():
        if isinstance(value, kinds):
            return check(name, value)
    raise RequestError(f'attribute {name} must be text, a number, a boolean, a list of texts or {{"time": …}}')


def _number(name: str, value: float) -> float:
    if not math.isfinite(value):
        raise RequestError(f"attribute {name} is not finite; leave it out instead")
    return float(value)


def _list(name: str, value: list[Any]) -> list[str]:
    if len(value) > MAX_LIST:
        raise RequestError(f"attribute {name} has {len(value)} entries; {MAX_LIST} are allowed")
    return [check_text(f"every entry of attribute {name}", entry) for entry in value]


def _time(name: str, value: Mapping[str, Any]) -> dict[str, float]:
    if [*value] != ["time"]:
        raise RequestError(f'attribute {name} is an object; only {{"time": …}} is one')
    return {"time": seconds(f"attribute {name}", value["time"])}


CHECKS: dict[tuple[type, ...], Callable[[str, Any], Any]] = {
    (str,): lambda name, value: check_text(f"attribute {name}", value),
    (bool,): lambda _name, value: value,
    (int, float): _number,
    (list, tuple): _list,
    (datetime,): lambda name, value: {"time": seconds(f"attribute {name}", value)},
    (Mapping,): _time,
}
"""How a value is checked and kept, by its type; the first that fits counts."""
