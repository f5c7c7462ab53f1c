"""Which policy serves which user, by a stable hash, and how the policies compare."""

import math
from collections.abc import Mapping

from slatewise.policies import Policy
from slatewise.randomness import user_keys
from slatewise.recommender.served_catalog import policy_name
from slatewise.recommender.types import Interval, PolicyResult, PolicyShare
from slatewise.store.protocol import PolicyTotals

NORMAL_95 = 1.959964
SALT = "policy of "


def policy_shares(policy: str | Policy | Mapping[str, float | PolicyShare]) -> dict[str, PolicyShare]:
    """Return the policies to serve by name; shares must be positive and sum to 1."""
    if isinstance(policy, str):
        return {policy: PolicyShare(policy)}
    if not isinstance(policy, Mapping):
        return {policy_name(policy): PolicyShare(policy)}
    shares = {name: _share(name, given) for name, given in policy.items()}
    if not shares or not all(0.0 < entry.share <= 1.0 for entry in shares.values()):
        raise ValueError(f"policies are {dict(policy)}; give each a share above 0 and up to 1")
    total = sum(entry.share for entry in shares.values())
    if abs(total - 1.0) > 1e-6:
        raise ValueError(f"the shares of the policies sum to {total:g}; make them sum to 1")
    return shares


def _share(name: str, given: float | PolicyShare) -> PolicyShare:
    return given if isinstance(given, PolicyShare) else PolicyShare(name, given)


def assigned_policy(user: str, shares: Mapping[str, float]) -> str:
    """Return the policy of a user: the same on every machine and after every restart, in the order of the shares."""
    if len(shares) == 1:
        return next(iter(shares))
    position = int(user_keys([SALT + user])[0]) / 2**64
    below = 0.0
    for name, share in shares.items():
        below += share
        if position < below:
            return name
    return list(shares)[-1]


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
    variety = (totals.variety, totals.variety_squared, totals.variety_slates)
    return PolicyResult(
        policy=name,
        share=share,
        users=totals.users,
        slates=totals.slates,
        clicks=totals.clicks,
        click_rate=ratio_interval(clicks, (totals.shown, totals.shown_squared), totals.users),
        diversity=ratio_interval(variety, (totals.slates, totals.slates_squared), totals.users),
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
