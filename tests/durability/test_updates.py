"""However many updates: every belief stays symmetric and positive definite."""

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from slatewise.catalog import Catalog
from slatewise.evidence import Evidence
from slatewise.policies import State, make_policy
from tests.durability.conftest import Tell

LEARNERS = ("dc2b-calibrated", "dc2b", "c2ucb", "ec-bandit")
SLATE_SIZE = 10
LOOKED_AT_EVERY = 1_000

Floats = NDArray[np.float64]


def matrices(state: State) -> dict[str, Floats]:
    """The precision matrices of one user."""
    return {name: array[0] for name, array in state.items() if array.ndim == 3}


def problem(matrix: NDArray[np.floating]) -> str | None:
    """Say what is wrong with a matrix that should be symmetric and positive definite."""
    if not np.isfinite(matrix).all():
        return "not finite"
    if not np.array_equal(matrix, matrix.T):
        return "not symmetric"
    smallest = float(np.linalg.eigvalsh(matrix.astype(np.float64))[0])
    return None if smallest > 0.0 else f"smallest eigenvalue {smallest:.2g}"


def lives(catalog: Catalog, policy: str, n_slates: int) -> Iterator[State]:
    """Yield the state of one user after every thousand slates of ten random items, clicked with probability 0.3."""
    learner, draw = make_policy(policy, catalog), np.random.default_rng(0)
    state = learner.start(1)
    for number in range(1, n_slates + 1):
        items = draw.choice(catalog.n_items, (1, SLATE_SIZE), replace=False).astype(np.int64)
        clicks = draw.random((1, SLATE_SIZE)) < 0.3
        state = learner.update(state, Evidence.of_clicks(items, clicks))
        if number % LOOKED_AT_EVERY == 0 or number == n_slates:
            yield state


@pytest.mark.parametrize("policy", LEARNERS)
def test_every_belief_stays_positive_definite(policy: str, catalog: Catalog, n_updates: int, tell: Tell) -> None:
    n_seen = 0
    for state in lives(catalog, policy, n_updates):
        found = {name: problem(matrix) for name, matrix in matrices(state).items()}
        assert found
        assert set(found.values()) == {None}, (n_seen, found)
        assert all(np.isfinite(array).all() for array in state.values())
        n_seen += 1
    assert n_seen >= n_updates // LOOKED_AT_EVERY
    tell(f"{policy}: one user, {n_updates:,} slates of {SLATE_SIZE}, looked at {n_seen:,} times: positive definite")


def test_a_belief_that_is_taken_down_in_single_precision_is_caught(catalog: Catalog) -> None:
    """The control: covariance instead of precision, float32, a wide prior, what was learned subtracted each time."""
    draw = np.random.default_rng(0)
    covariance = 1e3 * np.eye(catalog.dim, dtype=np.float32)
    vectors, noise = catalog.vectors, np.float32(1e-6)
    for _ in range(LOOKED_AT_EVERY):
        x = vectors[draw.integers(catalog.n_items)]
        gain = covariance @ x
        covariance -= np.outer(gain, gain) / (noise + x @ gain)
        if problem(covariance):
            return
    raise AssertionError("nothing was wrong")
