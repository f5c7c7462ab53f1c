"""What a stochastic greedy makes of slates that were shown: propensities, marginals and expected values of a batch.

Items with the same categories lose the same by every item that is chosen. So exp(gain_i / τ) is worked out once for
each item, and summed over groups of items with one set of categories; a chosen item then multiplies each sum by
exp(−weight · similarity / τ), a number from a table. Where categories say nothing about two items, the similarity is
that of their vectors, and each of these items is multiplied. So all items are looked at once, and at each place the
groups. A slate is drawn from the same sums with one random number for each place; `stochastic.draw_slates` has one for
each item, because there the draw of one item must not depend on which others are left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from slatewise.compiled import compiled
from slatewise.randomness import Keys, mix
from slatewise.slates.kernels import (
    Floats,
    Integers,
    Vectors,
    Words,
    allocating,
    inner,
    jaccard_of_sets,
    product,
    squared_length,
    sums,
)
from slatewise.slates.rules import OVERLAP, RELEVANCE, RuleArguments, add_direction, next_state

GROUP = 64
"""Items of a group, at most: what is summed again when one of them is chosen."""
TABLE = 1 << 24
"""Entries of the table of factors, at most; beyond, they are worked out whenever they are needed."""
VANISHED = 1e-250
"""Shares are worked out again when their sum has fallen below this, so that none that counts is rounded to 0."""

Booleans = NDArray[np.bool_]


class Groups(NamedTuple):
    """Items in groups of one set of categories each.

    items: all items, one group after the other; position: where each item is there; group_at: the group at each
    position; first: where each group begins, and the end; sets: the set of each group; is_empty: whether that has no
    members; empty: the groups of which that is so.
    """

    items: Integers
    position: Integers
    group_at: Integers
    first: Integers
    sets: Integers
    is_empty: Booleans
    empty: Integers


class Weighed(NamedTuple):
    """What is left of the items while a slate is drawn.

    logs: of shares but for categories (n_items,), in the order of `Groups`, −∞ if an item is chosen or not available;
    shares: not yet times the factors of their groups; totals, valued: sums over each group of shares, and of shares
    times values; factors: what each group lost by categories.
    """

    logs: Floats
    shares: Floats
    totals: Floats
    valued: Floats
    factors: Floats


class Grouping(NamedTuple):
    """Groups, and what is known of their factors: by the set of the item that is chosen, for one weight.

    factors (n_sets, n_groups), a single row where that would be too much; is_known: which rows are; weight (1,): what
    similarity costs, divided by the temperature.
    """

    groups: Groups
    factors: Floats
    is_known: Booleans
    weight: Floats

    @classmethod
    def of(cls, words: Words, of_item: Integers, n_items: int) -> Grouping:
        """Put items in groups; nothing is known of factors yet."""
        groups, n_sets = group_items(words, of_item, n_items), max(1, len(words))
        n_rows = n_sets if n_sets * len(groups.sets) <= TABLE else 1
        factors, is_known = np.empty((n_rows, len(groups.sets))), np.zeros(n_rows, dtype=np.bool_)
        return cls(groups, factors, is_known, np.full(1, -1.0))


class Judgment(NamedTuple):
    """What a policy that draws makes of slates, each (n_rows, k).

    propensity: of their items, given those before each; expected: the value of what is drawn at a place, given the
    items of the slate before it; marginal and own_expected: the same, whatever comes before, as means over drawn
    slates.
    """

    propensity: Floats
    expected: Floats
    marginal: Floats
    own_expected: Floats


def group_items(words: Words, of_item: Integers, n_items: int) -> Groups:
    """Put items in groups; without sets, neighbors share one."""
    sets = of_item if len(of_item) else np.zeros(n_items, dtype=np.int64)
    items = np.argsort(sets, kind="stable")
    ordered = sets[items]
    starts = np.searchsorted(ordered, ordered)  # where the set of each position begins
    is_first = (np.arange(n_items) - starts) % GROUP == 0
    first = np.flatnonzero(is_first)
    of_set = ordered[first]
    has_members = words.any(axis=1) if len(of_item) else np.ones(1, dtype=np.bool_)
    position = np.empty(n_items, dtype=np.int64)
    position[items] = np.arange(n_items)
    ends = np.append(first, n_items)
    is_empty = ~np.asarray(has_members)[of_set]
    return Groups(items, position, np.cumsum(is_first) - 1, ends, of_set, is_empty, np.flatnonzero(is_empty))


@compiled
def judge_slates(
    softmax: tuple[Floats, Booleans, float],
    rule: RuleArguments,
    grouping: Grouping,
    asked: tuple[Integers, Integers, Floats, Keys],
    out: Judgment,
) -> int:
    """Judge the slate of every row; return the first row with a score that is not finite, or −1.

    asked: rows in order of weight, slates (n_rows, k), values (n_rows, n_items) or (n_rows, 0), and where the random
    numbers of the slates to draw begin (n_rows, n_draws).
    """
    scores, allowed, temperature = softmax
    kind, weights, noise, vectors, words, _ = rule
    (groups, table, is_known, known_weight), (rows, slates, values, starts) = grouping, asked
    n_items, n_groups, k = groups.items.size, groups.sets.size, slates.shape[1]
    has_values = values.shape[1] > 0
    begun, weighed = new_weights(n_items, n_groups), new_weights(n_items, n_groups)
    value, chosen = np.empty(n_items if has_values else 0), np.empty(k, dtype=np.int64)
    direction = np.empty((1, vectors.shape[1]))
    for row in rows:
        weight = 0.0 if kind == RELEVANCE else weights[row if weights.size > 1 else 0] / temperature
        if weight != known_weight[0]:
            is_known[:], known_weight[0] = False, weight
        own, open_ = scores[row if scores.shape[0] > 1 else 0], allowed[row if allowed.shape[0] > 1 else 0]
        n_left = begin(groups, own, open_, temperature, begun.logs)
        if n_left < 0:
            return int(row)
        if has_values:
            for position in range(n_items):
                value[position] = values[row, groups.items[position]]
        weigh(groups, words, (weight, chosen, 0), value, begun)
        n_changed = -1
        for draw in range(-1, starts.shape[1]):
            put_back(groups, (chosen, n_changed), begun, weighed)
            n_changed = min(k - 1, n_left)
            for at in range(min(k, n_left)):
                total = dot(weighed.totals, weighed.factors)
                if total < VANISHED:
                    weigh(groups, words, (weight, chosen, at), value, weighed)
                    total, n_changed = dot(weighed.totals, weighed.factors), -1
                expected = dot(weighed.valued, weighed.factors) / total if has_values else 0.0
                position = groups.position[slates[row, at]]
                propensity = weighed.shares[position] * weighed.factors[groups.group_at[position]] / total
                if draw < 0:
                    out.propensity[row, at], out.expected[row, at] = propensity, expected
                else:
                    out.marginal[row, at] += propensity / starts.shape[1]
                    out.own_expected[row, at] += expected / starts.shape[1]
                if at + 1 == k:
                    break
                if draw >= 0:
                    position = draw_position(groups, weighed, total, mix(starts[row, draw] ^ np.uint64(at)))
                chosen[at] = position
                take(groups, position, value, weighed)
                if weight > 0.0:
                    lower(groups, words, (weight, position), (table, is_known), weighed)
                    if vectors.shape[0] > 0 and groups.empty.size > 0:
                        add_direction((OVERLAP, weight, noise), vectors, groups.items[position], direction, 0)
                        lower_by_vectors(groups, (vectors, direction), (weight, position), value, weighed)
                        n_changed = -1 if groups.is_empty[groups.group_at[position]] else n_changed
    return -1


@allocating
def new_weights(n_items: int, n_groups: int) -> Weighed:
    """Reserve memory."""
    by_group = (np.empty(n_groups), np.empty(n_groups), np.empty(n_groups))
    return Weighed(np.empty(n_items), np.empty(n_items), *by_group)


@inner
def put_back(groups: Groups, changed: tuple[Integers, int], source: Weighed, target: Weighed) -> None:
    """Make one what another is, from which it differs by so many chosen items; −1 if all may differ.

    It also differs by items without categories, and by all factors.
    """
    chosen, n_changed = changed
    if n_changed < 0:
        for group in range(groups.sets.size):
            copy_group(groups, group, source, target)
    for at in range(n_changed):
        position, group = chosen[at], groups.group_at[chosen[at]]
        target.logs[position], target.shares[position] = source.logs[position], source.shares[position]
        target.totals[group], target.valued[group] = source.totals[group], source.valued[group]
    for number in range(groups.empty.size):
        copy_group(groups, groups.empty[number], source, target)
    for group in range(source.factors.size):
        target.factors[group] = source.factors[group]


@inner
def copy_group(groups: Groups, group: int, source: Weighed, target: Weighed) -> None:
    """Copy what is left of the items of a group."""
    for position in range(groups.first[group], groups.first[group + 1]):
        target.logs[position], target.shares[position] = source.logs[position], source.shares[position]
    target.totals[group], target.valued[group] = source.totals[group], source.valued[group]


@inner
def begin(groups: Groups, own: Floats, is_open: Booleans, temperature: float, logs: Floats) -> int:
    """Write the logs of shares on an empty slate; return how many items there are, −1 if a score is not finite."""
    n_left = 0
    for position in range(logs.size):
        item = groups.items[position]
        logs[position] = own[item] / temperature if is_open[item] else -np.inf
        n_left += is_open[item]
        if is_open[item] and not abs(own[item]) < np.inf:
            return -1
    return n_left


@inner
def weigh(groups: Groups, words: Words, so_far: tuple[float, Integers, int], value: Floats, weighed: Weighed) -> None:
    """Work out shares and sums for the items that are left, the largest share about 1; so_far: weight and chosen."""
    weight, chosen, n_chosen = so_far
    losses, largest = weighed.factors, -np.inf
    for group in range(groups.sets.size):
        losses[group] = 0.0
        if weight > 0.0:
            for at in range(n_chosen):
                other = groups.sets[groups.group_at[chosen[at]]]
                losses[group] += weight * jaccard_of_sets(words, groups.sets[group], other)
        for position in range(groups.first[group], groups.first[group + 1]):
            largest = max(largest, weighed.logs[position] - losses[group])
    for group in range(groups.sets.size):
        for position in range(groups.first[group], groups.first[group + 1]):
            weighed.shares[position] = np.exp(weighed.logs[position] - losses[group] - largest)
        add_up(groups, group, value, weighed)
        weighed.factors[group] = 1.0


@inner
def add_up(groups: Groups, group: int, value: Floats, weighed: Weighed) -> None:
    """Sum the shares of a group."""
    first, end = groups.first[group], groups.first[group + 1]
    weighed.totals[group] = total_between(weighed.shares, first, end)
    weighed.valued[group] = dot_between(weighed.shares, value, first, end) if value.size > 0 else 0.0


@sums
def total_between(numbers: Floats, first: int, end: int) -> float:
    """Return the sum of a part of an array; unsigned positions are looked up without asking for their sign."""
    total = 0.0
    for position in range(np.uint64(first), np.uint64(end)):
        total += numbers[position]
    return total


@sums
def dot_between(numbers: Floats, others: Floats, first: int, end: int) -> float:
    """Return the product of the same part of two arrays."""
    total = 0.0
    for position in range(np.uint64(first), np.uint64(end)):
        total += numbers[position] * others[position]
    return total


@inner
def dot(numbers: Floats, others: Floats) -> float:
    """Return the product of two arrays."""
    return float(dot_between(numbers, others, 0, numbers.size))


@inner
def take(groups: Groups, position: int, value: Floats, weighed: Weighed) -> None:
    """Take out an item that is chosen."""
    weighed.logs[position], weighed.shares[position] = -np.inf, 0.0
    add_up(groups, groups.group_at[position], value, weighed)


@inner
def lower(
    groups: Groups, words: Words, latest: tuple[float, int], known: tuple[Floats, Booleans], weighed: Weighed
) -> None:
    """Multiply each group by its factor for the categories of the latest item, from the table where it is known."""
    (weight, position), (table, is_known) = latest, known
    other = groups.sets[groups.group_at[position]]
    row = other if is_known.size > 1 else 0
    if not is_known[row] or is_known.size == 1:
        for group in range(groups.sets.size):
            table[row, group] = np.exp(-weight * jaccard_of_sets(words, groups.sets[group], other))
        is_known[row] = True
    for group in range(groups.sets.size):
        weighed.factors[group] *= table[row, group]


@inner
def lower_by_vectors(
    groups: Groups, similar: tuple[Vectors, Floats], latest: tuple[float, int], value: Floats, weighed: Weighed
) -> None:
    """Multiply each item that is compared by its vector, because it or the latest item has no categories."""
    (vectors, direction), (weight, latest_position) = similar, latest
    is_latest_empty = groups.is_empty[groups.group_at[latest_position]]
    for number in range(groups.sets.size if is_latest_empty else groups.empty.size):
        group = number if is_latest_empty else groups.empty[number]
        for position in range(groups.first[group], groups.first[group + 1]):
            item = groups.items[position]
            along = product(vectors, item, direction, 0)
            loss = weight * next_state(OVERLAP, 0.0, squared_length(vectors, item), along)
            weighed.logs[position] -= loss
            weighed.shares[position] *= np.exp(-loss)
        add_up(groups, group, value, weighed)


@inner
def draw_position(groups: Groups, weighed: Weighed, total: float, number: np.uint64) -> int:
    """Return the position of an item that is drawn by one random number: first its group, then the item in it."""
    rest, group, chosen = np.float64(number >> np.uint64(11)) * 2.0**-53 * total, 0, 0
    for other in range(groups.sets.size):
        weight = weighed.totals[other] * weighed.factors[other]
        if weight > 0.0:
            group = other
            if rest < weight:
                break
            rest -= weight
    rest /= weighed.factors[group]
    for position in range(groups.first[group], groups.first[group + 1]):
        if weighed.shares[position] > 0.0:
            chosen = position
            if rest < weighed.shares[position]:
                break
            rest -= weighed.shares[position]
    return chosen
