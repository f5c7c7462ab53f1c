"""What it costs to learn from one slate, and whether that grows with what was learned before."""

from functools import partial

import numpy as np

from slatewise.bench.measure import Work, seconds
from slatewise.bench.worlds import SEED, SLATE_SIZE, THREE_CLICKS, random_catalog
from slatewise.policies import Policy, Slates, State, make_policy

POLICIES = {"update": "dc2b-calibrated", "update_dc2b": "dc2b"}
DIM = 20


def run(n_items: int = 1_000, short: int = 10, long: int = 10_000, repeats: int = 301) -> dict[str, float]:
    """Measure `policy.update` for one user who has answered a few slates, and many."""
    figures = {}
    for figure, name in POLICIES.items():
        policy = make_policy(name, random_catalog(n_items, DIM))
        times = seconds({str(age): _learning(policy, age) for age in (short, long)}, repeats, warm_ups=10)
        figures[f"{figure}_us"] = times[str(short)] * 1e6
        figures[f"{figure}_over_history"] = times[str(long)] / times[str(short)]
    return figures


def _learning(policy: Policy, n_slates: int) -> Work:
    """Return the update that follows after so many random slates."""
    state, random = policy.start(1), np.random.default_rng(SEED)
    for _ in range(n_slates):
        state = _learn(policy, state, random)
    return partial(_learn, policy, state, np.random.default_rng(SEED + 1))


def _learn(policy: Policy, state: State, random: np.random.Generator) -> State:
    """Update by a random slate with three clicks."""
    items = random.integers(policy.catalog.n_items, size=(1, SLATE_SIZE))
    unused = np.zeros((1, SLATE_SIZE))
    return policy.update(state, Slates(items, unused, unused, unused), THREE_CLICKS)
