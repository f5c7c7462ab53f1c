"""The slow twin of `slatewise.recommender.wishes`: what a wish teaches, by the textbook and one number at a time."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from slatewise.policies import State

Floats = NDArray[np.float64]


def direction(policy: Any, category: str) -> Floats:
    """Where taste for a category lies: the mean of its items less its regression on the mean of all, by rates."""
    catalog = policy.catalog.trained
    column = catalog.category_names.index(category)
    vectors = getattr(policy, "vectors", catalog.vectors).astype(float)
    rates = [1.0 / (1.0 + np.exp(-odds)) for odds in catalog.log_odds]
    members = [item for item in range(catalog.n_items) if catalog.categories[item, column]]
    own, every = (
        sum(rates[item] * vectors[item] for item in items) / sum(rates[item] for item in items)
        for items in (members, range(catalog.n_items))
    )
    return np.asarray(own - (own @ every) / (every @ every) * every)


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
