"""Gaussian beliefs about a batch of users, in information form (equations 7, 8 and 9 of the paper).

A user's click on an item with vector x and offset o has the logit o + θ·x; the belief about θ is N(m, Σ), kept as
Σ⁻¹ and Σ⁻¹m in float64, so that evidence adds up. Every array has a leading user axis, and what happens to one user
never depends on who else is in the batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

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


@dataclass(frozen=True)
class Feedback:
    """What users answered: item vectors (n_users, k, dim) and, each (n_users, k), clicks, logit offsets, weights."""

    vectors: Floats
    clicks: Floats
    offsets: Floats
    weights: Floats

    @classmethod
    def of(
        cls,
        vectors: ArrayLike,
        clicks: ArrayLike,
        offsets: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> Feedback:
        """Check and complete feedback: no offsets means 0, no weights means 1.

        Clicks may be soft labels in [0, 1]; a weight of 0 says that there was no item, a fraction counts it in part.
        """
        table = np.asarray(vectors, dtype=np.float64)
        labels = np.asarray(clicks, dtype=np.float64)
        offset = np.zeros_like(labels) if offsets is None else np.asarray(offsets, dtype=np.float64)
        weight = np.ones_like(labels) if weights is None else np.asarray(weights, dtype=np.float64)
        _check_feedback(table, clicks=labels, offsets=offset, weights=weight)
        return cls(table, labels, offset, weight)

    def take(self, users: ArrayLike) -> Feedback:
        """Return the feedback of some of the users."""
        index = np.asarray(users)
        return Feedback(self.vectors[index], self.clicks[index], self.offsets[index], self.weights[index])


def start(n_users: int, mean: ArrayLike, covariance: ArrayLike) -> Beliefs:
    """Give every user the prior N(mean (dim,), covariance (dim, dim)); the paper's is N(0, λI)."""
    spread = np.asarray(covariance, dtype=np.float64)
    _cholesky(spread, "prior covariance")
    precision = _symmetric(_solve(spread, np.eye(len(spread))))
    shift = np.linalg.solve(spread, np.asarray(mean, dtype=np.float64))
    return Beliefs(np.tile(precision, (n_users, 1, 1)), np.tile(shift, (n_users, 1)))


def mean(beliefs: Beliefs) -> Floats:
    """Return m (n_users, dim)."""
    return _solve(beliefs.precision, beliefs.shift[:, :, None])[:, :, 0]


def covariance(beliefs: Beliefs) -> Floats:
    """Return Σ (n_users, dim, dim)."""
    return _symmetric(_solve(beliefs.precision, np.eye(beliefs.shift.shape[1])))


def sample(beliefs: Beliefs, standard_normals: ArrayLike, temperature: float = 1.0) -> Floats:
    """Draw θ̂ ~ N(m, τ²Σ) (n_users, dim) as m + τL⁻ᵀz with Σ⁻¹ = LLᵀ; τ = 1 is the paper's Algorithm 1, τ = 0 is m."""
    if not 0.0 <= temperature < np.inf:
        raise ValueError(f"temperature is {temperature}; give 0 (no exploration) or a positive finite number")
    normals = np.asarray(standard_normals, dtype=np.float64)
    if normals.shape != beliefs.shift.shape:
        raise ValueError(f"standard_normals have shape {normals.shape}; give one row per user: {beliefs.shift.shape}")
    root = _cholesky(beliefs.precision, "precision of a belief")
    deviation = _solve(np.swapaxes(root, 1, 2), normals[:, :, None])[:, :, 0]
    drawn: Floats = mean(beliefs) + temperature * deviation
    return drawn


def logit_moments(beliefs: Beliefs, vectors: ArrayLike, offsets: ArrayLike = 0.0) -> tuple[Floats, Floats]:
    """Return mean and variance, each (n_users, k), of the logits o + θ·x of vectors (n_users or 1, k, dim)."""
    columns = np.asarray(vectors, dtype=np.float64).swapaxes(1, 2)
    spread = _times_covariance(beliefs, columns)
    average = np.matmul(beliefs.shift[:, None, :], spread)[:, 0, :]
    variance = np.add.reduce(np.multiply(columns, spread, out=spread), axis=1)
    return average + np.asarray(offsets, dtype=np.float64), np.maximum(variance, 0.0)


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


def update(
    beliefs: Beliefs, feedback: Feedback, *, exposure_push: float = 0.0, iterations: int | None = None
) -> Beliefs:
    """Return the variational posterior of equations (7) to (9), starting ξ from the prior belief.

    The paper's method has exposure_push = 2α, added to the label of every shown item; 0 is plain logistic regression.
    `iterations` counts evaluations of (7) and (8); None means until no ξ of a user moves by more than TOLERANCE
    (relative to 1 + ξ), which is decided user by user, or MAX_ITERATIONS.
    """
    limit, tolerance = (MAX_ITERATIONS, TOLERANCE) if iterations is None else (iterations, 0.0)
    if limit < 1:
        raise ValueError(f"iterations is {iterations}; give at least 1, or None to iterate to convergence")
    contact = _contact_points(beliefs, feedback)
    moving = np.arange(len(contact))
    for _ in range(limit - 1):
        some = feedback.take(moving)
        posterior = _posterior(beliefs.take(moving), some, contact[moving], exposure_push)
        fresh = _contact_points(posterior, some)
        step = np.abs(fresh - contact[moving]) * (some.weights > 0.0)
        contact[moving] = fresh
        moving = moving[(step > tolerance * (1.0 + fresh)).any(axis=1)]
        if not moving.size:
            break
    return _posterior(beliefs, feedback, contact, exposure_push)


def add_late_click(beliefs: Beliefs, vectors: ArrayLike) -> Beliefs:
    """Turn an item (n_users, dim) that was counted as not clicked into a click: h += x, ξ kept as it was."""
    return Beliefs(beliefs.precision, beliefs.shift + np.asarray(vectors, dtype=np.float64))


def bound_curvature(contact: ArrayLike) -> Floats:
    """Return λ(ξ) = (σ(ξ) − ½) / 2ξ = tanh(ξ/2) / 4ξ of the Jaakkola-Jordan bound, by its series 1/8 − ξ²/96 near 0."""
    xi = np.abs(np.asarray(contact, dtype=np.float64))
    far = np.maximum(xi, 1e-3)
    return np.where(xi < 1e-3, 0.125 - np.square(np.minimum(xi, 1e-3)) / 96.0, np.tanh(far / 2.0) / (4.0 * far))


def _posterior(beliefs: Beliefs, feedback: Feedback, contact: Floats, exposure_push: float) -> Beliefs:
    """Equations (7) and (8) at given ξ, with offsets: the label of an item loses 2λ(ξ)o."""
    curvature = 2.0 * bound_curvature(contact)
    pull = feedback.weights * (feedback.clicks + exposure_push - 0.5 - curvature * feedback.offsets)
    rows = np.swapaxes(feedback.vectors, 1, 2)
    gram = np.matmul(rows * (feedback.weights * curvature)[:, None, :], feedback.vectors)
    shift = beliefs.shift + np.matmul(rows, pull[:, :, None])[:, :, 0]
    return Beliefs(beliefs.precision + _symmetric(gram), shift)


def _contact_points(beliefs: Beliefs, feedback: Feedback) -> Floats:
    """Equation (9) with offsets: ξ² = Var(θ·x) + (o + m·x)²."""
    average, variance = logit_moments(beliefs, feedback.vectors, feedback.offsets)
    points: Floats = np.sqrt(variance + np.square(average))
    return points


def _times_covariance(beliefs: Beliefs, columns: Floats) -> Floats:
    """Σ times columns (n_users or 1, dim, k), solving for the columns or for the identity, whichever are fewer."""
    if columns.shape[2] <= columns.shape[1]:
        return _solve(beliefs.precision, columns)
    product: Floats = np.matmul(covariance(beliefs), columns)
    return product


def _solve(matrices: Floats, right: Floats) -> Floats:
    """Solve a stack of linear systems in float64."""
    return np.linalg.solve(matrices, right).astype(np.float64, copy=False)


def _symmetric(matrices: Floats) -> Floats:
    """Average with the transpose, so that a stored triangle is the whole matrix to the last bit."""
    halves: Floats = 0.5 * (matrices + np.swapaxes(matrices, -1, -2))
    return halves


def _cholesky(matrices: Floats, what: str) -> Floats:
    """Lower Cholesky factors, or an error that says which matrix has none."""
    try:
        return np.linalg.cholesky(matrices).astype(np.float64, copy=False)
    except np.linalg.LinAlgError:
        smallest = np.linalg.eigvalsh(matrices)[..., 0]
        raise ValueError(
            f"the {what} is not positive definite: eigenvalue {smallest.min():.3g} in matrix {smallest.argmin()}; "
            "start from a covariance with positive eigenvalues, for example with a little added to its diagonal"
        ) from None


def _check_feedback(vectors: Floats, **per_item: Floats) -> None:
    """Refuse feedback that would silently spoil a belief."""
    if vectors.ndim != 3 or not np.isfinite(vectors).all():
        raise ValueError(f"vectors have shape {vectors.shape}; give finite numbers shaped (n_users, k, dim)")
    for name, values in per_item.items():
        if values.shape != vectors.shape[:2]:
            raise ValueError(f"{name} have shape {values.shape}; give one per shown item: {vectors.shape[:2]}")
        if not np.isfinite(values).all():
            raise ValueError(f"{name} hold a number that is not finite; give weight 0 where a slate has no item")
    if ((per_item["clicks"] < 0.0) | (per_item["clicks"] > 1.0)).any():
        raise ValueError(f"clicks reach from {per_item['clicks'].min()} to {per_item['clicks'].max()}; give 0 to 1")
    if (per_item["weights"] < 0.0).any():
        raise ValueError(f"the smallest weight is {per_item['weights'].min()}; give 0 or more")
