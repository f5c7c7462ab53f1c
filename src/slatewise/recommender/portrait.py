"""What the recommender thinks of a person: taste by category, and the path of the belief in two dimensions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slatewise import belief
from slatewise.catalog import Catalog
from slatewise.policies import State
from slatewise.policies.c2ucb import C2Ucb
from slatewise.policies.calibrated import Calibrated
from slatewise.policies.dc2b import Dc2b
from slatewise.recommender import people
from slatewise.recommender.people import Showing
from slatewise.recommender.spaces import Space, Spaces
from slatewise.recommender.views import CategoryView, PersonView, Round
from slatewise.store.protocol import CLOSED

Floats = NDArray[np.float64]

ROUNDS_SHOWN = 100
LIKED_SHOWN = 20


@dataclass(frozen=True)
class Lens:
    """How to read a policy's state: the names of precision and shift, and the item vectors that θ multiplies."""

    precision: str
    shift: str
    vectors: Callable[[Catalog], NDArray[np.float32]]

    def belief(self, state: State) -> belief.Beliefs:
        """Return the Gaussian belief inside a state."""
        return belief.Beliefs(state[self.precision], state[self.shift])


LENSES: dict[type, Lens] = {
    Calibrated: Lens("precision", "shift", lambda catalog: catalog.taste_vectors),
    Dc2b: Lens("precision", "shift", lambda catalog: catalog.vectors),
    C2Ucb: Lens("gram", "reward", lambda catalog: catalog.vectors),
}
"""Which policies have a belief to look at."""


def portray(user: str, spaces: Spaces, space: Space, history: Sequence[Showing]) -> PersonView:
    """Describe a person from the log."""
    counted = [one for one in history if one.slate.status == CLOSED]
    lens = LENSES.get(type(space.policy))
    centres = None if lens is None else category_centres(spaces.catalog, lens.vectors(spaces.catalog))
    states = _states(space, counted)
    plane = None if centres is None else _plane(centres)
    points = _points(lens, states, plane)
    liked = people.likes(history)[-LIKED_SHOWN:]
    return PersonView(
        user=user,
        policy=space.name,
        slates=len(counted),
        clicks=sum(len(one.clicked) for one in counted),
        categories=_categories(spaces.catalog, history, _lifts(lens, states, centres)),
        rounds=tuple(_round(one, point) for one, point in zip(counted, points[1:], strict=True))[-ROUNDS_SHOWN:],
        landmarks=_landmarks(spaces.catalog, centres, plane),
        liked=tuple(spaces.label(number)[:2] for number in reversed(liked)),
    )


def category_centres(catalog: Catalog, vectors: NDArray[np.float32]) -> Floats:
    """Return the mean vector of each category (n_categories, dim), its items weighted by how many people like them."""
    rates = 1.0 / (1.0 + np.exp(-catalog.log_odds))
    weights = catalog.categories * rates[:, None]
    totals = np.maximum(weights.sum(axis=0), 1e-12)
    return np.asarray((weights.T @ vectors.astype(np.float64)) / totals[:, None])


def _states(space: Space, counted: Sequence[Showing]) -> list[State]:
    """Return the state at the start and after each counted slate."""
    found = [space.policy.start(1)]
    for showing in counted:
        found.append(people.learn(space, found[-1], showing))
    return found


def _lifts(lens: Lens | None, states: list[State], centres: Floats | None) -> list[tuple[float | None, float | None]]:
    """Return for each category how far the belief moved from the crowd, and its standard deviation."""
    if lens is None or centres is None:
        return []
    now = lens.belief(states[-1])
    moved = centres @ (belief.mean(now)[0] - belief.mean(lens.belief(states[0]))[0])
    _, variance = belief.logit_moments(now, centres[None])
    return list(zip(moved.tolist(), np.sqrt(variance[0]).tolist(), strict=True))


def _categories(
    catalog: Catalog, history: Sequence[Showing], lifts: list[tuple[float | None, float | None]]
) -> tuple[CategoryView, ...]:
    shown = _tally(catalog, [one.numbers for one in history])
    clicked = _tally(catalog, [one.numbers[[item in one.clicked for item in one.slate.items]] for one in history])
    known = lifts or [(None, None)] * catalog.n_categories
    columns = zip(catalog.category_names, known, shown, clicked, strict=True)
    return tuple(CategoryView(name, *lift, seen, liked) for name, lift, seen, liked in columns)


def _tally(catalog: Catalog, groups: list[people.Integers]) -> list[int]:
    numbers = np.concatenate([people.NOTHING, *groups])
    return [int(count) for count in catalog.categories[numbers[numbers >= 0]].sum(axis=0)]


def _plane(centres: Floats) -> Floats:
    """Return two orthonormal axes (2, dim) along which categories differ most."""
    if min(centres.shape) < 2:
        return np.eye(2, centres.shape[1])
    axes = np.linalg.svd(centres - centres.mean(axis=0), full_matrices=False)[2][:2]
    signs = np.sign(axes[np.arange(2), np.abs(axes).argmax(axis=1)])
    return np.asarray(axes * np.where(signs == 0.0, 1.0, signs)[:, None])


def _points(lens: Lens | None, states: list[State], plane: Floats | None) -> list[tuple[float | None, float | None]]:
    """Return where the mean of the belief stands after each slate, seen from where everyone starts."""
    if lens is None or plane is None:
        return [(None, None)] * len(states)
    start = belief.mean(lens.belief(states[0]))[0]
    steps = [plane @ (belief.mean(lens.belief(state))[0] - start) for state in states]
    return [(float(x), float(y)) for x, y in steps]


def _landmarks(catalog: Catalog, centres: Floats | None, plane: Floats | None) -> tuple[tuple[str, float, float], ...]:
    if centres is None or plane is None:
        return ()
    places = (centres - centres.mean(axis=0)) @ plane.T
    return tuple((name, float(x), float(y)) for name, (x, y) in zip(catalog.category_names, places, strict=True))


def _round(showing: Showing, point: tuple[float | None, float | None]) -> Round:
    slate = showing.slate
    return Round(slate.number, slate.policy, len(slate.items), len(showing.clicked), slate.variety, *point)
