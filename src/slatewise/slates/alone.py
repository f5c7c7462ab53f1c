"""Greedy choice for one user, exact and pruned: at the cost of one pass over the catalogue where bounds allow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from slatewise.slates import greedy
from slatewise.slates.available import Available
from slatewise.slates.diversity import Rule
from slatewise.slates.greedy import Choice, Floats, Integers, nothing
from slatewise.slates.promise import Bounds, Promise, Ranking
from slatewise.slates.vectors import Candidates, ItemVectors


def choose_alone(promise: Promise, vectors: ItemVectors, k: int, rule: Callable[[Candidates, int], Rule]) -> Choice:
    """Run a greedy rule for one user; the promise bounds every gain, up to the rule's headroom.

    Each choice among the most promising items is kept only if no other item can gain as much. If one can, the rule
    goes on with as many as may, and with all items once they are too many for that to pay: the earlier it had to stop,
    the fewer they must be.
    """
    chosen, size = nothing(1, k), greedy.CANDIDATES_PER_PICK * k
    largest = promise.n_items // greedy.CANDIDATE_GROWTH
    while size <= largest:
        items, outside = promise.best(size)
        if items.size > 2 * largest or outside == np.inf:
            break
        missed = _greedy(promise.scores(items), rule(vectors.take(items[None]), 1), chosen, items, outside)
        if missed is None:
            return chosen
        wanted = max(min(greedy.ENLARGEMENT * size, largest), promise.reaching(missed))
        n_proven = np.count_nonzero(chosen.items >= 0)
        if wanted < 2 * size or wanted * k > largest * (1 + n_proven):
            break
        size = wanted
    items = promise.left()
    if items.size * 2 < len(vectors.table):
        _greedy(promise.scores(items), rule(vectors.take(items[None]), 1), chosen, items)
    else:
        everything = np.arange(len(vectors.table))
        scores = np.full(everything.size, -np.inf)
        scores[items] = promise.scores(items)
        _greedy(scores, rule(vectors.everything, 1), chosen, everything)
    return chosen


def top_k_alone(promise: Promise, k: int) -> Choice:
    """Choose one user's k best scores; equal ones by index."""
    chosen, size = nothing(1, k), k + greedy.CANDIDATES_PER_PICK
    while True:
        items, outside = promise.best(size) if size < promise.n_items else (promise.left(), -np.inf)
        scores = promise.scores(items)
        order = np.argsort(-scores, kind="stable")[:k]
        if outside == -np.inf or (order.size == k and scores[order[-1]] > outside):
            chosen.items[0, : order.size], chosen.gains[0, : order.size] = items[order], scores[order]
            return chosen
        size *= greedy.CANDIDATE_GROWTH


def top_ranked(ranking: Ranking, available: Available, k: int) -> Choice:
    """Choose one user's k best of scores that are the same for everyone and ranked already."""
    if available.candidates is not None:
        return top_k_alone(Bounds.of_available(ranking.bounds, available), k)
    chosen = nothing(1, k)
    items = available.left(ranking.order[: k + available.excluded.size])[:k]
    chosen.items[0, : items.size], chosen.gains[0, : items.size] = items, ranking.bounds[items]
    return chosen


def _greedy(scores: Floats, rule: Rule, chosen: Choice, items: Integers, outside: float = -np.inf) -> float | None:
    """Fill the empty places of a choice from some items, ascending; None, or the gain at which it had to stop.

    It stops where items outside, whose gains end at `outside`, may gain as much. Overwrites scores.
    """
    row, complete = scores[None], np.array([outside == -np.inf])
    picks = np.searchsorted(items, chosen.items[:, chosen.items[0] >= 0]).T
    for pick in picks:
        row[0, pick] = -np.inf
        rule.add(pick)
    for position in range(len(picks), chosen.items.shape[1] if items.size else 0):
        with np.errstate(divide="ignore"):
            gains = rule.gains(row, complete)
        best = float(gains[0, gains.argmax()])
        if best == -np.inf and complete[0]:
            return None
        tie = greedy.TIE * (1.0 + abs(best))
        if not complete[0]:
            room = rule.headroom()
            sure = best - 2.0 * tie - (room if isinstance(room, float) else float(room[0]))
            if not sure > outside:
                return sure
        place = int((gains >= best - tie).argmax())
        gain = gains[0, place]
        chosen.items[0, position], chosen.gains[0, position] = items[place], gain
        chosen.variety[0, position] = gain - row[0, place]
        row[0, place] = -np.inf
        if position + 1 < chosen.items.shape[1]:
            rule.add(np.array([place]))
    return None
