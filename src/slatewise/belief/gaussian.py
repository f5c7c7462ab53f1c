"""Gaussian beliefs and their exact use: factors, samples, moments of logits, and evidence that adds up.

The kernels at the end work on one user after the other and write into arrays that the functions above provide.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slatewise.belief.feedback import LinearModel
from slatewise.belief.linear_algebra import (
    add_item,
    cholesky,
    mirror,
    product,
    products,
    solve_lower,
    solve_upper,
    squared_lengths,
    transpose,
    whiten,
    write_identity,
)
from slatewise.compiled import compiled
from slatewise.evidence import Evidence

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Vectors = NDArray[np.float32]

FLOAT64 = np.dtype(np.float64)


@dataclass(frozen=True)
class Beliefs:
    """Information form of N(m, Σ): precision Σ⁻¹ (n_users, dim, dim) and shift Σ⁻¹m (n_users, dim)."""

    precision: Floats
    shift: Floats

    def take(self, users: ArrayLike) -> Beliefs:
        """Return the beliefs about some of the users."""
        index = np.asarray(users)
        return Beliefs(self.precision[index], self.shift[index])


@dataclass(frozen=True)
class Factored:
    """Beliefs ready for use: the root R (n_users, dim, dim) of every precision, Σ⁻¹ = RᵀR, and the mean m."""

    root: Floats
    mean: Floats

    def sample(self, standard_normals: ArrayLike, temperature: float = 1.0) -> Floats:
        """Draw θ̂ ~ N(m, τ²Σ) (n_users, dim) as m + τR⁻¹z; τ = 1 is the paper's Algorithm 1, τ = 0 is m."""
        if not 0.0 <= temperature < np.inf:
            raise ValueError(f"temperature is {temperature}; give 0 (no exploration) or a positive finite number")
        normals = contiguous(standard_normals)
        if normals.shape != self.mean.shape:
            raise ValueError(f"standard_normals have shape {normals.shape}; give one row per user: {self.mean.shape}")
        drawn = np.empty(normals.shape)
        if not _draw(self.root, self.mean, normals, float(temperature), drawn):
            raise ValueError("standard_normals hold a number that is not finite or too large; give standard normals")
        return drawn

    def covariance(self) -> Floats:
        """Return Σ (n_users, dim, dim)."""
        result = np.empty(self.root.shape)
        _covariance(self.root, result)
        return result

    def times_covariance(self, vectors: ArrayLike) -> Floats:
        """Return Σx of vectors (n_users, k, dim)."""
        result = np.array(vectors, dtype=np.float64, order="C")
        if result.ndim != 3 or (result.shape[0], result.shape[2]) != self.mean.shape:
            raise ValueError(f"vectors have shape {result.shape}; give (n_users, k, dim) for beliefs {self.mean.shape}")
        _times_covariance(self.root, result)
        return result

    def logit_moments(self, vectors: ArrayLike, offsets: ArrayLike = 0.0) -> tuple[Floats, Floats]:
        """Return mean and variance, each (n_users, k), of the logits o + θ·x of vectors (n_users or 1, k, dim)."""
        table, (n_users, dim) = contiguous(vectors), self.mean.shape
        if table.ndim != 3 or table.shape[2] != dim or table.shape[0] not in (1, n_users):
            raise ValueError(f"vectors have shape {table.shape}; give ({n_users} or 1, k, {dim})")
        average, variance = np.empty((n_users, table.shape[1])), np.empty((n_users, table.shape[1]))
        if not _logit_moments(self.root, self.mean, table, average, variance):
            raise ValueError("vectors hold a number that is not finite or too large; give finite vectors")
        return average + np.asarray(offsets, dtype=np.float64), variance

    def like_moments(self, items: Integers, features: Vectors, rates: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
        """Return how probable a like of items (n_users, k) is, m·t + μ within 0 to 1, and its deviation √(tᵀΣt + σ²).

        features: the t_i (n_items, dim or more columns); rates: μ and σ of all items. Any item stands in for −1.
        """
        probability, deviation = np.empty(items.shape), np.empty(items.shape)
        if not _like_moments((self.root, self.mean), items, features, rates, (probability, deviation)):
            raise ValueError("vectors hold a number that is not finite or too large; give finite vectors")
        return probability, deviation


def factor(beliefs: Beliefs) -> Factored:
    """Factor every precision once, for the mean, samples and moments that follow."""
    precision, shift = contiguous(beliefs.precision), contiguous(beliefs.shift)
    _check_beliefs(precision, shift)
    root, average = np.empty(precision.shape), np.empty(shift.shape)
    failed = _factor(precision, shift, root, average)
    if failed >= 0:
        check_positive_definite(precision[failed], "precision of a belief", failed)
        raise ValueError(f"the mean of belief {failed} is not finite; start again from a finite mean and covariance")
    return Factored(root, average)


def mean(beliefs: Beliefs) -> Floats:
    """Return m (n_users, dim)."""
    return factor(beliefs).mean


def covariance(beliefs: Beliefs) -> Floats:
    """Return Σ (n_users, dim, dim)."""
    return factor(beliefs).covariance()


def sample(beliefs: Beliefs, standard_normals: ArrayLike, temperature: float = 1.0) -> Floats:
    """Draw θ̂ ~ N(m, τ²Σ) (n_users, dim); see `Factored.sample`."""
    return factor(beliefs).sample(standard_normals, temperature)


def logit_moments(beliefs: Beliefs, vectors: ArrayLike, offsets: ArrayLike = 0.0) -> tuple[Floats, Floats]:
    """Return mean and variance of logits, each (n_users, k); see `Factored.logit_moments`."""
    return factor(beliefs).logit_moments(vectors, offsets)


def add_evidence(beliefs: Beliefs, vectors: ArrayLike, weights: ArrayLike, pulls: ArrayLike) -> Beliefs:
    """Return beliefs with Σ⁻¹ + Σ w x xᵀ and Σ⁻¹m + Σ p x, the precision symmetric to the last bit.

    Vectors (n_users, k, dim), weights and pulls (n_users, k); an item of weight 0 changes nothing.
    """
    table, weight, pull = contiguous(vectors), contiguous(weights), contiguous(pulls)
    precision, shift = _copies(beliefs)
    check_shapes(shift, table, weight, pull)
    _add_evidence(precision, shift, table, weight, pull)
    return Beliefs(precision, shift)


def add_observations(beliefs: Beliefs, evidence: Evidence, model: LinearModel) -> Beliefs:
    """Return the exact posterior: Σ⁻¹ += Σ w q² t tᵀ / ψ_q and Σ⁻¹m += Σ w q (y − qμ) t / ψ_q.

    The value y, weight w and probability of examination q come with each item; ψ_q is that of `LinearModel`.
    """
    precision, shift = _copies(beliefs)
    shown, numbers = evidence.items, (evidence.value, evidence.weight, evidence.examined)
    if shown.ndim != 2 or len(shown) != len(shift) or any(values.shape != shown.shape for values in numbers):
        shapes = ", ".join(str(values.shape) for values in numbers)
        raise ValueError(f"items {shown.shape} come with {shapes}; give ({len(shift)}, n) of each")
    if shift.shape[1] != model.vectors.shape[1]:
        raise ValueError(
            f"vectors have {model.vectors.shape[1]} dimensions; give {shift.shape[1]}, as the beliefs have"
        )
    parts = model.vectors, model.expected, model.noise
    if not _add_observations(precision, shift, shown, tuple(map(contiguous, numbers)), parts):
        _explain(evidence, len(model.vectors))
    return Beliefs(precision, shift)


def observation_shifts(evidence: Evidence, model: LinearModel) -> Floats:
    """Return what each observation of one user (1, n) adds to Σ⁻¹m in `add_observations`: w q (y − qμ) t / ψ_q."""
    numbers = (evidence.value[0], evidence.weight[0], evidence.examined[0])
    shifts = np.empty((evidence.items.shape[1], model.vectors.shape[1]))
    parts = model.vectors, model.expected, model.noise
    if not _observation_shifts(evidence.items[0], tuple(map(contiguous, numbers)), parts, shifts):
        raise IndexError(f"an item was liked that the model does not have; it has {len(model.vectors)} items")
    return shifts


def _explain(evidence: Evidence, n_items: int) -> None:
    """Raise the error of evidence that the kernel refused."""
    if evidence.items.max() >= n_items:
        raise IndexError(f"item {evidence.items.max()} was shown; the model has {n_items} items, numbered from 0")
    raise ValueError("evidence holds a number out of range; give finite values and weights, and examined in (0, 1]")


def contiguous(values: ArrayLike) -> Floats:
    """Return the array itself if it is what the kernels are compiled for, else a copy: writable, in rows, float64."""
    if isinstance(values, np.ndarray) and values.dtype is FLOAT64 and values.flags.carray:
        return values
    return np.array(values, dtype=np.float64, order="C")


def _copies(beliefs: Beliefs) -> tuple[Floats, Floats]:
    """Return precision and shift for a kernel to write to."""
    precision = np.array(beliefs.precision, dtype=np.float64, order="C")
    shift = np.array(beliefs.shift, dtype=np.float64, order="C")
    _check_beliefs(precision, shift)
    return precision, shift


def _check_beliefs(precision: Floats, shift: Floats) -> None:
    """Refuse a precision and a shift that do not fit together: kernels trust what they are given."""
    if shift.ndim != 2 or precision.shape != (*shift.shape, shift.shape[1]):
        raise ValueError(f"precision {precision.shape} and shift {shift.shape} differ; give (n, dim, dim) and (n, dim)")


def check_shapes(shift: Floats, vectors: Floats, *per_item: Floats) -> None:
    """Refuse vectors, or numbers that come with them, that do not fit the beliefs."""
    if vectors.ndim != 3 or (vectors.shape[0], vectors.shape[2]) != shift.shape:
        raise ValueError(f"vectors have shape {vectors.shape}; give (n_users, k, dim) for beliefs {shift.shape}")
    for values in per_item:
        if values.shape != vectors.shape[:2]:
            raise ValueError(f"{values.shape} numbers come with vectors {vectors.shape}; give one per user and item")


def check_positive_definite(matrix: Floats, what: str, number: int = 0) -> None:
    """Refuse a matrix (dim, dim) that has no Cholesky factor."""
    if not np.isfinite(matrix).all():
        raise ValueError(f"the {what} holds a number that is not finite in matrix {number}; give finite numbers only")
    if not cholesky(matrix, np.empty(matrix.shape)):
        raise ValueError(
            f"the {what} is not positive definite: eigenvalue {np.linalg.eigvalsh(matrix)[0]:.3g} in matrix {number}; "
            "start from a covariance with positive eigenvalues, for example with a little added to its diagonal"
        )


@compiled
def _factor(precision: Floats, shift: Floats, root: Floats, mean: Floats) -> int:
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
def _draw(root: Floats, mean: Floats, normals: Floats, temperature: float, drawn: Floats) -> bool:
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
def _covariance(root: Floats, result: Floats) -> None:
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
def _times_covariance(root: Floats, vectors: Floats) -> None:
    """Replace vectors x (n_users, k, dim) by Σx = R⁻¹R⁻ᵀx."""
    for user in range(len(root)):
        for item in range(vectors.shape[1]):
            solve_lower(root[user], vectors[user, item])
            solve_upper(root[user], vectors[user, item])


@compiled
def _logit_moments(root: Floats, mean: Floats, vectors: Floats, average: Floats, variance: Floats) -> bool:
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
def _like_moments(
    factored: tuple[Floats, Floats],
    items: Integers,
    features: Vectors,
    rates: tuple[Floats, Floats],
    moments: tuple[Floats, Floats],
) -> bool:
    """Write probabilities and deviations (n_users, k) of likes; return whether what they come from is finite."""
    (root, mean), (rate, spread), (probability, deviation) = factored, rates, moments
    is_finite, columns = True, np.empty((mean.shape[1], items.shape[1]))
    for user in range(len(mean)):
        for place in range(items.shape[1]):
            for axis in range(len(columns)):
                columns[axis, place] = features[max(items[user, place], 0), axis]
        products(mean[user], columns, probability[user])
        whiten(root[user], columns)
        squared_lengths(columns, deviation[user])
        for place in range(items.shape[1]):
            item, logit, variance = max(items[user, place], 0), probability[user, place], deviation[user, place]
            is_finite &= abs(logit) + variance < inf
            probability[user, place] = min(max(logit + rate[item], 0.0), 1.0)
            deviation[user, place] = sqrt(variance + spread[item] * spread[item])
    return is_finite


@compiled
def _add_evidence(precision: Floats, shift: Floats, vectors: Floats, weights: Floats, pulls: Floats) -> None:
    """Add Σ w x xᵀ to the precisions and Σ p x to the shifts of all users; items of weight 0 are passed over."""
    for user in range(len(shift)):
        for item in range(vectors.shape[1]):
            if weights[user, item] != 0.0:
                add_item(precision[user], shift[user], vectors[user, item], weights[user, item], pulls[user, item])
        mirror(precision[user])


@compiled
def _add_observations(
    precision: Floats,
    shift: Floats,
    shown: Integers,
    evidence: tuple[Floats, ...],
    model: tuple[Vectors, Floats, Floats],
) -> bool:
    """Add the evidence of shown items (n_users, n), −1 for none; return whether all of it is valid.

    The evidence is value, weight and examined (n_users, n); the model is vectors (n_items, dim), expected values and
    noise variances (n_items,).
    """
    values, weights, examined = evidence
    vectors, expected, noise = model
    vector = np.empty(shift.shape[1])
    for user in range(len(shift)):
        for position in range(shown.shape[1]):
            item, chance = shown[user, position], examined[user, position]
            value, weight = values[user, position], weights[user, position]
            if item < 0 or weight == 0.0:
                continue
            if item >= len(vectors) or not (0.0 < chance <= 1.0 and abs(value) < inf and abs(weight) < inf):
                return False
            for axis in range(len(vector)):
                vector[axis] = vectors[item, axis]
            information, pull = _weigh(value, weight, chance, expected[item], noise[item])
            add_item(precision[user], shift[user], vector, information, pull)
        mirror(precision[user])
    return True


@compiled
def _weigh(value: float, weight: float, chance: float, expected: float, noise: float) -> tuple[float, float]:
    """Return w q² / ψ_q and w q (y − qμ) / ψ_q of an observation: what its t tᵀ and its t are multiplied by."""
    variance = chance * chance * noise + chance * (1.0 - chance) * expected
    return weight * chance * chance / variance, weight * chance * (value - chance * expected) / variance


@compiled
def _observation_shifts(
    items: Integers, evidence: tuple[Floats, ...], model: tuple[Vectors, Floats, Floats], shifts: Floats
) -> bool:
    """Write what each observation (n,) adds to a shift: (n, dim); evidence and model as for `_add_observations`.

    Returns whether the model has all items.
    """
    values, weights, examined = evidence
    vectors, expected, noise = model
    for row in range(items.size):
        item, chance = items[row], examined[row]
        if not 0 <= item < len(vectors):
            return False
        _, pull = _weigh(values[row], weights[row], chance, expected[item], noise[item])
        for axis in range(shifts.shape[1]):
            shifts[row, axis] = pull * vectors[item, axis]
    return True
