"""Gaussian beliefs about a batch of users, in information form (equations 7, 8 and 9 of the paper).

A user's click on an item with vector x and offset o has the logit o + θ·x; the belief about θ is N(m, Σ), kept as
Σ⁻¹ and Σ⁻¹m in float64, so that evidence adds up. Every array has a leading user axis, and what happens to one user
never depends on who else is in the batch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from slatewise.belief.feedback import Feedback, LinearModel
from slatewise.belief.gaussian import (
    Beliefs,
    Factored,
    Floats,
    add_evidence,
    add_observations,
    check_positive_definite,
    check_shapes,
    contiguous,
    covariance,
    factor,
    logit_moments,
    mean,
    observation_shifts,
    sample,
)
from slatewise.belief.reported_likes import ReportedLikes
from slatewise.belief.variational import curvatures, find_evidence

__all__ = [
    "Beliefs",
    "Factored",
    "Feedback",
    "LinearModel",
    "ReportedLikes",
    "add_evidence",
    "add_observations",
    "bound_curvature",
    "click_probability",
    "covariance",
    "factor",
    "logit_moments",
    "mean",
    "observation_shifts",
    "sample",
    "start",
    "update",
]

MAX_ITERATIONS = 100
TOLERANCE = 1e-6


def start(n_users: int, mean: ArrayLike, covariance: ArrayLike) -> Beliefs:
    """Give every user the prior N(mean (dim,), covariance (dim, dim)); the paper's is N(0, λI)."""
    center, spread = contiguous(mean), contiguous(covariance)
    if center.ndim != 1 or spread.shape != (len(center), len(center)):
        raise ValueError(f"mean {center.shape} and covariance {spread.shape} differ; give (dim,) and (dim, dim)")
    check_positive_definite(spread, "prior covariance")
    precision = _symmetric(np.linalg.inv(spread).astype(np.float64, copy=False))
    shift = np.linalg.solve(spread, center)
    return Beliefs(np.tile(precision, (n_users, 1, 1)), np.tile(shift, (n_users, 1)))


def click_probability(mean: ArrayLike, variance: ArrayLike) -> tuple[Floats, Floats]:
    """Return mean and standard deviation of the click probability σ(z) for logits z ~ N(mean, variance).

    The mean is MacKay's σ(m / √(1 + πv/8)) = p. With s = p(1 − p), the squared deviation is s²v / (1 + sv): the
    linearized s²v for small v, the variance s of a coin for large v, and within 0.05 of the true deviation between.
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
    (relative to 1 + ξ), which is decided user by user, or MAX_ITERATIONS. The label of an item with an offset loses
    2λ(ξ)o, and (9) is ξ² = Var(θ·x) + (o + m·x)².
    """
    stopping = (MAX_ITERATIONS, TOLERANCE) if iterations is None else (iterations, 0.0)
    if stopping[0] < 1:
        raise ValueError(f"iterations is {iterations}; give at least 1, or None to iterate to convergence")
    labels = feedback.clicks + (exposure_push - 0.5)
    arrays = tuple(map(contiguous, (feedback.vectors, labels, feedback.offsets, feedback.weights)))
    check_shapes(beliefs.shift, *arrays)
    prior = factor(beliefs)
    weights, pulls = np.empty(labels.shape), np.empty(labels.shape)
    find_evidence(prior.root, prior.mean, arrays, stopping, (weights, pulls))
    return add_evidence(beliefs, arrays[0], weights, pulls)


def bound_curvature(contact: ArrayLike) -> Floats:
    """Return λ(ξ) = (σ(ξ) − ½) / 2ξ = tanh(ξ/2) / 4ξ of the Jaakkola-Jordan bound, by its series 1/8 − ξ²/96 near 0."""
    points = contiguous(contact)
    result = np.empty(points.shape)
    curvatures(points.reshape(-1), result.reshape(-1))
    return result


def _symmetric(matrices: Floats) -> Floats:
    """Average with the transpose, so that a stored triangle is the whole matrix to the last bit."""
    halves: Floats = 0.5 * (matrices + np.swapaxes(matrices, -1, -2))
    return halves
