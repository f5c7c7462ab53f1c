"""What is known of a person while they are served: folded from the log, and kept at hand for the next request.

The belief is the fold of the policy's update over the person's closed slates in the order they were shown, each with
what was clicked in it by now. So it does not depend on when or in which order answers came.
"""

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from slatewise.policies import State
from slatewise.recommender import states
from slatewise.recommender.spaces import Space, Spaces
from slatewise.store.protocol import CLOSED, OPEN, WITHDRAWN, AnswerRow, ItemId, SlateRow, Transaction, UserRow

Integers = NDArray[np.int64]

LIKED_KEPT = 50
NOTHING: Integers = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Showing:
    """A slate, the numbers of its items today, and how often each was clicked, less how often that was taken back."""

    slate: SlateRow
    numbers: Integers
    clicks: Counter[ItemId] = field(default_factory=Counter)

    @property
    def clicked(self) -> frozenset[ItemId]:
        """The items that count as clicked."""
        return frozenset(item for item, times in self.clicks.items() if times > 0)

    def answered(self, answer: AnswerRow) -> "Showing":
        """Return the same slate after one more answer."""
        return replace(self, clicks=_tally(self.clicks, answer))


@dataclass(frozen=True, eq=False)
class Person:
    """State of a user in a space, everything shown (item numbers, oldest first), open slates, and recent likes."""

    stamp: str
    space: Space
    state: State
    n_slates: int
    shown: Integers
    open: tuple[Showing, ...]
    liked: tuple[int, ...]

    def row(self, user: str) -> UserRow:
        """Return what the store keeps of this."""
        return UserRow(user, self.stamp, self.n_slates, self.space.key, states.to_bytes(self.state))


def load(transaction: Transaction, row: UserRow, spaces: Spaces, space: Space, *, refold: bool = False) -> Person:
    """Read a person from the log; the cached belief is used if it belongs to this space, else folded anew."""
    history = showings(spaces, transaction.slates_of(row.user), transaction.answers_of(row.user))
    counted = [one for one in history if one.slate.status == CLOSED]
    cached = None if refold or row.space != space.key else _decoded(row.belief)
    seen = [one.numbers for one in history if one.slate.status != WITHDRAWN]
    return Person(
        stamp=row.stamp,
        space=space,
        state=fold(space, counted) if cached is None else cached,
        n_slates=max((one.slate.number + 1 for one in history), default=0),
        shown=latest_last(np.concatenate([NOTHING, *seen])),
        open=tuple(one for one in history if one.slate.status == OPEN),
        liked=likes(history),
    )


def _decoded(belief: bytes | None) -> State | None:
    try:
        return None if belief is None else states.from_bytes(belief)
    except ValueError:
        return None


def showings(spaces: Spaces, slates: Iterable[SlateRow], answers: Iterable[AnswerRow]) -> list[Showing]:
    """Join slates, by number, with what was clicked in each."""
    clicks: dict[str, Counter[ItemId]] = {}
    for answer in answers:
        clicks[answer.slate_id] = _tally(clicks.get(answer.slate_id, Counter()), answer)
    return [Showing(one, spaces.numbers(one.items), clicks.get(one.slate_id, Counter())) for one in slates]


def fold(space: Space, counted: Iterable[Showing]) -> State:
    """Learn everything from the start."""
    state = space.policy.start(1)
    for showing in counted:
        state = learn(space, state, showing)
    return state


def learn(space: Space, state: State, showing: Showing) -> State:
    """Learn from one slate."""
    clicked = showing.clicked
    clicks = np.array([item in clicked for item in showing.slate.items], dtype=np.bool_)
    return space.learn(state, showing.numbers, clicks)


def revise(space: Space, state: State, before: Showing, after: Showing) -> State:
    """Exchange what one counted slate taught; exact for policies whose evidence adds up."""
    start = space.policy.start(1)
    old, new = (learn(space, start, one) for one in (before, after))
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


def _tally(clicks: Counter[ItemId], answer: AnswerRow) -> Counter[ItemId]:
    more = Counter(clicks)
    more.update(answer.clicked)
    more.subtract(answer.retracted)
    return more


class PeopleAtHand:
    """The people served most recently; whoever is not among them is read from the log."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.people: OrderedDict[str, Person] = OrderedDict()
        self.turn = threading.Lock()
        self.rebuilt = 0

    def get(self, row: UserRow, space: Space) -> Person | None:
        """Return a person if nothing was written about them since."""
        with self.turn:
            person = self.people.get(row.user)
            if person is None or not row.stamp or person.stamp != row.stamp or person.space is not space:
                return None
            self.people.move_to_end(row.user)
            return person

    def put(self, user: str, person: Person) -> None:
        """Keep a person; if the write that made them fails, their stamp will not match, and they are read again."""
        with self.turn:
            self.people[user] = person
            self.people.move_to_end(user)
            while len(self.people) > self.most:
                self.people.popitem(last=False)

    def clear(self) -> None:
        """Let go of everyone, and with them of the catalogue they were known in."""
        with self.turn:
            self.people.clear()

    def drop(self, user: str) -> None:
        """Let go of a person."""
        with self.turn:
            self.people.pop(user, None)
