"""More or less of a category: what users say about their own taste, as evidence like any other.

Somebody who asks for more of a category says how much more they like it than most people do, in the units that their
taste is shown in (`explain.lifts`): z = u·(θ − m) + noise of variance 1/w. Everyone starts with the belief N(m, Σ), and
u = c / √(cᵀΣc), c the direction of the category (`category_centers`). So Σ⁻¹ += w u uᵀ and
Σ⁻¹m += w (z + u·m) u: exact, and in any order.

Where likes are y = μ + θ·t + noise of variance ψ, `more` is as if LIKES typical items of the category had been liked,
as far as that is about the category: with means over its items, t·u = √(cᵀΣc) = s, so z = (1 − μ)/s and w = LIKES·s²/ψ.
So a wish for what few people like says more, as it takes more to get that onto a slate. `less` is as much the other
way. Other policies take z = ±WISHED and w = 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slatewise import belief
from slatewise.catalog import Catalog
from slatewise.policies import Policy, State
from slatewise.policies.protocol import explainable
from slatewise.recommender.event_kinds import EventKind
from slatewise.store.records import EventRecord

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LIKES = 3.0
"""How many likes of items of the category `more` is worth."""
WISHED = 2.0
"""What `more` is taken for, in deviations between people, where likes have no rates: more than 98 of 100 of them."""
SMALLEST_SPREAD = 1e-24
WISH_COLUMNS = 4
NO_WISHES: Floats = np.empty((0, WISH_COLUMNS))


@dataclass(frozen=True, eq=False)
class Directions:
    """Where taste for each category of a policy's training lies, and what `more` of it says.

    arrays: those of a state that hold Σ⁻¹ and Σ⁻¹m; units: u (n_categories, dim); usual: u·m, lifts: z, and weights: w,
    each (n_categories,).
    """

    names: Mapping[str, int]
    arrays: tuple[str, str]
    units: Floats
    usual: Floats
    lifts: Floats
    weights: Floats

    @classmethod
    def of(cls, policy: Policy) -> "Directions | None":
        """Return those of a policy, None if its belief is not Gaussian; what an item table says changes nothing."""
        catalog, known = policy.catalog.trained, explainable(policy)
        if known is None or not catalog.n_categories:
            return None
        centers = category_centers(catalog, known.belief_vectors[: catalog.n_items])
        mean, variance = belief.logit_moments(known.belief_in(known.start(1)), centers[None])
        spread = np.sqrt(variance[0])
        scale = np.where(variance[0] > SMALLEST_SPREAD, 1.0 / np.maximum(spread, SMALLEST_SPREAD), 0.0)
        names = {name: number for number, name in enumerate(catalog.category_names)}
        return cls(names, known.belief_arrays, centers * scale[:, None], mean[0] * scale, *_strengths(policy, spread))

    def precisions(self, wishes: Floats) -> Floats:
        """Return the w of wishes (n, 4): category, value from 0 to 1, weight, and when."""
        return np.asarray(wishes[:, 2] * self.weights[_categories(wishes)])

    def pulls(self, wishes: Floats) -> Floats:
        """Return the factors w (z + u·m) of wishes (n, 4)."""
        categories = _categories(wishes)
        lifts = self.lifts[categories] * (2.0 * wishes[:, 1] - 1.0)
        return np.asarray(self.precisions(wishes) * (lifts + self.usual[categories]))

    def at(self, wishes: Floats) -> Floats:
        """Return the u of wishes (n, dim)."""
        return np.asarray(self.units[_categories(wishes)])

    def add(self, state: State, wishes: Floats) -> State:
        """Add what wishes (n, 4) say to the state of one user."""
        precision, shift = self.arrays
        before = belief.Beliefs(state[precision], state[shift])
        at, weight, pulls = self.at(wishes), self.precisions(wishes), self.pulls(wishes)
        learned = belief.add_evidence(before, at[None], weight[None], pulls[None])
        return {**state, precision: learned.precision, shift: learned.shift}

    def shares(self, beliefs: belief.Factored, shown: Floats, wishes: Floats) -> Floats:
        """Return the share of each wish (n, 4) in m·x of items with vectors (k, dim), as `like_shares`: (k, n)."""
        met = self.at(wishes) * self.pulls(wishes)[:, None]
        return np.asarray(beliefs.times_covariance(shown[None])[0] @ met.T)


def category_centers(catalog: Catalog, vectors: NDArray[np.float32]) -> Floats:
    """Return the mean vector of each category (n_categories, dim), less what the mean of all items says about it.

    Items count by how many users like them. How much somebody likes a category is regressed on how much they like all
    items, θ being as uncertain in every direction before anything is known. So a belief along such a vector says what
    somebody likes more than they like other things, and does not move with how much they like in all: somebody who
    refuses ten popular items does not come to like whatever is rare.
    """
    rates, tastes = 1.0 / (1.0 + np.exp(-catalog.log_odds)), vectors.astype(np.float64)
    means = _shares(catalog, rates).T @ tastes
    overall = rates @ tastes / rates.sum()
    return np.asarray(means - np.outer(means @ overall / max(overall @ overall, SMALLEST_SPREAD), overall))


def logged_wishes(
    directions: Directions | None, kinds: Mapping[str, EventKind], events: Sequence[EventRecord]
) -> Floats:
    """Return events about categories as wishes (n, 4); categories that training did not know are left out."""
    names = {} if directions is None else directions.names
    known = [(names.get(str(event.item)), event) for event in events]
    rows = [
        (number, *kinds[event.kind].meaning(event.value), event.at) for number, event in known if number is not None
    ]
    return np.array(rows, dtype=np.float64).reshape(-1, WISH_COLUMNS)


def wish_words(wishes: Floats, names: Sequence[str]) -> list[str]:
    """Return wishes as people say them: "more Sci-Fi"."""
    rows = zip(_categories(wishes).tolist(), wishes[:, 1].tolist(), strict=True)
    return [f"{'more' if value > 0.5 else 'less'} {names[category]}" for category, value in rows]


def _categories(wishes: Floats) -> Integers:
    return wishes[:, 0].astype(np.int64)


def _shares(catalog: Catalog, rates: Floats) -> Floats:
    """Return the weights of items in the mean of each category (n_items, n_categories)."""
    weights = catalog.categories * rates[:, None]
    return np.asarray(weights / np.maximum(weights.sum(axis=0), 1e-12))


def _strengths(policy: Policy, spread: Floats) -> tuple[Floats, Floats]:
    """Return what `more` of each category says and how much that weighs: z and w, each (n_categories,)."""
    model = getattr(policy, "model", None)
    if not isinstance(model, belief.LinearModel):
        return np.full(len(spread), WISHED), np.ones(len(spread))
    catalog = policy.catalog.trained
    shares = _shares(catalog, model.expected[: catalog.n_items])
    rates, noise = shares.T @ model.expected[: catalog.n_items], shares.T @ model.noise[: catalog.n_items]
    weights = LIKES * np.square(spread) / np.maximum(noise, SMALLEST_SPREAD)
    return (1.0 - rates) / np.maximum(spread, SMALLEST_SPREAD), weights
