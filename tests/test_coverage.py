"""Sums over the categories of sets, by loops over categories."""

import itertools
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slatewise.policies.coverage import Members, sum_of_members, sum_of_pairs

Floats = np.ndarray[Any, np.dtype[np.float64]]


def shares_of(sets: list[set[int]], n_categories: int) -> Floats:
    return np.array([[(category in one) / max(len(one), 1) for category in range(n_categories)] for one in sets])


@st.composite
def some_sets(draw: st.DrawFn) -> tuple[list[set[int]], int]:
    """Some sets of up to six categories, empty ones among them."""
    n_categories = draw(st.integers(1, 6))
    return draw(st.lists(st.sets(st.integers(0, n_categories - 1)), min_size=1, max_size=8)), n_categories


@given(some_sets(), st.integers(0, 2**32 - 1))
def test_sums_over_categories_are_those_of_a_loop(world: tuple[list[set[int]], int], seed: int) -> None:
    (sets, n_categories), random = world, np.random.default_rng(seed)
    tables, rows = random.normal(size=(3, 2, n_categories)), random.integers(0, 2, len(sets))
    expected = [[sum(table[row, c] for c in one) for one, row in zip(sets, rows, strict=True)] for table in tables]
    found = sum_of_members(Members.of(shares_of(sets, n_categories)), rows, tables)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@given(some_sets(), st.integers(0, 2**32 - 1))
def test_sums_over_pairs_are_quadratic_forms(world: tuple[list[set[int]], int], seed: int) -> None:
    (sets, n_categories), random = world, np.random.default_rng(seed)
    roots, left = random.normal(size=(3, n_categories, n_categories)), random.random((3, n_categories))
    matrices = np.matmul(roots, roots.swapaxes(1, 2))
    expected = [
        [sum(one[c] * one[d] * matrix[c, d] for c, d in itertools.product(members, repeat=2)) for members in sets]
        for one, matrix in zip(left, matrices, strict=True)
    ]
    found = sum_of_pairs(Members.of(shares_of(sets, n_categories)), left, matrices)
    np.testing.assert_allclose(found, expected, atol=1e-10)
