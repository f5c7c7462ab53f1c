"""What another policy would have chosen, for every slate of the log: propensities from the log as it was then.

A target that draws its slates gives the probability of what was shown; of any other target it is 1 or 0. Marginals and
the direct method of policies that draw are means over drawn slates.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from slatewise.belief.rates import Rates
from slatewise.evaluation.logged_slates import LoggedSlates
from slatewise.evaluation.verdict import Evaluation, judge
from slatewise.randomness import Streams
from slatewise.recommender.loading import LogTail
from slatewise.recommender.off_policy_batch import Groupings, Judging, LoggedCase, LoggedUser, logged_slates
from slatewise.recommender.off_policy_beliefs import Asked, UserHistory
from slatewise.recommender.rate_publications import RatesHistory
from slatewise.recommender.replay import RATES_GONE, logged_policy, obstacle, rates_for
from slatewise.recommender.served_catalog import ServedCatalog, ServedPolicy
from slatewise.recommender.shadow import does_not_learn, learn_alike
from slatewise.recommender.slate_rules import SlateRules
from slatewise.recommender.types import RequestError
from slatewise.store.protocol import Store, Transaction
from slatewise.store.records import CLOSED, Choice, SlateRecord

Kept = TypeVar("Kept")

MODEL = "dc2b-calibrated"
"""The policy whose probabilities are the model of rewards."""
RULES = "its slate had rules other than filters"
NOT_LOGGED = "it was drawn without propensities in the log"
EMPTY = "the policy has nothing to show in its place"
MAX_SLATES, MAX_USERS, MAX_CELLS = 1 << 12, 1 << 8, 1 << 18
"""Slates that are worked out together, their users, and these times items: memory does not grow with the log."""
MAX_KEPT, MAX_KEPT_ITEMS = 64, 1 << 19
"""Policies with the rates of some time that are kept for the next slates; more of a catalog with few items."""


def evaluate_policy(
    store: Store, served: ServedCatalog, target: ServedPolicy, on_user: Callable[[], None] | None = None
) -> Evaluation:
    """Judge a policy by the log of a store; users are read one by one, slates are worked out many at a time."""
    reader = OffPolicyReader(served, LoggedPolicies(served, target))
    for number, user in enumerate(store.users()):
        reader = store.read(partial(reader.with_user, user=user, number=number))
        if reader.is_full:
            reader.work_out()
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

    def __init__(self, served: ServedCatalog, target: ServedPolicy) -> None:
        self._served, self._target, self._model = served, target, served.policy(MODEL)
        self._most = max(MAX_KEPT, MAX_KEPT_ITEMS // served.n_items)
        self._rates: dict[int, tuple[Rates, int] | None] = {}
        self._logging: dict[tuple[object, ...], ServedPolicy | None] = {}
        self._judging: dict[tuple[object, ...], Judging] = {}

    def logging(self, choice: Choice) -> ServedPolicy | None:
        """Return the policy that chose a slate, as it learns; None if it is not served."""
        given = choice["rules"]["attention"]
        key = (choice["key"], given["rule"], given["skip_weight"], *given["curve"])
        return self._kept(self._logging, key, lambda: logged_policy(self._served, choice))

    def rates(self, history: RatesHistory, choice: Choice) -> tuple[Rates, int] | None:
        """Return the rates that were in force for a slate, and their version; None if they are not kept."""
        version = (choice["exploration"] or {"rates": 0})["rates"]
        return self._kept(self._rates, version, lambda: rates_for(history, self._served, choice))

    def judging(self, policy: ServedPolicy, rates: tuple[Rates, int], choice: Choice, *, has_events: bool) -> Judging:
        """Return what a slate is worked out by, that a policy chose by these rates.

        All choose by the rates of that time, and at the diversity that was asked for; the policy that chose the slate
        also by the options that were in force.
        """
        diversity, is_drawn = choice["request"].get("diversity"), "propensities" in choice
        logged = choice["exploration"] or {}
        options = [logged.get(name, 0.0) for name in getattr(policy.policy, "choosing_options", ())]
        key = (policy, rates[1], diversity, is_drawn, has_events, *options)

        def make() -> Judging:
            model = _at_diversity(self._model.with_rates(*rates), diversity)

            def used(choosing: ServedPolicy, learning: ServedPolicy) -> tuple[ServedPolicy, ServedPolicy]:
                return _at_diversity(_prepared(choosing, self._learning(choosing), model, rates), diversity), learning

            is_counting = does_not_learn(self._target) and not has_events
            target = used(self._target, self._model if is_counting else self._learning(self._target))
            drew = used(policy.exploring(logged), self._learning(policy)) if is_drawn else None
            return Judging((model, self._model), drew, target)

        return self._kept(self._judging, key, make)

    def _learning(self, policy: ServedPolicy) -> ServedPolicy:
        """Return whose beliefs a policy chooses by: its own, or the model's if that learns the same."""
        is_alike = policy.rules == self._model.rules and learn_alike(policy.policy, self._model.policy)
        return self._model if is_alike else policy

    def _kept(self, kept: dict[Any, Kept], key: object, make: Callable[[], Kept]) -> Kept:
        """Return what is kept under a key; make it if it is not there, in the place of the oldest if there are many."""
        if key not in kept:
            if len(kept) >= self._most:
                del kept[next(iter(kept))]
            kept[key] = make()
        return kept[key]


def _prepared(
    policy: ServedPolicy, learning: ServedPolicy, model: ServedPolicy, rates: tuple[Rates, int]
) -> ServedPolicy:
    """Return a policy choosing by rates, with what the model has prepared for them if that learns alike."""
    chooser: Any = policy.policy
    prepared = None if learning is policy else chooser.prepared_as(model.policy)
    return policy.with_rates(*rates) if prepared is None else replace(policy, policy=prepared, version=rates[1])


def _at_diversity(policy: ServedPolicy, diversity: float | None) -> ServedPolicy:
    return replace(policy, policy=policy.with_diversity(diversity))


@dataclass(eq=False)
class OffPolicyReader:
    """Reads a log and works out what the target policy makes of each slate."""

    served: ServedCatalog
    policies: LoggedPolicies
    skipped: Counter[str] = field(default_factory=Counter)
    users: list[LoggedUser] = field(default_factory=list)
    parts: list[LoggedSlates] = field(default_factory=list)
    groupings: Groupings = field(default_factory=Groupings)
    n_drawn: int = 0
    n_slates: int = 0
    """How many slates wait to be worked out."""

    def with_user(self, transaction: Transaction, user: str, number: int) -> "OffPolicyReader":
        """Return a reader that has the closed slates of one more user.

        This one stays as it is: a store that loses its connection reads again, and no slate may count twice.
        """
        longer = replace(self, skipped=Counter(self.skipped), users=[*self.users], parts=[*self.parts])
        longer.read_user(transaction, user, number)
        return longer

    def read_user(self, transaction: Transaction, user: str, number: int) -> None:
        """Add the closed slates of one more user to this reader."""
        history, choices = UserHistory(self.served, LogTail.read(transaction, user)), transaction.choices_of(user)
        rates, cases = RatesHistory(transaction, self.served.digest), list[LoggedCase]()
        for slate in history.log.slates:
            if slate.status == CLOSED:
                case = self._case(history, rates, slate, choices.get(slate.number))
                if isinstance(case, str):
                    self.skipped[case] += 1
                else:
                    cases.append(case)
        if cases:
            self.users.append(LoggedUser(number, cases))
            self.n_slates += len(cases)

    def _case(
        self, history: UserHistory, rates: RatesHistory, slate: SlateRecord, choice: Choice | None
    ) -> LoggedCase | str:
        """Return a slate that can be judged, or why it cannot."""
        policy = None if choice is None else self.policies.logging(choice)
        reason = obstacle(self.served, slate, choice, policy) or _unusable(choice)
        if reason is not None or choice is None or policy is None:
            return str(reason)
        in_force = self.policies.rates(rates, choice)
        if in_force is None:
            return RATES_GONE
        judging = self.policies.judging(policy, in_force, choice, has_events=bool(history.log.events))
        logged_slate = history.slates[slate.slate_id]
        liked = set(logged_slate.tally.liked(slate.items))
        rewards = [float(item in liked) for item in slate.items]
        logged = choice["propensities"] if "propensities" in choice else [1.0] * len(slate.items)
        random = Streams(choice["seed"], np.array([choice["random_key"]], dtype=np.uint64), choice["step"])
        return LoggedCase(
            Asked.of(slate, choice, history.lesson(slate)), judging, logged_slate.numbers, rewards, logged, random
        )

    @property
    def is_full(self) -> bool:
        """Whether the slates that were read should be worked out before others are read."""
        most_users = max(1, min(MAX_USERS, MAX_CELLS // self.served.n_items))
        return self.n_slates >= MAX_SLATES or len(self.users) >= most_users

    def work_out(self) -> None:
        """Work out the slates that were read since the last time."""
        log, n_drawn = logged_slates(self.served, self.users, self.groupings)
        n_empty = self.n_slates - (0 if log is None else len(log.users))
        if n_empty:
            self.skipped[EMPTY] += n_empty
        if log is not None:
            self.parts.append(log)
        self.users, self.n_slates, self.n_drawn = [], 0, self.n_drawn + n_drawn


def _unusable(choice: Choice | None) -> str | None:
    """Return why a slate that could be chosen again cannot be judged, None if it can."""
    if choice is None:
        return None
    if "rules" in choice["request"]:
        rules = SlateRules.of(choice["request"]["rules"])
        if replace(rules, filter=(), exclude_owned=False) != SlateRules():
            return RULES
    explored = (choice["exploration"] or {}).get("explore_slates", 0.0)
    return NOT_LOGGED if explored and "propensities" not in choice else None
