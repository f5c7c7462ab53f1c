"""Which policy serves whom, and how policies compare; users are assigned by a stable hash."""

import math
from collections.abc import Mapping

from slatewise.randomness import user_keys
from slatewise.recommender.views import Interval, PolicyResult
from slatewise.store.protocol import PolicyTotals

NORMAL_95 = 1.959964
SALT = "policy of "


def shares_of(policy: str | Mapping[str, float]) -> dict[str, float]:
    """Return the share of users of each policy; shares must be positive and sum to 1."""
    if isinstance(policy, str):
        return {policy: 1.0}
    shares = dict(policy)
    if not shares or not all(0.0 < share <= 1.0 for share in shares.values()):
        raise ValueError(f"policies are {shares}; give each a share above 0 and up to 1")
    if abs(sum(shares.values()) - 1.0) > 1e-6:
        raise ValueError(f"the shares of the policies sum to {sum(shares.values()):g}; make them sum to 1")
    return shares


def assigned(user: str, shares: Mapping[str, float]) -> str:
    """Return the policy of a user: the same on every machine and after every restart, in order of the shares given."""
    if len(shares) == 1:
        return next(iter(shares))
    place = int(user_keys([SALT + user])[0]) / 2**64
    below = 0.0
    for name, share in shares.items():
        below += share
        if place < below:
            return name
    return list(shares)[-1]


def results(totals: list[PolicyTotals], shares: Mapping[str, float]) -> list[PolicyResult]:
    """Compare policies: the assigned ones first, then others that were asked for by name."""
    found = {one.policy: one for one in totals}
    names = [*shares, *(name for name in found if name not in shares)]
    return [_result(name, shares.get(name, 0.0), found.get(name)) for name in names]


def _result(name: str, share: float, totals: PolicyTotals | None) -> PolicyResult:
    if totals is None:
        nothing = Interval(None, None, None)
        return PolicyResult(name, share, 0, 0, 0, nothing, nothing)
    clicks = (totals.clicks, totals.clicks_squared, totals.clicks_shown)
    varied = (totals.variety, totals.variety_squared, totals.variety_slates)
    return PolicyResult(
        policy=name,
        share=share,
        users=totals.users,
        slates=totals.slates,
        clicks=totals.clicks,
        click_rate=ratio(clicks, (totals.shown, totals.shown_squared), totals.users),
        diversity=ratio(varied, (totals.slates, totals.slates_squared), totals.users),
    )


def ratio(top: tuple[float, float, float], bottom: tuple[float, float], n_users: int) -> Interval:
    """Return Σy / Σx over users with its 95 % interval (the ratio estimator; its variance by the delta method).

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
