"""The difference of two click rates with limits that hold at all times, also where few have clicked yet.

How uncertain a click rate is grows with the rate. So a group in which few happened to click looks too certain, just
when its rate is too low: by its own variance alone, policies that are the same are soon told apart. Hence three rules:
users of both policies are taken to vary alike, with the larger variance of the two; a variance is never below that of a
single click; and each limit is worked out with the variance that the groups would have if the limit were the truth, as
in Wilson's interval of a share (1927), where a variance grows in proportion to the rate as with counts.
"""

from dataclasses import dataclass
from math import sqrt

from slatewise.evaluation.sequential import radius, tightest_at

STEPS = 50
"""Of working out a limit from the variance at the limit; a few are enough unless little is known."""


@dataclass(frozen=True)
class Group:
    """The users of a policy: what they clicked and were shown, and Σ(y − r·x)² · n / (n − 1) of clicks y of x shown."""

    clicks: float
    shown: float
    squares: float

    @property
    def rate(self) -> float:
        """Clicks per shown item."""
        return self.clicks / self.shown

    @property
    def variance(self) -> float:
        """Of clicks, per shown item."""
        return max(self.squares, 1.0) / self.shown

    @property
    def per_click(self) -> float:
        """The variance of clicks, per click: 1 if all clicks are independent and rare, more if users differ."""
        return max(self.squares, 1.0) / max(self.clicks, 1.0)


@dataclass(frozen=True)
class Difference:
    """A difference of click rates, its limits, and its standard error if it is as estimated."""

    value: float
    low: float
    high: float
    error: float


def between(group: Group, control: Group, effect: float) -> Difference:
    """Return the click rate of a group minus that of the control; effect: where the limits are tightest."""
    variance = max(group.variance, control.variance)
    error = sqrt(variance / group.shown + variance / control.shown)
    value, mixture = group.rate - control.rate, tightest_at(effect)
    below, above = _reach(control, group, error, mixture), _reach(group, control, error, mixture)
    return Difference(value, value - below, value + above, error)


def _reach(raised: Group, other: Group, error: float, mixture: float) -> float:
    """Return how far a limit is, if beyond it the rate of one group is higher than estimated and the other's is lower.

    The groups share the distance by how little is known of each: the small one's rate is the one that may be wrong.
    """
    per_click, reach = max(raised.per_click, other.per_click), radius(error, mixture)
    share, least = other.shown / (raised.shown + other.shown), max(raised.variance, other.variance)
    for _ in range(STEPS):
        rate = min(raised.rate + share * reach, 1.0)
        variance = max(least, per_click * rate)
        reach = radius(sqrt(variance / raised.shown + least / other.shown), mixture)
    return reach
