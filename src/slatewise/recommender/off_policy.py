"""What another policy would have chosen, for every slate of the log: propensities from the log as it was then.

A target that draws its slates gives the probability of what was shown; of any other target it is 1 or 0. Marginals and
the direct method of policies that draw are means over drawn slates.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slatewise.belief.rates import Rates
from slatewise.evaluation.logged_slates import LoggedSlates, SlateTerms
from slatewise.evaluation.verdict import Evaluation, judge
from slatewise.policies import Available, Policy, State
from slatewise.randomness import Streams
from slatewise.recommender.loading import LogTail
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
from slatewise.recommender.served_catalog import Integers, ServedCatalog, ServedPolicy
from slatewise.recommender.slate_rules import SlateRules
from slatewise.recommender.types import RequestError
from slatewise.slates.stochastic import SoftmaxGreedy
from slatewise.store.protocol import Store, Transaction
from slatewise.store.records import CLOSED, Choice, SlateRecord

Floats = NDArray[np.float64]

DRAWS = 16
"""Slates that are drawn for each logged slate, where a marginal or an expectation needs them."""
DRAW_SALT = 0xE7A1
MODEL = "dc2b-calibrated"
"""The policy whose probabilities are the model of rewards."""
RULES = "its slate had rules other than filters"
NOT_LOGGED = "it was drawn without propensities in the log"
EMPTY = "the policy has nothing to show in its place"


def evaluate_policy(
    store: Store, served: ServedCatalog, target: ServedPolicy, on_user: Callable[[], None] | None = None
) -> Evaluation:
    """Judge a policy by the log of a store, user by user."""
    reader = OffPolicyReader(served, target)
    for number, user in enumerate(store.users()):
        store.read(lambda transaction, user=user, number=number: reader.read_user(transaction, user, number))  # type: ignore[misc]
        if on_user is not None:
            on_user()
    if not reader.slates:
        reasons = "; ".join(f"{n:,} slates: {reason}" for reason, n in reader.skipped.items())
        raise RequestError(f"no slate of this log can be judged ({reasons or 'no slate has been closed yet'})")
    log = LoggedSlates.of(reader.users, reader.slates)
    return judge(target.name, log, reader.n_drawn / len(reader.slates), reader.skipped)


@dataclass(frozen=True, eq=False)
class Situation:
    """What a policy knows and may choose from at the time of a logged slate."""

    policy: Policy
    state: State
    available: Available
    random: Streams

    @property
    def softmax(self) -> SoftmaxGreedy | None:
        """How the policy draws, None if it does not."""
        draw = getattr(self.policy, "softmax", None)
        drawing: SoftmaxGreedy | None = None if draw is None else draw(self.state, self.random)
        return drawing

    @property
    def starts(self) -> NDArray[np.uint64]:
        """Streams for the slates that are drawn to take means."""
        seed = (self.random.seed ^ DRAW_SALT) + int(self.random.users[0]) % 2**32
        return Streams(seed, np.arange(DRAWS, dtype=np.uint64), self.random.step).starts


@dataclass(eq=False)
class OffPolicyReader:
    """Reads a log and works out what the target policy makes of each slate."""

    served: ServedCatalog
    target: ServedPolicy
    skipped: Counter[str] = field(default_factory=Counter)
    slates: list[SlateTerms] = field(default_factory=list)
    users: list[int] = field(default_factory=list)
    n_drawn: int = 0

    def read_user(self, transaction: Transaction, user: str, number: int) -> None:
        """Add the closed slates of a user."""
        log, choices = LogTail.read(transaction, user), transaction.choices_of(user)
        replay = UserReplay(self.served, self.target, log, RatesHistory(transaction, self.served.digest))
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
            rates = rates_for(replay.history, self.served, choice)
            if rates is None:
                self.skipped[RATES_GONE] += 1
                continue
            liked = set(tallies[slate.slate_id].liked(slate.items))
            rewards = np.array([float(item in liked) for item in slate.items])
            terms = replay.terms((slate, choice), policy, rates, rewards)
            if terms is None:
                self.skipped[EMPTY] += 1
                continue
            self.slates.append(terms)
            self.users.append(number)
            self.n_drawn += "propensities" in choice


@dataclass(eq=False)
class UserReplay:
    """The log of one user, as three policies would go through it: who showed it, who is judged, and the model."""

    served: ServedCatalog
    target: ServedPolicy
    log: LogTail
    history: RatesHistory
    profiles: dict[str, UserProfile] = field(default_factory=dict)
    """By the key of beliefs: policies that learn alike share them."""

    def situation(
        self, logged_slate: tuple[SlateRecord, Choice], learning: ServedPolicy, choosing: ServedPolicy
    ) -> Situation:
        """Return the situation at a slate, of a policy as it learns and as it chose, with the rates of that time."""
        slate, choice = logged_slate
        known = self.profiles.get(learning.key)
        if known is None or known.n_slates != slate.number:
            known = profile_before(self.served, learning, self.log, slate, known)
            self.profiles[learning.key] = known
        learned = learn_everything(replace(known, policy=choosing))
        request = logged_request(slate.user, choice)
        policy, state, available, _ = situation(self.served, choosing, learned, request, choice["at"])
        key = np.array([choice["random_key"]], dtype=np.uint64)
        return Situation(policy, state, available, Streams(choice["seed"], key, choice["step"]))

    def terms(
        self, logged_slate: tuple[SlateRecord, Choice], shower: ServedPolicy, rates: tuple[Rates, int], rewards: Floats
    ) -> SlateTerms | None:
        """Return what is known about a slate; None if the target has nothing to show in its place."""
        slate, choice = logged_slate
        numbers, model = self.served.numbers(slate.items), self.served.policy(MODEL)
        predicted = self._predictions(logged_slate, model, model.with_rates(*rates))
        logged, logged_marginal = np.ones(len(numbers)), np.ones(len(numbers))
        if "propensities" in choice:
            logged = np.array(choice["propensities"])
            shown = self.situation(logged_slate, shower, as_logged(shower, choice, rates))
            if shown.softmax is not None:
                drawn = shown.softmax.judge(shown.available, numbers[None], shown.starts[None]).marginal[0]
                logged_marginal = with_shown(drawn, logged)
        try:
            judged = self.situation(logged_slate, self.target, self.target.with_rates(*rates))
        except RequestError:
            return None
        target = target_terms(judged, numbers, predicted)
        if target is None:
            return None
        conditional, marginal, expected, direct = target
        of_shown = predicted[numbers]
        return SlateTerms(rewards, logged, conditional, logged_marginal, marginal, of_shown, expected, direct)

    def _predictions(
        self, logged_slate: tuple[SlateRecord, Choice], learning: ServedPolicy, choosing: ServedPolicy
    ) -> Floats:
        """Return the probability of a click on each item (n_items,), by the model."""
        situation = self.situation(logged_slate, learning, choosing)
        model: Any = situation.policy
        return np.asarray(np.clip(model.probabilities(situation.state)[0], 0.0, 1.0))


def target_terms(situation: Situation, shown: Integers, predicted: Floats) -> tuple[Floats, ...] | None:
    """Return propensities, marginals, expected and direct predictions (k,) of a target policy; see `LoggedSlates`."""
    softmax, available = situation.softmax, situation.available
    if softmax is not None:
        judged = softmax.judge(available, shown[None], situation.starts[None], predicted[None])
        return judged.propensity[0], judged.marginal[0], judged.expected[0], judged.own_expected[0]
    chosen = situation.policy.select(situation.state, available, len(shown), situation.random).items[0]
    if not (chosen >= 0).any():
        return None
    is_same = chosen == shown
    follows = np.cumprod(is_same).astype(np.float64)
    own = np.where(chosen >= 0, predicted[np.maximum(chosen, 0)], 0.0)
    before = np.concatenate([[1.0], follows[:-1]])
    return follows, is_same.astype(np.float64), own * before, own


def with_shown(drawn: Floats, logged: Floats) -> Floats:
    """Return marginals as means over drawn slates and the one that was shown, which gave its items `logged`.

    Since it was drawn like the others, dividing by this mean is right on average, as by the balance heuristic (Veach
    and Guibas 1995), but for an item that all of these slates have further up. The mean of the others alone can be 0.
    """
    return np.asarray((DRAWS * drawn + logged) / (DRAWS + 1))


def _unusable(slate: SlateRecord, choice: Choice | None) -> str | None:
    """Return why a slate that could be chosen again cannot be judged, None if it can."""
    if choice is None:
        return None
    rules = SlateRequest.of(slate.user, choice["request"]).rules
    if replace(rules, filter=(), exclude_owned=False) != SlateRules():
        return RULES
    explored = (choice["exploration"] or {}).get("explore_slates", 0.0)
    return NOT_LOGGED if explored and "propensities" not in choice else None
