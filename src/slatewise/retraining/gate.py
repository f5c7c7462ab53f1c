"""Whether a new catalog may replace the one that serves: both predict the latest slates, item by item.

Each prediction is made from what was known about the person before that slate, by items that both catalogs have: a new
item of which one catalog expects something wrong would mislead that one alone. The log-loss of the two catalogs is
compared person by person, everybody counting the same: by the mean, and by the mean over the middle half of people,
which a minority of robots that the new catalog follows cannot move.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from slatewise.catalog import Catalog
from slatewise.plurals import counted
from slatewise.policies.calibrated import Calibrated
from slatewise.retraining.log import Floats, Integers, InteractionLog
from slatewise.retraining.tastes import LEAST_PROBABILITY, predict

WINDOW_SHARE, WINDOW_SLATES = 0.2, 20_000
"""The latest slates that are predicted: a share of the log, at most so many."""
FEWEST_PEOPLE, FEWEST_ITEMS = 20, 200
LARGEST_LOSS = 0.01
"""By how much of the serving catalog's loss the new one may look worse, if that may be chance."""
LARGEST_MISSING = 0.1
LARGEST_MISCALIBRATION = 0.02
DRAWS = 2_000
BINS = 10


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval over people."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Prediction:
    """How a catalog predicts: log-loss, mean probability, and how far probabilities are from shares of clicks.

    The log-loss is the mean over people of the mean over what each of them saw, as the difference of two catalogs is.
    """

    log_loss: float
    predicted: float
    calibration_error: float


@dataclass(frozen=True)
class Verdict:
    """Whether a catalog may serve, why not, and the figures.

    difference and typical_difference are of the log-loss, new minus serving, over all people and over the middle half.
    missing is the share of seen items that only the serving catalog has.
    """

    is_accepted: bool
    reasons: tuple[str, ...]
    people: int
    slates: int
    items: int
    clicked: float
    missing: float
    serving: Prediction
    candidate: Prediction
    difference: Estimate
    typical_difference: Estimate

    def as_json(self) -> dict[str, Any]:
        """Return the verdict ready for JSON."""
        return asdict(self)

    def in_words(self) -> str:
        """Return the verdict in one sentence or two."""
        if not self.people:
            return f"refused: {'; '.join(self.reasons)}"
        change = self.difference
        figures = (
            f"on {counted(self.items, 'item')} of {counted(self.slates, 'slate')} seen by {self.people:,} people, the "
            f"mean log-loss per person is {self.candidate.log_loss:.4f} instead of {self.serving.log_loss:.4f}: "
            f"{change.value:+.4f}, 95 % interval [{change.low:+.4f}, {change.high:+.4f}]"
        )
        return f"accepted: {figures}" if self.is_accepted else f"refused: {'; '.join(self.reasons)} ({figures})"


NOTHING = Prediction(0.0, 0.0, 0.0)


def compare(
    serving: Catalog, candidate: Catalog, log: InteractionLog, since: float, half_life: float = math.inf
) -> Verdict:
    """Predict the slates of a log from a time on with two catalogs, and judge the second by the first."""
    old, new = log.numbered(serving), log.numbered(candidate)
    latest = np.repeat(log.is_slate & (log.at >= since), np.diff(log.starts)) & (old >= 0)
    missing = float((new[latest] < 0).mean()) if latest.any() else 0.0
    compared = latest & (new >= 0)
    people = log.person_of[compared]
    n_slates, n_people = len(np.unique(log.step_of[compared])), len(np.unique(people))
    value = log.value[compared]
    if not n_people:
        why = "nobody has reacted lately to a slate with items that both catalogs have"
        none = Estimate(0.0, 0.0, 0.0)
        return Verdict(False, (why,), 0, 0, 0, 0.0, missing, NOTHING, NOTHING, none, none)
    are_shared = (old >= 0) & (new >= 0)
    clicks = [
        _clicks(log, np.where(are_shared, numbers, -1), catalog, half_life)[compared]
        for catalog, numbers in ((serving, old), (candidate, new))
    ]
    losses = [_log_loss(value, probability) for probability in clicks]
    by_person = _by_person(losses[1] - losses[0], people)
    predictions = (_prediction(value, clicks[0], people), _prediction(value, clicks[1], people))
    estimates = (_interval(by_person, _mean), _interval(by_person, _middle_mean))
    sizes = (n_people, n_slates, len(value))
    reasons = _reasons(sizes, missing, predictions, estimates)
    return Verdict(not reasons, reasons, *sizes, float(value.mean()), missing, *predictions, *estimates)


def _clicks(log: InteractionLog, items: Integers, catalog: Catalog, half_life: float) -> Floats:
    likes = predict(log, items, Calibrated(catalog).model, half_life)
    return np.clip(log.examined * likes, LEAST_PROBABILITY, 1.0 - LEAST_PROBABILITY)


def _log_loss(value: Floats, probability: Floats) -> Floats:
    return -(value * np.log(probability) + (1.0 - value) * np.log1p(-probability))


def _prediction(value: Floats, probability: Floats, people: Integers) -> Prediction:
    """Return loss and calibration: in tenths by probability, the mean distance of probability and share of clicks."""
    order = np.argsort(probability, kind="stable")
    bins = [part for part in np.array_split(order, BINS) if len(part)]
    distances = [len(part) * abs(float((probability[part] - value[part]).mean())) for part in bins]
    loss = float(_by_person(_log_loss(value, probability), people).mean())
    return Prediction(loss, float(probability.mean()), sum(distances) / len(value))


def _by_person(values: Floats, people: Integers) -> Floats:
    counts = np.bincount(people)
    sums = np.bincount(people, values)
    return np.asarray(sums[counts > 0] / counts[counts > 0])


def _mean(samples: Floats) -> Floats:
    return np.asarray(samples.mean(axis=-1))


def _middle_mean(samples: Floats) -> Floats:
    ordered = np.sort(samples, axis=-1)
    quarter = ordered.shape[-1] // 4
    return np.asarray(ordered[..., quarter : ordered.shape[-1] - quarter].mean(axis=-1))


def _interval(by_person: Floats, statistic: Any, seed: int = 0) -> Estimate:
    """Return a statistic of people with its bootstrap interval."""
    draw = np.random.default_rng(seed)
    drawn = [float(statistic(by_person[draw.integers(0, len(by_person), len(by_person))])) for _ in range(DRAWS)]
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Estimate(float(statistic(by_person)), float(low), float(high))


def _reasons(
    sizes: tuple[int, int, int],
    missing: float,
    predictions: tuple[Prediction, Prediction],
    estimates: tuple[Estimate, Estimate],
) -> tuple[str, ...]:
    """Return everything that speaks against the new catalog, in words."""
    (n_people, _, n_items), (serving, candidate) = sizes, predictions
    reasons = []
    if n_people < FEWEST_PEOPLE or n_items < FEWEST_ITEMS:
        reasons.append(
            f"only {n_people} people saw {n_items} items lately, which is too little to tell; "
            f"{FEWEST_PEOPLE} people and {FEWEST_ITEMS} items are needed"
        )
    if missing > LARGEST_MISSING:
        reasons.append(f"it lacks {missing:.0%} of the items that people were shown")
    for name, estimate in zip(("people", "the middle half of people"), estimates, strict=True):
        if estimate.low > 0.0 or estimate.value > LARGEST_LOSS * serving.log_loss:
            reasons.append(f"it predicts {name} worse")
    if candidate.calibration_error > serving.calibration_error + LARGEST_MISCALIBRATION:
        reasons.append(
            f"its probabilities are {candidate.calibration_error:.3f} off instead of {serving.calibration_error:.3f}"
        )
    return tuple(reasons)
