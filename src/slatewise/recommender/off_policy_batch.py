"""What a policy makes of logged slates, worked out for many users at once: the next slate of each, round by round."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from slatewise.evaluation.logged_slates import DRAWS, LoggedSlates, SlateTerms
from slatewise.policies import State
from slatewise.randomness import Streams
from slatewise.recommender.off_policy_beliefs import Asked, BeliefsInStep, Lesson, ShownInStep
from slatewise.recommender.served_catalog import Integers, ServedCatalog, ServedPolicy
from slatewise.slates.propensities import Grouping
from slatewise.slates.stochastic import SoftmaxGreedy

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]

DRAW_SALT = 0xE7A1
DRAW_NUMBERS = np.arange(2 * DRAWS, dtype=np.uint64)


@dataclass(frozen=True, eq=False)
class Judging:
    """What slates are worked out by: three policies as they choose, each with the one whose beliefs it chooses by.

    model: of rewards; logging: what drew the slate, None if it was not drawn; target: what is judged.
    """

    model: tuple[ServedPolicy, ServedPolicy]
    logging: tuple[ServedPolicy, ServedPolicy] | None
    target: tuple[ServedPolicy, ServedPolicy]

    @property
    def learning(self) -> list[ServedPolicy]:
        """The policies whose beliefs are needed."""
        return [pair[1] for pair in (self.model, self.logging, self.target) if pair is not None]


@dataclass(frozen=True, eq=False)
class LoggedCase:
    """A logged slate that can be judged: its items, what was got for each, and their propensities, 1 if not drawn."""

    asked: Asked
    judging: Judging
    shown: Integers
    rewards: list[float]
    logged: list[float]
    random: Streams

    @property
    def kind(self) -> tuple[object, ...]:
        """What cases that are worked out together have in common."""
        return (id(self.judging), len(self.shown), self.random.seed, self.random.step)

    @property
    def starts(self) -> NDArray[np.uint64]:
        """Streams for the slates that are drawn to take means: those of the logging policy, then those of the target.

        They must differ. A target that draws with the numbers of the logging policy would have the same slates but for
        the shown one, which only the mean of the logging policy has, and its weights would fall short of 1.
        """
        seed = (self.random.seed ^ DRAW_SALT) + int(self.random.users[0]) % 2**32
        return Streams(seed, DRAW_NUMBERS, self.random.step).starts


@dataclass(frozen=True, eq=False)
class LoggedUser:
    """The slates of a user that can be judged, in their order; number: of the user."""

    number: int
    cases: Sequence[LoggedCase]


class Groupings:
    """Items in groups by their categories, as drawing policies take them, kept from one batch to the next."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[object, Grouping]] = {}

    def of(self, softmax: SoftmaxGreedy) -> Grouping:
        """Return the groups of the items that a policy draws from; those of two policies are kept."""
        sets = softmax.rule.sets.of_item
        if id(sets) not in self._kept:
            self._kept = dict([*self._kept.items()][-1:]) | {id(sets): (sets, softmax.grouped())}
        return self._kept[id(sets)][1]


def logged_slates(
    served: ServedCatalog, users: Sequence[LoggedUser], groupings: Groupings
) -> tuple[LoggedSlates | None, int]:
    """Return the cases of users as arrays, in their order, and how many were drawn, without those with nothing to show.

    None if none is left of the cases.
    """
    sizes = np.array([len(user.cases) for user in users], dtype=np.int64)
    order = np.argsort(-sizes, kind="stable")
    first = (np.cumsum(sizes) - sizes)[order]
    ordered = [users[position].cases for position in order.tolist()]
    rounds = _rounds(served, ordered, groupings) if users else ()
    parts = [(first[positions] + turn, terms) for turn, positions, terms in rounds]
    if not parts:
        return None, 0
    left = np.concatenate([numbers for numbers, _ in parts])
    is_drawn = np.array([case.judging.logging is not None for user in users for case in user.cases])
    owners = np.repeat([user.number for user in users], sizes)
    return LoggedSlates.of(owners, parts), int(is_drawn[left].sum())


def _rounds(
    served: ServedCatalog, users: Sequence[Sequence[LoggedCase]], groupings: Groupings
) -> Iterator[tuple[int, Integers, SlateTerms]]:
    """Yield what is known about the cases of some users in a round; users with the most cases come first."""
    beliefs = BeliefsOfPolicies(users)
    shown = ShownInStep(served, users[0][0].judging.model[1], len(users))
    for turn in range(len(users[0])):
        cases = [of_user[turn] for of_user in users if len(of_user) > turn]
        lessons = [case.asked.lesson for case in cases]
        beliefs.learn(lessons)
        shown.learn(lessons)
        by_kind = defaultdict[tuple[object, ...], list[int]](list)
        for position, case in enumerate(cases):
            by_kind[case.kind].append(position)
        for same in by_kind.values():
            positions, asked = np.array(same), [cases[position].asked for position in same]
            table, is_possible = shown.available(positions, asked)
            if not is_possible.all():
                positions, table = positions[is_possible], table[is_possible]
            if len(positions):
                group = [cases[position] for position in positions.tolist()]
                is_known, terms = _terms(group, table, beliefs.known(positions, group), groupings)
                yield (
                    turn,
                    positions[is_known],
                    terms if is_known.all() else SlateTerms(*(column[is_known] for column in terms)),
                )


class Known(NamedTuple):
    """The policies of some cases, as in `Judging`, each with the state of the users whose slates these are."""

    model: tuple[Any, State]
    logging: tuple[Any, State] | None
    target: tuple[Any, State]


class BeliefsOfPolicies:
    """What the policies that are needed know about users, who are in order of their number of cases."""

    def __init__(self, users: Sequence[Sequence[LoggedCase]]) -> None:
        members, policies = defaultdict[str, list[int]](list), dict[str, ServedPolicy]()
        for position, cases in enumerate(users):
            needed = {policy.key: policy for judging in {case.judging for case in cases} for policy in judging.learning}
            policies |= needed
            for key in needed:
                members[key].append(position)
        self._members = {key: np.array(positions) for key, positions in members.items()}
        self._beliefs = {key: BeliefsInStep(policies[key], len(positions)) for key, positions in members.items()}

    def learn(self, lessons: Sequence[Lesson]) -> None:
        """Learn a lesson of each of the first users."""
        for key, positions in self._members.items():
            self._beliefs[key].learn([lessons[position] for position in positions.tolist() if position < len(lessons)])

    def known(self, positions: Integers, cases: Sequence[LoggedCase]) -> Known:
        """Return the policies of cases of one kind, each with what it knows about the users.

        Policies that choose by the same beliefs have the same object.
        """
        judging, asked = cases[0].judging, [case.asked for case in cases]
        states = {
            policy.key: self._beliefs[policy.key].known(np.searchsorted(self._members[policy.key], positions), asked)
            for policy in judging.learning
        }
        model, logging, target = judging.model, judging.logging, judging.target

        def with_state(used: tuple[ServedPolicy, ServedPolicy]) -> tuple[Any, State]:
            return used[0].policy, _of(used[0], states[used[1].key])

        return Known(with_state(model), None if logging is None else with_state(logging), with_state(target))


def _of(policy: ServedPolicy, state: State) -> State:
    """Return what a policy needs of a state; one that only counts slates may choose by that of one that learns."""
    return state if state.keys() == policy.start.keys() else {name: state[name] for name in policy.start}


def _terms(
    cases: Sequence[LoggedCase], available: Booleans, known: Known, groupings: Groupings
) -> tuple[Booleans, SlateTerms]:
    """Return what is known about cases of one kind, and of which anything is: the policy has something to show."""
    shown, logged = np.array([case.shown for case in cases]), np.array([case.logged for case in cases])
    rewards = np.array([case.rewards for case in cases])
    first, (starts, own_starts) = cases[0], np.split(np.array([case.starts for case in cases]), 2, axis=1)
    users = np.concatenate([case.random.users for case in cases])
    random = Streams(first.random.seed, users, first.random.step)
    (model, state), logging, (policy, target_state) = known
    scored = (state, model.scored(state))
    predicted = model.probabilities(*scored)
    marginal, softmax = np.ones(shown.shape), _softmax(logging, random, scored)
    if softmax is not None:
        judged = softmax.judge(available, shown, starts, grouping=groupings.of(softmax))
        marginal = with_shown(judged.marginal, logged)
    of_shown = np.take_along_axis(predicted, shown, axis=1)
    softmax = _softmax(known.target, random, scored)
    if softmax is None:
        chosen = policy.select(target_state, available, shown.shape[1], random).items
        is_known, terms = np.asarray((chosen >= 0).any(axis=1)), _of_chosen(chosen, shown, predicted)
    else:
        judged = softmax.judge(available, shown, own_starts, predicted, groupings.of(softmax))
        is_known = np.ones(len(shown), dtype=np.bool_)
        terms = (judged.propensity, judged.marginal, judged.expected, judged.own_expected)
    conditional, own_marginal, expected, direct = terms
    return is_known, SlateTerms(rewards, logged, conditional, marginal, own_marginal, of_shown, expected, direct)


def _of_chosen(chosen: Integers, shown: Integers, predicted: Floats) -> tuple[Floats, ...]:
    """Return propensities, marginals, expected and direct predictions (n, k) of a policy that chose without drawing."""
    is_same = chosen == shown
    follows = np.cumprod(is_same, axis=1).astype(np.float64)
    own = np.where(chosen >= 0, np.take_along_axis(predicted, np.maximum(chosen, 0), axis=1), 0.0)
    before = np.concatenate([np.ones((len(shown), 1)), follows[:, :-1]], axis=1)
    return follows, is_same.astype(np.float64), own * before, own


def _softmax(policy: tuple[Any, State] | None, random: Streams, scored: tuple[State, Any]) -> Any:
    """Return how a policy draws slates of some users, None if it does not.

    scored: what the model makes of users in a state; a policy that learns alike is in the same one, and may use it.
    """
    draw = None if policy is None else getattr(policy[0], "softmax", None)
    if policy is None or draw is None:
        return None
    return draw(policy[1], random, scored[1] if policy[1] is scored[0] else None)


def with_shown(drawn: Floats, logged: Floats) -> Floats:
    """Return marginals as means over drawn slates and the one that was shown, which gave its items `logged`.

    Since it was drawn like the others, dividing by this mean is right on average, as by the balance heuristic (Veach
    and Guibas 1995), but for an item that all of these slates have further up. The mean of the others alone can be 0.
    """
    return np.asarray((DRAWS * drawn + logged) / (DRAWS + 1))
