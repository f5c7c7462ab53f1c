"""C²UCB (Qin, Chen and Zhu 2014): ridge regression, upper confidence bounds, an entropy regulariser."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slatewise import slates as rules
from slatewise.catalog import Catalog
from slatewise.policies.protocol import (
    Booleans,
    Floats,
    Slates,
    State,
    at_items,
    check_not_negative,
    check_positive,
    pick,
    scaled_vectors,
)
from slatewise.randomness import Streams


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

    def __post_init__(self) -> None:
        check_positive("ridge", self.ridge)
        check_positive("noise", self.noise)
        check_not_negative("entropy_weight", self.entropy_weight)
        check_not_negative("exploration", self.exploration)

    @cached_property
    def vectors(self) -> Floats:
        """The item vectors x_i (n_items, dim)."""
        default = float(np.sqrt(self.catalog.dim))
        return scaled_vectors(self.catalog, default if self.vector_length is None else self.vector_length)

    @cached_property
    def products(self) -> Floats:
        """All products x_a x_b of each item (n_items, dim²), so that xᵀV⁻¹x of all items is one matrix product."""
        return (self.vectors[:, :, None] * self.vectors[:, None, :]).reshape(len(self.vectors), -1)

    @cached_property
    def item_vectors(self) -> rules.ItemVectors:
        """The vectors as the slate rules want them."""
        return rules.ItemVectors.of(self.vectors)

    def start(self, n_users: int) -> State:
        """V = λ₀I and nothing seen."""
        dim = self.catalog.dim
        return {"gram": np.tile(self.ridge * np.eye(dim), (n_users, 1, 1)), "reward": np.zeros((n_users, dim))}

    def select(self, state: State, available: Booleans, k: int, random: Streams) -> Slates:
        """Choose greedily by upper confidence bound plus entropy."""
        del random
        inverse = np.linalg.inv(state["gram"])
        estimate = np.matmul(inverse, state["reward"][:, :, None])[:, :, 0] @ self.vectors.T
        width = np.sqrt(np.maximum(inverse.reshape(len(inverse), -1) @ self.products.T, 0.0))
        scores = estimate + self.exploration * width
        entropy = rules.Entropy(self.entropy_weight, self.noise)
        choice = rules.entropy_greedy(scores, self.item_vectors, available, k, entropy)
        probability = np.clip(pick(estimate, choice.items), 0.0, 1.0)
        gain = np.where(choice.items >= 0, choice.gains - pick(scores, choice.items), 0.0)
        return Slates(choice.items, probability, pick(width, choice.items), gain)

    def update(self, state: State, slates: Slates, clicks: Booleans) -> State:
        """Add the shown vectors and their rewards."""
        shown = at_items(self.vectors, slates.items) * (slates.items >= 0)[:, :, None]
        gram = state["gram"] + np.matmul(np.swapaxes(shown, 1, 2), shown)
        reward = state["reward"] + np.matmul(clicks[:, None, :].astype(np.float64), shown)[:, 0, :]
        return {"gram": gram, "reward": reward}
