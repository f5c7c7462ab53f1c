"""A confidence sequence: an interval that holds at all times at once, so that it may be looked at whenever one likes.

An estimate whose standard error is s has the information I = 1 / s². I times its error moves like a Brownian motion as
information comes in, which leaves ± √((I + ρ) · log((I + ρ) / (ρ α²))) at any time with probability α at most (Robbins'
normal mixture, 1970; asymptotic for means as in Waudby-Smith et al. 2021). ρ only says where the sequence is tightest.
"""

import math
from functools import lru_cache

LEVEL = 0.05
"""The probability that the sequence ever leaves out the truth."""
POWER = 0.8416
"""Standard normal quantile of 80 %."""


@lru_cache
def tightest_at(effect: float) -> float:
    """Return the ρ with which the radius reaches an effect at the least information.

    The best ρ at information I is I / (x − 1), where x − log x = 1 + 2 log(1 / α); the radius there is √(g / I).
    """
    x = 2.0
    for _ in range(60):  # x ← 1 + 2 log(1/α) + log x converges, its slope is 1 / x
        x = 1.0 + 2.0 * math.log(1.0 / LEVEL) + math.log(x)
    growth = x / (x - 1.0) * (math.log(x) + 2.0 * math.log(1.0 / LEVEL))
    return growth / effect**2 / (x - 1.0)


def radius(standard_error: float, mixture: float) -> float:
    """Return how far a confidence sequence reaches to either side; mixture is ρ, from `tightest_at`."""
    information = 1.0 / standard_error**2
    spread = (information + mixture) * math.log((information + mixture) / (mixture * LEVEL**2))
    return math.sqrt(spread) / information


@lru_cache
def information_needed(effect: float) -> float:
    """Return the information at which a true effect is seen with probability 80 %: radius + 0.84 s = effect."""
    mixture, low, high = tightest_at(effect), 0.0, 1.0 / effect
    for _ in range(100):
        middle = 0.5 * (low + high)
        if radius(middle, mixture) + POWER * middle > effect:
            high = middle
        else:
            low = middle
    return 1.0 / low**2
