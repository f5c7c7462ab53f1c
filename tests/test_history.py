"""What policies share that score items by what was liked: sums of rows and the largest entries, by loops."""

import numpy as np
import pytest

from slatewise.policies.history import STRIP, add_weighted_rows, keep_largest


@pytest.mark.parametrize("n_columns", [1, STRIP - 1, STRIP, 2 * STRIP + 3])
def test_weighted_rows_are_a_product_of_matrices(n_columns: int) -> None:
    """However many strips of columns there are."""
    random = np.random.default_rng(n_columns)
    amounts = random.normal(size=(4, 7)) * (random.random((4, 7)) < 0.4)
    rows, sums = random.normal(size=(7, n_columns)), random.normal(size=(4, n_columns))
    expected = sums + amounts @ rows
    add_weighted_rows(amounts, rows, sums)
    np.testing.assert_allclose(sums, expected, atol=1e-12)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("number", [1, 4, 9, 20])
def test_the_largest_entries_of_each_column_are_kept(number: int, order: str) -> None:
    weights = np.array(np.random.default_rng(number).normal(size=(9, 5)), order=order)  # type: ignore[call-overload]
    kept = keep_largest(weights, number)
    for column in range(5):
        largest = sorted(range(9), key=lambda row: -weights[row, column])[:number]
        expected = [weights[row, column] if row in largest else 0.0 for row in range(9)]
        assert kept[:, column].tolist() == expected
