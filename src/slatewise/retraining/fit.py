"""Rates and taste vectors of items, fitted from the log of a service.

Likes are y = μ_i + θ·t_i + noise, and θ of each person is known from their log up to N(m, Σ). Given these, (μ_i, t_i)
of an item is a regression of what its viewers said on (1, θ): with φ = (1, m), the expectation-maximization step

A_i = n·I + Σ a (φφᵀ + Σ̄),   b_i = n·(μ, t of the start) + Σ c φ,   (μ_i, t_i) = A_i⁻¹ b_i

sums over everybody who saw the item. Items are shown because earlier clicks made them promising, which a plain share of
clicks would mistake for popularity; the regression does not, because it conditions on those clicks. The starting
catalog counts as n people who saw the item (`Catalog.rate_strengths`). A seen item that was looked at with probability
q has a = q²ψ/ψ_q and c = y·qψ/ψ_q (`belief.LinearModel`); one that was seen for sure has 1 and y.

Likes from elsewhere come without what was passed over. A person is expected to like Λ = Σ(μ + m·t) items, so each like
counts as 1/Λ of a person who looked at everything: it says what is liked, not how many things are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from slatewise.belief.linear_algebra import add_item, cholesky, solve_lower, solve_upper
from slatewise.catalog import Catalog
from slatewise.compiled import compiled
from slatewise.policies.calibrated import Calibrated
from slatewise.retraining.log import Floats, Integers, InteractionLog
from slatewise.retraining.tastes import SECONDS_PER_DAY, tastes

ROUNDS = 3
MOST_PEOPLE = 500.0
LEAST_RATE = 1e-4


@dataclass(frozen=True)
class FitOptions:
    """How to fit: half-lives in days of evidence and of beliefs, and the time up to which ages count.

    The starting rates count as much as `Catalog.rate_strengths` says, but at most for `most_people`, so that what was
    learned before the service ran can be overruled.
    """

    half_life: float = math.inf
    belief_half_life: float = math.inf
    now: float = math.inf
    most_people: float = MOST_PEOPLE

    def fading(self, at: Floats) -> Floats:
        """Return how much what happened at a time counts."""
        if math.isinf(self.half_life):
            return np.ones(len(at))
        latest = self.now if math.isfinite(self.now) else float(at.max(initial=0.0))
        return np.asarray(np.exp2(-np.maximum(latest - at, 0.0) / (SECONDS_PER_DAY * self.half_life)))


def refit(
    start: Catalog, log: InteractionLog, fit: FitOptions | None = None, on_round: Callable[[], None] | None = None
) -> Catalog:
    """Return a catalog whose rates and taste vectors follow a log; everything else is that of the starting one.

    Examples
    --------
    >>> import numpy as np
    >>> from slatewise import Catalog
    >>> from slatewise.retraining import FitOptions, LogBuilder, refit
    >>> from slatewise.evidence import Evidence
    >>> catalog, builder = Catalog.from_vectors(["tea", "coffee"], np.eye(2)), LogBuilder()
    >>> both = Evidence.of_clicks(builder.number(["tea", "coffee"])[None], np.array([[True, False]]))
    >>> for _ in range(200):  # everybody sees both and likes tea
    ...     builder.add_slate(0.0, both)
    ...     builder.end_person()
    >>> rates = 1 / (1 + np.exp(-refit(catalog, builder.log()).log_odds))
    >>> [(item, round(float(rate), 1)) for item, rate in zip(catalog.item_ids, rates)]
    [('coffee', 0.0), ('tea', 1.0)]
    """
    fit, items, catalog = fit or FitOptions(), log.numbered(start), start
    for _ in range(ROUNDS):
        catalog = _refitted(start, (log, items), fit, catalog)
        if on_round is not None:
            on_round()
    return catalog


@dataclass(frozen=True, eq=False)
class _Seen:
    """Observations in the order of their items: who made them, what they add to A and b, and where items begin."""

    people: Integers
    counted: Floats
    pull: Floats
    bounds: Integers


def _refitted(start: Catalog, observed: tuple[InteractionLog, Integers], fit: FitOptions, catalog: Catalog) -> Catalog:
    """Return the catalog after one round: tastes by the present catalog, then one regression per item."""
    log, items = observed
    model = Calibrated(catalog, category_weight=0.0).model
    means, spread = tastes(log, items, model, fit.belief_half_life)
    fading = np.repeat(fit.fading(log.at), np.diff(log.starts))
    from_slate = np.repeat(log.is_slate, np.diff(log.starts)) & (items >= 0)
    likes = np.where(~from_slate & (items >= 0) & (log.value > 0.5), fading * log.weight, 0.0)
    seen = _seen(observed, (model.expected, model.noise), (np.where(from_slate, fading, 0.0), likes))
    by_person = np.bincount(log.person_of, likes, log.n_people).astype(np.float64)
    everywhere = _everywhere(start, (means, spread), by_person)
    strengths = np.minimum(start.rate_strengths, fit.most_people)
    result = np.column_stack([_rates(start), start.taste_vectors.astype(np.float64)])
    features = np.column_stack([np.ones(len(means)), means])
    _solve(seen.bounds, (seen.people, seen.counted, seen.pull), (features, spread, everywhere), strengths, result)
    rates = np.clip(result[:, 0], LEAST_RATE, 1.0 - LEAST_RATE)
    counts = np.diff(np.concatenate([[0.0], np.cumsum(seen.counted)])[seen.bounds])
    return replace(
        start,
        log_odds=np.log(rates / (1.0 - rates)),
        taste_vectors=result[:, 1:].astype(np.float32),
        rate_strength=strengths + counts + everywhere[0, 0],
    )


def _seen(
    observed: tuple[InteractionLog, Integers], model: tuple[Floats, Floats], weights: tuple[Floats, Floats]
) -> _Seen:
    """Return what counts, with weights as something seen on a slate and as a like from elsewhere."""
    (log, items), (expected, noise), (on_slates, likes) = observed, model, weights
    used = np.flatnonzero((on_slates > 0.0) | (likes > 0.0))
    used = used[np.argsort(items[used], kind="stable")]
    chance, number = log.examined[used], items[used]
    scale = noise[number] / (chance * noise[number] + (1.0 - chance) * expected[number])  # qψ / ψ_q
    counted = on_slates[used] * chance * scale
    pull = on_slates[used] * scale * log.value[used] + likes[used]
    return _Seen(log.person_of[used], counted, pull, np.searchsorted(number, np.arange(len(expected) + 1)))


def _everywhere(start: Catalog, known: tuple[Floats, Floats], likes: Floats) -> Floats:
    """Return what likes from elsewhere, so many by each person, add to A of every item (1 + rank, 1 + rank)."""
    means, spread = known
    total = np.zeros((1 + means.shape[1], 1 + means.shape[1]))
    if likes.any():
        expected = _rates(start).sum() + means @ start.taste_vectors.astype(np.float64).sum(axis=0)
        share = likes / np.maximum(expected, 1.0)
        features = np.column_stack([np.ones(len(means)), means])
        total[1:, 1:] = share.sum() * spread
        total += (features * share[:, None]).T @ features
    return total


def _rates(catalog: Catalog) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-catalog.log_odds)))


@compiled
def _solve(
    bounds: Integers,
    parts: tuple[Integers, Floats, Floats],
    known: tuple[Floats, Floats, Floats],
    strengths: Floats,
    result: Floats,
) -> None:
    """Overwrite the start (n_items, 1 + rank) with A⁻¹b of every item that anything is known about."""
    people, counted, pulls = parts
    features, spread, everywhere = known
    size = features.shape[1]
    matrix, root, right = np.empty((size, size)), np.empty((size, size)), np.empty(size)
    for item in range(len(bounds) - 1):
        if bounds[item] == bounds[item + 1] and everywhere[0, 0] == 0.0:
            continue
        for row in range(size):
            right[row] = strengths[item] * result[item, row]
            for column in range(size):
                matrix[row, column] = everywhere[row, column] + (strengths[item] if row == column else 0.0)
        n_seen = 0.0
        for entry in range(bounds[item], bounds[item + 1]):
            n_seen += counted[entry]
            add_item(matrix, right, features[people[entry]], counted[entry], pulls[entry])
        for row in range(1, size):
            for column in range(row, size):
                matrix[row, column] += n_seen * spread[row - 1, column - 1]
        if cholesky(matrix, root):
            solve_lower(root, right)
            solve_upper(root, right)
            for row in range(size):
                result[item, row] = right[row]
