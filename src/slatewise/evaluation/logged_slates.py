"""Slates of a log as arrays, with what a target policy would have made of each, and what the estimators say of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from slatewise.evaluation import estimators
from slatewise.evaluation.estimators import Floats, ratios
from slatewise.evaluation.intervals import Estimate, Integers, estimate

DIRECT, STANDARD, INDEPENDENT, INTERACTION, CASCADE, PSEUDO_INVERSE = (
    "direct method",
    "standard IPS",
    "independent IPS",
    "reward-interaction IPS",
    "cascade doubly robust",
    "pseudo-inverse",
)

DRAWS = 16
"""Slates that are drawn for each logged slate, where a marginal or an expectation needs them."""
ONES = {"logged", "target", "logged_marginal", "target_marginal"}
"""What is 1 at a place without an item; everything else is 0 there."""


class SlateTerms(NamedTuple):
    """What is known about some logged slates of one length, each (n, k); see `LoggedSlates`."""

    rewards: Floats
    logged: Floats
    target: Floats
    logged_marginal: Floats
    target_marginal: Floats
    predicted: Floats
    expected: Floats
    direct: Floats


@dataclass(frozen=True, eq=False)
class LoggedSlates:
    """Logged slates, each array (n_slates, k) but users (n_slates,).

    logged and target: propensities of the shown items under the policy that showed them and under the one that is
    judged, given the items before each; marginals: whatever came before; predicted: the model's reward of each shown
    item; expected: of what the target draws at that place, given the items before it; direct: of its own slates.
    """

    users: Integers
    rewards: Floats
    logged: Floats
    target: Floats
    logged_marginal: Floats
    target_marginal: Floats
    predicted: Floats
    expected: Floats
    direct: Floats

    @classmethod
    def of(cls, users: Integers, parts: Sequence[tuple[Integers, SlateTerms]]) -> "LoggedSlates":
        """Lay out slates of any length as rows; a place without an item has reward 0 and propensities of 1.

        users: of all slates; parts: numbers of slates (n,) and what is known about them, each (n, k). Slates that no
        part has are left out.
        """
        k, left = max(terms.rewards.shape[1] for _, terms in parts), np.zeros(len(users), dtype=np.bool_)
        tables = {name: np.full((len(users), k), float(name in ONES)) for name in SlateTerms._fields}
        for numbers, terms in parts:
            left[numbers] = True
            for name, values in zip(SlateTerms._fields, terms, strict=True):
                tables[name][numbers, : values.shape[1]] = values
        return cls(users[left], **{name: table[left] for name, table in tables.items()})

    @classmethod
    def joined(cls, parts: Sequence["LoggedSlates"]) -> "LoggedSlates":
        """Return the slates of several parts, one after the other."""
        k = max(part.rewards.shape[1] for part in parts)
        tables = {
            name: np.concatenate([_widened(getattr(part, name), k, float(name in ONES)) for part in parts])
            for name in SlateTerms._fields
        }
        return cls(np.concatenate([part.users for part in parts]), **tables)

    def with_fitted_model(self) -> "LoggedSlates":
        """Return the same with predictions scaled, for each place, to the rewards that were seen there."""
        sums, seen = self.predicted.sum(axis=0), self.rewards.sum(axis=0)
        factors = np.divide(seen, sums, out=np.zeros_like(sums), where=sums > 0.0)
        tables = {field.name: getattr(self, field.name) for field in fields(self)}
        scaled = {name: tables[name] * factors for name in ("predicted", "expected", "direct")}
        return LoggedSlates(**{**tables, **scaled})

    def estimates(self) -> Mapping[str, Estimate]:
        """Return what each estimator says about the reward per slate, by name; the model must be fitted."""
        weights, marginal = ratios(self.target, self.logged), ratios(self.target_marginal, self.logged_marginal)
        down_to = np.asarray(np.cumprod(weights, axis=1), dtype=np.float64)
        rewards, robust = self.rewards, self.doubly_robust()
        unseen = unseen_by_draws(marginal.shape[1])
        direct = estimators.fitted_direct_method(rewards, self.predicted, self.direct)
        return {
            DIRECT: estimate(direct, self.users),
            STANDARD: estimate(estimators.standard_ips(rewards, weights), self.users, down_to[:, -1:]),
            INDEPENDENT: estimate(estimators.independent_ips(rewards, marginal), self.users, marginal, unseen),
            INTERACTION: estimate(estimators.reward_interaction_ips(rewards, weights), self.users, down_to),
            CASCADE: estimate(robust, self.users, down_to),
            PSEUDO_INVERSE: estimate(estimators.pseudo_inverse(rewards, marginal), self.users, marginal, unseen),
        }

    def doubly_robust(self) -> Floats:
        """Return the terms of the cascade doubly robust estimator."""
        weights = ratios(self.target, self.logged)
        return estimators.cascade_doubly_robust(self.rewards, weights, self.predicted, self.expected)

    def difference(self) -> Estimate:
        """Return how much more reward per slate the target gets than what was shown, by the doubly robust estimator."""
        down_to = np.asarray(np.cumprod(ratios(self.target, self.logged), axis=1), dtype=np.float64)
        return estimate(self.doubly_robust() - self.rewards.sum(axis=1), self.users, down_to)


def unseen_by_draws(k: int) -> Floats:
    """Return by how much the marginal weights (k,) of a policy may fall short of 1 on the log that it drew itself.

    A marginal is a mean over n = DRAWS + 1 slates. It misses an item that all of them have further up, which happens
    with probability a^n if one slate has it there with probability a, while the item belongs to this place with
    probability 1 − a at most. The a of all items add up to the places above, so at most (1 − a) a^(n − 1) is missed for
    each of these, and a = (n − 1) / n makes that largest.

    >>> unseen_by_draws(3).round(3).tolist()
    [0.0, 0.022, 0.045]
    """
    n = DRAWS + 1
    return np.asarray(np.arange(k) * (DRAWS / n) ** DRAWS / n)


def _widened(table: Floats, k: int, value: float) -> Floats:
    """Return a table with places added that hold a value."""
    return np.pad(table, ((0, 0), (0, k - table.shape[1])), constant_values=value)
