"""Kinds of events from anywhere: what each of them says about a person's taste, and whether the item is offered again.

Most are about an item. Two are about a category (`slatewise.recommender.wishes`): `more` of it, taken as 1, and `less`,
taken as 0, with weight 1. One is about an earlier event of the same user: `retract` takes it back, as if it had never
been sent.

| kind | value sent | taken as | weight | offered again |
|---|---|---|---|---|
| like | – | 1 | 1 | when nothing else is left |
| purchase | – | 1 | 1 | when nothing else is left |
| add-to-cart | – | 1 | 0.5 | yes |
| rating | −1 to 1 | (1 + value) / 2 | 1 | when nothing else is left |
| view | portion, 0 to 1 | 1 | 0.5 × value | yes |
| dislike | – | 0 | 1 | when nothing else is left |
| hide | – | 0 | 1 | never |
| owned | – | 1 | 1 | never |
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from slatewise.store.records import EventRecord

ITEM, CATEGORY, EVENT = "item", "category", "event"
"""What an event can be about."""
RETRACT = "retract"
LIKED = 0.5
"""What is valued higher is liked."""


@dataclass(frozen=True)
class EventKind:
    """What an event of a kind means.

    value: how much the item is liked, 0 to 1, None if the event says so itself; weight: how much that counts, times
    the event's value if `is_weighted`; lowest and highest: what the event's own value may be, None if it has none.
    For `repeat_after` seconds after the event the item is not offered: 0 not at all, infinite for good. `is_final`
    means not even when nothing else is left. `about` is what the event names.
    """

    value: float | None = 1.0
    weight: float = 1.0
    lowest: float | None = None
    highest: float | None = None
    is_weighted: bool = False
    repeat_after: float = math.inf
    is_final: bool = False
    about: str = ITEM

    def __post_init__(self) -> None:
        if self.value is not None and not 0.0 <= self.value <= 1.0:
            raise ValueError(f"the value of a kind of event is {self.value}; give a number from 0 to 1")
        if not 0.0 <= self.weight < math.inf:
            raise ValueError(f"the weight of a kind of event is {self.weight}; give 0 or a positive number")
        if not self.repeat_after >= 0.0:
            raise ValueError(f"repeat_after of a kind of event is {self.repeat_after}; give 0 or more seconds")

    @property
    def is_report(self) -> bool:
        """Whether events of this kind only ever say that something is liked: which items, and not how many."""
        return self.value is not None and self.value > LIKED

    def accepts(self, value: float | None) -> bool:
        """Return whether an event of this kind may have this value."""
        if self.lowest is None or self.highest is None:
            return value is None
        return value is not None and self.lowest <= value <= self.highest

    def meaning(self, value: float | None) -> tuple[float, float]:
        """Return how much the item of an event is liked, 0 to 1, and how much that counts."""
        given = 1.0 if value is None else value
        liked = (1.0 + given) / 2.0 if self.value is None else self.value
        return liked, self.weight * given if self.is_weighted else self.weight


EVENT_KINDS: Mapping[str, EventKind] = MappingProxyType(
    {
        "like": EventKind(),
        "purchase": EventKind(),
        "add-to-cart": EventKind(weight=0.5, repeat_after=0.0),
        "rating": EventKind(value=None, lowest=-1.0, highest=1.0),
        "view": EventKind(weight=0.5, lowest=0.0, highest=1.0, is_weighted=True, repeat_after=0.0),
        "dislike": EventKind(value=0.0),
        "hide": EventKind(value=0.0, is_final=True),
        "owned": EventKind(is_final=True),
        "more": EventKind(repeat_after=0.0, about=CATEGORY),
        "less": EventKind(value=0.0, repeat_after=0.0, about=CATEGORY),
        RETRACT: EventKind(weight=0.0, repeat_after=0.0, about=EVENT),
    }
)
"""The kinds that events can have."""
ITEM_KINDS = tuple(name for name, kind in EVENT_KINDS.items() if kind.about == ITEM)


def standing(events: Iterable[EventRecord]) -> list[EventRecord]:
    """Return the events of a user that were not taken back, without those that take back; nothing else may be read."""
    every = list(events)
    retracted = {event.item for event in every if event.kind == RETRACT}
    return [event for event in every if event.kind != RETRACT and event.event_id not in retracted]


def event_kinds(changes: Mapping[str, Mapping[str, float]]) -> dict[str, EventKind]:
    """Return the table of kinds with other values, weights or times; only these three can be changed."""
    kinds = dict(EVENT_KINDS)
    for name, changed in changes.items():
        if name not in kinds:
            raise ValueError(f"there is no kind of event {name!r}; choose one of {', '.join(EVENT_KINDS)}")
        wrong = [field for field in changed if field not in ("value", "weight", "repeat_after")]
        if wrong or (kinds[name].value is None and "value" in changed):
            raise ValueError(f"{wrong[0] if wrong else 'value'!r} of the kind {name!r} cannot be set")
        kinds[name] = replace(kinds[name], **changed)  # type: ignore[arg-type]
    return kinds
