"""How the simulator's time grows with users, items, k and dimension.

One size varies, the others stay at those of a world like ML-1M with fewer users. The exponent is the slope of a
straight line through the logarithms of all sizes, so a fixed cost that small sizes share makes it smaller.
"""

from dataclasses import dataclass, replace
from math import log

import numpy as np

from benchmarks.measure import seconds
from benchmarks.simulation import ROUNDS, Size, prepare


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
        times = seconds({str(value): prepare(size, axis.policy) for value, size in sizes.items()}, repeats)
        for value, size in sizes.items():
            figures[f"growth.{name}.{value}"] = ROUNDS * size.users / times[str(value)]
        figures[f"exponents.{name}"] = exponent({value: times[str(value)] for value in sizes})
    rates = {name: figures.get(f"growth.{axis}.{value}") for name, (axis, value) in RATES.items()}
    return {**{name: rate for name, rate in rates.items() if rate is not None}, **figures}


def exponent(times: dict[int, float]) -> float:
    """Return the slope of log time over log size."""
    sizes, durations = [log(size) for size in times], [log(time) for time in times.values()]
    return float(np.polyfit(sizes, durations, 1)[0])
