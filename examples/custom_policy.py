"""A policy of your own in thirty lines: registered, simulated together with the shipped ones, and served.

pip install '.[train]' in the checkout, then: python examples/custom_policy.py
"""

from dataclasses import dataclass

import numpy as np

from slatewise import Catalog, make_policy
from slatewise.data.synthetic import make_world
from slatewise.lab.simulate import simulate
from slatewise.policies import POLICIES, Slates
from slatewise.policies.protocol import pick, sigmoid
from slatewise.recommender import Recommender
from slatewise.slates import top_k


@dataclass(frozen=True, eq=False)
class FavoriteCategories:
    """What most users like first, with a bonus for categories that this user clicked."""

    catalog: Catalog
    bonus: float = 6.0
    one_at_a_time = False
    additive = ("shown", "clicked")

    def start(self, n_users):
        """Count what was shown and clicked of each category: arrays with a leading user axis."""
        nothing = np.zeros((n_users, self.catalog.n_categories))
        return {"shown": nothing, "clicked": nothing}

    def select(self, state, available, k, random):
        """Choose the k best for every user of the batch; `random` holds a stream of random numbers for each."""
        del random
        rate = (state["clicked"] + 1.0) / (state["shown"] + 4.0)
        members = self.catalog.categories / np.maximum(self.catalog.categories.sum(axis=1, keepdims=True), 1)
        logits = self.catalog.log_odds + self.bonus * rate @ members.T
        items = top_k(logits, available, k).items
        nothing = np.zeros(items.shape)
        return Slates(items, sigmoid(pick(logits, items)), nothing, nothing)

    def update(self, state, evidence):
        """Add up what was seen and liked, by weight; a place without an item (−1) teaches nothing."""
        members = self.catalog.categories[evidence.items] * evidence.counted[..., None]
        clicked = state["clicked"] + (members * evidence.value[..., None]).sum(axis=1)
        return {"shown": state["shown"] + members.sum(axis=1), "clicked": clicked}


POLICIES["favorite-categories"] = FavoriteCategories

if __name__ == "__main__":
    people, newcomers = make_world().dataset.split(0.2, seed=0)
    catalog = Catalog.train(people)
    for name in ("random", "popular", "favorite-categories"):
        records = simulate(make_policy(name, catalog), newcomers)
        print(f"{name:21s} {records['clicked'].mean():.3f} of the items shown to newcomers were clicked")
    with Recommender(catalog, policy="favorite-categories") as recommender:
        print("served:", ", ".join(item.title for item in recommender.recommend("ann", k=3).items))
