"""Compiled linear algebra of beliefs, one user after the other.

Every function writes its results into arrays that the caller provides; shapes are checked by the caller. The root of a
precision is its upper Cholesky factor R, Σ⁻¹ = RᵀR. Sums run in the same order for any number of users and items.
"""

from math import inf, sqrt, tanh

import numpy as np
from numpy.typing import NDArray

from slatewise.compiled import compiled

Floats = NDArray[np.float64]

NEGLIGIBLE = 1e-12


@compiled
def factor(precision: Floats, shift: Floats, root: Floats, mean: Floats) -> int:
    """Write R and m of every user; return the first user whose R does not exist or whose m is not finite, or −1."""
    for user in range(len(shift)):
        if not cholesky(precision[user], root[user]):
            return user
        mean[user] = shift[user]
        solve_lower(root[user], mean[user])
        solve_upper(root[user], mean[user])
        if not np.isfinite(mean[user]).all():
            return user
    return -1


@compiled
def draw(root: Floats, mean: Floats, normals: Floats, temperature: float, drawn: Floats) -> None:
    """Write m + τR⁻¹z (n_users, dim)."""
    for user in range(len(mean)):
        drawn[user] = normals[user]
        solve_upper(root[user], drawn[user])
        for axis in range(mean.shape[1]):
            drawn[user, axis] = mean[user, axis] + temperature * drawn[user, axis]


@compiled
def covariance(root: Floats, result: Floats) -> None:
    """Write Σ = R⁻¹R⁻ᵀ (n_users, dim, dim), whose entries are products of the columns of R⁻ᵀ."""
    for user in range(len(root)):
        columns = np.eye(root.shape[1])
        whiten(root[user], columns)
        for row in range(len(columns)):
            for column in range(row + 1):
                entry = 0.0
                for axis in range(len(columns)):
                    entry += columns[axis, row] * columns[axis, column]
                result[user, row, column], result[user, column, row] = entry, entry


@compiled
def logit_moments(root: Floats, mean: Floats, vectors: Floats, average: Floats, variance: Floats) -> None:
    """Write m·x and |R⁻ᵀx|² (n_users, k) of the users' own vectors (n_users, k, dim) or of shared ones (1, k, dim)."""
    columns = np.empty((vectors.shape[2], vectors.shape[1]))
    for user in range(len(mean)):
        columns[:] = vectors[user if len(vectors) > 1 else 0].T
        products(mean[user], columns, average[user])
        whiten(root[user], columns)
        squared_lengths(columns, variance[user])


@compiled
def add_evidence(precision: Floats, shift: Floats, vectors: Floats, weights: Floats, pulls: Floats) -> None:
    """Add Σ w x xᵀ to the precisions and Σ p x to the shifts of all users; items of weight 0 are passed over."""
    for user in range(len(shift)):
        for item in range(vectors.shape[1]):
            if weights[user, item] != 0.0:
                add_item(precision[user], shift[user], vectors[user, item], weights[user, item], pulls[user, item])
        for row in range(1, shift.shape[1]):
            for column in range(row):
                precision[user, row, column] = precision[user, column, row]


@compiled
def variational_evidence(
    root: Floats, mean: Floats, feedback: tuple[Floats, ...], stopping: tuple[int, float], evidence: tuple[Floats, ...]
) -> None:
    """Write the evidence, weights and pulls (n_users, k), that equations (7) and (8) add once (9) has converged.

    Feedback is vectors, labels, offsets and weights; stopping is the largest number of evaluations of (7) and (8) and
    the tolerance of (9).
    """
    vectors, labels, offsets, weights = feedback
    strengths, pulls = evidence
    for user in range(len(mean)):
        items = np.flatnonzero(weights[user] > 0.0)
        offset, label, weight = offsets[user][items], labels[user][items], weights[user][items]
        columns, logits = np.ascontiguousarray(vectors[user][items].T), np.empty(len(items))
        products(mean[user], columns, logits)
        logits += offset
        whiten(root[user], columns)
        curvature = converged_curvature(coordinates(columns), logits, label, weight, stopping)
        strengths[user], pulls[user] = 0.0, 0.0
        for place in range(len(items)):
            strengths[user, items[place]] = weight[place] * curvature[place]
            pulls[user, items[place]] = weight[place] * (label[place] - curvature[place] * offset[place])


@compiled
def converged_curvature(
    vectors: Floats, logits: Floats, labels: Floats, weights: Floats, stopping: tuple[int, float]
) -> Floats:
    """Iterate equations (7) to (9) for vectors (k, dim) from the prior N(0, I), with the logits as offsets.

    Returns 2λ(ξ) of every item.
    """
    n_items, dim = vectors.shape
    precision, root, shift = np.empty((dim, dim)), np.eye(dim), np.zeros(dim)
    columns, average, variance = np.empty((dim, n_items)), np.empty(n_items), np.empty(n_items)
    contact, curvature = np.full(n_items, inf), np.empty(n_items)
    for evaluation in range(stopping[0]):
        columns[:] = vectors.T
        whiten(root, columns)
        products(shift, columns, average)
        squared_lengths(columns, variance)
        if not move_contact(contact, curvature, logits + average, variance, stopping[1]):
            break
        if evaluation + 1 == stopping[0]:
            break
        precision[:], shift[:] = np.eye(dim), 0.0
        for item in range(n_items):
            pull = weights[item] * (labels[item] - curvature[item] * logits[item])
            add_item(precision, shift, vectors[item], weights[item] * curvature[item], pull)
        cholesky(precision, root)
        solve_lower(root, shift)
    return curvature


@compiled
def move_contact(contact: Floats, curvature: Floats, average: Floats, variance: Floats, tolerance: float) -> bool:
    """Write ξ of equation (9) and 2λ(ξ); return whether any ξ has moved."""
    has_moved = False
    for item in range(len(contact)):
        fresh = sqrt(variance[item] + average[item] ** 2)
        has_moved |= abs(fresh - contact[item]) > tolerance * (1.0 + fresh)
        contact[item], curvature[item] = fresh, 2.0 * bound_curvature(fresh)
    return has_moved


@compiled
def coordinates(columns: Floats) -> Floats:
    """Return coordinates (k, rank) of columns (dim, k) in an orthonormal basis of their span, by Gram and Schmidt.

    Products of vectors are products of their coordinates, so that k items need no more than k dimensions.
    """
    residuals = np.ascontiguousarray(columns.T)
    n_items, dim = residuals.shape
    basis, result, rank = np.empty((min(n_items, dim), dim)), np.zeros((n_items, min(n_items, dim))), 0
    for item in range(n_items):
        residual, smallest = residuals[item], NEGLIGIBLE * sqrt(np.square(residuals[item]).sum())
        for axis in range(rank):
            direction, along = basis[axis], 0.0
            for number in range(dim):
                along += direction[number] * residual[number]
            for number in range(dim):
                residual[number] -= along * direction[number]
            result[item, axis] = along
        length = sqrt(np.square(residual).sum())
        if rank < len(basis) and length > smallest:
            basis[rank], result[item, rank] = residual / length, length
            rank += 1
    return np.ascontiguousarray(result[:, :rank])


@compiled
def bound_curvature(contact: float) -> float:
    """Return λ(ξ) = tanh(ξ/2) / 4ξ for ξ ≥ 0, by its series 1/8 − ξ²/96 near 0."""
    return 0.125 - contact**2 / 96.0 if contact < 1e-3 else tanh(contact / 2.0) / (4.0 * contact)


@compiled
def bound_curvatures(contact: Floats, result: Floats) -> None:
    """Write λ(ξ) of every number in a flat array."""
    for number in range(len(contact)):
        result[number] = bound_curvature(abs(contact[number]))


@compiled
def add_item(precision: Floats, shift: Floats, vector: Floats, weight: float, pull: float) -> None:
    """Add w x xᵀ to the upper triangle of a precision and p x to a shift."""
    for row in range(len(vector)):
        target, rest, scaled = precision[row, row:], vector[row:], weight * vector[row]
        for column in range(len(rest)):
            target[column] += scaled * rest[column]
        shift[row] += pull * vector[row]


@compiled
def cholesky(matrix: Floats, root: Floats) -> bool:
    """Write the upper factor of a matrix, of which the upper triangle is read; return whether there is one."""
    for row in range(len(root)):
        root[row, :row] = 0.0
        target, given = root[row, row:], matrix[row, row:]
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
    result[:] = 0.0
    for axis in range(len(vector)):
        row, entry = columns[axis], vector[axis]
        for item in range(len(result)):
            result[item] += entry * row[item]


@compiled
def squared_lengths(columns: Floats, result: Floats) -> None:
    """Write the squared lengths (k,) of columns (dim, k)."""
    result[:] = 0.0
    for axis in range(len(columns)):
        row = columns[axis]
        for item in range(len(result)):
            result[item] += row[item] * row[item]
