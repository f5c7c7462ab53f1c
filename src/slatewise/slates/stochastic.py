"""The stochastic greedy: at each place an item is drawn by softmax over the gains, so propensities are exact.

P(item i at this place | the items before it) = exp(gain_i / τ) / Σ exp(gain_j / τ) over the available items j. The draw
takes an exponential waiting time for every item at the rate exp(gain_i / τ), and the shortest wins: that is the
Gumbel-max trick, argmax gain_i / τ + G_i with Gumbel noise G, in another form. Each item has its own random number at
each place, so leaving out an item that was not chosen changes nothing about those chosen before.

Every gain counts, so the cost is one pass over all available items for each place; see docs/evaluation.md.
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
from slatewise.slates.propensities import Judgment, factor_table, group_items, judge_slates
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
        self, available: Available | ArrayLike, slates: Integers, starts: Keys, values: Floats | None = None
    ) -> Judgment:
        """Return what this makes of slates (n_rows, k), one in each row: see `Judgment`.

        starts: (n_rows, n_draws), where the random numbers of the slates to draw begin; values: of all items,
        (n_rows, n_items), without which nothing is expected.
        """
        shape = slates.shape
        table = np.empty((shape[0], 0)) if values is None else np.ascontiguousarray(values)
        weights = np.broadcast_to(self.rule.weights, shape[:1])
        groups = group_items(*self.rule.sets, self.scores.shape[1])
        memory = factor_table(groups, max(1, len(self.rule.sets.words)))
        asked = (np.argsort(weights, kind="stable"), _plain(slates), table, np.ascontiguousarray(starts), memory)
        judged = Judgment(*(np.zeros(shape) for _ in Judgment._fields))
        arguments = self._arguments(available, len(slates)), rule_arguments(self.rule)
        _check(judge_slates(*arguments, groups, asked, judged))
        return judged

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
    gains, state, left = np.empty(n_items), np.empty(n_items), np.empty(n_items, dtype=np.bool_)
    sums, directions = np.empty(words.shape[0]), np.empty((k, vectors.shape[1]))
    for row in range(out[0].shape[0]):
        weight = 0.0 if kind == RELEVANCE else weights[row if weights.size > 1 else 0]
        own, slate = scores[row if scores.shape[0] > 1 else 0], out[0][row]
        left[:], state[:], sums[:] = allowed[row if allowed.shape[0] > 1 else 0], 0.0, 0.0
        for place in range(min(k, left.sum())):
            if weight > 0.0 and place > 0:
                add_similarities(vectors, (words, of_item), (directions, slate, place - 1), left, (sums, state))
            largest = -np.inf
            for item in range(n_items):
                if left[item]:
                    if not abs(own[item]) < np.inf:
                        return row
                    gains[item] = own[item]
                    if weight > 0.0:
                        gains[item] -= weight * (sums[of_item[item]] + state[item])
                    largest = max(largest, gains[item])
            start = mix(starts[row] ^ np.uint64(place))
            item, out[3][row, place] = draw_item(gains, left, (largest, temperature), start)
            slate[place], out[1][row, place], out[2][row, place] = item, gains[item], own[item]
            left[item] = False
            if weight > 0.0 and vectors.shape[0] > 0:
                add_direction((kind, weight, noise), vectors, item, directions, place)
    return -1


@inner
def add_similarities(
    vectors: Vectors,
    sets: tuple[Words, Integers],
    chosen: tuple[Floats, Integers, int],
    left: NDArray[np.bool_],
    so_far: tuple[Floats, Floats],
) -> None:
    """Add the similarity with the latest item: of every set of categories, and of items that it says nothing about."""
    (words, of_item), (directions, slate, latest), (sums, state) = sets, chosen, so_far
    other = of_item[slate[latest]]
    for number in range(sums.size):
        sums[number] += jaccard_of_sets(words, number, other)
    if vectors.shape[0] == 0:
        return
    for item in range(state.size):
        if left[item] and (is_empty(words, of_item[item]) or is_empty(words, other)):
            along = product(vectors, item, directions, latest)
            state[item] = next_state(OVERLAP, state[item], squared_length(vectors, item), along)


@inner
def draw_item(
    gains: Floats, left: NDArray[np.bool_], softmax: tuple[float, float], start: np.uint64
) -> tuple[int, float]:
    """Return the item that is drawn at a place, and its propensity.

    A waiting time −log(1 − u) / share is at least u / share, which is enough to tell that most items do not win.
    """
    largest, temperature = softmax
    total, shortest, chosen = 0.0, np.inf, 0
    for item in range(gains.size):
        if not left[item]:
            continue
        share = np.exp((gains[item] - largest) / temperature)
        total += share
        uniform = np.float64(mix(start + GOLDEN * np.uint64(item + 1)) >> np.uint64(11)) * 2.0**-53
        if uniform < shortest * share:
            waiting = -np.log1p(-uniform) / share
            if waiting < shortest:
                shortest, chosen = waiting, item
    return chosen, np.exp((gains[chosen] - largest) / temperature) / total
