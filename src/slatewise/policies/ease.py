"""EASE^R (Steck 2019) refolded after every round: the strongest rival that does not explore."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slatewise import slates as rules
from slatewise.catalog import Catalog
from slatewise.policies.protocol import Booleans, Floats, Slates, State, sigmoid
from slatewise.randomness import Streams


@dataclass(frozen=True, eq=False)
class Ease:
    """Popularity until the first click, then clicks @ B with B = I − P / diag(P), P = (G + λI)⁻¹, G the co-likes.

    A catalogue without co-likes (see `Catalog.with_co_likes`) leaves it with popularity.
    """

    catalog: Catalog
    regularisation: float = 300.0
    one_at_a_time = False

    @cached_property
    def weights(self) -> Floats:
        """Return B (n_items, n_items), its diagonal zero."""
        n_items = self.catalog.n_items
        if self.catalog.co_likes is None:
            return np.zeros((n_items, n_items))
        gram = self.catalog.co_likes.astype(np.float64)
        gram[np.diag_indices(n_items)] += self.regularisation
        inverse = np.linalg.inv(gram)
        weights: Floats = -inverse / np.diag(inverse)
        weights[np.diag_indices(n_items)] = 0.0
        return weights

    def start(self, n_users: int) -> State:
        """Nothing has been clicked."""
        return {"clicked": np.zeros((n_users, self.catalog.n_items), dtype=bool)}

    def select(self, state: State, available: Booleans, k: int, random: Streams) -> Slates:
        """Choose the k best scores."""
        del random
        rates = sigmoid(self.catalog.log_odds)
        has_clicked = state["clicked"].any(axis=1, keepdims=True)
        scores = np.where(has_clicked, state["clicked"] @ self.weights, rates)
        choice = rules.top_k(scores, available, k)
        unknown = np.full(choice.items.shape, np.nan)
        return Slates(choice.items, unknown, unknown, np.zeros(choice.items.shape))

    def update(self, state: State, slates: Slates, clicks: Booleans) -> State:
        """Remember what was clicked."""
        clicked = state["clicked"].copy()
        users, places = np.nonzero(clicks & (slates.items >= 0))
        clicked[users, slates.items[users, places]] = True
        return {"clicked": clicked}
