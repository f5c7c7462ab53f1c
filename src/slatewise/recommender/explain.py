"""What is believed about a user: taste by category, and the path of the belief in two dimensions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slatewise import belief
from slatewise.catalog import Catalog
from slatewise.policies import State
from slatewise.policies.c2ucb import C2Ucb
from slatewise.policies.calibrated import Calibrated
from slatewise.policies.dc2b import Dc2b
from slatewise.recommender.profile import NO_ITEMS, Clicks, clicked_items, fold, recent_likes
from slatewise.recommender.served_catalog import ServedCatalog, ServedPolicy
from slatewise.recommender.types import CategoryView, Round, UserView
from slatewise.store.protocol import CLOSED, SlateRecord

Floats = NDArray[np.float64]
Point = tuple[float | None, float | None]

MAX_ROUNDS = 100
MAX_LIKED = 20


@dataclass(frozen=True)
class BeliefLayout:
    """Where a policy's state holds precision and shift, and the item vectors that θ multiplies."""

    precision: str
    shift: str
    vectors: Callable[[Catalog], NDArray[np.float32]]

    def belief(self, state: State) -> belief.Beliefs:
        """Return the Gaussian belief inside a state."""
        return belief.Beliefs(state[self.precision], state[self.shift])


BELIEF_LAYOUTS: dict[type, BeliefLayout] = {
    Calibrated: BeliefLayout("precision", "shift", lambda catalog: catalog.taste_vectors),
    Dc2b: BeliefLayout("precision", "shift", lambda catalog: catalog.vectors),
    C2Ucb: BeliefLayout("gram", "reward", lambda catalog: catalog.vectors),
}
"""The policies whose belief can be shown."""


def user_view(
    served: ServedCatalog,
    policy: ServedPolicy,
    user: str,
    history: Sequence[SlateRecord],
    clicks: Mapping[str, Clicks],
) -> UserView:
    """Describe a user from the log."""
    counted = [slate for slate in history if slate.status == CLOSED]
    layout = BELIEF_LAYOUTS.get(type(policy.policy)) if served.catalog.n_categories else None
    centers = None if layout is None else category_centers(served.catalog, layout.vectors(served.catalog))
    states = _states(served, policy, counted, clicks)
    plane = None if centers is None else _plane(centers)
    points = _points(layout, states, plane)
    n_clicks = [len(clicked_items(clicks.get(slate.slate_id, {}))) for slate in counted]
    rounds = [_round(*row) for row in zip(counted, n_clicks, points[1:], strict=True)]
    liked = recent_likes(served, history, clicks)[-MAX_LIKED:]
    return UserView(
        user=user,
        policy=policy.name,
        slates=len(counted),
        clicks=sum(n_clicks),
        categories=_categories(served, history, clicks, _lifts(layout, states, centers)),
        rounds=tuple(rounds[-MAX_ROUNDS:]),
        landmarks=_landmarks(served.catalog, centers, plane),
        liked=tuple(served.label(number)[:2] for number in reversed(liked)),
    )


def category_centers(catalog: Catalog, vectors: NDArray[np.float32]) -> Floats:
    """Return the mean vector of each category (n_categories, dim), its items weighted by how many users like them."""
    rates = 1.0 / (1.0 + np.exp(-catalog.log_odds))
    weights = catalog.categories * rates[:, None]
    totals = np.maximum(weights.sum(axis=0), 1e-12)
    return np.asarray((weights.T @ vectors.astype(np.float64)) / totals[:, None])


def _states(
    served: ServedCatalog, policy: ServedPolicy, counted: Sequence[SlateRecord], clicks: Mapping[str, Clicks]
) -> list[State]:
    """Return the state at the start and after each counted slate."""
    states = [policy.start]
    for slate in counted:
        states.append(fold(policy, served, [slate], clicks, states[-1]))
    return states


def _lifts(layout: BeliefLayout | None, states: list[State], centers: Floats | None) -> list[Point]:
    """Return for each category how far the belief moved from the start, and its standard deviation."""
    if layout is None or centers is None:
        return []
    now = layout.belief(states[-1])
    moved = centers @ (belief.mean(now)[0] - belief.mean(layout.belief(states[0]))[0])
    _, variance = belief.logit_moments(now, centers[None])
    return list(zip(moved.tolist(), np.sqrt(variance[0]).tolist(), strict=True))


def _categories(
    served: ServedCatalog, history: Sequence[SlateRecord], clicks: Mapping[str, Clicks], lifts: list[Point]
) -> tuple[CategoryView, ...]:
    catalog = served.catalog
    shown = _per_category(served, [item for slate in history for item in slate.items])
    liked = {slate.slate_id: clicked_items(clicks.get(slate.slate_id, {})) for slate in history}
    clicked = _per_category(
        served, [item for slate in history for item in slate.items if item in liked[slate.slate_id]]
    )
    columns = zip(catalog.category_names, lifts or [(None, None)] * catalog.n_categories, shown, clicked, strict=True)
    return tuple(CategoryView(name, *lift, n_shown, n_clicked) for name, lift, n_shown, n_clicked in columns)


def _per_category(served: ServedCatalog, items: list[int | str]) -> list[int]:
    numbers = served.numbers(items) if items else NO_ITEMS
    return [int(count) for count in served.catalog.categories[numbers[numbers >= 0]].sum(axis=0)]


def _plane(centers: Floats) -> Floats:
    """Return two orthonormal axes (2, dim) along which categories differ most."""
    if min(centers.shape) < 2:
        return np.eye(2, centers.shape[1])
    axes = np.linalg.svd(centers - centers.mean(axis=0), full_matrices=False)[2][:2]
    signs = np.sign(axes[np.arange(2), np.abs(axes).argmax(axis=1)])
    return np.asarray(axes * np.where(signs == 0.0, 1.0, signs)[:, None])


def _points(layout: BeliefLayout | None, states: list[State], plane: Floats | None) -> list[Point]:
    """Return where the mean of the belief is after each slate, relative to where everyone starts."""
    if layout is None or plane is None:
        return [(None, None)] * len(states)
    start = belief.mean(layout.belief(states[0]))[0]
    steps = [plane @ (belief.mean(layout.belief(state))[0] - start) for state in states]
    return [(float(x), float(y)) for x, y in steps]


def _landmarks(catalog: Catalog, centers: Floats | None, plane: Floats | None) -> tuple[tuple[str, float, float], ...]:
    if centers is None or plane is None:
        return ()
    positions = (centers - centers.mean(axis=0)) @ plane.T
    return tuple((name, float(x), float(y)) for name, (x, y) in zip(catalog.category_names, positions, strict=True))


def _round(slate: SlateRecord, n_clicks: int, point: Point) -> Round:
    return Round(slate.number, slate.policy, len(slate.items), n_clicks, slate.variety, *point)
