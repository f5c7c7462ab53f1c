"""Greedy choice for a batch of users, exact and pruned: what every slate rule with variety runs on.

Every greedy rule returns exactly min(k, available) distinct available items per user, best first, and never lets one
user's slate depend on the batch. Sums over coordinates run in one fixed order, so equal items get equal gains wherever
they stand. A tie is a gain within TIE of the best, so that rounding decides nothing, and goes to the lowest index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slatewise.slates.diversity import Rule
from slatewise.slates.vectors import ItemVectors

if TYPE_CHECKING:
    from slatewise.slates.forms import RuleFor

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

TIE = 1e-9  # relative to 1 + |gain|
BLOCK_NUMBERS = 1 << 17  # users are worked on in blocks of about so many (user, item) pairs, to stay in the cache
CANDIDATES_PER_PICK = 10
TRIAL_SHARE = 8  # one user in so many is tried first
ENLARGEMENT = 4  # each trial has at least so many times the candidates of the one before
CANDIDATE_GROWTH = 8  # candidates must be fewer than one item in so many, else all items are looked at


@dataclass(frozen=True)
class Choice:
    """Chosen items (n_users, k), −1 where nothing was left, and, 0 for −1, what each added to the objective.

    variety is the part of a gain that is not the item's own score.
    """

    items: Integers
    gains: Floats
    variety: Floats

    def put(self, rows: Integers | slice, part: Choice) -> None:
        """Fill in the choice of some users."""
        self.items[rows], self.gains[rows], self.variety[rows] = part.items, part.gains, part.variety

    def take(self, rows: Booleans) -> Choice:
        """Return the choice of some users."""
        return Choice(self.items[rows], self.gains[rows], self.variety[rows])

    def named(self, candidates: Integers) -> Choice:
        """Turn places among candidates (n_users, n_candidates) into item numbers."""
        items = np.take_along_axis(candidates, np.maximum(self.items, 0), axis=1)
        return Choice(np.where(self.items >= 0, items, -1), self.gains, self.variety)


def choose_together(scores: Floats, bound: Floats, vectors: ItemVectors, k: int, rule: RuleFor) -> Choice:
    """Run a greedy rule on blocks of users that fit the cache, without pruning once it has failed for most of a block.

    The first block is a small trial. `bound` (1, n_items or 1) is the most that variety can add, up to the rule's
    headroom.
    """
    chosen, prune = nothing(len(scores), k), True
    rows = max(1, BLOCK_NUMBERS // scores.shape[1])
    trial = max(1, min(rows, len(scores) // TRIAL_SHARE))
    for users in np.split(np.arange(len(scores)), range(trial, len(scores), rows)):
        rest = _choose_from_promising(scores, bound, vectors, rule, (chosen, users)) if prune else users
        if rest.size:
            part, _ = _greedy(
                scores[rest], rule.together(vectors.everything, len(rest)), k, np.full(len(rest), -np.inf)
            )
            chosen.put(rest, part)
        prune = 2 * rest.size <= users.size
    return chosen


def _choose_from_promising(
    scores: Floats,
    bound: Floats,
    vectors: ItemVectors,
    rule: RuleFor,
    places: tuple[Choice, Integers],
) -> Integers:
    """Fill in what the most promising candidates prove, for some users of a choice; return the users left over.

    Where the candidates prove too few, as many are tried as may matter, if that is a small part of the items.
    """
    chosen, todo = places
    k, largest, left = chosen.items.shape[1], scores.shape[1] // CANDIDATE_GROWTH, [todo[:0]]
    size = CANDIDATES_PER_PICK * k
    while todo.size and size <= largest:
        bounds = scores[todo] + bound
        items, outside = _most_promising(bounds, size)
        part, sure = _greedy(scores[todo[:, None], items], rule.together(vectors.take(items), len(todo)), k, outside)
        exact = sure > outside
        chosen.put(todo[exact], part.named(items).take(exact))
        needed = np.count_nonzero(bounds[~exact] >= sure[~exact, None], axis=1)
        left.append(todo[~exact][needed > largest])
        todo = todo[~exact][needed <= largest]
        size = max(ENLARGEMENT * size, int(needed.max(where=needed <= largest, initial=0)))
    return np.concatenate([*left, todo])


def _most_promising(bounds: Floats, size: int) -> tuple[Integers, Floats]:
    """Return the `size` items with the largest bounds, in ascending order, and the largest bound among the others."""
    last_outside = bounds.shape[1] - size - 1
    order = np.argpartition(bounds, last_outside, axis=1)
    outside = np.take_along_axis(bounds, order[:, last_outside : last_outside + 1], axis=1)[:, 0]
    return np.sort(order[:, last_outside + 1 :], axis=1), outside


def _greedy(scores: Floats, rule: Rule, k: int, outside: Floats) -> tuple[Choice, Floats]:
    """Choose k candidates one by one; also return the gain that every choice of a row surpassed for sure.

    Where that is not above `outside`, at which the gains of other items end, the choice may be wrong, and it stopped
    being looked at. Where `outside` is −inf, the candidates are all there is. Overwrites scores.
    """
    chosen, rows = nothing(len(scores), k), np.arange(len(scores))
    complete = outside == -np.inf
    sure = np.full(len(scores), np.inf)
    for position in range(k):
        with np.errstate(divide="ignore"):
            gains = rule.gains(scores, complete)
        best = gains.max(axis=1)
        tie = TIE * (1.0 + np.abs(best))
        np.copyto(sure, np.minimum(sure, best - 2.0 * tie - rule.headroom()), where=~complete & (sure > outside))
        if not (sure > outside).any():
            break
        picks = (gains >= (best - tie)[:, None]).argmax(axis=1)
        record(chosen, position, picks, gains[rows, picks], scores[rows, picks])
        scores[rows, picks] = -np.inf
        if position + 1 < k:
            rule.add(picks)
    return chosen, sure


def nothing(n_users: int, k: int) -> Choice:
    """Return a choice with every place empty."""
    if k < 1:
        raise ValueError(f"k is {k}; a slate has at least one position")
    return Choice(np.full((n_users, k), -1, dtype=np.int64), np.zeros((n_users, k)), np.zeros((n_users, k)))


def record(chosen: Choice, position: int, picks: Integers, gains: Floats, scores: Floats) -> None:
    """Note what was picked for one position; a gain of −inf means that nothing was left."""
    found = gains > -np.inf
    chosen.items[found, position] = picks[found]
    chosen.gains[found, position] = gains[found]
    chosen.variety[found, position] = gains[found] - scores[found]


def masked(scores: ArrayLike, available: ArrayLike) -> Floats:
    """Return a fresh float64 copy of scores (n_users, n_items) with −inf where not available."""
    allowed = np.asarray(available, dtype=np.bool_)
    kept = np.where(allowed, np.asarray(scores, dtype=np.float64), -np.inf)
    if kept.ndim != 2 or kept.shape[1] == 0 or kept.shape != np.shape(scores):
        raise ValueError(f"scores are {np.shape(scores)}, available {allowed.shape}; give (n_users, n_items) for both")
    if np.count_nonzero(np.isfinite(kept)) != np.count_nonzero(np.broadcast_to(allowed, kept.shape)):
        raise ValueError("the score of an available item is not finite; mark it not available, or repair its vector")
    return kept
