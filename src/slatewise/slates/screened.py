"""Greedy over all items at one float32 pass per pick: the pass screens, float64 decides among the few near the best."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slatewise.slates import greedy
from slatewise.slates.greedy import Choice
from slatewise.slates.promise import UNIT
from slatewise.slates.vectors import ItemVectors

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def choose_by_cosines(scores: Floats, vectors: ItemVectors, chosen: Choice, weight: float) -> None:
    """Fill the empty places of one user's choice by score minus the weighted mean cosine with the items chosen so far.

    scores: (n_items,), −inf for what may not be chosen; overwritten. The mean cosine of item i is u_i·c, c the mean of
    the chosen unit vectors, so one product with c screens everything.
    """
    picks = chosen.items[0, chosen.items[0] >= 0]
    direction = _units(vectors, picks).sum(axis=0)
    scores[picks] = -np.inf
    roughly = scores.astype(np.float32)
    largest = float(np.abs(scores, where=scores > -np.inf, out=np.zeros_like(scores)).max(initial=0.0))
    for position in range(picks.size, chosen.items.shape[1]):
        pull = direction * (-weight / max(position, 1))
        gains = vectors.units @ pull.astype(np.float32)
        gains += roughly
        best = float(gains[gains.argmax()])
        if best == -np.inf:
            return
        error = UNIT * (len(pull) + 3) * (float(np.sqrt(pull @ pull)) + largest)
        near = np.flatnonzero(gains >= np.float32(best - 2.0 * error - 2.0 * greedy.TIE * (1.0 + abs(best))))
        units = _units(vectors, near)
        exact = scores[near] + units @ pull
        top = float(exact.max())
        place = int((exact >= top - greedy.TIE * (1.0 + abs(top))).argmax())
        item = near[place]
        chosen.items[0, position], chosen.gains[0, position] = item, exact[place]
        chosen.variety[0, position] = exact[place] - scores[item]
        scores[item] = roughly[item] = -np.inf
        direction += units[place]


def _units(vectors: ItemVectors, items: Integers) -> Floats:
    """Return the unit vectors of some items; one without direction stays zero."""
    rows = vectors.rows(items)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return np.asarray(rows / np.where(lengths > 0.0, lengths, 1.0)[:, None])
