"""What clients asked for and what they were told, and the check of a service against it."""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Event:
    """A feedback as it was sent."""

    event_id: str
    user: str
    slate_id: str
    clicked: tuple[int, ...]
    final: bool

    @property
    def body(self) -> dict[str, Any]:
        """The body of the request."""
        return {
            "event_id": self.event_id,
            "slate_id": self.slate_id,
            "clicked": list(self.clicked),
            "final": self.final,
        }


@dataclass
class Notes:
    """The memory of all clients: acknowledged slates, slates asked for, events sent, acknowledged events."""

    slates: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    sent: dict[str, Event] = field(default_factory=dict)
    acknowledged: set[str] = field(default_factory=set)
    turn: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, user: str) -> None:
        """Remember that a slate was asked for."""
        with self.turn:
            self.asked[user] += 1

    def take(self, slate: Mapping[str, Any]) -> tuple[int, ...]:
        """Remember a slate that was acknowledged."""
        items = tuple(item["id"] for item in slate["items"])
        with self.turn:
            self.slates[slate["slate_id"]] = (slate["user"], items)
        return items

    def send(self, event: Event) -> None:
        """Remember an event before it is sent."""
        with self.turn:
            self.sent[event.event_id] = event

    def acknowledge(self, event: Event) -> None:
        """Remember that an event was acknowledged."""
        with self.turn:
            self.acknowledged.add(event.event_id)

    @property
    def users(self) -> list[str]:
        """Everyone who asked for a slate."""
        return sorted(self.asked)


def complaints(notes: Notes, exports: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return what was lost, made up, changed or recorded twice, in the exports of all users of the notes."""
    slates = [slate for export in exports.values() for slate in export["slates"]]
    answers = [answer for export in exports.values() for answer in export["feedback"]]
    found = _about_slates(notes, {slate["slate_id"]: tuple(slate["items"]) for slate in slates})
    found += [f"{user} has two slates of one number" for user, export in exports.items() if _repeats(export)]
    found += [
        f"{user} has more slates than were asked for"
        for user, export in exports.items()
        if len(export["slates"]) > notes.asked[user]
    ]
    return found + _about_events(notes, answers)


def clicks_of(exports: Mapping[str, Mapping[str, Any]]) -> int:
    """Return how many clicks of closed slates there are: an item counts once however many events click it."""
    closed = {slate["slate_id"] for one in exports.values() for slate in one["slates"] if slate["status"] == "closed"}
    clicked = {
        (answer["slate_id"], item)
        for one in exports.values()
        for answer in one["feedback"]
        for item in answer["clicked"]
    }
    return sum(slate_id in closed for slate_id, _ in clicked)


def _repeats(export: Mapping[str, Any]) -> bool:
    numbers = [slate["number"] for slate in export["slates"]]
    return len(set(numbers)) < len(numbers)


def _about_slates(notes: Notes, kept: Mapping[str, tuple[int, ...]]) -> list[str]:
    lost = [slate_id for slate_id in notes.slates if slate_id not in kept]
    changed = [slate_id for slate_id, (_, items) in notes.slates.items() if kept.get(slate_id, items) != items]
    return [f"acknowledged slate {one} is lost" for one in lost] + [f"slate {one} has changed" for one in changed]


def _about_events(notes: Notes, answers: list[Mapping[str, Any]]) -> list[str]:
    times = Counter(answer["event_id"] for answer in answers)
    found = [f"acknowledged event {one} is lost" for one in notes.acknowledged - times.keys()]
    found += [f"event {one} is there {number} times" for one, number in times.items() if number > 1]
    for answer in answers:
        event = notes.sent.get(answer["event_id"])
        if event is None:
            found.append(f"event {answer['event_id']} was never sent")
        elif (event.slate_id, list(event.clicked), event.final) != tuple(
            answer[name] for name in ("slate_id", "clicked", "final")
        ):
            found.append(f"event {event.event_id} has changed")
    return found
