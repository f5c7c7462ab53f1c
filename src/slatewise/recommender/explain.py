"""What is believed about a user: taste by category, and the path of the belief in two dimensions."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from slatewise import belief
from slatewise.catalog import Catalog
from slatewise.policies import State
from slatewise.policies.protocol import ExplainablePolicy, explainable
from slatewise.recommender.learning import LoggedSlate, states_after
from slatewise.recommender.profile import UserProfile, learn_everything
from slatewise.recommender.served_catalog import ServedCatalog
from slatewise.recommender.types import CategoryView, Round, UserView
from slatewise.recommender.wishes import SMALLEST_SPREAD, category_centers

Floats = NDArray[np.float64]
Point = tuple[float | None, float | None]

MAX_ROUNDS = 100
MAX_LIKED = 20


def user_view(served: ServedCatalog, profile: UserProfile, user: str, recent: Sequence[LoggedSlate]) -> UserView:
    """Describe a user from a profile and the latest slates that it has learned."""
    policy, learned = profile.policy, learn_everything(profile)
    known = explainable(policy.policy) if served.catalog.n_categories else None
    centers = None if known is None else category_centers(served.catalog, known.belief_vectors)
    plane = None if centers is None else _plane(centers)
    states = [None] * len(recent) if known is None else states_after(profile.learned, policy, recent)
    points = [_point(known, policy.start, state, plane) for state in states]
    (*shown, n_slates), (*liked, n_liked) = learned.counts.tolist()
    lifts = _lifts(known, policy.start, learned.state, centers)
    categories = zip(served.catalog.category_names, lifts or [(None, None)] * len(shown), shown, liked, strict=True)
    return UserView(
        user=user,
        policy=policy.name,
        slates=n_slates,
        clicks=n_liked,
        categories=tuple(CategoryView(name, *lift, *counts) for name, lift, *counts in categories),
        rounds=tuple(_round(slate, point) for slate, point in zip(recent, points, strict=True)),
        landmarks=_landmarks(served.catalog, centers, plane),
        liked=tuple(served.label(number)[:2] for number in reversed(profile.liked()[-MAX_LIKED:])),
    )


def lifts(before: belief.Beliefs, now: belief.Beliefs, centers: Floats) -> tuple[Floats, Floats]:
    """Return how far beliefs about categories have moved, and how sure they are, each (n_users, n_categories).

    Both are in units of how much people differ in a category, which is the deviation before anything is known: so a
    rare category compares with a common one.
    """
    first, spread = belief.logit_moments(before, centers[None])
    mean, variance = belief.logit_moments(now, centers[None])
    unit = np.sqrt(np.maximum(spread, SMALLEST_SPREAD))
    return (mean - first) / unit, np.sqrt(variance) / unit


def _lifts(policy: ExplainablePolicy | None, start: State, state: State, centers: Floats | None) -> list[Point]:
    """Return lift and deviation of each category for one user."""
    if policy is None or centers is None:
        return []
    lift, deviation = lifts(policy.belief_in(start), policy.belief_in(state), centers)
    return list(zip(lift[0].tolist(), deviation[0].tolist(), strict=True))


def _plane(centers: Floats) -> Floats:
    """Return two orthonormal axes (2, dim) along which categories differ most."""
    if min(centers.shape) < 2:
        return np.eye(2, centers.shape[1])
    axes = np.linalg.svd(centers - centers.mean(axis=0), full_matrices=False)[2][:2]
    signs = np.sign(axes[np.arange(2), np.abs(axes).argmax(axis=1)])
    return np.asarray(axes * np.where(signs == 0.0, 1.0, signs)[:, None])


def _point(policy: ExplainablePolicy | None, start: State, state: State | None, plane: Floats | None) -> Point:
    """Return where the mean of a belief is, relative to where everyone starts."""
    if policy is None or plane is None or state is None:
        return None, None
    x, y = plane @ (belief.mean(policy.belief_in(state))[0] - belief.mean(policy.belief_in(start))[0])
    return float(x), float(y)


def _landmarks(catalog: Catalog, centers: Floats | None, plane: Floats | None) -> tuple[tuple[str, float, float], ...]:
    if centers is None or plane is None:
        return ()
    positions = (centers - centers.mean(axis=0)) @ plane.T
    return tuple((name, float(x), float(y)) for name, (x, y) in zip(catalog.category_names, positions, strict=True))


def _round(slate: LoggedSlate, point: Point) -> Round:
    shown, liked = slate.record.items, slate.tally.liked(slate.record.items)
    return Round(slate.record.number, slate.record.policy, len(shown), len(liked), slate.record.variety, *point)
