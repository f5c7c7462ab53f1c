"""What policies knew at the time of logged slates, learned for many users in step.

A user's log is told as lessons: what there is to learn from one slate that is judged to the next. Round by round, each
user of a batch takes the next one, so that a policy updates the beliefs of all of them at once. What is not offered
again is kept in the same way, in tables with a row for each user. `replay.profile_before` says the same of one slate.
"""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from slatewise.compiled import compiled
from slatewise.evidence import Evidence
from slatewise.policies import State
from slatewise.recommender.event_kinds import RETRACT, standing
from slatewise.recommender.learning import (
    Learned,
    LoggedEvent,
    LoggedSlate,
    Shown,
    Tally,
    fading,
    hidden_by,
    reactions_to,
    with_events,
)
from slatewise.recommender.loading import LogTail, with_numbers
from slatewise.recommender.recommend import situation
from slatewise.recommender.replay import logged_request, status_at
from slatewise.recommender.served_catalog import Integers, ServedCatalog, ServedPolicy
from slatewise.recommender.types import RequestError
from slatewise.store.records import WITHDRAWN, Choice, FeedbackRecord, SlateRecord

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]

RESTRICTING = {"candidates", "exclude", "categories", "rules"}
"""What in a request says which items may be shown."""


@dataclass(frozen=True, eq=False)
class Lesson:
    """What there is to learn about a user before a slate that is judged, since the one judged before.

    is_again: something came late, so that all is learned again; parts: slates and runs of events, in the order of the
    log; waiting: events since the last slate, learned for this slate only, as others may come to stand before them.
    """

    is_again: bool
    parts: Sequence[LoggedSlate | Sequence[LoggedEvent]]
    waiting: Sequence[LoggedEvent] = ()


class UserHistory:
    """The log of a user, told as lessons; ask about slates in their order."""

    def __init__(self, served: ServedCatalog, log: LogTail) -> None:
        self.log = log
        self.slates = {slate.record.slate_id: slate for slate in log.logged_slates(served)}
        """The slates that were shown, with everything that was said about them until today, by id."""
        self._numbers = {slate.slate_id: slate.number for slate in log.slates}
        self._events = {event.record.event_id: event for event in with_numbers(served, log.events)}
        self._feedback = defaultdict[str, list[FeedbackRecord]](list)
        self._n_arrived, self._covers, self._since = 0, 0, -math.inf

    def lesson(self, slate: SlateRecord) -> Lesson:
        """Return what there is to learn before a slate."""
        past = [event for event in self.log.events if _is_before(event.received_at, event.position, slate)]
        is_again = self.hear(slate.created_at)
        is_again |= any(
            event.received_at >= self._since and (event.position < self._covers or event.kind == RETRACT)
            for event in past
        )
        first = 0 if is_again else self._covers
        events = [self._events[event.event_id] for event in standing(past) if event.position >= first] if past else []
        self._covers, self._since = slate.number, slate.created_at
        shown = [self._as_known(earlier, slate.created_at) for earlier in self.log.slates[first : slate.number]]
        known = [earlier for earlier in shown if earlier is not None]
        return Lesson(is_again, *_in_order(known, events, slate.number)) if events else Lesson(is_again, known)

    def hear(self, now: float) -> bool:
        """Take in the feedback that arrived before a time; return whether any is about a slate learned already."""
        feedback, is_late = self.log.feedback, False
        while self._n_arrived < len(feedback) and feedback[self._n_arrived].received_at < now:
            event = feedback[self._n_arrived]
            self._feedback[event.slate_id].append(event)
            is_late |= self._numbers.get(event.slate_id, self._covers) < self._covers
            self._n_arrived += 1
        return is_late

    def _as_known(self, slate: SlateRecord, now: float) -> LoggedSlate | None:
        """Return a slate with what had been said about it at a time; None if it was withdrawn."""
        if status_at(slate, now) == WITHDRAWN:
            return None
        logged, feedback = self.slates[slate.slate_id], self._feedback[slate.slate_id]
        return (
            logged if len(feedback) == logged.tally.n_events else LoggedSlate(slate, logged.numbers, Tally.of(feedback))
        )


def _is_before(received_at: float, position: int, slate: SlateRecord) -> bool:
    return received_at < slate.created_at and position <= slate.number


def _in_order(
    slates: Sequence[LoggedSlate], events: Sequence[LoggedEvent], number: int
) -> tuple[list[LoggedSlate | Sequence[LoggedEvent]], Sequence[LoggedEvent]]:
    """Put events with position n before slate n; return what comes before slate `number`, and the events after it."""
    ordered = sorted(events, key=lambda event: (event.record.position, event.record.at, event.record.event_id))
    positions, done = [event.record.position for event in ordered], 0
    parts = list[LoggedSlate | Sequence[LoggedEvent]]()
    for slate in slates:
        end = bisect_right(positions, slate.record.number, done)
        parts += [ordered[done:end], slate] if end > done else [slate]
        done = end
    end = bisect_right(positions, number - 1, done)
    return [*parts, *([ordered[done:end]] if end > done else [])], ordered[end:]


@dataclass(frozen=True, eq=False)
class Asked:
    """A slate to be judged: for whom, what was asked for and when, and what there is to learn before it.

    choice: the part of how it was chosen that says what could be shown: `request` and what the user `owned`.
    """

    user: str
    choice: Choice
    at: float
    lesson: Lesson

    @classmethod
    def of(cls, slate: SlateRecord, choice: Choice, lesson: Lesson) -> "Asked":
        """Keep what is needed of how a slate was chosen, which is little of it."""
        kept = {"request": choice["request"], "owned": choice.get("owned", ())}
        return cls(slate.user, kept, choice["at"], lesson)

    @property
    def is_plain(self) -> bool:
        """Whether nothing but what was shown before keeps items from the slate."""
        is_free = RESTRICTING.isdisjoint(self.choice["request"]) and not self.choice["owned"]
        return is_free and not self.lesson.waiting


class BeliefsInStep:
    """What one policy knows about some users, who are numbered from 0."""

    def __init__(self, policy: ServedPolicy, n_users: int) -> None:
        self.policy = policy
        self.state = {name: np.array(array) for name, array in policy.policy.start(n_users).items()}
        self.at = np.full(n_users, -math.inf)

    def learn(self, lessons: Sequence[Lesson]) -> None:
        """Learn a lesson of each of the first users; the others are not asked about any more."""
        self.state = {name: array[: len(lessons)] for name, array in self.state.items()}
        self.at = self.at[: len(lessons)]
        for user in (user for user, lesson in enumerate(lessons) if lesson.is_again):
            self._write([user], self.policy.start, -math.inf)
        for depth in range(max((len(lesson.parts) for lesson in lessons), default=0)):
            parts = [(user, lesson.parts[depth]) for user, lesson in enumerate(lessons) if len(lesson.parts) > depth]
            slates = [(user, part) for user, part in parts if isinstance(part, LoggedSlate) and part.tally.n_events]
            for size in {len(slate.numbers) for _, slate in slates}:
                self._add([(user, slate) for user, slate in slates if len(slate.numbers) == size])
            for user, part in parts:
                if not isinstance(part, LoggedSlate):
                    known = {name: array[[user]] for name, array in self.state.items()}, float(self.at[user])
                    self._write([user], *with_events(self.policy, known, part))

    def known(self, users: Integers, asked: Sequence[Asked]) -> State:
        """Return what is known about some users when their slates were chosen."""
        if len(users) == len(self.at) and not any(question.lesson.waiting for question in asked):
            state, at = self.state, self.at
        else:
            state, at = {name: array[users] for name, array in self.state.items()}, self.at[users]
        for row, question in enumerate(asked):
            if question.lesson.waiting:
                before = {name: array[[row]] for name, array in state.items()}, float(at[row])
                after, at[row] = with_events(self.policy, before, question.lesson.waiting)
                for name, array in after.items():
                    state[name][row] = array[0]
        return _aged(self.policy, state, np.array([question.at for question in asked]) - at)

    def _add(self, taught: Sequence[tuple[int, LoggedSlate]]) -> None:
        """Learn slates of one size, each of another user."""
        users, slates = [user for user, _ in taught], [slate for _, slate in taught]
        numbers, since = (
            np.array([slate.numbers for slate in slates]),
            np.array([slate.record.created_at for slate in slates]),
        )
        evidence = self.policy.rules.attention.evidence(reactions_to(slates, numbers))
        every = len(users) == len(self.at)
        state = self.state if every else {name: array[users] for name, array in self.state.items()}
        latest = np.maximum(self.at[users], since)
        state, evidence = (
            _aged(self.policy, state, latest - self.at[users]),
            _faded(self.policy, evidence, latest - since),
        )
        self._write(None if every else users, self.policy.policy.update(state, evidence), latest)

    def _write(self, users: list[int] | None, state: State, at: Floats | float) -> None:
        """Keep what is known about some users, or about all."""
        if users is None:
            self.state, self.at = state, np.asarray(at)
            return
        for name, array in state.items():
            self.state[name][users] = array
        self.at[users] = at


def _faded(policy: ServedPolicy, evidence: Evidence, seconds: Floats) -> Evidence:
    """Return evidence of some users (n, k) that is so old (n,)."""
    if math.isinf(policy.rules.half_life):
        return evidence
    return replace(evidence, weight=evidence.weight * np.asarray(fading(policy, seconds))[:, None])


def _aged(policy: ServedPolicy, state: State, seconds: Floats) -> State:
    """Return states of some users so many seconds (n,) later."""
    if math.isinf(policy.rules.half_life):
        return state
    factors, start, old = np.asarray(fading(policy, seconds)), policy.start, dict(state)
    for name in policy.policy.additive:
        scale = factors.reshape(-1, *[1] * (state[name].ndim - 1))
        old[name] = np.where(scale < 1.0, start[name] + scale * (state[name] - start[name]), state[name])
    return old


class ShownInStep:
    """What is not offered again to some users, who are numbered from 0: when each item was shown, and until when.

    Tables (n_users, n_items); an item that was not shown has the time −∞, one that is never offered again is `never`.
    """

    def __init__(self, served: ServedCatalog, rules: ServedPolicy, n_users: int) -> None:
        self._served, self._policy = served, rules
        shape = (n_users, served.n_items)
        self.at, self.until = np.full(shape, -math.inf), np.full(shape, -math.inf)
        self.never = np.zeros(shape, dtype=np.bool_)

    def learn(self, lessons: Sequence[Lesson]) -> None:
        """Note what lessons of the first users say."""
        repeat_after = self._policy.rules.repeat_after
        shown = list[tuple[int, Integers, float]]()
        for user, lesson in enumerate(lessons):
            if lesson.is_again:
                self.at[user], self.until[user], self.never[user] = -math.inf, -math.inf, False
            for part in lesson.parts:
                if isinstance(part, LoggedSlate):
                    shown.append(
                        (user, part.numbers if part.tally.seen is None else part.shown(), part.record.created_at)
                    )
                else:
                    (numbers, at, until), never = hidden_by(self._policy.rules, part)
                    self.note(np.full(len(numbers), user), numbers, at, until)
                    self.never[user, never] = True
        if shown:
            sizes = [len(numbers) for _, numbers, _ in shown]
            at = np.repeat([at for _, _, at in shown], sizes)
            users = np.repeat([user for user, _, _ in shown], sizes)
            self.note(users, np.concatenate([numbers for _, numbers, _ in shown]), at, at + repeat_after)

    def note(self, users: Integers, numbers: Integers, at: Floats, until: Floats) -> None:
        """Note from when and until when items are hidden from users."""
        _note_shown(users, numbers, at, until, (self.at, self.until))

    def available(self, users: Integers, asked: Sequence[Asked]) -> tuple[Booleans, Booleans]:
        """Return what may be shown to some users (n, n_items), and which of them anything may be shown to.

        Most requests restrict nothing, and leave enough items; the others are worked out one by one.
        """
        items, now = self._served.items, np.array([question.at for question in asked])
        table, is_possible = np.empty((len(users), self._served.n_items), dtype=np.bool_), np.ones(len(users), np.bool_)
        is_offered = np.ones(self._served.n_items, dtype=np.bool_)
        is_offered[items.withdrawn] = False
        n_left = _fill_available(users, now, is_offered, (self.until, self.never), table)
        for row, question in enumerate(asked):
            is_enough = n_left[row] >= question.choice["request"]["k"] and now[row] >= items.last_published
            if not (question.is_plain and is_enough):
                try:
                    table[row] = self._available_to(int(users[row]), question)
                except RequestError:
                    is_possible[row] = False
        return table, is_possible

    def _available_to(self, user: int, asked: Asked) -> Booleans:
        numbers = np.flatnonzero(self.at[user] > -math.inf)
        shown, never = (
            Shown(numbers, self.at[user, numbers], self.until[user, numbers]),
            np.flatnonzero(self.never[user]),
        )
        if asked.lesson.waiting:
            hidden, final = hidden_by(self._policy.rules, asked.lesson.waiting)
            shown, never = shown.with_items(*hidden), np.union1d(never, final)
        learned = replace(Learned.nothing(self._served, self._policy), shown=shown, never=never)
        request = logged_request(asked.user, asked.choice)
        _, _, available, _ = situation(self._served, self._policy, learned, request, asked.at)
        return np.asarray(available.table()[0])


@compiled
def _note_shown(users: Integers, numbers: Integers, at: Floats, until: Floats, known: tuple[Floats, Floats]) -> None:
    """Write when items were shown to users, and until when they are not offered again; the later times count."""
    shown_at, hidden_until = known
    for row in range(numbers.size):
        user, item = users[row], numbers[row]
        if item >= 0:
            shown_at[user, item] = max(shown_at[user, item], at[row])
            hidden_until[user, item] = max(hidden_until[user, item], until[row])


@compiled
def _fill_available(
    users: Integers, now: Floats, is_offered: Booleans, known: tuple[Floats, Booleans], table: Booleans
) -> Integers:
    """Write which items may be shown to each user at a time; return how many."""
    until, never = known
    n_left = np.zeros(users.size, dtype=np.int64)
    for row in range(users.size):
        user = users[row]
        for item in range(is_offered.size):
            table[row, item] = is_offered[item] and not never[user, item] and until[user, item] <= now[row]
            n_left[row] += table[row, item]
    return n_left
