"""Compiled linear algebra of one belief: Cholesky factors, triangular systems, products.

Functions write their results into arrays that the caller provides. The root of a precision is its upper Cholesky factor
R, Σ⁻¹ = RᵀR. Sums run in the same order for any number of items.
"""

from math import inf, sqrt

import numpy as np
from numpy.typing import NDArray

from slatewise.compiled import compiled

Floats = NDArray[np.float64]


@compiled
def add_item(precision: Floats, shift: Floats, vector: Floats, weight: float, pull: float) -> None:
    """Add w x xᵀ to the upper triangle of a precision and p x to a shift."""
    for row in range(len(vector)):
        target, rest, scaled = precision[row, row:], vector[row:], weight * vector[row]
        for column in range(len(rest)):
            target[column] += scaled * rest[column]
        shift[row] += pull * vector[row]


@compiled
def mirror(matrix: Floats) -> None:
    """Copy the upper triangle of a matrix to the lower one."""
    for row in range(1, len(matrix)):
        for column in range(row):
            matrix[row, column] = matrix[column, row]


@compiled
def cholesky(matrix: Floats, root: Floats) -> bool:
    """Write the upper factor of a matrix, of which the upper triangle is read; return whether there is one."""
    for row in range(len(root)):
        target, given = root[row, row:], matrix[row, row:]
        for column in range(row):
            root[row, column] = 0.0
        for column in range(len(target)):
            target[column] = given[column]
        for above in range(row):
            finished, multiple = root[above, row:], root[above, row]
            for column in range(len(target)):
                target[column] -= multiple * finished[column]
        if not 0.0 < target[0] < inf:
            return False
        scale = 1.0 / sqrt(target[0])
        for column in range(len(target)):
            target[column] *= scale
    return True


@compiled
def solve_lower(root: Floats, vector: Floats) -> None:
    """Overwrite a vector b with R⁻ᵀb."""
    for row in range(len(vector)):
        vector[row] /= root[row, row]
        rest, factors, solved = vector[row + 1 :], root[row, row + 1 :], vector[row]
        for column in range(len(rest)):
            rest[column] -= solved * factors[column]


@compiled
def solve_upper(root: Floats, vector: Floats) -> None:
    """Overwrite a vector b with R⁻¹b."""
    for column in range(len(vector) - 1, -1, -1):
        vector[column] /= root[column, column]
        solved = vector[column]
        for row in range(column):
            vector[row] -= solved * root[row, column]


@compiled
def whiten(root: Floats, columns: Floats) -> None:
    """Overwrite columns X (dim, k) with R⁻ᵀX, whose squared lengths are the variances xᵀΣx."""
    for row in range(len(root)):
        solved, diagonal = columns[row], root[row, row]
        for item in range(len(solved)):
            solved[item] /= diagonal
        for below in range(row + 1, len(root)):
            target, multiple = columns[below], root[row, below]
            for item in range(len(target)):
                target[item] -= multiple * solved[item]


@compiled
def products(vector: Floats, columns: Floats, result: Floats) -> None:
    """Write the inner products (k,) of a vector with columns (dim, k)."""
    for item in range(len(result)):
        result[item] = 0.0
    for axis in range(len(vector)):
        row, entry = columns[axis], vector[axis]
        for item in range(len(result)):
            result[item] += entry * row[item]


@compiled
def squared_lengths(columns: Floats, result: Floats) -> None:
    """Write the squared lengths (k,) of columns (dim, k)."""
    for item in range(len(result)):
        result[item] = 0.0
    for axis in range(len(columns)):
        row = columns[axis]
        for item in range(len(result)):
            result[item] += row[item] * row[item]


@compiled
def product(left: Floats, right: Floats) -> float:
    """Return the inner product of two vectors."""
    total = 0.0
    for axis in range(len(left)):
        total += left[axis] * right[axis]
    return total


@compiled
def transpose(rows: Floats, columns: Floats) -> None:
    """Write rows (k, dim) as columns (dim, k)."""
    for axis in range(len(columns)):
        for item in range(len(rows)):
            columns[axis, item] = rows[item, axis]


@compiled
def write_identity(matrix: Floats) -> None:
    """Write the identity."""
    for row in range(len(matrix)):
        for column in range(len(matrix)):
            matrix[row, column] = 1.0 if row == column else 0.0
