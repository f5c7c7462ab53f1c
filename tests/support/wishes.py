"""The slow twin of `slatewise.recommender.wishes`: what a wish teaches, by the textbook and one number at a time."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from slatewise.policies import State

Floats = NDArray[np.float64]


def direction(policy: Any, category: str) -> Floats:
    """Where taste for a category lies: the mean of its items less its regression on the mean of all, by rates."""
    catalog = policy.catalog.trained
    vectors = getattr(policy, "vectors", catalog.vectors).astype(float)
    own, every = (mean(policy, vectors, items) for items in (members(policy, category), [*range(catalog.n_items)]))
    return np.asarray(own - (own @ every) / (every @ every) * every)


def members(policy: Any, category: str) -> list[int]:
    catalog = policy.catalog.trained
    column = catalog.category_names.index(category)
    return [item for item in range(catalog.n_items) if catalog.categories[item, column]]


def mean(policy: Any, values: Floats, items: list[int]) -> Any:
    """The mean of some items, by rates."""
    rates = [1.0 / (1.0 + np.exp(-odds)) for odds in policy.catalog.trained.log_odds]
    return sum(rates[item] * values[item] for item in items) / sum(rates[item] for item in items)


def said(policy: Any, category: str, kind: str) -> tuple[float, float]:
    """What a wish says and how much it weighs: three likes along the direction of the category, or two deviations."""
    side = 1.0 if kind == "more" else -1.0
    if not hasattr(policy, "noise") or not hasattr(policy, "rates"):
        return 2.0 * side, 1.0
    items, slope = members(policy, category), float(np.linalg.norm(direction(policy, category)))
    rate, noise = (float(mean(policy, values, items)) for values in (policy.rates, policy.noise))
    return side * (1.0 - rate) / slope, 3.0 * slope**2 / noise


def with_wish(policy: Any, state: State, category: str, lift: float, weight: float) -> State:
    """The posterior of one user after an observation of their lift in a category, of variance 1 / weight."""
    precision, shift = ("gram", "reward") if "gram" in state else ("precision", "shift")
    start = policy.start(1)
    covariance = np.linalg.inv(start[precision][0])
    usual, line = covariance @ start[shift][0], direction(policy, category)
    unit = line / np.sqrt(line @ covariance @ line)
    learned = {
        precision: state[precision] + weight * np.outer(unit, unit),
        shift: state[shift] + weight * (lift + unit @ usual) * unit,
    }
    return {**state, **learned}
