"""What is learned from a user's log: the belief of a policy, and what was shown, liked and hidden.

The log is learned in one order, whatever the order of arrival: for n = 0, 1, … first the events from elsewhere with
position n, then slate n, if it was counted, with what has been said about it by now. A slate that nobody said anything
about teaches nothing, but its items count as shown, unless the client said that they were not seen.
"""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from slatewise.compiled import compiled
from slatewise.evidence import Evidence, Reactions
from slatewise.policies import State
from slatewise.recommender.event_kinds import CATEGORY, ITEM, LIKED
from slatewise.recommender.items import hashes_of
from slatewise.recommender.rules import SECONDS_PER_DAY, LearningRules
from slatewise.recommender.served_catalog import Integers, ServedCatalog, ServedPolicy
from slatewise.recommender.wishes import NO_WISHES, logged_wishes
from slatewise.store.records import CLOSED, WITHDRAWN, EventRecord, FeedbackRecord, ItemId, SlateRecord

Floats = NDArray[np.float64]

RECENT_SLATES = 64
"""Items liked on so many of the latest slates, or since, are called liked."""
MAX_LIKES = 500
REPORTED = 0.0
"""Stands for the probability of examination where a like was reported from elsewhere."""
NO_ITEMS: Integers = np.empty(0, dtype=np.int64)
NO_TIMES: Floats = np.empty(0)
LIKE_COLUMNS = 6
NO_LIKES: Floats = np.empty((0, LIKE_COLUMNS))
MAX_CITABLE = 50
"""So many of the latest likes can be given as reasons."""


@dataclass(frozen=True)
class Tally:
    """What was said about a slate, added up over its feedback events in the order of their arrival.

    clicks: how often an item was clicked less how often that was retracted; grades: the latest value of graded and
    disliked items; mentioned: everything that somebody reacted to; seen: what was looked at, None if nobody said.
    """

    clicks: Mapping[ItemId, int] = field(default_factory=dict)
    grades: Mapping[ItemId, float] = field(default_factory=dict)
    mentioned: frozenset[ItemId] = frozenset()
    seen: frozenset[ItemId] | None = None
    n_events: int = 0

    @classmethod
    def of(cls, events: Iterable[FeedbackRecord]) -> "Tally":
        """Add up feedback events."""
        tally = cls()
        for event in events:
            tally = tally.after(event)
        return tally

    def after(self, event: FeedbackRecord) -> "Tally":
        """Return the tally after one more event; what was said last about an item counts.

        A retraction takes back the grade of an item if it has one, else a click.
        """
        clicks, grades = dict(self.clicks), dict(self.grades)
        for item in event.retracted:
            if grades.pop(item, None) is None:
                clicks[item] = clicks.get(item, 0) - 1
        for item in event.clicked:
            clicks[item] = clicks.get(item, 0) + 1
            grades.pop(item, None)
        grades |= dict.fromkeys(event.disliked, 0.0) | dict(event.values)
        seen = self.seen if event.seen is None else frozenset(event.seen) | (self.seen or frozenset())
        return Tally(clicks, grades, self.mentioned | event.reacted, seen, self.n_events + 1)

    def value(self, item: ItemId) -> float:
        """Return how much an item was liked, 0 to 1; NaN if nothing is said about it."""
        return self.grades.get(item, 1.0 if self.clicks.get(item, 0) > 0 else math.nan)

    def liked(self, items: Iterable[ItemId]) -> list[ItemId]:
        """Return the items that were liked."""
        liked = {item for item in self.mentioned if self.value(item) > LIKED}
        return [item for item in items if item in liked] if liked else []

    def says_as_much_as(self, other: "Tally", items: Iterable[ItemId]) -> bool:
        """Return whether two tallies of a slate teach the same."""
        if not self.n_events or not other.n_events or (self.seen is None) != (other.seen is None):
            return self.n_events == other.n_events
        told = [[(str(tally.value(item)), tally.is_seen(item)) for item in items] for tally in (self, other)]
        return told[0] == told[1]

    def is_seen(self, item: ItemId) -> bool:
        """Return whether an item may have been looked at."""
        return self.seen is None or item in self.seen or item in self.mentioned


NO_FEEDBACK = Tally()


@dataclass(frozen=True, eq=False)
class LoggedSlate:
    """A slate of the log with its item numbers, −1 where the catalog no longer has the item, and what was said.

    explained: what taste adds to the rates of its items, as it was logged; None if that was not read.
    """

    record: SlateRecord
    numbers: Integers
    tally: Tally = NO_FEEDBACK
    explained: Sequence[float] | None = None

    @cached_property
    def values(self) -> list[float]:
        """How much each item was liked, 0 to 1; NaN if nothing is said about it."""
        values = {item: self.tally.value(item) for item in self.tally.mentioned}
        return [values.get(item, math.nan) for item in self.record.items]

    @cached_property
    def seen(self) -> list[bool]:
        """Whether each item may have been looked at."""
        if self.tally.seen is None:
            return [True] * len(self.record.items)
        return [self.tally.is_seen(item) for item in self.record.items]

    def evidence(self, policy: ServedPolicy) -> Evidence | None:
        """Return what the slate teaches; nothing if nobody said anything about it."""
        return evidence_of([self], policy)[0]

    @property
    def counts(self) -> bool:
        """Whether it says anything about its items to others."""
        return bool(self.tally.n_events) and self.record.status != WITHDRAWN

    def with_feedback(self, record: SlateRecord, tally: Tally) -> "LoggedSlate":
        """Return the slate after feedback on it, or after it was closed."""
        return LoggedSlate(record, self.numbers, tally, self.explained)

    def closed(self, at: float) -> "LoggedSlate":
        """Return the slate closed at a time."""
        return LoggedSlate(self.record.with_status(CLOSED, at), self.numbers, self.tally, self.explained)

    def has_reactions(self) -> bool:
        """Return whether anything on the slate was clicked, graded or disliked, and that was not taken back."""
        return any(not math.isnan(value) for value in self.values)

    def shown(self) -> Integers:
        """Return the numbers of the items that count as shown."""
        is_shown = self.numbers >= 0
        if self.tally.seen is not None:
            is_shown &= self.seen
        return self.numbers[is_shown]

    def liked(self) -> list[int]:
        """Return the numbers of the items that were liked."""
        if not self.tally.n_events:
            return []
        return [
            number for number, value in zip(self.numbers.tolist(), self.values, strict=True) if _likes(number, value)
        ]

    @property
    def n_liked(self) -> int:
        """How many items were liked, also those that the catalog no longer has."""
        return sum(value > LIKED for value in self.values) if self.tally.n_events else 0


def by_size(slates: Iterable[LoggedSlate]) -> Mapping[int, list[LoggedSlate]]:
    """Return slates by their number of items."""
    groups = defaultdict[int, list[LoggedSlate]](list)
    for slate in slates:
        groups[len(slate.numbers)].append(slate)
    return groups


def reactions_to(slates: Sequence[LoggedSlate], items: Integers) -> Reactions:
    """Return what was said about slates of one size; items (n_slates, size) are what its items are called."""
    values, seen = np.array([slate.values for slate in slates]), np.array([slate.seen for slate in slates])
    return Reactions(items, values, seen, np.array([slate.tally.seen is not None for slate in slates]))


def evidence_of(slates: Sequence[LoggedSlate], policy: ServedPolicy) -> list[Evidence | None]:
    """Return what each slate teaches, all slates of one size at once; None if nobody said anything about it."""
    evidence: dict[str, Evidence] = {}
    for same in by_size(slate for slate in slates if slate.tally.n_events).values():
        numbers = np.array([slate.numbers for slate in same])
        taught = policy.rules.attention.evidence(reactions_to(same, numbers))
        rows = zip(*(array[:, None] for array in taught.arrays), strict=True)
        evidence |= {slate.record.slate_id: Evidence(*row) for slate, row in zip(same, rows, strict=True)}
    return [evidence.get(slate.record.slate_id) for slate in slates]


@dataclass(frozen=True, eq=False)
class SlateChange:
    """What one feedback event changed: its slate before and after it."""

    before: LoggedSlate
    after: LoggedSlate


@dataclass(frozen=True, eq=False)
class LoggedEvent:
    """An event from elsewhere with its item number, −1 if it is not about an item that the catalog has."""

    record: EventRecord
    number: int


@dataclass(frozen=True, eq=False)
class Shown:
    """Items that are not offered again for now: ascending numbers, when each was last shown, and until when."""

    numbers: Integers
    at: Floats
    until: Floats

    def with_items(self, numbers: Integers, at: Floats, until: Floats) -> "Shown":
        """Return these and more items; of an item that is there already, the later times count."""
        if not len(numbers):
            return self
        order = numbers.argsort(kind="stable")
        more = (numbers[order], at[order], until[order])
        size = len(self.numbers) + len(numbers)
        merged = np.empty(size, dtype=np.int64), np.empty(size), np.empty(size)
        length = _merge_shown((self.numbers, self.at, self.until), more, merged)
        return Shown(merged[0][:length], merged[1][:length], merged[2][:length])

    def with_slates(self, slates: Sequence[LoggedSlate], repeat_after: float) -> "Shown":
        """Return these and the items of some slates."""
        if not slates:
            return self
        parts = [slate.shown() for slate in slates]
        sizes = [len(part) for part in parts]
        at = np.repeat([slate.record.created_at for slate in slates], sizes)
        return self.with_items(np.concatenate(parts), at, at + repeat_after)


@dataclass(frozen=True, eq=False)
class Learned:
    """What was learned from the slates with numbers below `covers` and the events with positions below it.

    state: of the policy, with evidence as old as it is at the time `at`; never: items that are not offered any more;
    likes: rows of when (twice the position of an event, or twice the number of a slate plus 1), item number, value,
    weight and probability of examination as in `Evidence`, and the time, of at most MAX_LIKES recent likes;
    counts (2, n_categories + 1): items shown and liked by category, and in the last column slates and likes; untrained:
    hashes of the items met, ascending, that the catalog was not trained on; wishes: the latest, as `wishes` has them.
    """

    covers: int
    state: State
    counts: Integers
    at: float
    shown: Shown
    never: Integers
    likes: Floats
    untrained: Integers
    wishes: Floats = field(default_factory=lambda: NO_WISHES)

    @classmethod
    def nothing(cls, served: ServedCatalog, policy: ServedPolicy) -> "Learned":
        """Return what is known about a user never seen."""
        counts = np.zeros((2, served.catalog.n_categories + 1), dtype=np.int64)
        nothing = (Shown(NO_ITEMS, NO_TIMES, NO_TIMES), NO_ITEMS, NO_LIKES, NO_ITEMS)
        return cls(0, policy.start, counts, -math.inf, *nothing)


def adapted(learned: Learned, policy: ServedPolicy, version: int) -> Learned | None:
    """Return what was learned with a version of the untrained items, for a policy with items as they are now.

    None if it has to be learned again: because of what an untrained item was or is, because the state of the policy
    has an entry for every item, or because it was learned with categories that only another process knows so far.
    """
    if policy.untrained.changed_since(version, learned.untrained):
        return None
    if any(learned.state[name].shape != start.shape for name, start in policy.start.items()):
        return None
    n_new = policy.policy.catalog.n_categories + 1 - learned.counts.shape[1]
    if n_new < 0:
        return None
    counts = np.insert(learned.counts, [-1] * n_new, 0, axis=1) if n_new > 0 else learned.counts
    return learned if n_new == 0 else replace(learned, counts=counts)


def state_at(policy: ServedPolicy, learned: Learned, now: float) -> State:
    """Return the state with all evidence as old as it is now."""
    return _aged(policy, learned.state, now - learned.at)


def learn(
    learned: Learned, policy: ServedPolicy, slates: Sequence[LoggedSlate], events: Sequence[LoggedEvent], covers: int
) -> Learned:
    """Learn counted slates and events, in the order of the log, up to position `covers`."""
    ordered = sorted(events, key=lambda event: (event.record.position, event.record.at, event.record.event_id))
    positions, start = [event.record.position for event in ordered], 0
    known = (learned.state, learned.at)
    taught = evidence_of(slates, policy)
    for slate, evidence in zip(slates, taught, strict=True):
        end = bisect_right(positions, slate.record.number, start)
        known = with_events(policy, known, ordered[start:end])
        if evidence is not None:
            known = _added(policy, known, evidence, slate.record.created_at)
        start = end
    state, at = with_events(policy, known, ordered[start:])
    kept = (learned.shown, learned.never, learned.likes, learned.untrained, learned.wishes)
    noted = Learned(covers, state, learned.counts, at, *kept)
    noted = _note_slates(noted, policy, slates, taught) if slates else noted
    return _note_events(noted, policy, events) if events else noted


def learn_late_event(learned: Learned, policy: ServedPolicy, event: LoggedEvent) -> Learned:
    """Add an event that belongs before slates that are learned already; exact for additive policies."""
    state, at = with_events(policy, (learned.state, learned.at), [event])
    return _note_events(replace(learned, state=state, at=at), policy, [event])


def learn_again(learned: Learned, policy: ServedPolicy, before: LoggedSlate, after: LoggedSlate) -> Learned | None:
    """Replace what a slate has taught by what it teaches now; None if everything has to be learned again.

    That is so for policies that are not additive, and if items no longer count as shown.
    """
    if set(before.shown().tolist()) - set(after.shown().tolist()):
        return None
    old, new = before.evidence(policy), after.evidence(policy)
    state, at = learned.state, learned.at
    if not _is_same(old, new):
        if not policy.policy.additive:
            return None
        if old is not None:
            state, at = _added(policy, (state, at), replace(old, weight=-old.weight), before.record.created_at)
        state, at = _with_slate(policy, (state, at), after)
    when = 2 * before.record.number + 1
    others = replace(learned, state=state, at=at, likes=learned.likes[learned.likes[:, 0] != when])
    counts = others.counts - counts_of(policy, [before]) + counts_of(policy, [after])
    shown = others.shown.with_slates([after], policy.rules.repeat_after)
    return replace(with_likes(others, _slate_likes(after, after.evidence(policy))), counts=counts, shown=shown)


def states_after(learned: Learned, policy: ServedPolicy, slates: Sequence[LoggedSlate]) -> list[State | None]:
    """Return the state after each of the last slates that were learned, by taking back what came later.

    Nothing is known about the states in between if a policy is not additive, unless these are all slates.
    """
    if not policy.policy.additive:
        return _states_from_start(policy, slates, is_complete=learned.counts[0, -1] == len(slates))
    states: list[State | None] = []
    known = (learned.state, learned.at)
    for slate in reversed(slates):
        states.append(known[0])
        evidence = slate.evidence(policy)
        if evidence is not None:
            known = _added(policy, known, replace(evidence, weight=-evidence.weight), slate.record.created_at)
    return states[::-1]


def _states_from_start(policy: ServedPolicy, slates: Sequence[LoggedSlate], *, is_complete: bool) -> list[State | None]:
    states: list[State | None] = []
    known = (policy.start, -math.inf)
    for slate in slates:
        known = _with_slate(policy, known, slate)
        states.append(known[0] if is_complete else None)
    return states


def _with_slate(policy: ServedPolicy, known: tuple[State, float], slate: LoggedSlate) -> tuple[State, float]:
    evidence = slate.evidence(policy)
    return known if evidence is None else _added(policy, known, evidence, slate.record.created_at)


def with_events(policy: ServedPolicy, known: tuple[State, float], events: Sequence[LoggedEvent]) -> tuple[State, float]:
    """Learn events all at once; they are no rounds of slates, so only what is additive in a state takes them in."""
    known = _with_wishes(policy, known, _wishes(policy, events))
    useful = [event for event in events if event.number >= 0 and event.record.kind in policy.rules.kinds]
    if not useful:
        return known
    latest = max(event.record.at for event in useful)
    meanings = [policy.rules.kinds[event.record.kind].meaning(event.record.value) for event in useful]
    ages = np.array([latest - event.record.at for event in useful])
    weight = np.array([weight for _, weight in meanings]) * fading(policy, ages)
    items, value = np.array([[event.number for event in useful]]), np.array([[value for value, _ in meanings]])
    reported = np.array([[policy.rules.kinds[event.record.kind].is_report for event in useful]])
    state, at = _added(policy, known, Evidence(items, value, weight[None], np.ones(items.shape), reported), latest)
    additive = policy.policy.additive
    return ({name: state[name] if name in additive else known[0][name] for name in state} if additive else state), at


def _with_wishes(policy: ServedPolicy, known: tuple[State, float], wishes: Floats) -> tuple[State, float]:
    """Learn what was said about categories."""
    if policy.directions is None or not len(wishes):
        return known
    state, at = known
    latest = max(at, float(wishes[:, 3].max()))
    return policy.directions.add(_aged(policy, state, latest - at), faded_wishes(policy, wishes, latest)), latest


def faded_wishes(policy: ServedPolicy, wishes: Floats, now: float) -> Floats:
    """Return wishes with weights as they are at a time."""
    if math.isinf(policy.rules.half_life) or not len(wishes):
        return wishes
    faded = wishes.copy()
    faded[:, 2] *= fading(policy, now - wishes[:, 3])
    return faded


def _wishes(policy: ServedPolicy, events: Iterable[LoggedEvent]) -> Floats:
    wishes = [event.record for event in events if policy.rules.about(event.record.kind) == CATEGORY]
    return logged_wishes(policy.directions, policy.rules.kinds, wishes) if wishes else NO_WISHES


def _added(policy: ServedPolicy, known: tuple[State, float], evidence: Evidence, since: float) -> tuple[State, float]:
    """Update a state with evidence of a time; whichever is older ages."""
    state, at = known
    if math.isinf(policy.rules.half_life):
        return policy.policy.update(state, evidence), max(at, since)
    latest = max(at, since)
    faded = replace(evidence, weight=evidence.weight * fading(policy, latest - since))
    return policy.policy.update(_aged(policy, state, latest - at), faded), latest


def _aged(policy: ServedPolicy, state: State, seconds: float) -> State:
    if math.isinf(policy.rules.half_life) or not seconds > 0.0:
        return state
    factor, start = fading(policy, seconds), policy.start
    old = {name: start[name] + factor * (state[name] - start[name]) for name in policy.policy.additive}
    return {**state, **old}


def fading(policy: ServedPolicy, seconds: NDArray[np.float64] | float) -> NDArray[np.float64] | float:
    """Return how much evidence of an age counts."""
    if math.isinf(policy.rules.half_life):
        return 1.0
    return np.exp2(-np.maximum(seconds, 0.0) / (SECONDS_PER_DAY * policy.rules.half_life))


def _note_slates(
    learned: Learned, policy: ServedPolicy, slates: Sequence[LoggedSlate], taught: Sequence[Evidence | None]
) -> Learned:
    likes = [row for slate, evidence in zip(slates, taught, strict=True) for row in _slate_likes(slate, evidence)]
    shown = learned.shown.with_slates(slates, policy.rules.repeat_after)
    numbers = np.concatenate([slate.numbers for slate in slates])
    known = _with_untrained(learned, policy, [item for slate in slates for item in slate.record.items], numbers)
    return replace(with_likes(known, likes), shown=shown, counts=learned.counts + counts_of(policy, slates))


def _with_untrained(learned: Learned, policy: ServedPolicy, items: Sequence[ItemId], numbers: Integers) -> Learned:
    """Note the items that the catalog was not trained on, of those met."""
    is_untrained = (numbers < 0) | (numbers >= policy.untrained.n_trained)
    if not is_untrained.any():
        return learned
    ids = [items[position] for position in np.flatnonzero(is_untrained).tolist()]
    return replace(learned, untrained=np.union1d(learned.untrained, hashes_of(ids)))


def hidden_by(rules: LearningRules, events: Sequence[LoggedEvent]) -> tuple[tuple[Integers, Floats, Floats], Integers]:
    """Return which items events hide for a time, as `Shown` takes them, and which they hide for good, ascending."""
    useful = [(event, rules.kinds[event.record.kind]) for event in _about_items(rules, events)]
    kept = [(event.number, event.record.at, kind.repeat_after) for event, kind in useful if kind.repeat_after > 0.0]
    numbers, at = np.array([number for number, _, _ in kept], dtype=np.int64), np.array([at for _, at, _ in kept])
    until = at + np.array([repeat_after for _, _, repeat_after in kept])
    final = np.array([event.number for event, kind in useful if kind.is_final], dtype=np.int64)
    return (numbers, at, until), np.unique(final)


def _about_items(rules: LearningRules, events: Iterable[LoggedEvent]) -> list[LoggedEvent]:
    """Return the events about items of the catalog whose kind is known."""
    about = (event for event in events if event.number >= 0 and rules.about(event.record.kind) == ITEM)
    return [event for event in about if event.record.kind in rules.kinds]


def _note_events(learned: Learned, policy: ServedPolicy, events: Sequence[LoggedEvent]) -> Learned:
    rules = policy.rules
    wishes = np.concatenate([learned.wishes, _wishes(policy, events)])
    learned = replace(learned, wishes=wishes[np.lexsort(wishes.T)][-MAX_CITABLE:])
    events = [event for event in events if rules.about(event.record.kind) == ITEM]
    useful = _about_items(rules, events)
    kinds = [rules.kinds[event.record.kind] for event in useful]
    hidden, never = hidden_by(rules, useful)
    shown = learned.shown.with_items(*hidden)
    known = np.union1d(learned.never, never) if len(never) else learned.never
    pairs = zip(useful, kinds, strict=True)
    meanings = [(event, kind.is_report, *kind.meaning(event.record.value)) for event, kind in pairs]
    likes = [
        (
            2.0 * event.record.position,
            float(event.number),
            value,
            weight,
            REPORTED if is_report else 1.0,
            event.record.at,
        )
        for event, is_report, value, weight in meanings
        if value > LIKED and weight > 0.0
    ]
    met = np.array([event.number for event in events], dtype=np.int64)
    learned = _with_untrained(learned, policy, [event.record.item for event in events], met)
    return replace(with_likes(learned, likes), shown=shown, never=known)


def _likes(number: int, value: float) -> bool:
    return number >= 0 and value > LIKED


def _slate_likes(slate: LoggedSlate, evidence: Evidence | None) -> list[tuple[float, ...]]:
    """Return the rows of `Learned.likes` that a slate adds by what it teaches."""
    if evidence is None:
        return []
    when, at = 2.0 * slate.record.number + 1.0, slate.record.created_at
    columns = (evidence.items[0], evidence.value[0], evidence.weight[0], evidence.examined[0])
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [(when, float(number), *reaction, at) for number, *reaction in rows if _likes(number, reaction[0])]


def with_likes(learned: Learned, likes: Sequence[tuple[float, ...]]) -> Learned:
    """Add likes in order, and keep only the recent ones."""
    oldest = 2 * (learned.covers - RECENT_SLATES)
    if not likes and (not len(learned.likes) or learned.likes[0, 0] >= oldest):
        return learned
    rows = learned.likes
    if likes:
        rows = np.concatenate([rows, np.array(sorted(likes))])
        if len(learned.likes) and tuple(learned.likes[-1]) > min(likes):
            rows = rows[np.lexsort(rows.T[::-1])]
    rows = rows[-MAX_LIKES:]
    return replace(learned, likes=rows[rows[:, 0] >= oldest])


def likes_at(policy: ServedPolicy, learned: Learned, now: float) -> Evidence:
    """Return the latest likes as evidence (1, n), with weights as they are at a time: at most MAX_CITABLE."""
    rows = learned.likes[-MAX_CITABLE:]
    weight = rows[:, 3] * fading(policy, now - rows[:, 5])
    items, reported = rows[:, 1].astype(np.int64), rows[:, 4] == REPORTED
    examined = np.where(reported, 1.0, rows[:, 4])
    others = (items[None], rows[None, :, 2], weight[None], examined[None])
    return Evidence(*others, reported[None] if reported.any() else None)


def counts_of(policy: ServedPolicy, slates: Sequence[LoggedSlate]) -> Integers:
    """Return how many items of slates were shown and liked, by category; slates and likes in the last column."""
    categories = policy.categories
    counts = np.zeros((2, categories.shape[1] + 1), dtype=np.int64)
    for slate in slates:
        _count(counts, categories, slate.numbers, np.array(slate.values))
    return counts


@compiled
def _count(counts: Integers, categories: NDArray[np.bool_], numbers: Integers, values: Floats) -> None:
    """Count a slate, its items by category, and those that were liked; −1 is an item that the catalog has no more."""
    n_categories = categories.shape[1]
    counts[0, n_categories] += 1
    for place in range(numbers.size):
        is_liked = values[place] > LIKED
        counts[1, n_categories] += is_liked
        if 0 <= numbers[place] < len(categories):
            for category in range(n_categories):
                counts[0, category] += categories[numbers[place], category]
                counts[1, category] += is_liked and categories[numbers[place], category]


ShownColumns = tuple[Integers, Floats, Floats]


@compiled
def _merge_shown(known: ShownColumns, more: ShownColumns, merged: ShownColumns) -> int:
    """Merge items by ascending number, with the later times where numbers are the same; return how many there are."""
    length, known_row, more_row = 0, 0, 0
    while known_row < known[0].size or more_row < more[0].size:
        is_known = more_row == more[0].size or (known_row < known[0].size and known[0][known_row] <= more[0][more_row])
        number, at, until = (
            (known[0][known_row], known[1][known_row], known[2][known_row])
            if is_known
            else (more[0][more_row], more[1][more_row], more[2][more_row])
        )
        if length > 0 and merged[0][length - 1] == number:
            merged[1][length - 1] = max(merged[1][length - 1], at)
            merged[2][length - 1] = max(merged[2][length - 1], until)
        else:
            merged[0][length], merged[1][length], merged[2][length] = number, at, until
            length += 1
        known_row, more_row = known_row + int(is_known), more_row + int(not is_known)
    return length


def _is_same(old: Evidence | None, new: Evidence | None) -> bool:
    if old is None or new is None:
        return old is new
    return all(map(np.array_equal, old.arrays, new.arrays))
