"""What another policy would have chosen, for every slate of the log: propensities from the log as it was then.

A target that draws its slates gives the probability of what was shown; of any other target it is 1 or 0. Marginals and
the direct method of policies that draw are means over drawn slates.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slatewise.belief.rates import Rates
from slatewise.evaluation.logged_slates import LoggedSlates
from slatewise.evaluation.verdict import Evaluation, judge
from slatewise.policies import Available, State
from slatewise.randomness import Streams
from slatewise.recommender.loading import LogTail
from slatewise.recommender.off_policy_batch import LoggedCase, Situation, logged_slates
from slatewise.recommender.profile import UserProfile, learn_everything
from slatewise.recommender.rate_publications import RatesHistory
from slatewise.recommender.recommend import SlateRequest, situation
from slatewise.recommender.replay import (
    RATES_GONE,
    as_logged,
    logged_policy,
    logged_request,
    obstacle,
    profile_before,
    rates_for,
)
from slatewise.recommender.served_catalog import ServedCatalog, ServedPolicy
from slatewise.recommender.shadow import does_not_learn, learn_alike
from slatewise.recommender.slate_rules import SlateRules
from slatewise.recommender.types import RequestError
from slatewise.store.protocol import Store, Transaction
from slatewise.store.records import CLOSED, Choice, SlateRecord

Floats = NDArray[np.float64]

MODEL = "dc2b-calibrated"
"""The policy whose probabilities are the model of rewards."""
RULES = "its slate had rules other than filters"
NOT_LOGGED = "it was drawn without propensities in the log"
EMPTY = "the policy has nothing to show in its place"
MAX_SLATES, MAX_CELLS = 1 << 10, 1 << 20
"""Slates, and slates times items, that are worked out together: memory does not grow with the log."""
MAX_KEPT = 64
"""Policies with the rates of some time that are kept for the next slates."""


def evaluate_policy(
    store: Store, served: ServedCatalog, target: ServedPolicy, on_user: Callable[[], None] | None = None
) -> Evaluation:
    """Judge a policy by the log of a store; users are read one by one, slates are worked out many at a time."""
    reader = OffPolicyReader(served, target, LoggedPolicies(served))
    for number, user in enumerate(store.users()):
        reader = store.read(partial(reader.with_user, user=user, number=number))
        if on_user is not None:
            on_user()
    reader.work_out()
    if not reader.parts:
        reasons = "; ".join(f"{n:,} slates: {reason}" for reason, n in reader.skipped.items())
        raise RequestError(f"no slate of this log can be judged ({reasons or 'no slate has been closed yet'})")
    log = LoggedSlates.joined(reader.parts)
    return judge(target.name, log, reader.n_drawn / len(log.users), reader.skipped)


class LoggedPolicies:
    """Policies with the rates and the options in force when slates were logged; the latest are kept."""

    def __init__(self, served: ServedCatalog) -> None:
        self._served = served
        self._rates: dict[int, tuple[Rates, int] | None] = {}
        self._policies: dict[tuple[object, ...], ServedPolicy] = {}

    def rates(self, history: RatesHistory, choice: Choice) -> tuple[Rates, int] | None:
        """Return the rates that were in force for a slate, and their version; None if they are not kept."""
        version = (choice["exploration"] or {"rates": 0})["rates"]
        if version not in self._rates:
            _make_room(self._rates)
            self._rates[version] = rates_for(history, self._served, choice)
        return self._rates[version]

    def policy(self, policy: ServedPolicy, rates: tuple[Rates, int], choice: Choice) -> ServedPolicy:
        """Return a policy as it chooses by rates, and at the diversity that was asked for."""
        diversity = choice["request"].get("diversity")
        return self._kept((policy, rates[1], diversity), lambda: policy.with_rates(*rates), diversity)

    def logging_policy(self, policy: ServedPolicy, rates: tuple[Rates, int], choice: Choice) -> ServedPolicy:
        """Return the same, by the options that were in force as well."""
        diversity, logged = choice["request"].get("diversity"), choice["exploration"] or {}
        options = [logged.get(name, 0.0) for name in getattr(policy.policy, "choosing_options", ())]
        key = (policy, rates[1], diversity, *options)
        return self._kept(key, lambda: as_logged(policy, choice, rates), diversity)

    def _kept(self, key: tuple[object, ...], make: Callable[[], ServedPolicy], diversity: float | None) -> ServedPolicy:
        if key not in self._policies:
            _make_room(self._policies)
            made = make()
            self._policies[key] = replace(made, policy=made.with_diversity(diversity))
        return self._policies[key]


def _make_room(kept: dict[Any, Any]) -> None:
    """Drop what was kept first, if there is no room for more."""
    if len(kept) >= MAX_KEPT:
        del kept[next(iter(kept))]


@dataclass(eq=False)
class OffPolicyReader:
    """Reads a log and works out what the target policy makes of each slate."""

    served: ServedCatalog
    target: ServedPolicy
    policies: LoggedPolicies
    skipped: Counter[str] = field(default_factory=Counter)
    cases: list[LoggedCase] = field(default_factory=list)
    parts: list[LoggedSlates] = field(default_factory=list)
    n_drawn: int = 0

    def with_user(self, transaction: Transaction, user: str, number: int) -> "OffPolicyReader":
        """Return a reader that has the closed slates of one more user.

        This one stays as it is: a store that loses its connection reads again, and no slate may count twice.
        """
        longer = replace(self, skipped=Counter(self.skipped), cases=[*self.cases], parts=[*self.parts])
        longer._read_user(transaction, user, number)
        return longer

    def _read_user(self, transaction: Transaction, user: str, number: int) -> None:
        log, choices = LogTail.read(transaction, user), transaction.choices_of(user)
        replay = UserReplay(number, self.served, self.target, self.policies, log)
        history = RatesHistory(transaction, self.served.digest)
        tallies = {one.record.slate_id: one.tally for one in log.logged_slates(self.served)}
        for slate in log.slates:
            if slate.status != CLOSED:
                continue
            choice = choices.get(slate.number)
            policy = None if choice is None else logged_policy(self.served, choice)
            reason = obstacle(self.served, slate, choice, policy) or _unusable(slate, choice)
            if reason is not None or choice is None or policy is None:
                self.skipped[str(reason)] += 1
                continue
            rates = self.policies.rates(history, choice)
            if rates is None:
                self.skipped[RATES_GONE] += 1
                continue
            liked = set(tallies[slate.slate_id].liked(slate.items))
            rewards = np.array([float(item in liked) for item in slate.items])
            case = replay.case((slate, choice), policy, rates, rewards)
            if case is None:
                self.skipped[EMPTY] += 1
            else:
                self._add(case)

    def _add(self, case: LoggedCase) -> None:
        self.cases.append(case)
        if len(self.cases) >= min(MAX_SLATES, max(1, MAX_CELLS // self.served.n_items)):
            self.work_out()

    def work_out(self) -> None:
        """Work out the slates that were read since the last time."""
        cases, self.cases = self.cases, []
        log, n_drawn = logged_slates(cases)
        self.n_drawn += n_drawn
        n_empty = len(cases) - (0 if log is None else len(log.users))
        if n_empty:
            self.skipped[EMPTY] += n_empty
        if log is not None:
            self.parts.append(log)


@dataclass(eq=False)
class UserReplay:
    """The log of one user, as three policies would go through it: the logging one, the target, and the model."""

    user: int
    served: ServedCatalog
    target: ServedPolicy
    policies: LoggedPolicies
    log: LogTail
    known: dict[str, tuple[UserProfile, State, Available]] = field(default_factory=dict)
    """At the latest slate, by the key of beliefs: policies that learn alike share them."""

    def case(
        self, logged_slate: tuple[SlateRecord, Choice], logging: ServedPolicy, rates: tuple[Rates, int], got: Floats
    ) -> LoggedCase | None:
        """Return a slate in its situations; None if nothing can be shown in its place."""
        slate, choice = logged_slate
        model, key = self.served.policy(MODEL), np.array([choice["random_key"]], dtype=np.uint64)
        is_drawn, shown = "propensities" in choice, self.served.numbers(slate.items)
        logged = np.array(choice["propensities"]) if is_drawn else np.ones(len(shown))
        random = Streams(choice["seed"], key, choice["step"])
        try:
            drew = self.policies.logging_policy(logging, rates, choice) if is_drawn else None
            situations = (
                self._situation(logged_slate, model, self.policies.policy(model, rates, choice)),
                None if drew is None else self._situation(logged_slate, logging, drew),
                self._situation(logged_slate, self._learning, self.policies.policy(self.target, rates, choice)),
            )
        except RequestError:
            return None
        return LoggedCase(self.user, shown, got, logged, random, *situations)

    @cached_property
    def _learning(self) -> ServedPolicy:
        """Whose beliefs the judged policy chooses by: its own, or the model's if that learns all it needs."""
        model = self.served.policy(MODEL)
        is_counting = does_not_learn(self.target) and not self.log.events
        return model if is_counting or learn_alike(self.target.policy, model.policy) else self.target

    def _situation(
        self, logged_slate: tuple[SlateRecord, Choice], learning: ServedPolicy, choosing: ServedPolicy
    ) -> Situation:
        """Return the situation at a slate, of a policy as it learns and as it chose, with the rates of that time."""
        slate, choice = logged_slate
        known = self.known.get(learning.key)
        if known is None or known[0].n_slates != slate.number:
            profile = profile_before(self.served, learning, self.log, slate, None if known is None else known[0])
            request = replace(logged_request(slate.user, choice), diversity=None)  # the policy has it
            learned = learn_everything(profile)
            _, state, available, _ = situation(self.served, learning, learned, request, choice["at"])
            self.known[learning.key] = known = (profile, state, available)
        _, state, available = known
        return Situation(choosing.policy, {name: state[name] for name in choosing.start}, available)


def _unusable(slate: SlateRecord, choice: Choice | None) -> str | None:
    """Return why a slate that could be chosen again cannot be judged, None if it can."""
    if choice is None:
        return None
    rules = SlateRequest.of(slate.user, choice["request"]).rules
    if replace(rules, filter=(), exclude_owned=False) != SlateRules():
        return RULES
    explored = (choice["exploration"] or {}).get("explore_slates", 0.0)
    return NOT_LOGGED if explored and "propensities" not in choice else None
