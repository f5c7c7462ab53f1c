"""Differences of click rates that may be looked at any time: they cover the truth at all times at once."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from slatewise.evaluation.sequential import LEVEL, information_needed, radius, tightest_at
from slatewise.recommender.experiments import FEWEST_USERS, NORMAL_95, compare_policies
from slatewise.store.records import PolicyTotals

Floats = NDArray[np.float64]


def run(seed: int, rates: tuple[float, float], n_users: int) -> tuple[Floats, Floats, Floats]:
    """An experiment that is looked at after every user: users, difference and standard error of two policies.

    Users differ in how much they click and in how many slates of ten they see, 1 to 6.
    """
    draw = np.random.default_rng(seed)
    sums = []
    for rate in rates:
        shown = 10.0 * draw.integers(1, 7, n_users)
        clicks = draw.binomial(shown.astype(int), draw.beta(4.0 * rate, 4.0 * (1.0 - rate), n_users)).astype(float)
        columns = (clicks, shown, clicks**2, clicks * shown, shown**2)
        sums.append([np.cumsum(column) for column in columns])
    n = np.arange(1.0, n_users + 1.0)
    values, errors = [], []
    for y, x, yy, xy, xx in sums:
        value = y / x
        squares = np.maximum(yy - 2 * value * xy + value**2 * xx, 1.0)
        errors.append(np.sqrt(squares * n / np.maximum(n - 1.0, 1.0)) / x)
        values.append(value)
    looked = n >= FEWEST_USERS
    return n[looked], (values[1] - values[0])[looked], np.hypot(*errors)[looked]


def test_the_sequence_covers_at_all_times_and_fixed_intervals_do_not() -> None:
    """Peeking after every user for 3,000 users. Negative control: intervals for one look leave out the truth often."""
    n_runs, mixture, missed = 300, tightest_at(0.01), np.zeros(2)
    for seed in range(n_runs):
        _, difference, errors = run(seed, (0.1, 0.12), 3_000)
        wrong = np.abs(difference - 0.02)
        reach = np.array([radius(float(error), mixture) for error in errors[::5]])
        missed += [(wrong[::5] > reach).any(), (wrong > NORMAL_95 * errors).any()]
    assert missed[0] / n_runs <= LEVEL
    assert missed[1] / n_runs > 4 * LEVEL


def test_the_radius_is_least_where_it_was_asked_for() -> None:
    """ρ by formula against a search; the radius falls with information and reaches the effect."""
    for effect in (0.01, 0.05):
        best = tightest_at(effect)
        errors = [effect / divisor for divisor in np.linspace(2.5, 4.0, 3_001)]
        reached = max(error for error in errors if radius(error, best) <= effect)
        others = [radius(reached, best * factor) for factor in (0.5, 0.8, 1.25, 2.0)]
        assert radius(reached, best) < min(others)
        assert math.isclose(radius(reached, best), effect, rel_tol=2e-3)
        needed = information_needed(effect)
        assert radius(needed**-0.5, best) + 0.8416 * needed**-0.5 == pytest.approx(effect)


def totals(name: str, clicks: Floats, shown: Floats) -> PolicyTotals:
    sums = (float((shown**2).sum()), float((clicks**2).sum()), float((clicks * shown).sum()))
    n_slates = int(shown.sum()) // 10
    return PolicyTotals(
        name, len(clicks), n_slates, int(shown.sum()), int(clicks.sum()), 0.0, 0.0, *sums, 0.0, 0.0, 0.0
    )


def group(name: str, rate: float, n_users: int, seed: int) -> PolicyTotals:
    return totals(name, np.random.default_rng(seed).binomial(50, rate, n_users).astype(float), np.full(n_users, 50.0))


@pytest.mark.parametrize(
    ("rate", "n_users", "verdict"),
    [
        (0.10, 20, "too early to tell: 30 users of each policy are needed"),
        (0.20, 4_000, "better than old"),
        (0.05, 4_000, "worse than old"),
        (0.10, 4_000, "no difference of 0.01 or more to old"),
        (0.10, 100, "not decided: about "),
    ],
)
def test_verdicts_in_words(rate: float, n_users: int, verdict: str) -> None:
    both = [group("old", 0.1, n_users, 1), group("new", rate, n_users, 2)]
    old, new = compare_policies(both, {"old": 0.5, "new": 0.5})
    assert (old.verdict, new.control) == ("the control", "old")
    assert new.verdict.startswith(verdict)
    assert new.difference.value == pytest.approx((new.clicks - old.clicks) / 50 / n_users)
    assert (new.slates_needed is None) == (n_users == 20)


def test_what_is_needed_shrinks_as_slates_come_in_and_ends() -> None:
    needed = []
    for n_users in (50, 100, 400, 3_200):
        both = [group("old", 0.1, n_users, 3), group("new", 0.1, n_users, 4)]
        needed.append((compare_policies(both, {"old": 0.5, "new": 0.5})[1].slates_needed or 0) + 10 * n_users)
    assert needed[0] == pytest.approx(needed[1], rel=0.3) == pytest.approx(needed[2], rel=0.3)
    assert needed[3] == 32_000  # nothing more is needed


def test_policies_without_clicks_or_slates() -> None:
    """Nobody clicked: that is no certainty. Nothing shown: nothing to compare. One policy alone is not compared."""
    nothing = totals("new", np.zeros(100), np.full(100, 50.0))
    old, new = compare_policies([nothing, totals("old", np.zeros(100), np.full(100, 50.0))], {"old": 0.9, "new": 0.1})
    assert (new.difference.low or 0.0) < 0.0 < (new.difference.high or 0.0)
    assert compare_policies([], {"old": 0.9, "new": 0.1})[1].verdict == "nothing to compare yet"
    assert compare_policies([nothing], {"new": 1.0})[0].verdict == ""
    assert old.verdict == "the control"
