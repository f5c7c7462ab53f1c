"""Slates by rules: what a policy would choose, as far as the rules allow it.

Policies choose greedily, so leaving out items that one did not choose changes nothing about those it chose before. If
an item breaks a rule, the policy therefore chooses again without everything that the rule forbids at that place: the
items before it stay, and the result is what a greedy choice under the rules would be. It costs one more choice for
each time that a rule bites. Of a policy that is not greedy, the whole slate is looked at again.

Where not all rules can be met, they are met in this order: what may be shown at all (candidates, categories, exclude,
filter, exclude_owned), pin, at_most, min_probability, at_least. Rather than break one of them, a slate gets fewer
items; at_least alone never makes a slate shorter. Of several at_least, the first is met first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from slatewise.belief.rates import Rates
from slatewise.plurals import counted
from slatewise.policies import Available, Policy, Slates, State
from slatewise.randomness import Streams
from slatewise.recommender.at_least import keeping_reach, patterns
from slatewise.recommender.slate_rules import AtLeast, AtMost, SlateRules
from slatewise.recommender.types import UnmetRule

if TYPE_CHECKING:
    from slatewise.recommender.item_attributes import ItemAttributes

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Select = Callable[[Available, int], Slates]

ROUNDING = 1e-9
FORBIDDEN, NOT_ON_SALE, UNKNOWN = -1, -2, -3
NOT_PINNED = {
    FORBIDDEN: "the item may not be shown; the request, the user or published_at forbids it",
    NOT_ON_SALE: "the item is not available",
    UNKNOWN: "there is no such item",
}
"""Instead of the number of a pinned item: why it cannot be shown."""
NOTHING = Slates(np.empty((1, 0), dtype=np.int64), np.empty((1, 0)), np.empty((1, 0)), np.empty((1, 0)))


def select_by_rules(
    policy: Policy, known: tuple[State, Streams], question: Question, attributes: ItemAttributes
) -> tuple[Slates, tuple[UnmetRule, ...]]:
    """Let a policy choose for one user, of whom state and random numbers are known.

    A policy that can tell the probabilities of all items chooses only among those that are high enough; of others,
    items that turn out to be less probable are left out.
    """
    (state, random), rules = known, question.rules
    unmet: tuple[UnmetRule, ...] = ()
    if rules.min_probability is not None and hasattr(policy, "probabilities"):
        is_probable = question.clicks(policy.probabilities(state)[0], slice(None)) >= rules.min_probability
        question = replace(question, available=_only(question.available, is_probable, ()))
    if rules.boost and hasattr(policy, "with_boost"):
        policy = policy.with_boost(attributes.factors(rules.boost))
    elif rules.boost:
        unmet = tuple(UnmetRule("boost", position, "the policy cannot do it") for position in range(len(rules.boost)))
    slates, more = choose_by_rules(
        lambda available, k: policy.select(state, available, k, random), question, attributes
    )
    return slates, (*unmet, *more)


@dataclass(frozen=True)
class Question:
    """What is asked for: k of the available items, by rules; `pinned` are the numbers of the pins, or in NOT_PINNED.

    rates: what makes probabilities of clicks, which min_probability is about, of those that the policy chooses by.
    """

    available: Available
    k: int
    rules: SlateRules
    pinned: tuple[int, ...] = ()
    rates: Rates | None = None

    def clicks(self, likes: Floats, items: Integers | slice) -> Floats:
        """Return the probability of a click on each of some items, by what the policy says of them."""
        return likes if self.rates is None else self.rates.as_clicks(likes, items)


def choose_by_rules(
    select: Select, question: Question, attributes: ItemAttributes
) -> tuple[Slates, tuple[UnmetRule, ...]]:
    """Choose a slate for one user; return it and the rules that it does not meet."""
    pins = [(pin.place, number) for pin, number in zip(question.rules.pin, question.pinned, strict=True) if number >= 0]
    pins = sorted(pins)[: question.k]
    pinned = [number for _, number in pins]
    available = without(question.available, pinned)
    limits = Limits(question.rules, attributes, tuple(pinned))
    slates = _above_lowest(select, replace(question, available=available, k=question.k - len(pinned)), limits)
    if pins:
        slates = _with_pins(slates, _in_order(select, available.n_items, pinned), [place for place, _ in pins])
    return slates, (*_unmet_pins(question, pinned), *limits.unmet(slates))


@dataclass(frozen=True)
class Limits:
    """The rules about several items together; pinned items count as well."""

    rules: SlateRules
    attributes: ItemAttributes
    pinned: tuple[int, ...]

    @cached_property
    def _patterns(self) -> Integers:
        return patterns([self.attributes.select(rule.where).is_met for rule in self.rules.at_least])

    def asking(self, at_least: tuple[AtLeast, ...]) -> Limits:
        """Return the limits with only these of the at_least rules."""
        return replace(self, rules=replace(self.rules, at_least=at_least))

    def forbidden(self, before: Sequence[int], item: int) -> list[Integers]:
        """Return the items that share a value with this one, if as many as allowed have it already."""
        excluded = []
        for rule in self.rules.at_most:
            for group in self.attributes.groups_of(item, rule.per):
                others = (self.attributes.groups_of(other, rule.per) for other in (*self.pinned, *before))
                if sum(group in groups for groups in others) >= rule.n:
                    excluded.append(self.attributes.members(rule.per, group))
        return excluded

    def wanted(self, before: Sequence[int], available: Available, n_left: int) -> Booleans | None:
        """Return the items after which at_least can be met as far as before them; None: any item will do."""
        missing = [max(0, rule.n - self._count(rule.where, before)) for rule in self.rules.at_least]
        if sum(missing) < max(n_left, 1):
            return None
        is_free = available.table()[0]
        is_free[list(before)] = False
        counts = np.bincount(self._patterns[is_free])
        supply = {int(pattern): int(counts[pattern]) for pattern in np.flatnonzero(counts)}
        kept = keeping_reach(missing, supply, n_left)
        return None if kept is None else np.isin(self._patterns, kept)

    def unmet(self, slates: Slates) -> list[UnmetRule]:
        """Return the rules that a slate does not meet, pins included in it."""
        chosen = [item for item in slates.items[0].tolist() if item not in self.pinned]
        lacking = [rule.n - self._count(rule.where, chosen) for rule in self.rules.at_least]
        excess = [self._excess(rule, [*self.pinned, *chosen]) for rule in self.rules.at_most]
        unmet = [
            UnmetRule("at_most", position, f"{n} too many, because of pins")
            for position, n in enumerate(excess)
            if n > 0
        ]
        unmet += [UnmetRule("at_least", position, f"{n} too few") for position, n in enumerate(lacking) if n > 0]
        if self.rules.min_probability is not None and np.isnan(slates.probability).any():
            unmet.append(UnmetRule("min_probability", 0, "the policy has no belief about probabilities"))
        return unmet

    def _excess(self, rule: AtMost, items: Sequence[int]) -> int:
        """Return by how many items the most frequent value of a rule is above it."""
        counts = Counter(group for item in items for group in self.attributes.groups_of(item, rule.per))
        return max(counts.values(), default=0) - rule.n

    def _count(self, where: str, chosen: Sequence[int]) -> int:
        is_met = self.attributes.select(where).is_met
        return int(is_met[[*self.pinned, *chosen]].sum())


def _above_lowest(select: Select, question: Question, limits: Limits) -> Slates:
    """Choose within the limits, and leave out what is below min_probability."""
    slates = _within_limits(select, question.available, question.k, limits)
    lowest = question.rules.min_probability
    if lowest is None or np.isnan(slates.probability).any():
        return slates
    probability = question.clicks(slates.probability[0], slates.items[0])
    return _taken(slates, np.flatnonzero(probability >= lowest - ROUNDING))


def _within_limits(select: Select, available: Available, k: int, limits: Limits) -> Slates:
    """Choose by all limits; if a slate would be shorter because of at_least, by as much of it as can be met."""
    slates = _choose_again(select, available, k, limits)
    if slates.items.shape[1] == k or not limits.rules.at_least:
        return slates

    def chosen(*at_least: AtLeast) -> Slates:
        return _choose_again(select, available, k, limits.asking(at_least))

    length, kept = chosen().items.shape[1], list[AtLeast]()
    for rule in limits.rules.at_least:
        smaller = [replace(rule, n=n) for n in range(1, min(rule.n, k + len(limits.pinned)) + 1)]
        n = bisect_left(smaller, True, key=lambda last: chosen(*kept, last).items.shape[1] < length)
        kept += smaller[n - 1 : n] if n else []
    return chosen(*kept)


def _choose_again(select: Select, available: Available, k: int, limits: Limits) -> Slates:
    """Choose, and choose again as long as an item breaks a limit; the items before it stay."""
    slates, place = _chosen(select, available, k), 0
    while place < slates.items.shape[1]:
        items: list[int] = slates.items[0].tolist()
        before, item = items[:place], items[place]
        forbidden = limits.forbidden(before, item)
        wanted = None if forbidden else limits.wanted(before, available, len(items) - place)
        if forbidden:
            available = without(available, np.setdiff1d(np.concatenate(forbidden), before))
        elif wanted is not None and not wanted[item]:
            available = _only(available, wanted, before)
        else:
            place += 1
            continue
        slates = _chosen(select, available, k)
        if slates.items[0, :place].tolist() != before:  # a policy that is not greedy
            place = 0
    return slates


def _chosen(select: Select, available: Available, k: int) -> Slates:
    """Choose, and leave out places that could not be filled."""
    if k < 1:
        return NOTHING
    slates = select(available, k)
    return _taken(slates, np.flatnonzero(slates.items[0] >= 0))


def _taken(slates: Slates, places: Integers) -> Slates:
    return _slates(column[:, places] for column in _columns(slates))


def _slates(columns: Iterable[NDArray[Any]]) -> Slates:
    items, probability, deviation, diversity_gain, propensity = columns
    return Slates(items, probability, deviation, diversity_gain, propensity)


def _columns(slates: Slates) -> tuple[NDArray[Any], ...]:
    propensity = np.full(slates.items.shape, np.nan) if slates.propensity is None else slates.propensity
    return slates.items, slates.probability, slates.deviation, slates.diversity_gain, propensity


def _in_order(select: Select, n_items: int, numbers: Sequence[int]) -> Slates:
    """Return some items, in their order, with what the policy says about them; they are there for certain."""
    only = Available.of(n_items, candidates=numbers)
    slates = select(only, len(numbers))
    places = {number: place for place, number in enumerate(slates.items[0].tolist())}
    slates = replace(slates, propensity=np.ones(slates.items.shape))
    return _taken(slates, np.array([places[number] for number in numbers], dtype=np.int64))


def _with_pins(slates: Slates, pins: Slates, places: Sequence[int]) -> Slates:
    """Put pinned items at their ascending places, counted from 1; those beyond the end of the slate come last."""
    order = list(range(slates.items.shape[1]))
    for number, place in enumerate(places):
        order.insert(place - 1, slates.items.shape[1] + number)
    both = zip(_columns(slates), _columns(pins), strict=True)
    return _taken(_slates(np.concatenate(pair, axis=1) for pair in both), np.array(order, dtype=np.int64))


def _unmet_pins(question: Question, pinned: Sequence[int]) -> list[UnmetRule]:
    """Return the pins that are not on the slate."""
    return [
        UnmetRule("pin", position, NOT_PINNED.get(number, f"the slate has {counted(question.k, 'place')}"))
        for position, number in enumerate(question.pinned)
        if number not in pinned
    ]


def without(available: Available, numbers: Sequence[int] | Integers) -> Available:
    """Return what is available without some items."""
    more = np.asarray(numbers, dtype=np.int64)
    return replace(available, excluded=np.union1d(available.excluded, more)) if more.size else available


def _only(available: Available, wanted: Booleans, besides: Sequence[int]) -> Available:
    """Return what is available and wanted, and some items besides."""
    allowed = available.table()[0] & wanted
    allowed[list(besides)] = True
    return Available(available.n_items, np.empty(0, dtype=np.int64), np.flatnonzero(allowed))
