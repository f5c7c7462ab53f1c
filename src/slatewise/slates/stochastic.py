"""The stochastic greedy: at each place an item is drawn by softmax over the gains, so propensities are exact.

P(item i at this place | the items before it) = exp(gain_i / τ) / Σ exp(gain_j / τ) over the available items j. The draw
takes an exponential waiting time for every item at the rate exp(gain_i / τ), and the shortest wins: that is the
Gumbel-max trick, argmax gain_i / τ + G_i with Gumbel noise G, in another form. Each item has its own random number at
each place, so leaving out an item that was not chosen changes nothing about those chosen before.

Every gain counts, so each place goes through all items. exp(gain_i / τ) is worked out once for each item: an item that
is chosen multiplies it by exp(−weight · similarity / τ), which is one number for all items with the same categories;
only where vectors say how similar items are, it is one for each. See docs/evaluation.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slatewise.compiled import compiled
from slatewise.randomness import GOLDEN, Keys, mix
from slatewise.slates.available import Available, as_table
from slatewise.slates.greedy import rule_arguments
from slatewise.slates.kernels import (
    Floats,
    Integers,
    Vectors,
    Words,
    inner,
    is_empty,
    jaccard_of_sets,
    product,
    squared_length,
)
from slatewise.slates.propensities import VANISHED, Grouping, Judgment, judge_slates, total_between
from slatewise.slates.rules import (
    OVERLAP,
    RELEVANCE,
    Rule,
    RuleArguments,
    add_direction,
    next_state,
)
from slatewise.slates.scores import LINEAR, TABLE, Scores, linear_scores

Sampled = tuple[Integers, Floats, Floats, Floats]
"""Items, gains, own values, propensities: each (n_rows, k)."""

SoFar = tuple[NDArray[np.bool_], Integers, Floats, Floats]
"""Which items are left, and the set of categories of each; the summed similarity with the chosen items of each set, and
of each item about which categories say nothing."""


@dataclass(frozen=True)
class StochasticChoice:
    """Drawn items (n_rows, k), −1 where nothing was left, their gains, the part that is variety, and propensities.

    A propensity is the probability of an item at its place, given the items before it.
    """

    items: Integers
    gains: Floats
    variety: Floats
    propensity: Floats


@dataclass(frozen=True, eq=False)
class SoftmaxGreedy:
    """Scores, a rule for variety (relevance or overlap) and the temperature τ of the softmax over gains.

    A score table of one row is shared by all rows that are drawn.
    """

    scores: Floats
    rule: Rule
    temperature: float

    @classmethod
    def of(cls, scores: Scores, rule: Rule, temperature: float) -> SoftmaxGreedy:
        """Check rule and temperature, and work out linear scores of all items."""
        if rule.kind not in (RELEVANCE, OVERLAP) or scores.kind not in (TABLE, LINEAR):
            raise ValueError("a stochastic greedy chooses by linear scores and by relevance or overlap")
        if not 0.0 < temperature < np.inf:
            raise ValueError(f"temperature is {temperature}; give a positive number")
        return cls(scores.values if scores.kind == TABLE else linear_scores(scores), rule, temperature)

    def draw(self, available: Available | ArrayLike, k: int, starts: Keys) -> StochasticChoice:
        """Draw a slate of k items for each stream of random numbers, which starts (n_rows,) say where to find."""
        shape = (len(starts), k)
        items: Integers = np.full(shape, -1, dtype=np.int64)
        gains, own, propensity = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        arguments = self._arguments(available, len(self.scores)), rule_arguments(self.rule)
        _check(draw_slates(*arguments, np.ascontiguousarray(starts), (items, gains, own, propensity)))
        return StochasticChoice(items, gains, gains - own, propensity)

    def judge(
        self,
        available: Available | ArrayLike,
        slates: Integers,
        starts: Keys,
        values: Floats | None = None,
        grouping: Grouping | None = None,
    ) -> Judgment:
        """Return what this makes of slates (n_rows, k), one in each row: see `Judgment`.

        starts: (n_rows, n_draws), where the random numbers of the slates to draw begin; values: of all items,
        (n_rows, n_items), without which nothing is expected; grouping: by `grouped`, if it is kept for the next time.
        """
        shape = slates.shape
        table = np.empty((shape[0], 0)) if values is None else np.ascontiguousarray(values)
        weights = np.broadcast_to(self.rule.weights, shape[:1])
        asked = (np.argsort(weights, kind="stable"), _plain(slates), table, np.ascontiguousarray(starts))
        judged = Judgment(*(np.zeros(shape) for _ in Judgment._fields))
        arguments = self._arguments(available, len(slates)), rule_arguments(self.rule)
        _check(judge_slates(*arguments, self.grouped() if grouping is None else grouping, asked, judged))
        return judged

    def grouped(self) -> Grouping:
        """Return items in groups by their categories, for `judge`, which keeps there what it works out of them."""
        return Grouping.of(*self.rule.sets, self.scores.shape[1])

    def _arguments(self, available: Available | ArrayLike, n_rows: int) -> tuple[Floats, NDArray[np.bool_], float]:
        n_allowed = n_rows if isinstance(available, Available) else len(np.asarray(available))
        allowed = as_table(available, n_allowed, self.scores.shape[1])
        return self.scores, np.ascontiguousarray(allowed), float(self.temperature)


def _plain(numbers: Integers) -> Integers:
    return np.ascontiguousarray(numbers, dtype=np.int64)


def _check(failed: int) -> None:
    """Refuse scores that are not finite."""
    if failed >= 0:
        raise ValueError("the score of an available item is not finite; mark it not available, or repair it")


@compiled
def draw_slates(
    softmax: tuple[Floats, NDArray[np.bool_], float],
    rule: RuleArguments,
    starts: Keys,
    out: Sampled,
) -> int:
    """Draw a slate for every row; return the first row with a score that is not finite, or −1."""
    scores, allowed, temperature = softmax
    kind, weights, noise, vectors, words, of_item = rule
    n_items, k = scores.shape[1], out[0].shape[1]
    left, sums, state = np.empty(n_items, dtype=np.bool_), np.empty(words.shape[0]), np.empty(n_items)
    so_far, direction = (left, of_item, sums, state), np.empty((1, vectors.shape[1]))
    shares, factors, uniforms = np.empty(n_items), np.empty(words.shape[0]), np.empty(n_items)
    for row in range(out[0].shape[0]):
        weight = 0.0 if kind == RELEVANCE else weights[row if weights.size > 1 else 0]
        own, price = scores[row if scores.shape[0] > 1 else 0], (weight, temperature)
        left[:], state[:], sums[:] = allowed[row if allowed.shape[0] > 1 else 0], 0.0, 0.0
        if not weigh(own, price, so_far, shares):
            return row
        for place in range(min(k, left.sum())):
            start = mix(starts[row] ^ np.uint64(place))
            item, total = draw_item(shares, start, uniforms)
            if total < VANISHED:
                weigh(own, price, so_far, shares)
                item, total = draw_item(shares, start, uniforms)
            out[0][row, place], out[1][row, place] = item, gain_of(own, weight, so_far, item)
            out[2][row, place], out[3][row, place] = own[item], shares[item] / total
            left[item], shares[item] = False, 0.0
            if weight > 0.0 and place + 1 < k:
                lower_by_sets(words, price, item, so_far, (shares, factors))
                if vectors.shape[0] > 0:
                    add_direction((kind, weight, noise), vectors, item, direction, 0)
                    lower_by_vectors((vectors, direction, words), price, item, so_far, (shares, uniforms))
    return -1


@inner
def gain_of(own: Floats, weight: float, so_far: SoFar, item: int) -> float:
    """Return the gain of an item: its own value, less what the items before it take."""
    _, of_item, sums, state = so_far
    return float(own[item] - weight * (sums[of_item[item]] + state[item])) if weight > 0.0 else float(own[item])


@inner
def weigh(own: Floats, price: tuple[float, float], so_far: SoFar, shares: Floats) -> bool:
    """Work out the shares of all items that are left, the largest 1; False if a score is not finite."""
    (weight, temperature), left, largest = price, so_far[0], -np.inf
    for item in range(shares.size):
        if left[item]:
            if not abs(own[item]) < np.inf:
                return False
            largest = max(largest, gain_of(own, weight, so_far, item))
    for item in range(shares.size):
        shares[item] = np.exp((gain_of(own, weight, so_far, item) - largest) / temperature) if left[item] else 0.0
    return True


@inner
def lower_by_sets(
    words: Words, price: tuple[float, float], latest: int, so_far: SoFar, lowered: tuple[Floats, Floats]
) -> None:
    """Let each set of categories see the latest item, and multiply the shares of its items by one factor."""
    (weight, temperature), (_, of_item, sums, _), (shares, factors) = price, so_far, lowered
    for number in range(sums.size):
        similarity = jaccard_of_sets(words, number, of_item[latest])
        sums[number] += similarity
        factors[number] = np.exp(-weight * similarity / temperature) if similarity > 0.0 else 1.0
    for item in range(shares.size):
        shares[item] *= factors[of_item[item]]


@inner
def lower_by_vectors(
    similar: tuple[Vectors, Floats, Words],
    price: tuple[float, float],
    latest: int,
    so_far: SoFar,
    lowered: tuple[Floats, Floats],
) -> None:
    """Let each item about which categories say nothing see the latest item, by its vector.

    lowered: shares, and memory for a similarity of each item, so that exponentials come after all products; among them,
    products would take twice as long.
    """
    (vectors, direction, words), (weight, temperature), (left, of_item, _, state) = similar, price, so_far
    (shares, memory), is_latest_empty = lowered, is_empty(words, of_item[latest])
    for item in range(shares.size):
        memory[item] = 0.0
        if left[item] and (is_latest_empty or is_empty(words, of_item[item])):
            along = product(vectors, item, direction, 0)
            memory[item] = next_state(OVERLAP, 0.0, squared_length(vectors, item), along)
            state[item] += memory[item]
    for item in range(shares.size):
        if memory[item] > 0.0:
            shares[item] *= np.exp(-weight * memory[item] / temperature)


@inner
def draw_item(shares: Floats, start: np.uint64, uniforms: Floats) -> tuple[int, float]:
    """Return the item that is drawn at a place, and the sum of the shares; an item that is not left has none.

    A waiting time −log(1 − u) / share is at least u / share, which is enough to tell that most items do not win.
    """
    fill_uniforms(start, uniforms)
    shortest, chosen = np.inf, 0
    for item in range(shares.size):
        if uniforms[item] < shortest * shares[item]:
            waiting = -np.log1p(-uniforms[item]) / shares[item]
            if waiting < shortest:
                shortest, chosen = waiting, item
    return chosen, total_between(shares, 0, shares.size)


@inner
def fill_uniforms(start: np.uint64, uniforms: Floats) -> None:
    """Write the random number of each item at a place, in vector registers."""
    for item in range(uniforms.size):
        uniforms[item] = np.float64(mix(start + GOLDEN * np.uint64(item + 1)) >> np.uint64(11)) * 2.0**-53
