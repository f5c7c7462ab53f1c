"""The variational iteration of equations (7) to (9), compiled, one user after the other.

Only logits enter the iteration, so it runs in the span of the k shown vectors, in coordinates in which the prior is
N(0, I): at most k dimensions, whatever that of the belief.
"""

from math import inf, sqrt, tanh

import numpy as np

from slatewise.belief.linear_algebra import (
    Floats,
    add_item,
    cholesky,
    product,
    products,
    solve_lower,
    squared_lengths,
    transpose,
    whiten,
    write_identity,
)
from slatewise.compiled import compiled

NEGLIGIBLE = 1e-12


@compiled
def find_evidence(
    root: Floats, mean: Floats, feedback: tuple[Floats, ...], stopping: tuple[int, float], evidence: tuple[Floats, ...]
) -> None:
    """Write the evidence, weights and pulls (n_users, k), that equations (7) and (8) add once (9) has converged.

    Feedback is vectors, labels, offsets and weights; stopping is the largest number of evaluations of (7) and (8) and
    the tolerance of (9).
    """
    vectors, labels, offsets, weights = feedback
    strengths, pulls = evidence
    n_items, dim = vectors.shape[1:]
    columns, logits, curvature = np.empty((dim, n_items)), np.empty(n_items), np.empty(n_items)
    for user in range(len(mean)):
        for item in range(n_items):
            for axis in range(dim):
                columns[axis, item] = vectors[user, item, axis] if weights[user, item] > 0.0 else 0.0
        products(mean[user], columns, logits)
        for item in range(n_items):
            logits[item] += offsets[user, item]
        whiten(root[user], columns)
        converge(coordinates(columns), logits, (labels[user], weights[user]), stopping, curvature)
        for item in range(n_items):
            strengths[user, item] = weights[user, item] * curvature[item]
            pulls[user, item] = weights[user, item] * (labels[user, item] - curvature[item] * offsets[user, item])


@compiled
def converge(
    vectors: Floats, logits: Floats, targets: tuple[Floats, ...], stopping: tuple[int, float], curvature: Floats
) -> None:
    """Iterate equations (7) to (9) for vectors (k, dim) from the prior N(0, I), with the logits as offsets.

    Writes 2λ(ξ) of every item. Targets are labels and weights; a vector of an item without weight is zero, so that
    its ξ stands still.
    """
    labels, weights = targets
    n_items, dim = vectors.shape
    precision, root, shift = np.empty((dim, dim)), np.empty((dim, dim)), np.zeros(dim)
    columns, average, variance = np.empty((dim, n_items)), np.empty(n_items), np.empty(n_items)
    contact = np.full(n_items, inf)
    write_identity(root)
    for evaluation in range(1, stopping[0] + 1):
        transpose(vectors, columns)
        whiten(root, columns)
        products(shift, columns, average)
        squared_lengths(columns, variance)
        for item in range(n_items):
            average[item] += logits[item]
        if not move_contact(contact, curvature, average, variance, stopping[1]) or evaluation == stopping[0]:
            return
        write_identity(precision)
        for axis in range(dim):
            shift[axis] = 0.0
        for item in range(n_items):
            pull = weights[item] * (labels[item] - curvature[item] * logits[item])
            add_item(precision, shift, vectors[item], weights[item] * curvature[item], pull)
        cholesky(precision, root)
        solve_lower(root, shift)


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
    """Return coordinates (k, at most k) of columns (dim, k) in an orthonormal basis of their span, by Gram and Schmidt.

    Products of vectors are products of their coordinates, so that k items need no more than k dimensions; those beyond
    the rank stay 0.
    """
    dim, n_items = columns.shape
    residuals, basis = np.empty((n_items, dim)), np.empty((min(n_items, dim), dim))
    result, rank = np.zeros((n_items, len(basis))), 0
    transpose(columns, residuals)
    for item in range(n_items):
        residual = residuals[item]
        before, length = inf, sqrt(product(residual, residual))
        smallest = NEGLIGIBLE * length
        while smallest < length < 0.5 * before:  # what is left of a vector that nearly vanishes is not orthogonal yet
            for axis in range(rank):
                direction = basis[axis]
                along = product(direction, residual)
                for number in range(dim):
                    residual[number] -= along * direction[number]
                result[item, axis] += along
            before, length = length, sqrt(product(residual, residual))
        if rank < len(basis) and length > smallest:
            for number in range(dim):
                basis[rank, number] = residual[number] / length
            result[item, rank] = length
            rank += 1
    return result


@compiled
def curvatures(contact: Floats, result: Floats) -> None:
    """Write λ(ξ) of every number in a flat array."""
    for number in range(len(contact)):
        result[number] = bound_curvature(abs(contact[number]))


@compiled
def bound_curvature(contact: float) -> float:
    """Return λ(ξ) = tanh(ξ/2) / 4ξ for ξ ≥ 0, by its series 1/8 − ξ²/96 near 0."""
    return 0.125 - contact**2 / 96.0 if contact < 1e-3 else tanh(contact / 2.0) / (4.0 * contact)
