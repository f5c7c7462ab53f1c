"""The simulation that is timed: five rounds for everybody in a synthetic world.

`python -m benchmarks.simulation USERS ITEMS REPEATS` prints the seconds of each policy. It uses nothing of slatewise
but what older commits have too, so that it can time them: PYTHONPATH says which.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median

import numpy as np

from slatewise.catalog import Catalog
from slatewise.data.synthetic import WorldSize, make_world
from slatewise.lab.simulate import Session, simulate
from slatewise.policies import make_policy

ROUNDS = 5
N_CATEGORIES = 18
POLICIES = ("dc2b", "dc2b-calibrated")


@dataclass(frozen=True)
class Size:
    """How much there is to simulate."""

    users: int = 250
    items: int = 4_000
    k: int = 10
    dim: int = 20


def prepare(size: Size, policy: str) -> Callable[[], object]:
    """Draw a world and a catalog of its vectors; return the simulation of all its users."""
    world = make_world(WorldSize(size.users, size.items, N_CATEGORIES, size.dim))
    dataset = world.dataset
    names = np.array(dataset.category_names)
    categories = [names[row].tolist() for row in dataset.categories]
    catalog = Catalog.from_vectors(dataset.item_ids, world.vectors, categories=categories, interactions=dataset)
    return partial(simulate, make_policy(policy, catalog), dataset, Session(rounds=ROUNDS, k=size.k))


def time_policies(size: Size, repeats: int) -> dict[str, float]:
    """Return the median seconds of each policy, after a warm-up that may compile."""
    figures = {}
    for policy in POLICIES:
        run = prepare(size, policy)
        run()
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        figures[policy] = median(times)
    return figures


if __name__ == "__main__":
    users, items, count = map(int, sys.argv[1:])
    print(json.dumps(time_policies(Size(users, items), count)))
