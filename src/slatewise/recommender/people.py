"""What is known of a person while they are served: folded from the log, and kept at hand for the next request.

The belief is the fold of the policy's update over the person's closed slates in the order they were shown, each with
what was clicked in it by now. So it does not depend on when or in which order answers came, and it is learnt only when
somebody wants to know: a closed slate waits until the next one is chosen, and the store gets the belief now and then.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from slatewise.frozen import changed
from slatewise.policies import State
from slatewise.recommender import states
from slatewise.recommender.spaces import Space, Spaces
from slatewise.store.protocol import (
    CLOSED,
    OPEN,
    WITHDRAWN,
    AnswerRow,
    BeliefRow,
    ItemId,
    SlateRow,
    Transaction,
    UserRow,
)

Integers = NDArray[np.int64]
Clicks = dict[ItemId, int]

LIKED_KEPT = 50
SAVED_EVERY = 8
"""Slates after which a belief is written again; so many at most are learnt anew for a person not at hand."""
NOTHING: Integers = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Showing:
    """A slate, the numbers of its items today, and how often each was clicked, less how often that was taken back."""

    slate: SlateRow
    numbers: Integers
    clicks: Clicks = field(default_factory=dict)

    @property
    def clicked(self) -> frozenset[ItemId]:
        """The items that count as clicked."""
        return frozenset(item for item, times in self.clicks.items() if times > 0)

    def clicks_by_place(self) -> NDArray[np.bool_]:
        """Say for each item of the slate whether it counts as clicked."""
        clicked = self.clicked
        return np.array([item in clicked for item in self.slate.items], dtype=np.bool_)

    def answered(self, answer: AnswerRow) -> "Showing":
        """Return the same slate after one more answer."""
        return Showing(self.slate, self.numbers, _tally(self.clicks, answer))

    def closed(self, at: float) -> "Showing":
        """Return the same slate, counted."""
        return Showing(self.slate.closed(at), self.numbers, self.clicks)


@dataclass(frozen=True, eq=False)
class Person:
    """A user in a space: everything shown (item numbers, oldest first), recent likes, and what was learnt.

    The state knows the counted slates before those `since`, which are open or not learnt yet; the belief in the store
    covers the slates before number `saved`.
    """

    stamp: str
    space: Space
    state: State
    n_slates: int
    shown: Integers
    liked: tuple[int, ...]
    since: tuple[Showing, ...]
    saved: int = 0

    @property
    def covers(self) -> int:
        """The number before which the state knows all slates."""
        return self.since[0].slate.number if self.since else self.n_slates

    @property
    def open(self) -> tuple[Showing, ...]:
        """The slates that wait for answers."""
        return tuple(one for one in self.since if one.slate.status == OPEN)

    def showing(self, slate_id: str) -> Showing | None:
        """Return one of the latest slates."""
        return next((one for one in self.since if one.slate.slate_id == slate_id), None)

    def with_showings(self, new: Iterable[Showing]) -> "Person":
        """Return the same person with some of the latest slates changed."""
        by_id = {one.slate.slate_id: one for one in new}
        return changed(self, since=tuple(by_id.get(one.slate.slate_id, one) for one in self.since)) if by_id else self

    def belief(self, user: str) -> BeliefRow:
        """Return what the store keeps of the state."""
        return BeliefRow(user, self.space.key, self.covers, states.to_bytes(self.state))


def newcomer(space: Space) -> Person:
    """Return somebody never seen."""
    return Person("", space, space.start, 0, NOTHING, (), ())


def load(transaction: Transaction, row: UserRow, spaces: Spaces, space: Space, *, refold: bool = False) -> Person:
    """Read a person from the log; the cached belief is used if it belongs to this space, else learnt anew."""
    history = showings(spaces, transaction.slates_of(row.user), transaction.answers_of(row.user))
    shown = [one for one in history if one.slate.status != WITHDRAWN]
    cached = None if refold else decoded(transaction.belief(row.user), space)
    covers, state = (0, space.start) if cached is None else cached
    person = Person(
        stamp=row.stamp,
        space=space,
        state=state,
        n_slates=max((one.slate.number + 1 for one in history), default=0),
        shown=latest_last(np.concatenate([NOTHING, *(one.numbers for one in shown)])),
        liked=likes(history),
        since=tuple(one for one in shown if one.slate.number >= covers),
        saved=covers,
    )
    return caught_up(person)


def decoded(belief: BeliefRow, space: Space) -> tuple[int, State] | None:
    """Return before which number a cached belief knows all slates, and the state; None if it is of no use here."""
    if belief.content is None or belief.space != space.key:
        return None
    try:
        found = states.from_bytes(belief.content)
        return belief.covers, {name: found[name] for name in space.start}
    except (ValueError, KeyError):
        return None


def caught_up(person: Person) -> Person:
    """Learn from the closed slates that wait for it."""
    counted = list(takewhile(lambda one: one.slate.status == CLOSED, person.since))
    if not counted:
        return person
    state = fold(person.space, counted, person.state)
    return changed(person, state=state, since=person.since[len(counted) :])


def showings(spaces: Spaces, slates: Iterable[SlateRow], answers: Iterable[AnswerRow]) -> list[Showing]:
    """Join slates, by number, with what was clicked in each."""
    clicks: dict[str, Clicks] = {}
    for answer in answers:
        clicks[answer.slate_id] = _tally(clicks.get(answer.slate_id, {}), answer)
    return [Showing(one, spaces.numbers(one.items), clicks.get(one.slate_id, {})) for one in slates]


def fold(space: Space, counted: Iterable[Showing], state: State | None = None) -> State:
    """Learn from slates in the order they were shown, from a state on, or from the start."""
    state = space.start if state is None else state
    for showing in counted:
        state = learn(space, state, showing)
    return state


def learn(space: Space, state: State, showing: Showing) -> State:
    """Learn from one slate."""
    return space.learn(state, showing.numbers, showing.clicks_by_place())


def revise(space: Space, state: State, before: Showing, after: Showing) -> State:
    """Exchange what one counted slate taught; exact for policies whose evidence adds up."""
    old, new = (learn(space, space.start, one) for one in (before, after))
    return {name: array + (new[name] - old[name]) for name, array in state.items()}


def latest_last(numbers: Integers) -> Integers:
    """Keep each item once, at its latest place; items that the catalogue no longer has are left out."""
    kept = numbers[numbers >= 0]
    _, places = np.unique(kept[::-1], return_index=True)
    return kept[::-1][np.sort(places)][::-1]


def with_latest(shown: Integers, numbers: Integers) -> Integers:
    """Put items at the end of what was shown, each once."""
    if set(numbers.tolist()).isdisjoint(shown.tolist()):
        return np.concatenate([shown, numbers])
    return latest_last(np.concatenate([shown, numbers]))


def likes(history: Iterable[Showing]) -> tuple[int, ...]:
    """Return the numbers of the latest likes."""
    liked = [one.numbers[[item in one.clicked for item in one.slate.items]] for one in history if one.clicked]
    return tuple(latest_last(np.concatenate([NOTHING, *liked]))[-LIKED_KEPT:].tolist())


def _tally(clicks: Clicks, answer: AnswerRow) -> Clicks:
    more = dict(clicks)
    for items, step in ((answer.clicked, 1), (answer.retracted, -1)):
        for item in items:
            more[item] = more.get(item, 0) + step
    return more


class PeopleAtHand:
    """The people served most recently, and whose their latest slates are; whoever is not among them is read anew."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.people: OrderedDict[str, Person] = OrderedDict()
        self.owners: dict[str, str] = {}
        self.turn = threading.Lock()
        self.rebuilt = 0

    def latest(self, user: str) -> Person | None:
        """Return a person as last known, whether or not that is still so."""
        return self.people.get(user)

    def get(self, row: UserRow) -> Person | None:
        """Return a person if nothing was written about them since."""
        with self.turn:
            person = self.people.get(row.user)
            if person is None or not row.stamp or person.stamp != row.stamp:
                return None
            self.people.move_to_end(row.user)
            return person

    def owner(self, slate_id: str) -> str | None:
        """Return whose slate this is, if it is one of the latest."""
        return self.owners.get(slate_id)

    def put(self, user: str, person: Person) -> None:
        """Keep a person; if the write that made them fails, their stamp will not match, and they are read again."""
        with self.turn:
            self._remove(user)
            self.people[user] = person
            self.owners.update((one.slate.slate_id, user) for one in person.since)
            while len(self.people) > self.most:
                self._remove(next(iter(self.people)))

    def clear(self) -> None:
        """Let go of everyone, and with them of the catalogue they were known in."""
        with self.turn:
            self.people.clear()
            self.owners.clear()

    def drop(self, user: str) -> None:
        """Let go of a person."""
        with self.turn:
            self._remove(user)

    def _remove(self, user: str) -> None:
        person = self.people.pop(user, None)
        for one in person.since if person is not None else ():
            self.owners.pop(one.slate.slate_id, None)
