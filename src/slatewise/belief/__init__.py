"""Gaussian beliefs about a batch of users, in information form (equations 7, 8 and 9 of the paper).

A user's click on an item with vector x and offset o has the logit o + θ·x; the belief about θ is N(m, Σ), kept as
Σ⁻¹ and Σ⁻¹m in float64, so that evidence adds up. Every array has a leading user axis, and what happens to one user
never depends on who else is in the batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from slatewise.belief import kernels, variational
from slatewise.belief.feedback import Feedback as Feedback
from slatewise.belief.feedback import LinearModel as LinearModel

Floats = NDArray[np.float64]

FLOAT64 = np.dtype(np.float64)
MAX_ITERATIONS = 100
TOLERANCE = 1e-6


@dataclass(frozen=True)
class Beliefs:
    """Information form of N(m, Σ): precision Σ⁻¹ (n_users, dim, dim) and shift Σ⁻¹m (n_users, dim)."""

    precision: Floats
    shift: Floats

    def take(self, users: ArrayLike) -> Beliefs:
        """Return the beliefs about some of the users."""
        index = np.asarray(users)
        return Beliefs(self.precision[index], self.shift[index])


def start(n_users: int, mean: ArrayLike, covariance: ArrayLike) -> Beliefs:
    """Give every user the prior N(mean (dim,), covariance (dim, dim)); the paper's is N(0, λI)."""
    center, spread = _contiguous(mean), _contiguous(covariance)
    if center.ndim != 1 or spread.shape != (len(center), len(center)):
        raise ValueError(f"mean {center.shape} and covariance {spread.shape} differ; give (dim,) and (dim, dim)")
    _check_positive_definite(spread, "prior covariance")
    precision = _symmetric(np.linalg.inv(spread).astype(np.float64, copy=False))
    shift = np.linalg.solve(spread, center)
    return Beliefs(np.tile(precision, (n_users, 1, 1)), np.tile(shift, (n_users, 1)))


@dataclass(frozen=True)
class Factored:
    """Beliefs ready for use: the root R (n_users, dim, dim) of every precision, Σ⁻¹ = RᵀR, and the mean m."""

    root: Floats
    mean: Floats

    def sample(self, standard_normals: ArrayLike, temperature: float = 1.0) -> Floats:
        """Draw θ̂ ~ N(m, τ²Σ) (n_users, dim) as m + τR⁻¹z; τ = 1 is the paper's Algorithm 1, τ = 0 is m."""
        if not 0.0 <= temperature < np.inf:
            raise ValueError(f"temperature is {temperature}; give 0 (no exploration) or a positive finite number")
        normals = _contiguous(standard_normals)
        if normals.shape != self.mean.shape:
            raise ValueError(f"standard_normals have shape {normals.shape}; give one row per user: {self.mean.shape}")
        drawn = np.empty(normals.shape)
        if not kernels.draw(self.root, self.mean, normals, float(temperature), drawn):
            raise ValueError("standard_normals hold a number that is not finite or too large; give standard normals")
        return drawn

    def covariance(self) -> Floats:
        """Return Σ (n_users, dim, dim)."""
        result = np.empty(self.root.shape)
        kernels.covariance(self.root, result)
        return result

    def logit_moments(self, vectors: ArrayLike, offsets: ArrayLike = 0.0) -> tuple[Floats, Floats]:
        """Return mean and variance, each (n_users, k), of the logits o + θ·x of vectors (n_users or 1, k, dim)."""
        table, (n_users, dim) = _contiguous(vectors), self.mean.shape
        if table.ndim != 3 or table.shape[2] != dim or table.shape[0] not in (1, n_users):
            raise ValueError(f"vectors have shape {table.shape}; give ({n_users} or 1, k, {dim})")
        average, variance = np.empty((n_users, table.shape[1])), np.empty((n_users, table.shape[1]))
        if not kernels.logit_moments(self.root, self.mean, table, average, variance):
            raise ValueError("vectors hold a number that is not finite or too large; give finite vectors")
        return average + np.asarray(offsets, dtype=np.float64), variance


def factor(beliefs: Beliefs) -> Factored:
    """Factor every precision once, for the mean, samples and moments that follow."""
    precision, shift = _contiguous(beliefs.precision), _contiguous(beliefs.shift)
    _check_beliefs(precision, shift)
    root, average = np.empty(precision.shape), np.empty(shift.shape)
    failed = kernels.factor(precision, shift, root, average)
    if failed >= 0:
        _check_positive_definite(precision[failed], "precision of a belief", failed)
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


def click_probability(mean: ArrayLike, variance: ArrayLike) -> tuple[Floats, Floats]:
    """Return mean and standard deviation of the click probability σ(z) for logits z ~ N(mean, variance).

    The mean is MacKay's σ(m / √(1 + πv/8)) = p. With s = p(1 − p), the squared deviation is s²v / (1 + sv): the
    linearised s²v for small v, the variance s of a coin for large v, and within 0.05 of the true deviation between.
    """
    spread = np.asarray(variance, dtype=np.float64)
    logit = np.asarray(mean, dtype=np.float64) / np.sqrt(1.0 + np.pi * spread / 8.0)
    probability = 0.5 * (1.0 + np.tanh(0.5 * logit))
    slope = 0.25 / np.square(np.cosh(np.minimum(0.5 * np.abs(logit), 300.0)))
    return probability, slope * np.sqrt(spread / (1.0 + slope * spread))


def add_evidence(beliefs: Beliefs, vectors: ArrayLike, weights: ArrayLike, pulls: ArrayLike) -> Beliefs:
    """Return beliefs with Σ⁻¹ + Σ w x xᵀ and Σ⁻¹m + Σ p x, the precision symmetric to the last bit.

    Vectors (n_users, k, dim), weights and pulls (n_users, k); an item of weight 0 changes nothing.
    """
    table, weight, pull = _contiguous(vectors), _contiguous(weights), _contiguous(pulls)
    precision, shift = _copies(beliefs)
    _check_shapes(shift, table, weight, pull)
    kernels.add_evidence(precision, shift, table, weight, pull)
    return Beliefs(precision, shift)


def add_observations(
    beliefs: Beliefs, shown: kernels.Integers, clicks: kernels.Booleans, model: LinearModel
) -> Beliefs:
    """Return the exact posterior after shown items (n_users, k), −1 for none, and their clicks (n_users, k)."""
    precision, shift = _copies(beliefs)
    if shown.ndim != 2 or shown.shape != clicks.shape or len(shown) != len(shift):
        raise ValueError(f"items {shown.shape} and clicks {clicks.shape} differ; give ({len(shift)}, k) of both")
    if shift.shape[1] != model.vectors.shape[1]:
        raise ValueError(
            f"vectors have {model.vectors.shape[1]} dimensions; give {shift.shape[1]}, as the beliefs have"
        )
    parts = model.vectors, model.expected, model.noise
    if not kernels.add_observations(precision, shift, shown, clicks, parts):
        raise IndexError(f"item {shown.max()} was shown; the model has {len(model.vectors)} items, numbered from 0")
    return Beliefs(precision, shift)


def update(
    beliefs: Beliefs, feedback: Feedback, *, exposure_push: float = 0.0, iterations: int | None = None
) -> Beliefs:
    """Return the variational posterior of equations (7) to (9), starting ξ from the prior belief.

    The paper's method has exposure_push = 2α, added to the label of every shown item; 0 is plain logistic regression.
    `iterations` counts evaluations of (7) and (8); None means until no ξ of a user moves by more than TOLERANCE
    (relative to 1 + ξ), which is decided user by user, or MAX_ITERATIONS. The label of an item with an offset loses
    2λ(ξ)o, and (9) is ξ² = Var(θ·x) + (o + m·x)².
    """
    stopping = (MAX_ITERATIONS, TOLERANCE) if iterations is None else (iterations, 0.0)
    if stopping[0] < 1:
        raise ValueError(f"iterations is {iterations}; give at least 1, or None to iterate to convergence")
    labels = feedback.clicks + (exposure_push - 0.5)
    answers = tuple(map(_contiguous, (feedback.vectors, labels, feedback.offsets, feedback.weights)))
    _check_shapes(beliefs.shift, *answers)
    prior = factor(beliefs)
    weights, pulls = np.empty(labels.shape), np.empty(labels.shape)
    variational.find_evidence(prior.root, prior.mean, answers, stopping, (weights, pulls))
    return add_evidence(beliefs, answers[0], weights, pulls)


def bound_curvature(contact: ArrayLike) -> Floats:
    """Return λ(ξ) = (σ(ξ) − ½) / 2ξ = tanh(ξ/2) / 4ξ of the Jaakkola-Jordan bound, by its series 1/8 − ξ²/96 near 0."""
    points = _contiguous(contact)
    result = np.empty(points.shape)
    variational.bound_curvatures(points.reshape(-1), result.reshape(-1))
    return result


def _contiguous(values: ArrayLike) -> Floats:
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


def _check_shapes(shift: Floats, vectors: Floats, *per_item: Floats) -> None:
    """Refuse vectors, or numbers that come with them, that do not fit the beliefs."""
    if vectors.ndim != 3 or (vectors.shape[0], vectors.shape[2]) != shift.shape:
        raise ValueError(f"vectors have shape {vectors.shape}; give (n_users, k, dim) for beliefs {shift.shape}")
    for values in per_item:
        if values.shape != vectors.shape[:2]:
            raise ValueError(f"{values.shape} numbers come with vectors {vectors.shape}; give one per user and item")


def _symmetric(matrices: Floats) -> Floats:
    """Average with the transpose, so that a stored triangle is the whole matrix to the last bit."""
    halves: Floats = 0.5 * (matrices + np.swapaxes(matrices, -1, -2))
    return halves


def _check_positive_definite(matrix: Floats, what: str, number: int = 0) -> None:
    """Refuse a matrix (dim, dim) that has no Cholesky factor."""
    if not np.isfinite(matrix).all():
        raise ValueError(f"the {what} holds a number that is not finite in matrix {number}; give finite numbers only")
    if not kernels.cholesky(matrix, np.empty(matrix.shape)):
        raise ValueError(
            f"the {what} is not positive definite: eigenvalue {np.linalg.eigvalsh(matrix)[0]:.3g} in matrix {number}; "
            "start from a covariance with positive eigenvalues, for example with a little added to its diagonal"
        )
