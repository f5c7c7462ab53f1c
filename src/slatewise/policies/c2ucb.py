"""C²UCB (Qin, Chen and Zhu 2014): ridge regression, upper confidence bounds, an entropy regularizer."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from slatewise import belief
from slatewise.catalog import Catalog
from slatewise.evidence import Evidence
from slatewise.policies.protocol import (
    Booleans,
    Floats,
    Integers,
    ScoreTerms,
    Slates,
    State,
    at_items,
    check_not_negative,
    check_positive,
)
from slatewise.randomness import Streams
from slatewise.slates import Available, LinearItems, Rule, choose, item_vectors, rules, squared_lengths


@dataclass(frozen=True, eq=False)
class C2Ucb:
    """V = λ₀I + Σ xxᵀ, θ̂ = V⁻¹ Σ yx, score θ̂·x + a √(xᵀV⁻¹x), entropy weight λ and noise σ.

    The paper gives λ₀ = 100, λ = 0.1, σ = 1 but neither a nor the length of x. Here a = 1 and the root mean square
    length is √dim, a mean square entry of 1, unless `vector_length` says otherwise; docs/method.md shows what other
    readings give.
    """

    catalog: Catalog
    ridge: float = 100.0
    entropy_weight: float = 0.1
    noise: float = 1.0
    exploration: float = 1.0
    vector_length: float | None = None
    one_at_a_time = False
    additive = ("gram", "reward")
    belief_arrays = ("gram", "reward")

    def __post_init__(self) -> None:
        check_positive("ridge", self.ridge)
        check_positive("noise", self.noise)
        check_not_negative("entropy_weight", self.entropy_weight)
        check_not_negative("exploration", self.exploration)
        check_positive("vector_length", self.length)

    @property
    def length(self) -> float:
        """The root mean square length of the x_i."""
        return float(np.sqrt(self.catalog.dim)) if self.vector_length is None else self.vector_length

    @cached_property
    def rule(self) -> Rule:
        """The regularizer on the catalog's vectors, the x_i before scaling; every gain is less by λ log length."""
        return rules.entropy(item_vectors(self.catalog.vectors), self.entropy_weight, self.noise / self.length)

    @cached_property
    def items(self) -> LinearItems:
        """What bounds a gain beyond θ̂·x: V is at least λ₀I, so √(xᵀV⁻¹x) ≤ |x| / √λ₀; and the entropy of x itself."""
        width = self.exploration * self.length * np.sqrt(squared_lengths(self.catalog.vectors) / self.ridge)
        return LinearItems.of(self.catalog.vectors, width + self.rule.first_gains())

    def start(self, n_users: int) -> State:
        """V = λ₀I and nothing seen."""
        dim = self.catalog.dim
        return {"gram": np.tile(self.ridge * np.eye(dim), (n_users, 1, 1)), "reward": np.zeros((n_users, dim))}

    def select(self, state: State, available: Booleans | Available, k: int, random: Streams) -> Slates:
        """Choose greedily by upper confidence bound plus entropy."""
        del random
        inverse = np.linalg.inv(state["gram"])
        theta = np.matmul(inverse, state["reward"][:, :, None])[:, :, 0]
        scores = self.items.upper_confidence(self.length * theta, self.length**2 * inverse, self.exploration)
        choice = choose(scores, self.rule, available, k)
        shown = self.at(choice.items)
        estimate = np.matmul(shown, theta[:, :, None])[:, :, 0]
        width = np.sqrt(np.maximum((np.matmul(shown, inverse) * shown).sum(axis=2), 0.0))
        first = self.rule.first_gains(choice.items) + self.entropy_weight * np.log(self.length)
        return Slates(choice.items, np.clip(estimate, 0.0, 1.0), width, choice.variety + first * (choice.items >= 0))

    def at(self, items: Integers) -> Floats:
        """Return the x_i of chosen items (n_users, k)."""
        scaled: Floats = at_items(self.catalog.vectors, items).astype(np.float64) * self.length
        return scaled

    def update(self, state: State, evidence: Evidence) -> State:
        """Add the vectors and their rewards; an item examined with probability q is a regression on q·x."""
        weight = evidence.counted * np.square(evidence.examined)
        learned = belief.add_evidence(self.belief_in(state), self.at(evidence.items), weight, self._pulls(evidence))
        return {"gram": learned.precision, "reward": learned.shift}

    @property
    def belief_vectors(self) -> NDArray[np.float32]:
        """The x_i, up to scale."""
        return self.catalog.vectors

    def belief_in(self, state: State) -> belief.Beliefs:
        """Return the belief inside a state."""
        return belief.Beliefs(state["gram"], state["reward"])

    def chosen_at(self, items: Integers) -> Floats:
        """Return the x_i of some items."""
        return self.at(items)

    def shifts(self, evidence: Evidence) -> Floats:
        """Return what each observation adds to Σ⁻¹m: its pull times x."""
        return np.asarray(self._pulls(evidence)[0][:, None] * self.at(evidence.items)[0])

    def _pulls(self, evidence: Evidence) -> Floats:
        """Return the reward y, times weight and probability of examination."""
        return np.asarray(evidence.counted * evidence.examined * evidence.value)

    def score_terms(self, beliefs: belief.Factored, items: Integers, random: Streams) -> ScoreTerms:
        """Return the estimate, and the width of the confidence bound."""
        del random
        estimate, variance = beliefs.logit_moments(self.at(items[None]))
        return ScoreTerms(np.zeros(len(items)), estimate[0], self.exploration * np.sqrt(variance[0]))
