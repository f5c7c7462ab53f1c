"""An estimate with its interval, how many slates it rests on, and a warning where the log cannot tell."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

NORMAL_95 = 1.959964
FEWEST_SLATES = 100.0
"""An estimate that rests on fewer effective slates is warned of."""
CERTAIN = 3.0
"""Standard errors by which weights must fall short of 1 before support is said to be missing."""
NEGLIGIBLE = 0.005
"""A share of missing slates that is not warned of: an estimate hardly depends on it, and rounding alone has some."""


@dataclass(frozen=True)
class Estimate:
    """Reward per slate with its 95 % interval over people.

    effective_slates: (Σw)² / Σw² of the importance weights, the least of all places: how many slates count in effect;
    warning: why not to trust it, None if nothing speaks against it.
    """

    value: float
    low: float
    high: float
    effective_slates: float
    warning: str | None = None


def estimate(terms: Floats, users: Integers, weights: Floats | None = None, unseen: Floats | float = 0.0) -> Estimate:
    """Return the mean of terms (n_slates,), one per slate, with an interval that takes users (n_slates,) as units.

    weights: (n_slates, k) or none, for the number of effective slates and for the warning; unseen: by how much each
    place (k,) may fall short of 1 without a warning. Student's t has as many degrees of freedom as users, or as
    effective slates if these are fewer, less one.
    """
    value, error, n_users = clustered_mean(terms, users)
    effective = float(len(terms)) if weights is None else effective_slates(weights)
    asymmetry, quantile = _asymmetry(terms - value, users), student_95(min(n_users, effective) - 1.0)
    low, high = (value - error * unskewed(side * quantile, asymmetry) for side in (1.0, -1.0))
    warning = None if weights is None else support_warning(weights, users, unseen)
    return Estimate(value, low, high, effective, warning)


def clustered_mean(terms: Floats, users: Integers) -> tuple[float, float, int]:
    """Return the mean over slates, its standard error with users as units, and the number of users."""
    _, numbers = np.unique(users, return_inverse=True)
    sizes = np.bincount(numbers)
    value, n_users = float(terms.mean()), len(sizes)
    if n_users < 2:
        return value, math.inf, n_users
    residuals = np.bincount(numbers, terms - value)
    squares = float((residuals**2).sum()) * n_users / (n_users - 1)
    return value, math.sqrt(squares) / len(terms), n_users


def unskewed(quantile: float, asymmetry: float) -> float:
    """Return the quantile of a mean's t statistic from that of a symmetric one (Hall 1992).

    Rewards times importance weights have a long tail to the right, and the usual interval would reach too low.
    asymmetry: a = γ / √n, γ the skewness of n terms. Hall's ((1 + a·t/3)³ − 1) / a + a/6 is symmetric; this inverts it.

    >>> unskewed(1.96, 0.0), round(unskewed(1.96, 0.1), 2), round(unskewed(-1.96, 0.1), 2)
    (1.96, 1.83, -2.12)
    """
    if abs(asymmetry) < 1e-9:
        return quantile
    return 3.0 / asymmetry * (float(np.cbrt(1.0 + asymmetry * (quantile - asymmetry / 6.0))) - 1.0)


def _asymmetry(residuals: Floats, users: Integers) -> float:
    """Return the skewness of sums over users, divided by the root of the number of users."""
    sums = np.bincount(np.unique(users, return_inverse=True)[1], residuals)
    variance = float((sums**2).sum())
    return float((sums**3).sum()) / variance**1.5 if variance > 0.0 else 0.0


def effective_slates(weights: Floats) -> float:
    """Return (Σw)² / Σw² of the place where it is least.

    >>> effective_slates(np.array([[1.0, 2.0], [1.0, 0.0]]))
    1.0
    """
    squares = (weights**2).sum(axis=0)
    sums = weights.sum(axis=0) ** 2
    return float(np.divide(sums, squares, out=np.zeros_like(sums), where=squares > 0.0).min())


def support_warning(weights: Floats, users: Integers, unseen: Floats | float = 0.0) -> str | None:
    """Return what is wrong with importance weights, whose mean is 1 if the log could hold whatever is asked about."""
    effective = effective_slates(weights)
    if effective == 0.0:
        return "no logged slate could have come from this policy: the log says nothing about it"
    covered = _least_covered(weights, users, unseen)
    if covered is not None:
        return f"the log lacks slates that this policy shows: it covers about {covered:.0%} of them"
    if effective < FEWEST_SLATES:
        return f"it rests on about {effective:.0f} slates only; explore more, or wait"
    return None


def _least_covered(weights: Floats, users: Integers, unseen: Floats | float) -> float | None:
    """Return the least mean of the places whose weights fall short for sure, None if there are none."""
    means, errors = np.array([clustered_mean(at_place, users)[:2] for at_place in weights.T]).T
    is_short = means + CERTAIN * errors < 1.0 - np.maximum(unseen, NEGLIGIBLE)
    return float(means[is_short].min()) if is_short.any() else None


def student_95(freedom: float) -> float:
    """Return the two-sided 95 % quantile of Student's t, by its expansion around the normal (exact to 0.1 % from 4).

    >>> round(student_95(10), 3), round(student_95(100_000), 3)
    (2.228, 1.96)
    """
    z, n = NORMAL_95, max(freedom, 1.0)
    first, second = (z**3 + z) / 4.0, (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0
    third = (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0
    return z + first / n + second / n**2 + third / n**3
