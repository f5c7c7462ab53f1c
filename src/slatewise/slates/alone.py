"""Greedy choice for one user, exact and pruned: at the cost of one pass over the catalogue where bounds allow."""

from __future__ import annotations

import numpy as np

from slatewise.slates import greedy
from slatewise.slates.available import Available
from slatewise.slates.diversity import Rule
from slatewise.slates.forms import RuleFor
from slatewise.slates.greedy import Choice, Floats, Integers, nothing
from slatewise.slates.promise import Bounds, Promise, Ranking
from slatewise.slates.solo import SoloRule
from slatewise.slates.vectors import ItemVectors

LARGEST_SHARE = 3  # candidates are at most one item in so many, else all items are looked at


def choose_alone(promise: Promise, vectors: ItemVectors, k: int, rule: RuleFor) -> Choice:
    """Run a greedy rule for one user; the promise bounds every gain, up to the rule's headroom.

    Each choice among the most promising items is kept only if no other item can gain as much. If one can, the rule
    goes on with as many as may, and with all items once they are too many for that to pay.
    """
    chosen, size = nothing(1, k), greedy.CANDIDATES_PER_PICK * k
    largest = promise.n_items // LARGEST_SHARE
    while size <= largest:
        items, outside = promise.best(size)
        if items.size > 2 * largest or outside == np.inf:
            break
        missed = _greedy_on_rows(promise.scores(items), rule.alone(vectors.rows(items)), chosen, items, outside)
        if missed is None:
            return chosen
        wanted = max(min(greedy.ENLARGEMENT * size, largest), promise.reaching(missed))
        if wanted < 2 * size or wanted > (largest if rule.screened is None else largest // LARGEST_SHARE**2):
            break
        size = wanted
    items = promise.left()
    if rule.screened is not None and items.size * 2 >= len(vectors.table):
        rule.screened(_all_scores(promise, items, len(vectors.table)), vectors, chosen)
    elif items.size <= greedy.BLOCK_NUMBERS // 4:
        _greedy_on_rows(promise.scores(items), rule.alone(vectors.rows(items)), chosen, items)
    elif items.size * 2 < len(vectors.table):
        _greedy(promise.scores(items), rule.together(vectors.take(items[None]), 1), chosen, items)
    else:
        everything = np.arange(len(vectors.table))
        _greedy(_all_scores(promise, items, everything.size), rule.together(vectors.everything, 1), chosen, everything)
    return chosen


def _all_scores(promise: Promise, items: Integers, n_items: int) -> Floats:
    """Return the scores of all items, −inf for what may not be chosen."""
    if items.size == n_items:
        return promise.scores(items)
    scores = np.full(n_items, -np.inf)
    scores[items] = promise.scores(items)
    return scores


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


@np.errstate(divide="ignore")
def _greedy_on_rows(
    scores: Floats, rule: SoloRule, chosen: Choice, items: Integers, outside: float = -np.inf
) -> float | None:
    """Fill the empty places of a choice from some items, ascending; None, or the gain at which it had to stop.

    It stops where items outside, whose gains end at `outside`, may gain as much. Overwrites scores.
    """
    k, complete = chosen.items.shape[1], outside == -np.inf
    chosen_items, chosen_gains, chosen_variety = chosen.items[0], chosen.gains[0], chosen.variety[0]
    first = int(np.count_nonzero(chosen_items >= 0))
    for place in items.searchsorted(chosen_items[:first]).tolist() if first else ():
        scores[place] = -np.inf
        rule.add(place)
    for position in range(first, k if items.size else 0):
        gains = rule.gains(scores, complete)
        best = gains.item(gains.argmax())
        if best == -np.inf and complete:
            return None
        tie = greedy.TIE * (1.0 + abs(best))
        if not complete and not best - 2.0 * tie - rule.headroom() > outside:
            return best - 2.0 * tie - rule.headroom()
        place = int((gains >= best - tie).argmax())
        gain = gains.item(place)
        chosen_items[position], chosen_gains[position] = items.item(place), gain
        chosen_variety[position] = gain - scores.item(place)
        scores[place] = -np.inf
        if position + 1 < k:
            rule.add(place)
    return None


def _greedy(scores: Floats, rule: Rule, chosen: Choice, items: Integers) -> None:
    """Fill the empty places of a choice from all items, ascending, that are too many to copy. Overwrites scores."""
    row, complete = scores[None], np.array([True])
    picks = np.searchsorted(items, chosen.items[:, chosen.items[0] >= 0]).T
    for pick in picks:
        row[0, pick] = -np.inf
        rule.add(pick)
    for position in range(len(picks), chosen.items.shape[1] if items.size else 0):
        with np.errstate(divide="ignore"):
            gains = rule.gains(row, complete)
        best = float(gains[0, gains.argmax()])
        if best == -np.inf:
            return
        place = int((gains >= best - greedy.TIE * (1.0 + abs(best))).argmax())
        gain = gains[0, place]
        chosen.items[0, position], chosen.gains[0, position] = items[place], gain
        chosen.variety[0, position] = gain - row[0, place]
        row[0, place] = -np.inf
        if position + 1 < chosen.items.shape[1]:
            rule.add(np.array([place]))
