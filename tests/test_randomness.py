from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from slatewise.randomness import Streams, user_keys
from tests.support import naive

Draws = NDArray[np.float64]


def test_streams_do_not_depend_on_the_batch() -> None:
    keys = user_keys(["a", "b", "c"])
    together = Streams(5, keys, 2).uniform(4)
    for row, key in zip(together, keys, strict=True):
        np.testing.assert_array_equal(Streams(5, np.array([key]), 2).uniform(4)[0], row)


def test_golden_numbers_are_the_same_on_every_machine() -> None:
    """Regenerate: python -c "from slatewise.randomness import *; print(Streams(1, user_keys([7]), 0).uniform(3))"."""
    expected = [[0.06918551541687346, 0.11135855344786882, 0.5689450552791893]]
    np.testing.assert_allclose(Streams(1, user_keys([7]), 0).uniform(3), expected, rtol=1e-15)


@given(
    seed=st.integers(-(2**70), 2**70),
    step=st.integers(0, 2**64 - 1),
    n_users=st.integers(0, 4),
    count=st.integers(0, 9),
)
@settings(max_examples=60, deadline=None)
def test_numbers_are_those_of_whole_number_arithmetic_to_the_bit(
    seed: int, step: int, n_users: int, count: int
) -> None:
    keys = user_keys(range(n_users))
    expected = [naive.uniform(seed, key, step, count) for key in keys.tolist()]
    np.testing.assert_array_equal(Streams(seed, keys, step).uniform(count), np.reshape(expected, (n_users, count)))
    reversed_keys = np.repeat(keys, 2)[::-2]
    reversed_keys.flags.writeable = False
    np.testing.assert_array_equal(
        Streams(seed, reversed_keys, step).uniform(count), np.reshape(expected, (n_users, count))[::-1]
    )


def test_normals_are_box_and_muller_of_the_uniform_numbers_to_the_bit() -> None:
    """By numpy's own functions: records of earlier versions hang on every bit."""
    streams = Streams(3, user_keys(range(7)), 2)
    draws = streams.uniform(40)
    expected = np.sqrt(-2.0 * np.log1p(-draws[:, :20])) * np.cos(2.0 * np.pi * draws[:, 20:])
    np.testing.assert_array_equal(streams.normal(20), expected)


def chi_square_of_uniform(draws: Draws) -> float:
    counts = np.bincount((draws.ravel() * 100).astype(int), minlength=100)
    expected = draws.size / 100
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("vary", ["users", "steps", "seeds", "places"])
def test_uniform_along_every_axis(vary: str) -> None:
    """99 degrees of freedom: the 0.1 % tails are 60 and 149; squared draws must fail."""
    makers: dict[str, Callable[[], Draws]] = {
        "users": lambda: Streams(0, user_keys(range(20_000)), 0).uniform(1),
        "steps": lambda: np.array([Streams(0, user_keys([1]), step).uniform(1)[0, 0] for step in range(20_000)]),
        "seeds": lambda: np.array([Streams(seed, user_keys([1]), 0).uniform(1)[0, 0] for seed in range(20_000)]),
        "places": lambda: Streams(0, user_keys([1]), 0).uniform(20_000),
    }
    draws = makers[vary]()
    assert 0 <= draws.min() <= draws.max() < 1
    assert 60 < chi_square_of_uniform(draws) < 149
    assert chi_square_of_uniform(draws**2) > 1_000


def test_neighbouring_streams_are_not_correlated() -> None:
    draws = Streams(0, user_keys(range(2_000)), 0).uniform(10)
    off_diagonal = np.atleast_2d(np.corrcoef(draws.T))[~np.eye(10, dtype=bool)]
    assert np.abs(off_diagonal).max() < 5 / np.sqrt(2_000)


def test_normals_have_normal_moments() -> None:
    draws = Streams(3, user_keys(range(500)), 1).normal(200)
    n = draws.size
    assert abs(draws.mean()) < 4 / np.sqrt(n)
    assert abs(draws.var() - 1) < 4 * np.sqrt(2 / n)
    assert abs((draws**4).mean() - 3) < 4 * np.sqrt(96 / n)
    assert abs((draws[:, :100] * draws[:, 100:]).mean()) < 4 / np.sqrt(n / 2)
