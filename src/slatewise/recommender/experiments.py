"""How the policies compare: click rate and variety over the users assigned to each, and the difference to the control.

Differences come with a confidence sequence, so that an experiment may be watched and stopped at any time.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from slatewise.evaluation.sequential import information_needed
from slatewise.recommender.assignment import EXPERIMENTS, Experiment
from slatewise.recommender.differences import Group, between
from slatewise.recommender.types import UNKNOWN, Interval, PolicyResult
from slatewise.store.protocol import PolicyTotals, Store, StoreUnavailableError, Transaction
from slatewise.store.records import FitRecord

NORMAL_95 = 1.959964
SECONDS_PER_DAY = 86_400.0
EFFECT = 0.01
"""The difference of click rates that matters, if nothing else is said."""
FEWEST_USERS = 30
"""Of each policy, before its difference gets an interval: these rest on the central limit theorem."""
UNDECIDED, TOO_EARLY = "not decided", "too early to tell"
OPEN = (UNDECIDED, TOO_EARLY)
STOPPED = f"{UNDECIDED} when it was stopped"


def begin_experiment(store: Store, plan: Experiment, now: float, halted: bool | None = None) -> Experiment:
    """Return an experiment with its times; the store learns of a start or stop, unless it is opened for reading.

    halted: see `Experiment.in_history`.
    """

    def job(transaction: Transaction) -> Experiment:
        dated, kept = plan.in_history(transaction.fit(EXPERIMENTS), now, halted)
        transaction.save_fit(FitRecord(EXPERIMENTS, now, kept))
        return dated

    try:
        return store.write(job).result()
    except StoreUnavailableError:
        if halted is not None:
            raise
        return read_experiment(store, plan, now)


def read_experiment(store: Store, plan: Experiment, now: float) -> Experiment:
    """Return an experiment as the store has it."""
    return plan.in_history(store.read(lambda transaction: transaction.fit(EXPERIMENTS)), now)[0]


def compare_policies(
    totals: list[PolicyTotals], shares: Mapping[str, float], effect: float = EFFECT, control_name: str | None = None
) -> list[PolicyResult]:
    """Compare policies: those with a share first, then others that were asked for by name.

    The control is the policy with the largest share, of equal ones the first, unless it is named.
    """
    by_name = {total.policy: total for total in totals}
    names = [*shares, *(name for name in by_name if name not in shares)]
    results = [_result(name, shares.get(name, 0.0), by_name.get(name)) for name in names]
    if len(results) < 2:
        return results
    control = max(results, key=lambda result: (result.policy == control_name, result.share))
    return [_compared(result, control, by_name, effect) for result in results]


def compare_in_experiment(
    totals: list[PolicyTotals], shares: Mapping[str, float], experiment: Experiment | None, now: float
) -> list[PolicyResult]:
    """Compare policies by all that was counted, or by what was counted in a named experiment."""
    if experiment is None:
        return compare_policies([counted for counted in totals if "@" not in counted.policy], shares)
    results = compare_policies(experiment.totals(totals), shares, experiment.effect, experiment.control)
    slates = {result.policy: result.slates for result in results}
    return [_in_experiment(result, experiment, slates.get(experiment.control or "", 0), now) for result in results]


def _in_experiment(result: PolicyResult, experiment: Experiment, of_control: int, now: float) -> PolicyResult:
    """Add when the experiment ran, and how many days more it takes at its pace, unless it was stopped."""
    started, stopped = experiment.started_at, experiment.stopped_at
    result = replace(result, experiment=experiment.name, started_at=started, stopped_at=stopped)
    if stopped is not None:
        is_open = result.verdict.startswith(OPEN) and result.slates_needed != 0
        return replace(result, slates_needed=None, verdict=STOPPED if is_open else result.verdict)
    days, n_slates, needed = (now - (started or now)) / SECONDS_PER_DAY, result.slates + of_control, None
    if result.slates_needed is not None and days > 0.0 and n_slates:
        needed = result.slates_needed * days / n_slates
    return replace(result, days_needed=needed)


def _result(name: str, share: float, totals: PolicyTotals | None) -> PolicyResult:
    if totals is None:
        return PolicyResult(name, share, 0, 0, 0, UNKNOWN, UNKNOWN)
    variety = (totals.variety, totals.variety_squared, totals.variety_varied)
    return PolicyResult(
        policy=name,
        share=share,
        users=totals.users,
        slates=totals.slates,
        clicks=totals.clicks,
        click_rate=ratio_interval(_clicks(totals), (totals.shown, totals.shown_squared), totals.users),
        diversity=ratio_interval(variety, (totals.varied, totals.varied_squared), totals.users),
    )


def _compared(
    result: PolicyResult, control: PolicyResult, by_name: Mapping[str, PolicyTotals], effect: float
) -> PolicyResult:
    """Add the difference to the control, and what it means."""
    if result is control:
        return replace(result, control=control.policy, effect=effect, verdict="the control")
    compared = replace(result, control=control.policy, effect=effect)
    if result.click_rate.value is None or control.click_rate.value is None:
        return replace(compared, verdict="nothing to compare yet")
    if min(result.users, control.users) < FEWEST_USERS:
        words = f"{TOO_EARLY}: {FEWEST_USERS} users of each policy are needed"
        value = result.click_rate.value - control.click_rate.value
        return replace(compared, difference=Interval(value, None, None), verdict=words)
    estimate = between(_group(by_name[result.policy]), _group(by_name[control.policy]), effect)
    interval = Interval(estimate.value, max(-1.0, estimate.low), min(1.0, estimate.high))
    missing = max(0.0, information_needed(effect) * estimate.error**2 - 1.0) * (result.slates + control.slates)
    words = _verdict(estimate.low, estimate.high, compared, math.ceil(missing))
    return replace(compared, difference=interval, slates_needed=math.ceil(missing), verdict=words)


def _verdict(low: float, high: float, result: PolicyResult, missing: int) -> str:
    """Return what an interval says about a policy."""
    if low > 0.0:
        return f"better than {result.control}"
    if high < 0.0:
        return f"worse than {result.control}"
    if max(-low, high) < (result.effect or 0.0):
        return f"no difference of {result.effect:g} or more to {result.control}"
    if missing > 0:
        return f"{UNDECIDED}: about {missing:,} more slates are needed to see a difference of {result.effect:g}"
    return f"{UNDECIDED}: a difference of {result.effect:g} would probably have been seen by now"


def _clicks(totals: PolicyTotals) -> tuple[float, float, float]:
    return totals.clicks, totals.clicks_squared, totals.clicks_shown


def _group(totals: PolicyTotals) -> Group:
    """Return the clicks of the users of a policy, for comparison with another."""
    squares = residual_squares(_clicks(totals), (totals.shown, totals.shown_squared))
    return Group(totals.clicks, totals.shown, squares * totals.users / (totals.users - 1))


def ratio_interval(top: tuple[float, float, float], bottom: tuple[float, float], n_users: int) -> Interval:
    """Return Σy / Σx over users with its 95 % interval (ratio estimator; variance by the delta method).

    top: Σy, Σy² and Σxy; bottom: Σx and Σx².
    """
    total, size = top[0], bottom[0]
    if size <= 0:
        return UNKNOWN
    value = total / size
    if n_users < 2:
        return Interval(value, None, None)
    width = NORMAL_95 * math.sqrt(residual_squares(top, bottom) * n_users / (n_users - 1)) / size
    return Interval(value, max(0.0, value - width), min(1.0, value + width))


def residual_squares(top: tuple[float, float, float], bottom: tuple[float, float]) -> float:
    """Return Σ(y − r·x)² over users, r = Σy / Σx."""
    (total, squares, products), (size, size_squares) = top, bottom
    value = total / size
    return max(squares - 2.0 * value * products + value**2 * size_squares, 0.0)
