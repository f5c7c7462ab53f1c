"""What people look at and how much a skip weighs, fitted from a log of slates.

A place is clicked with probability q_r·p: p is what the belief predicts for the item from the user's earlier slates, so
that better items at the top are accounted for, and q_r is the examination of place r. Only the product shows in clicks:
if people who like and see an item still click with probability c, the curve is c times the examination, and the belief
treats both alike. The level of the curve is relative to the like rates in the catalog.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from slatewise.belief import LinearModel
from slatewise.belief.linear_algebra import add_item, cholesky, product, solve_lower, solve_upper, write_identity
from slatewise.compiled import compiled
from slatewise.evidence import Attention, Evidence, Reactions

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Vectors = NDArray[np.float32]

ROUNDS = 4
NEWTON_STEPS = 30
TOLERANCE = 1e-6
LEAST_EXAMINATION = 0.01
LEAST_PROBABILITY = 0.001
NORMAL_95 = 1.96
SKIP_WEIGHTS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05, 0.0)
MOST_SLATES = 20_000


@dataclass(frozen=True, eq=False)
class SlateLog:
    """Slates in a row for each user, oldest first: one reaction row per slate, and the number of its user (n_slates,).

    Slates of the same user must stand together.
    """

    reactions: Reactions
    users: Integers

    def __post_init__(self) -> None:
        if self.users.shape != self.reactions.items.shape[:1]:
            raise ValueError(
                f"{self.users.shape} users come with slates {self.reactions.items.shape}; give one per slate"
            )
        if len(self.starts) - 1 > len(np.unique(self.users)):
            raise ValueError("slates of the same user do not stand together; sort them by user, then by time")

    @property
    def starts(self) -> Integers:
        """Where the slates of each user begin, and the end (n_users + 1,)."""
        is_new = np.diff(self.users, prepend=-1 if not len(self.users) else self.users[0] - 1) != 0
        return np.append(np.flatnonzero(is_new), len(self.users)).astype(np.int64)

    def sample(self, most_slates: int, seed: int = 0) -> SlateLog:
        """Return the slates of some users drawn at random, about so many; of all if there are fewer."""
        if len(self.users) <= most_slates:
            return self
        sizes = np.diff(self.starts)
        order = np.random.default_rng(seed).permutation(len(sizes))
        drawn = order[: max(1, int(np.searchsorted(np.cumsum(sizes[order]), most_slates)))]
        rows = np.flatnonzero(np.isin(np.repeat(np.arange(len(sizes)), sizes), drawn))
        parts = (array[rows] for array in vars(self.reactions).values())
        return SlateLog(Reactions(*parts), self.users[rows])


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class AttentionFit:
    """What a log of so many slates says: the examination of each place, and the skip weight and loss of a rule.

    The loss is the mean log-loss of predicted clicks on each user's later slates; among rules, less is better.
    """

    attention: Attention
    curve: tuple[Estimate, ...]
    skip_weight: Estimate
    loss: float
    n_slates: int
    n_users: int


def fit_attention(log: SlateLog, model: LinearModel, attention: Attention) -> AttentionFit:
    """Fit the numbers of a rule: the skip weight, and for the rule `curve` the examination of each place as well.

    Parameters
    ----------
    log : SlateLog
        Slates and how users reacted to them; of a longer log, about `MOST_SLATES` slates of random users are used.
    model : LinearModel
        How likes depend on taste: `Calibrated(catalog).model`.
    attention : Attention
        The rule to fit. Its curve, if it has one, is replaced only if the rule is `curve`.

    Returns
    -------
    AttentionFit
        The rule with the fitted numbers as `attention`, and how certain they are.
    """
    log = log.sample(MOST_SLATES)
    if _is_first(log).all():
        raise ValueError("no user has two slates in this log, so there is nothing to predict; fit a longer log")
    curve = fit_curve(log, model)
    if attention.rule == "curve":
        attention = replace(attention, curve=tuple(estimate.value for estimate in curve))
    skip_weight, loss = fit_skip_weight(log, model, attention)
    fitted = replace(attention, skip_weight=skip_weight.value)
    return AttentionFit(fitted, curve, skip_weight, loss, len(log.users), len(log.starts) - 1)


def fit_curve(log: SlateLog, model: LinearModel, skip_weight: float = 1.0) -> tuple[Estimate, ...]:
    """Return the examination of each place, with intervals that allow for users who differ.

    Predictions need a curve and the curve needs predictions, so both are repeated, starting from a curve of 1. A place
    without a click is at most 3 / Σp with 95 % confidence; a place without any item is unknown.
    """
    n_places = log.reactions.items.shape[1]
    curve = np.ones(n_places)
    for _ in range(ROUNDS):
        attention = Attention("curve", skip_weight, tuple(curve.tolist()))
        likes = predict(log, model, attention.evidence(log.reactions))
        curve = np.clip(examination(log, likes), LEAST_EXAMINATION, 1.0)
    errors = NORMAL_95 * _standard_errors(log, likes, curve)
    return tuple(
        Estimate(float(value), float(max(value - error, 0.0)), float(min(value + error, 1.0)))
        for value, error in zip(curve, np.maximum(errors, _without_clicks(log, likes)), strict=True)
    )


def fit_skip_weight(log: SlateLog, model: LinearModel, attention: Attention) -> tuple[Estimate, float]:
    """Return the weight of a skip under which earlier slates predict later clicks best, and the mean log-loss.

    The interval holds the weights whose loss is not clearly worse than the best, judged by the users' differences.
    """
    losses = {w: user_losses(log, model, replace(attention, skip_weight=w)) for w in SKIP_WEIGHTS}
    best = min(losses, key=lambda weight: float(losses[weight].sum()))
    as_good = [weight for weight, loss in losses.items() if not _is_worse(loss - losses[best])]
    n_predicted = max(1, int((_known(log) & ~_is_first(log)[:, None]).sum()))
    return Estimate(best, min(as_good), max(as_good)), float(losses[best].sum()) / n_predicted


def user_losses(log: SlateLog, model: LinearModel, attention: Attention) -> Floats:
    """Return the log-loss of clicks on each user's slates after the first (n_users,), predicted from those before.

    Predictions are multiplied by the factor of their place that fits best, so that rules are not compared by their
    level but by what they learn about taste.
    """
    likes = predict(log, model, attention.evidence(log.reactions))
    later = _known(log) & ~_is_first(log)[:, None]
    probability = _clicks(np.clip(examination(log, likes), LEAST_EXAMINATION, None), likes)
    clicked = log.reactions.value > 0.5
    losses = -np.where(clicked, np.log(probability), np.log1p(-probability)) * later
    return np.asarray(np.add.reduceat(losses.sum(axis=1), log.starts[:-1]))


def predict(log: SlateLog, model: LinearModel, evidence: Evidence) -> Floats:
    """Return the probability that each shown item is liked (n_slates, k), from the user's earlier slates."""
    items = np.ascontiguousarray(log.reactions.items, dtype=np.int64)
    if items.max(initial=-1) >= len(model.vectors):
        raise IndexError(f"item {items.max()} was shown; the model has {len(model.vectors)} items, numbered from 0")
    learned = (evidence.items, evidence.value, evidence.weight, evidence.examined)
    likes = np.zeros(items.shape)
    _predict(log.starts, items, learned, (model.vectors, model.expected, model.noise), likes)
    return np.clip(likes, LEAST_PROBABILITY, 1.0 - LEAST_PROBABILITY)


def examination(log: SlateLog, likes: Floats) -> Floats:
    """Return the most likely q_r of clicks with probability q_r·p (n_places,), by Newton's method on a concave sum."""
    known, clicked = _known(log), (log.reactions.value > 0.5) & _known(log)
    factor = clicked.sum(axis=0) / np.maximum((likes * known).sum(axis=0), LEAST_PROBABILITY)
    for _ in range(NEWTON_STEPS):
        slope, curvature = _derivatives(likes, clicked, known, factor)
        step = slope.sum(axis=0) / np.maximum(curvature.sum(axis=0), LEAST_PROBABILITY)
        factor = np.clip(factor + step, 0.5 * factor, 2.0 * factor)
        if np.abs(step).max() < TOLERANCE:
            break
    return np.asarray(factor)


def _derivatives(
    likes: Floats, clicked: NDArray[np.bool_], known: NDArray[np.bool_], factor: Floats
) -> tuple[Floats, Floats]:
    """Return the slope of each item's log-likelihood in the q of its place, and minus the slope's slope."""
    left = np.maximum(1.0 - factor * likes, LEAST_PROBABILITY)
    positive = np.divide(1.0, factor, out=np.zeros_like(factor), where=factor > 0.0)
    slope = np.where(clicked, positive, -likes / left) * known
    curvature = np.where(clicked, positive**2, (likes / left) ** 2) * known
    return slope, curvature


def _standard_errors(log: SlateLog, likes: Floats, curve: Floats) -> Floats:
    """Return the standard error of each place (n_places,); the sums of each user are independent of other users'."""
    known, clicked = _known(log), (log.reactions.value > 0.5) & _known(log)
    slope, curvature = _derivatives(likes, clicked, known, curve)
    by_user = np.add.reduceat(slope, log.starts[:-1], axis=0)
    information = np.maximum(curvature.sum(axis=0), LEAST_PROBABILITY)
    return np.asarray(np.sqrt(np.square(by_user - by_user.mean(axis=0)).sum(axis=0)) / information)


def _without_clicks(log: SlateLog, likes: Floats) -> Floats:
    """Return 3 / Σp of places without a click, 1 of those without an item, and 0 of all others (n_places,)."""
    expected = (likes * _known(log)).sum(axis=0)
    bound = np.minimum(3.0 / np.maximum(expected, LEAST_PROBABILITY), 1.0)
    return np.asarray(np.where((log.reactions.value > 0.5).any(axis=0), 0.0, bound))


def _clicks(factor: Floats, likes: Floats) -> Floats:
    return np.clip(factor * likes, LEAST_PROBABILITY, 1.0 - LEAST_PROBABILITY)


def _known(log: SlateLog) -> NDArray[np.bool_]:
    """Which places hold an item that may have been clicked: all but those the client reported as not seen."""
    reactions = log.reactions
    seen = reactions.seen | reactions.has_value | ~reactions.is_seen_told[:, None]
    return np.asarray(seen & (reactions.items >= 0))


def _is_first(log: SlateLog) -> NDArray[np.bool_]:
    is_first = np.zeros(len(log.users), dtype=np.bool_)
    is_first[log.starts[:-1]] = True
    return is_first


def _is_worse(differences: Floats) -> bool:
    """Whether the sum of the users' differences is above 0 beyond what chance explains."""
    error = float(np.sqrt(np.square(differences - differences.mean()).sum()))
    return float(differences.sum()) > NORMAL_95 * error


@compiled
def _predict(
    starts: Integers,
    shown: Integers,
    evidence: tuple[Integers, Floats, Floats, Floats],
    model: tuple[Vectors, Floats, Floats],
    likes: Floats,
) -> None:
    """Fold the slates of one user after the other; write μ + m·t of every shown item before its slate is learned."""
    items, values, weights, examined = evidence
    vectors, expected, noise = model
    dim = vectors.shape[1]
    precision, root = np.empty((dim, dim)), np.empty((dim, dim))
    shift, mean, vector = np.empty(dim), np.empty(dim), np.empty(dim)
    for user in range(len(starts) - 1):
        write_identity(precision)
        for axis in range(dim):
            shift[axis] = 0.0
        for slate in range(starts[user], starts[user + 1]):
            for axis in range(dim):
                mean[axis] = shift[axis]
            if slate > starts[user] and cholesky(precision, root):
                solve_lower(root, mean)
                solve_upper(root, mean)
            for place in range(shown.shape[1]):
                item = shown[slate, place]
                if item >= 0:
                    for axis in range(dim):
                        vector[axis] = vectors[item, axis]
                    likes[slate, place] = expected[item] + product(mean, vector)
            for place in range(items.shape[1]):
                item, chance, weight = items[slate, place], examined[slate, place], weights[slate, place]
                if item >= 0 and weight != 0.0:
                    for axis in range(dim):
                        vector[axis] = vectors[item, axis]
                    variance = chance * chance * noise[item] + chance * (1.0 - chance) * expected[item]
                    pull = weight * chance * (values[slate, place] - chance * expected[item]) / variance
                    add_item(precision, shift, vector, weight * chance * chance / variance, pull)
