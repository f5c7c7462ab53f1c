"""Experiments that are looked at all the time, also where few people click: `compare_policies` claims nothing false."""

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from slatewise.evaluation.sequential import LEVEL, radius, tightest_at
from slatewise.recommender.differences import Group, between
from slatewise.recommender.experiments import compare_policies
from slatewise.recommender.types import PolicyResult
from slatewise.store.records import PolicyTotals

Floats = NDArray[np.float64]
SMALL = [(rate, share) for rate in (0.01, 0.02, 0.05) for share in (0.05, 0.1)]
"""Click rates, and shares of the new policy."""
ALIKE = None
"""Everybody clicks equally often."""


def looks(
    seed: int,
    rates: tuple[float, float],
    share: float,
    concentration: float | None,
    n_users: int = 6_000,
    every: int = 20,
) -> Iterator[PolicyResult]:
    """How the policy "new" compares with "old" each time that some more users have come.

    Users differ by a Beta distribution in how much they click, and see 1 to 6 slates of ten.
    """
    draw = np.random.default_rng(seed)
    is_new, shown = draw.random(n_users) < share, 10 * draw.integers(1, 7, n_users)
    rate = np.where(is_new, rates[1], rates[0])
    if concentration is not None:
        rate = draw.beta(concentration * rate, concentration * (1.0 - rate))
    clicks = draw.binomial(shown, rate)
    columns = np.stack([np.ones(n_users), shown, clicks, shown**2, clicks**2, clicks * shown])
    sums = {"old": np.cumsum(columns * ~is_new, axis=1), "new": np.cumsum(columns * is_new, axis=1)}
    for last in range(100, n_users, every):
        totals = [as_totals(name, column[:, last]) for name, column in sums.items()]
        yield compare_policies(totals, {"old": 1.0 - share, "new": share}, control_name="old")[1]


def as_totals(name: str, sums: Floats) -> PolicyTotals:
    users, shown, clicks = (int(value) for value in sums[:3])
    squares = (float(sums[3]), float(sums[4]), float(sums[5]))
    return PolicyTotals(name, users, shown // 10, shown, clicks, 0.0, 0.0, *squares, 0.0, 0.0, 0.0)


def is_wrong(result: PolicyResult, truth: float) -> bool:
    """Whether the interval leaves out the true difference; with no difference that is a verdict."""
    low, high = result.difference.low, result.difference.high
    wrong = low is not None and high is not None and not low <= truth <= high
    assert truth or wrong == result.verdict.startswith(("better", "worse"))
    return wrong


def test_policies_that_are_the_same_are_seldom_told_apart() -> None:
    """By its own variance alone, a small share with few clicks was called worse in a fifth of these experiments."""
    wrong = [
        any(is_wrong(result, 0.0) for result in looks(seed, (rate, rate), share, 4.0, 3_000, 50))
        for rate, share in SMALL
        for seed in range(20)
    ]
    assert np.mean(wrong) <= LEVEL


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "share"), SMALL)
@pytest.mark.parametrize("concentration", [4.0, 20.0, ALIKE])
def test_policies_that_are_the_same_wherever_clicks_are_rare(
    rate: float, share: float, concentration: float | None
) -> None:
    wrong = [any(is_wrong(one, 0.0) for one in looks(seed, (rate, rate), share, concentration)) for seed in range(100)]
    assert np.mean(wrong) <= LEVEL


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rates", "share", "concentration"),
    [
        ((0.01, 0.03), 0.05, 20.0),
        ((0.01, 0.03), 0.1, 4.0),
        ((0.03, 0.01), 0.95, 20.0),
        ((0.02, 0.06), 0.05, 20.0),
        ((0.05, 0.03), 0.1, 20.0),
        ((0.05, 0.07), 0.5, 20.0),
    ],
)
def test_true_differences_are_covered_and_seen(rates: tuple[float, float], share: float, concentration: float) -> None:
    """Also if the policy with few users is the better one, so that its variance is larger than that of the other."""
    truth, word = rates[1] - rates[0], "better" if rates[1] > rates[0] else "worse"
    wrong, seen = [], []
    for seed in range(100):
        results = list(looks(seed, rates, share, concentration))
        wrong.append(any(is_wrong(result, truth) for result in results))
        seen.append(any(result.verdict.startswith(word) for result in results))
    assert np.mean(wrong) <= LEVEL
    assert np.mean(seen) >= 0.95


def test_a_limit_is_where_the_difference_would_be_just_as_surprising() -> None:
    """Against a search over all differences for the last one that the sequence does not exclude."""
    new, old, mixture = Group(12.0, 1_500.0, 40.0), Group(700.0, 30_000.0, 3_000.0), tightest_at(0.01)
    estimate, variance, per_click = new.rate - old.rate, 3_000.0 / 30_000.0, 3_000.0 / 700.0

    def excluded(away: float, raised: Group, other: Group) -> bool:
        rate = raised.rate + away * other.shown / (raised.shown + other.shown)
        error = (max(variance, per_click * rate) / raised.shown + variance / other.shown) ** 0.5
        return away > radius(error, mixture)

    found, steps = between(new, old, 0.01), np.linspace(0.0, 0.5, 50_001)
    above = next(away for away in steps if excluded(away, new, old))
    below = next(away for away in steps if excluded(away, old, new))
    assert (found.low, found.high) == pytest.approx((estimate - below, estimate + above), abs=2e-5)
    assert above > 1.05 * below  # what is not known is how many more would click
    mirrored = between(old, new, 0.01)
    assert (mirrored.low, mirrored.high) == pytest.approx((-found.high, -found.low))
