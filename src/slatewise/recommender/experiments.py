"""How the policies compare: click rate and variety over the users assigned to each."""

import math
from collections.abc import Mapping

from slatewise.recommender.types import Interval, PolicyResult
from slatewise.store.protocol import PolicyTotals

NORMAL_95 = 1.959964


def compare_policies(totals: list[PolicyTotals], shares: Mapping[str, float]) -> list[PolicyResult]:
    """Compare policies: those with a share first, then others that were asked for by name."""
    by_name = {total.policy: total for total in totals}
    names = [*shares, *(name for name in by_name if name not in shares)]
    return [_result(name, shares.get(name, 0.0), by_name.get(name)) for name in names]


def _result(name: str, share: float, totals: PolicyTotals | None) -> PolicyResult:
    if totals is None:
        unknown = Interval(None, None, None)
        return PolicyResult(name, share, 0, 0, 0, unknown, unknown)
    clicks = (totals.clicks, totals.clicks_squared, totals.clicks_shown)
    variety = (totals.variety, totals.variety_squared, totals.variety_varied)
    return PolicyResult(
        policy=name,
        share=share,
        users=totals.users,
        slates=totals.slates,
        clicks=totals.clicks,
        click_rate=ratio_interval(clicks, (totals.shown, totals.shown_squared), totals.users),
        diversity=ratio_interval(variety, (totals.varied, totals.varied_squared), totals.users),
    )


def ratio_interval(top: tuple[float, float, float], bottom: tuple[float, float], n_users: int) -> Interval:
    """Return Σy / Σx over users with its 95 % interval (ratio estimator; variance by the delta method).

    top: Σy, Σy² and Σxy; bottom: Σx and Σx².
    """
    (total, squares, products), (size, size_squares) = top, bottom
    if size <= 0:
        return Interval(None, None, None)
    value = total / size
    if n_users < 2:
        return Interval(value, None, None)
    residuals = max(squares - 2.0 * value * products + value**2 * size_squares, 0.0)
    width = NORMAL_95 * math.sqrt(residuals * n_users / (n_users - 1)) / size
    return Interval(value, max(0.0, value - width), min(1.0, value + width))
