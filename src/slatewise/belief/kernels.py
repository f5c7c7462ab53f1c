"""Compiled linear algebra of beliefs, one user after the other.

Every function writes its results into arrays that the caller provides; shapes are checked by the caller. The root of a
precision is its upper Cholesky factor R, Σ⁻¹ = RᵀR. Sums run in the same order for any number of users and items.
"""

from math import inf, sqrt

import numpy as np
from numpy.typing import NDArray

from slatewise.compiled import compiled

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Vectors = NDArray[np.float32]


@compiled
def factor(precision: Floats, shift: Floats, root: Floats, mean: Floats) -> int:
    """Write R and m of every user; return the first user whose R does not exist or whose m is not finite, or −1."""
    for user in range(len(shift)):
        if not cholesky(precision[user], root[user]):
            return user
        for axis in range(shift.shape[1]):
            mean[user, axis] = shift[user, axis]
        solve_lower(root[user], mean[user])
        solve_upper(root[user], mean[user])
        for axis in range(shift.shape[1]):
            if not abs(mean[user, axis]) < inf:
                return user
    return -1


@compiled
def draw(root: Floats, mean: Floats, normals: Floats, temperature: float, drawn: Floats) -> bool:
    """Write m + τR⁻¹z (n_users, dim); return whether all of it is finite."""
    is_finite = True
    for user in range(len(mean)):
        for axis in range(mean.shape[1]):
            drawn[user, axis] = normals[user, axis]
        solve_upper(root[user], drawn[user])
        for axis in range(mean.shape[1]):
            drawn[user, axis] = mean[user, axis] + temperature * drawn[user, axis]
            is_finite &= abs(drawn[user, axis]) < inf
    return is_finite


@compiled
def covariance(root: Floats, result: Floats) -> None:
    """Write Σ = R⁻¹R⁻ᵀ (n_users, dim, dim), whose entries are products of the columns of R⁻ᵀ."""
    dim = root.shape[1]
    columns, rows = np.empty((dim, dim)), np.empty((dim, dim))
    for user in range(len(root)):
        write_identity(columns)
        whiten(root[user], columns)
        transpose(columns, rows)
        for row in range(dim):
            for column in range(row + 1):
                result[user, row, column] = product(rows[row], rows[column])
                result[user, column, row] = result[user, row, column]


@compiled
def logit_moments(root: Floats, mean: Floats, vectors: Floats, average: Floats, variance: Floats) -> bool:
    """Write m·x and |R⁻ᵀx|² (n_users, k) of the users' own vectors (n_users, k, dim) or of shared ones (1, k, dim).

    Returns whether all of them are finite.
    """
    is_finite = True
    columns = np.empty((vectors.shape[2], vectors.shape[1]))
    for user in range(len(mean)):
        transpose(vectors[user if len(vectors) > 1 else 0], columns)
        products(mean[user], columns, average[user])
        whiten(root[user], columns)
        squared_lengths(columns, variance[user])
        for item in range(variance.shape[1]):
            is_finite &= abs(average[user, item]) + variance[user, item] < inf
    return is_finite


@compiled
def add_evidence(precision: Floats, shift: Floats, vectors: Floats, weights: Floats, pulls: Floats) -> None:
    """Add Σ w x xᵀ to the precisions and Σ p x to the shifts of all users; items of weight 0 are passed over."""
    for user in range(len(shift)):
        for item in range(vectors.shape[1]):
            if weights[user, item] != 0.0:
                add_item(precision[user], shift[user], vectors[user, item], weights[user, item], pulls[user, item])
        mirror(precision[user])


@compiled
def add_observations(
    precision: Floats, shift: Floats, shown: Integers, clicks: Booleans, model: tuple[Vectors, Floats, Floats]
) -> bool:
    """Add the evidence of shown items (n_users, k), −1 for none; return whether the model has all of them.

    The model is vectors (n_items, dim), expected values and noise variances (n_items,).
    """
    vectors, expected, noise = model
    vector = np.empty(shift.shape[1])
    for user in range(len(shift)):
        for position in range(shown.shape[1]):
            item = shown[user, position]
            if item >= len(vectors):
                return False
            if item >= 0:
                for axis in range(len(vector)):
                    vector[axis] = vectors[item, axis]
                surprise = 1.0 * clicks[user, position] - expected[item]
                add_item(precision[user], shift[user], vector, 1.0 / noise[item], surprise / noise[item])
        mirror(precision[user])
    return True


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
