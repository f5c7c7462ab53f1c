"""A log of interactions as arrays: for each person the steps in the order of learning, for each step what was seen.

A step is a slate, with the items that count as seen, or an event from elsewhere, with its one item.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from slatewise.catalog import Catalog
from slatewise.evidence import Evidence

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
ItemId = int | str


@dataclass(frozen=True, eq=False)
class InteractionLog:
    """What people saw and how they reacted.

    people (n_people + 1,) says where the steps of each person begin, starts (n_steps + 1,) where the observations of
    each step begin. A step has a time `at` and is a slate or an event from elsewhere; an observation has the number of
    an item in `item_ids`, and value, weight and examined as `slatewise.evidence.Evidence` has them.
    """

    item_ids: tuple[ItemId, ...]
    people: Integers
    starts: Integers
    at: Floats
    is_slate: Booleans
    items: Integers
    value: Floats
    weight: Floats
    examined: Floats

    @property
    def n_people(self) -> int:
        """Number of people."""
        return len(self.people) - 1

    @property
    def n_slates(self) -> int:
        """Number of slates that teach anything."""
        return int(self.is_slate.sum())

    @property
    def step_of(self) -> Integers:
        """The step of each observation (n_observations,)."""
        return np.repeat(np.arange(len(self.at)), np.diff(self.starts))

    @property
    def person_of(self) -> Integers:
        """The person of each observation (n_observations,)."""
        return np.repeat(np.arange(self.n_people), np.diff(self.people))[self.step_of]

    def numbered(self, catalog: Catalog) -> Integers:
        """Return the items of the observations by their numbers in a catalog, −1 where it has none."""
        as_stored: Callable[[ItemId], object] = _uuid if catalog.item_ids.kind == "uuid" else lambda item: item
        known = [catalog.item_ids.find(as_stored(item)) for item in self.item_ids]
        table = np.array([-1 if number is None else number for number in known], dtype=np.int64)
        return table[self.items] if len(table) else self.items

    def before(self, time: float) -> InteractionLog:
        """Return the part of the log before a time; nobody is left out."""
        kept = self.at < time
        observed = np.repeat(kept, np.diff(self.starts))
        owners = np.repeat(np.arange(self.n_people), np.diff(self.people))[kept]
        sizes = np.diff(self.starts)[kept]
        return replace(
            self,
            people=np.searchsorted(owners, np.arange(self.n_people + 1)),
            starts=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            at=self.at[kept],
            is_slate=self.is_slate[kept],
            **{name: getattr(self, name)[observed] for name in ("items", "value", "weight", "examined")},
        )

    def time_of_last(self, share: float, most: int) -> float:
        """Return the time from which on the last slates were shown: a share of all, at most so many."""
        times = np.sort(self.at[self.is_slate])
        wanted = min(round(share * len(times)), most)
        return float(times[-wanted]) if wanted else float("inf")


@dataclass
class LogBuilder:
    """Collects a log, person by person and step by step, in arrays."""

    numbers: dict[ItemId, int] = field(default_factory=dict)
    people: list[int] = field(default_factory=lambda: [0])
    steps: list[tuple[float, bool, int]] = field(default_factory=list)
    parts: list[Floats] = field(default_factory=list)
    finished: list[tuple[Floats, Floats]] = field(default_factory=list)
    n_steps: int = 0

    def number(self, items: Iterable[ItemId]) -> Integers:
        """Return the numbers of items, new ones for those that are new."""
        return np.array([self.numbers.setdefault(item, len(self.numbers)) for item in items], dtype=np.int64)

    def add_slate(self, at: float, evidence: Evidence, row: int = 0) -> None:
        """Add what one row of evidence says; items are numbered by this log, −1 where there is nothing."""
        columns = (evidence.items[row], evidence.value[row], evidence.weight[row], evidence.examined[row])
        observed = np.array(columns, dtype=np.float64)[:, evidence.items[row] >= 0]
        self._add(at, True, observed)

    def add_event(self, at: float, item: ItemId, value: float, weight: float) -> None:
        """Add something that the person did elsewhere."""
        self._add(at, False, np.array([[float(self.number([item])[0])], [value], [weight], [1.0]]))

    def add_person(self, log: InteractionLog, person: int, numbers: Integers) -> None:
        """Add a person of another log, whose items have these numbers in this one."""
        steps = slice(log.people[person], log.people[person + 1])
        seen = slice(log.starts[steps.start], log.starts[steps.stop])
        sizes = np.diff(log.starts[steps.start : steps.stop + 1])
        columns = (numbers[log.items[seen]], log.value[seen], log.weight[seen], log.examined[seen])
        self._finish(np.column_stack([log.at[steps], log.is_slate[steps], sizes]), np.array(columns, dtype=np.float64))

    def end_person(self) -> None:
        """What comes next belongs to somebody else; a person without any step is left out."""
        if self.steps:
            self._finish(np.array(self.steps, dtype=np.float64), np.concatenate(self.parts, axis=1))
            self.steps, self.parts = [], []

    @property
    def n_people(self) -> int:
        """Number of people so far."""
        return len(self.finished)

    def log(self) -> InteractionLog:
        """Return the log of all people so far."""
        steps = _joined([steps.T for steps, _ in self.finished], 3)
        items, value, weight, examined = _joined([part for _, part in self.finished], 4)
        starts = np.concatenate([[0.0], np.cumsum(steps[2])]).astype(np.int64)
        people = np.array(self.people, dtype=np.int64)
        ids = tuple(self.numbers)
        counts = items.astype(np.int64)
        return InteractionLog(ids, people, starts, steps[0], steps[1] > 0.0, counts, value, weight, examined)

    def _finish(self, steps: Floats, observed: Floats) -> None:
        self.finished.append((steps, observed))
        self.n_steps += len(steps)
        self.people.append(self.n_steps)

    def _add(self, at: float, is_slate: bool, observed: Floats) -> None:
        if observed.shape[1]:
            self.steps.append((at, is_slate, observed.shape[1]))
            self.parts.append(observed)


def _uuid(item: ItemId) -> object:
    """Return an id as a catalog of UUIDs has it; a store keeps these as text."""
    try:
        return uuid.UUID(str(item))
    except ValueError:
        return item


def _joined(parts: Sequence[Floats], n_rows: int) -> Floats:
    return np.concatenate(parts, axis=1) if parts else np.empty((n_rows, 0))
