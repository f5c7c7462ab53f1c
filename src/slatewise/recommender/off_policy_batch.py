"""What a policy makes of logged slates, worked out for many of them at once."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slatewise.evaluation.logged_slates import DRAWS, LoggedSlates, SlateTerms
from slatewise.policies import Available, Policy, State
from slatewise.randomness import Streams
from slatewise.recommender.served_catalog import Integers

Floats = NDArray[np.float64]

DRAW_SALT = 0xE7A1


@dataclass(frozen=True, eq=False)
class Situation:
    """What a policy knows and may choose from at the time of a logged slate."""

    policy: Policy
    state: State
    available: Available


@dataclass(frozen=True, eq=False)
class LoggedCase:
    """A logged slate that can be judged, in the situations of the model of rewards, the logging policy and the target.

    user: a number; shown: its items; logged: their propensities, all 1 if it was not drawn, and then `logging` is None.
    """

    user: int
    shown: Integers
    rewards: Floats
    logged: Floats
    random: Streams
    model: Situation
    logging: Situation | None
    target: Situation

    @property
    def kind(self) -> tuple[object, ...]:
        """What cases that are worked out together have in common."""
        logging = None if self.logging is None else id(self.logging.policy)
        policies = (id(self.model.policy), logging, id(self.target.policy))
        return (*policies, len(self.shown), self.random.seed, self.random.step)

    @property
    def starts(self) -> NDArray[np.uint64]:
        """Streams for the slates that are drawn to take means: those of the logging policy, then those of the target.

        They must differ. A target that draws with the numbers of the logging policy would have the same slates but for
        the shown one, which only the mean of the logging policy has, and its weights would fall short of 1.
        """
        seed = (self.random.seed ^ DRAW_SALT) + int(self.random.users[0]) % 2**32
        return Streams(seed, np.arange(2 * DRAWS, dtype=np.uint64), self.random.step).starts


def logged_slates(cases: Sequence[LoggedCase]) -> tuple[LoggedSlates | None, int]:
    """Return cases as arrays, in their order, and how many were drawn, without those for which nothing is left to show.

    None if none is left of the cases.
    """
    by_kind = defaultdict[tuple[object, ...], list[int]](list)
    for number, case in enumerate(cases):
        by_kind[case.kind].append(number)
    terms: dict[int, SlateTerms] = {}
    for numbers in by_kind.values():
        found = _terms([cases[number] for number in numbers])
        terms |= {number: one for number, one in zip(numbers, found, strict=True) if one is not None}
    left = [(cases[number], terms[number]) for number in sorted(terms)]
    n_drawn = sum(case.logging is not None for case, _ in left)
    users, slates = [case.user for case, _ in left], [slate for _, slate in left]
    return (LoggedSlates.of(users, slates) if left else None), n_drawn


def _terms(cases: Sequence[LoggedCase]) -> list[SlateTerms | None]:
    """Return what is known about cases of one kind; None if the policy has nothing to show in the place of one."""
    shown, logged = np.array([case.shown for case in cases]), np.array([case.logged for case in cases])
    first, (starts, own_starts) = cases[0], np.split(np.array([case.starts for case in cases]), 2, axis=1)
    users = np.concatenate([case.random.users for case in cases])
    random = Streams(first.random.seed, users, first.random.step)
    model: Any = first.model.policy
    predicted = np.clip(model.probabilities(_states([case.model for case in cases])), 0.0, 1.0)
    logging = [case.logging for case in cases if case.logging is not None]
    marginal = np.ones(shown.shape)
    softmax = _softmax(logging, random) if logging else None
    if softmax is not None:
        marginal = with_shown(softmax.judge(_tables(logging), shown, starts).marginal, logged)
    target, is_shown = _target([case.target for case in cases], shown, (random, own_starts), predicted)
    conditional, own_marginal, expected, direct = target
    of_shown, rewards = np.take_along_axis(predicted, shown, axis=1), np.array([case.rewards for case in cases])
    arrays = (rewards, logged, conditional, marginal, own_marginal, of_shown, expected, direct)
    rows = map(SlateTerms._make, zip(*arrays, strict=True))
    return [row if is_known else None for row, is_known in zip(rows, is_shown.tolist(), strict=True)]


def _target(
    situations: Sequence[Situation], shown: Integers, draws: tuple[Streams, NDArray[np.uint64]], predicted: Floats
) -> tuple[tuple[Floats, ...], NDArray[np.bool_]]:
    """Return propensities, marginals, expected and direct predictions (n, k), and for which slates there are any."""
    (random, starts), available = draws, _tables(situations)
    softmax = _softmax(situations, random)
    if softmax is not None:
        found = softmax.judge(available, shown, starts, predicted)
        terms = (found.propensity, found.marginal, found.expected, found.own_expected)
        return terms, np.ones(len(shown), dtype=np.bool_)
    chosen = situations[0].policy.select(_states(situations), available, shown.shape[1], random).items
    is_same = chosen == shown
    follows = np.cumprod(is_same, axis=1).astype(np.float64)
    own = np.where(chosen >= 0, np.take_along_axis(predicted, np.maximum(chosen, 0), axis=1), 0.0)
    before = np.concatenate([np.ones((len(shown), 1)), follows[:, :-1]], axis=1)
    return (follows, is_same.astype(np.float64), own * before, own), np.asarray((chosen >= 0).any(axis=1))


def _softmax(situations: Sequence[Situation], random: Streams) -> Any:
    """Return how the policy of some situations draws, None if it does not."""
    draw = getattr(situations[0].policy, "softmax", None)
    return None if draw is None else draw(_states(situations), random)


def _states(situations: Sequence[Situation]) -> State:
    """Return the states of one policy as a batch."""
    names = situations[0].state
    return {name: np.concatenate([one.state[name] for one in situations]) for name in names}


def _tables(situations: Sequence[Situation]) -> NDArray[np.bool_]:
    """Return what is available (n, n_items)."""
    return np.concatenate([one.available.table() for one in situations])


def with_shown(drawn: Floats, logged: Floats) -> Floats:
    """Return marginals as means over drawn slates and the one that was shown, which gave its items `logged`.

    Since it was drawn like the others, dividing by this mean is right on average, as by the balance heuristic (Veach
    and Guibas 1995), but for an item that all of these slates have further up. The mean of the others alone can be 0.
    """
    return np.asarray((DRAWS * drawn + logged) / (DRAWS + 1))
