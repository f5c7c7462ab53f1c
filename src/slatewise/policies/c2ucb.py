"""C²UCB (Qin, Chen and Zhu 2014): ridge regression, upper confidence bounds, an entropy regulariser."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slatewise import belief
from slatewise import slates as rules
from slatewise.catalog import Catalog
from slatewise.policies.protocol import (
    Booleans,
    Floats,
    Integers,
    Slates,
    State,
    at_items,
    check_not_negative,
    check_positive,
    for_all,
    for_one,
    scaled_vectors,
)
from slatewise.randomness import Streams
from slatewise.slates import Available


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
    additive = True

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

    @property
    def stored_entropy(self) -> rules.Entropy:
        """The regulariser for stored vectors; every gain is less by λ log length, whatever the item."""
        return rules.Entropy(self.entropy_weight, self.noise / self.length)

    @cached_property
    def vectors(self) -> Floats:
        """The item vectors x_i (n_items, dim), for batches."""
        return scaled_vectors(self.catalog, self.length)

    @cached_property
    def products(self) -> Floats:
        """All products x_a x_b of each item (n_items, dim²), so that xᵀV⁻¹x of all items is one matrix product."""
        return (self.vectors[:, :, None] * self.vectors[:, None, :]).reshape(len(self.vectors), -1)

    @cached_property
    def item_vectors(self) -> rules.ItemVectors:
        """The vectors as the slate rules want them."""
        return rules.ItemVectors.of(self.vectors)

    @cached_property
    def stored_vectors(self) -> rules.ItemVectors:
        """The catalogue's vectors, for one user: the x_i before they are scaled."""
        return rules.ItemVectors(self.catalog.vectors)

    @cached_property
    def bounds(self) -> rules.LinearBounds:
        """What bounds a gain beside θ̂·x: V is at least λ₀I, so √(xᵀV⁻¹x) ≤ |x| / √λ₀; and the entropy of x alone."""
        squared = rules.squared_lengths(self.catalog.vectors)
        width = self.exploration * self.length * np.sqrt(squared / self.ridge)
        return rules.LinearBounds.of(self.catalog.vectors, width + self.stored_entropy.largest_gain(squared))

    def start(self, n_users: int) -> State:
        """V = λ₀I and nothing seen."""
        dim = self.catalog.dim
        return {"gram": np.tile(self.ridge * np.eye(dim), (n_users, 1, 1)), "reward": np.zeros((n_users, dim))}

    def select(self, state: State, available: Booleans | Available, k: int, random: Streams) -> Slates:
        """Choose greedily by upper confidence bound plus entropy."""
        del random
        inverse = np.linalg.inv(state["gram"])
        theta = np.matmul(inverse, state["reward"][:, :, None])[:, :, 0]
        if len(theta) == 1:
            choice = self._choose_alone(theta[0], inverse[0], for_one(available, self.catalog.n_items), k)
        else:
            choice = self._choose_together(theta, inverse, for_all(available, len(theta)), k)
        shown = self._at(choice.items)
        estimate = np.matmul(shown, theta[:, :, None])[:, :, 0]
        width = np.sqrt(np.maximum((np.matmul(shown, inverse) * shown).sum(axis=2), 0.0))
        return Slates(choice.items, np.clip(estimate, 0.0, 1.0), width, choice.variety)

    def _choose_together(self, theta: Floats, inverse: Floats, available: Booleans, k: int) -> rules.Choice:
        """Choose for a batch of users."""
        width = np.sqrt(np.maximum(inverse.reshape(len(inverse), -1) @ self.products.T, 0.0))
        scores = theta @ self.vectors.T + self.exploration * width
        entropy = rules.Entropy(self.entropy_weight, self.noise)
        return rules.entropy_greedy(scores, self.item_vectors, available, k, entropy)

    def _choose_alone(self, theta: Floats, inverse: Floats, available: Available, k: int) -> rules.Choice:
        """Choose for one user."""
        weights, spread = self.length * theta, self.length**2 * inverse

        def scores(items: Integers) -> Floats:
            width = np.sqrt(np.maximum(self.stored_vectors.forms(items, spread), 0.0))
            upper: Floats = self.stored_vectors.products(items, weights) + self.exploration * width
            return upper

        promise = self.bounds.promise(weights, available, scores)
        choice = rules.choose_alone(promise, self.stored_vectors, k, rules.entropy_rule(self.stored_entropy))
        scale = self.entropy_weight * np.log(self.length) * (choice.items >= 0)
        return rules.Choice(choice.items, choice.gains + scale, choice.variety + scale)

    def _at(self, items: Integers) -> Floats:
        """Return the x_i of chosen items (n_users, k)."""
        scaled: Floats = at_items(self.catalog.vectors, items).astype(np.float64) * self.length
        return scaled

    def update(self, state: State, slates: Slates, clicks: Booleans) -> State:
        """Add the shown vectors and their rewards."""
        beliefs = belief.Beliefs(state["gram"], state["reward"])
        learned = belief.add_evidence(beliefs, self._at(slates.items), slates.items >= 0, clicks)
        return {"gram": learned.precision, "reward": learned.shift}
