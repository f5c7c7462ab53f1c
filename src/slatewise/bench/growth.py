"""How the simulator's time grows with users, items, k and dimension: five rounds in a synthetic world.

One size varies, the others stay at those of a world like ML-1M with fewer users. The exponent is the slope of a
straight line through the logarithms of all sizes, so a fixed cost that small sizes share makes it smaller.
"""

from dataclasses import dataclass, replace
from functools import partial
from math import log

import numpy as np

from slatewise.bench.measure import Work, seconds
from slatewise.catalog import Catalog
from slatewise.data.synthetic import WorldSize, make_world
from slatewise.lab.simulate import Session, simulate
from slatewise.policies import make_policy

ROUNDS = 5
N_CATEGORIES = 18


@dataclass(frozen=True)
class Size:
    """How much there is to simulate."""

    users: int = 250
    items: int = 4_000
    k: int = 10
    dim: int = 20


@dataclass(frozen=True)
class Axis:
    """Which size varies, over which values, for which policy."""

    name: str
    values: tuple[int, ...]
    policy: str = "dc2b-calibrated"


AXES = {
    "users": Axis("users", (125, 250, 500, 1_000, 2_000)),
    "items": Axis("items", (1_000, 4_000, 16_000, 64_000)),
    "k": Axis("k", (5, 10, 20, 40)),
    "dim": Axis("dim", (10, 20, 40)),
    "dim_dc2b": Axis("dim", (10, 20, 40, 80), "dc2b"),
}
RATES = {"user_rounds_per_second": ("users", 250), "user_rounds_per_second_dc2b": ("dim_dc2b", 20)}


def run(base: Size | None = None, axes: dict[str, Axis] | None = None, repeats: int = 3) -> dict[str, float]:
    """Measure every axis; `growth.AXIS.VALUE` is the number of user-rounds per second at that value."""
    base, figures = base or Size(), {}
    for name, axis in (axes or AXES).items():
        sizes = {value: replace(base, **{axis.name: value}) for value in axis.values}
        times = seconds({str(value): _simulating(size, axis.policy) for value, size in sizes.items()}, repeats)
        for value, size in sizes.items():
            figures[f"growth.{name}.{value}"] = ROUNDS * size.users / times[str(value)]
        figures[f"exponents.{name}"] = exponent({value: times[str(value)] for value in sizes})
    rates = {name: figures.get(f"growth.{axis}.{value}") for name, (axis, value) in RATES.items()}
    return {**{name: rate for name, rate in rates.items() if rate is not None}, **figures}


def exponent(times: dict[int, float]) -> float:
    """Return the slope of log time over log size."""
    sizes, durations = [log(size) for size in times], [log(time) for time in times.values()]
    return float(np.polyfit(sizes, durations, 1)[0])


def _simulating(size: Size, policy: str) -> Work:
    """Make a world and a catalogue of its vectors; return the simulation of all its people."""
    world = make_world(WorldSize(size.users, size.items, N_CATEGORIES, size.dim))
    people = world.dataset
    names = np.array(people.category_names)
    groups = [names[row].tolist() for row in people.categories]
    catalog = Catalog.from_vectors(people.item_ids, world.vectors, categories=groups, interactions=people)
    return partial(simulate, make_policy(policy, catalog), people, Session(rounds=ROUNDS, k=size.k))
