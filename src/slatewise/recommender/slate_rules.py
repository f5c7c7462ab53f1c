"""The rules of a shop for a slate: filter, boost, pin, at_most, at_least, min_probability, exclude_owned.

They are part of a request or of a named scenario in the settings. These are only their words; `item_attributes` knows
which items meet a condition, and `constrained` chooses by them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import numpy as np

from slatewise.recommender.types import RequestError, RuleError
from slatewise.store.records import ItemId

MAX_RULES = 20
"""Of each kind, in one request."""
MAX_PLACES = 500
LARGEST_FACTOR = 1000.0
CATEGORY = "category"
"""What `at_most` calls the categories of items."""


@dataclass(frozen=True)
class Boost:
    """Items that meet a condition count as if their probability were higher (or lower) by a factor."""

    where: str
    factor: float

    def __post_init__(self) -> None:
        if not 0.0 < self.factor <= LARGEST_FACTOR:
            raise RequestError(f"the factor of a boost must be above 0 and at most {LARGEST_FACTOR:g}")


@dataclass(frozen=True)
class Pin:
    """An item at a place of the slate, counted from 1."""

    item: ItemId
    place: int

    def __post_init__(self) -> None:
        _check_number("the place of a pin", self.place)
        if not isinstance(self.item, int | str):
            object.__setattr__(self, "item", int(self.item) if isinstance(self.item, np.integer) else str(self.item))


@dataclass(frozen=True)
class AtMost:
    """At most n items with the same value of an attribute, or of one category."""

    n: int
    per: str

    def __post_init__(self) -> None:
        _check_number("n of at_most", self.n)


@dataclass(frozen=True)
class AtLeast:
    """At least n items that meet a condition."""

    n: int
    where: str

    def __post_init__(self) -> None:
        _check_number("n of at_least", self.n)


@dataclass(frozen=True)
class SlateRules:
    """What a slate must be like; see docs/serving.md, "Rules". Of several filters, all must be met.

    Examples
    --------
    >>> from slatewise.recommender import AtMost, SlateRules
    >>> SlateRules(filter="price < 20", at_most=(AtMost(2, "brand"),)).described()
    {'filter': 'price < 20', 'at_most': [{'n': 2, 'per': 'brand'}]}
    """

    filter: str | tuple[str, ...] = ()
    boost: tuple[Boost, ...] = ()
    pin: tuple[Pin, ...] = ()
    at_most: tuple[AtMost, ...] = ()
    at_least: tuple[AtLeast, ...] = ()
    min_probability: float | None = None
    exclude_owned: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.filter, str):
            object.__setattr__(self, "filter", (self.filter,))
        if any(len(getattr(self, name)) > MAX_RULES for name in KINDS):
            raise RequestError(f"a slate can have {MAX_RULES} rules of each kind")
        if self.min_probability is not None and not 0.0 <= self.min_probability <= 1.0:
            raise RequestError("min_probability must be between 0 and 1")
        _check_pins(self.pin)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return rules from plain data, as in JSON or TOML; what is not a rule is an error."""
        unknown = set(given) - {field.name for field in fields(cls)}
        if unknown:
            raise RequestError(f"there is no rule {min(unknown)!r}; choose of {', '.join(f.name for f in fields(cls))}")
        try:
            lists = {name: tuple(kind(**dict(rule)) for rule in given.get(name, ())) for name, kind in KINDS.items()}
        except TypeError as error:
            raise RequestError(f"a rule has other fields than it should have: {error}") from error
        filters = given.get("filter", ())
        return cls(**{**given, **lists, "filter": filters if isinstance(filters, str) else tuple(filters)})

    def described(self) -> dict[str, Any]:
        """Return the rules ready for JSON, without those that are not used."""
        plain = {name: [*value] if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        plain["filter"] = self.filter[0] if len(self.filter) == 1 else [*self.filter]
        return {name: value for name, value in plain.items() if value not in (None, [], False)}

    @property
    def filters(self) -> tuple[str, ...]:
        """The filters, however many there are."""
        return (self.filter,) if isinstance(self.filter, str) else self.filter

    def and_also(self, other: "SlateRules") -> "SlateRules":
        """Return these and others together; of two lowest probabilities, the higher one counts."""
        _check_pins(other.pin, self.pin)
        lowest = [limit for limit in (self.min_probability, other.min_probability) if limit is not None]
        return SlateRules(
            filter=self.filters + other.filters,
            min_probability=max(lowest, default=None),
            exclude_owned=self.exclude_owned or other.exclude_owned,
            **{name: getattr(self, name) + getattr(other, name) for name in KINDS},
        )


KINDS: dict[str, Any] = {"boost": Boost, "pin": Pin, "at_most": AtMost, "at_least": AtLeast}


def as_rules(given: SlateRules | Mapping[str, Any]) -> SlateRules:
    """Return rules, whichever way they were given."""
    return given if isinstance(given, SlateRules) else SlateRules.of(given)


def _check_pins(pins: Sequence[Pin], others: Sequence[Pin] | None = None) -> None:
    """Refuse a pin of an item or a place that a pin before it has, or one of the others if there are any."""
    for number, pin in enumerate(pins):
        for name in ("item", "place"):
            if getattr(pin, name) in {getattr(other, name) for other in (pins[:number] if others is None else others)}:
                how = "twice" if others is None else "by the scenario already"
                advice = "pin each item once, and one item at each place"
                raise RuleError(f"pin/{number}/{name}", f"this {name} is pinned {how}; {advice}")


def _check_number(what: str, number: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MAX_PLACES:
        raise RequestError(f"{what} must be a whole number from 1 to {MAX_PLACES}")


NO_RULES = SlateRules()
