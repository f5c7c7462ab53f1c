"""The paper's bound on Bayesian regret, with its constants as printed: Lemma 1, Lemma 2 and the proof of Theorem 1.

Everything is kept in logarithms, because e^{2αs} overflows long before the bound does. docs/theory.md says which of
these steps the paper's proof does not support; this module computes what the paper states.
"""

import math
from dataclasses import dataclass

CEILING = 1.0
"""C, the paper's largest reward; `least_ceiling` gives rewards that are larger."""

NEVER = 1e30


@dataclass(frozen=True)
class Problem:
    """What Theorem 1 depends on: d, the dimension of θ; s, the size of a slate; α, the weight of quality."""

    dim: int
    size: int
    alpha: float

    def __post_init__(self) -> None:
        if self.dim < 1 or self.size < 1 or not 0.0 < self.alpha < math.inf:
            raise ValueError(f"{self} has no bound; dim and size must be 1 or more and alpha positive")


def log_slope(problem: Problem) -> float:
    """Return log h of equation (13), h = (8α + 1)/4 · e^{2αs}: how fast the reward changes with θ."""
    return math.log((8.0 * problem.alpha + 1.0) / 4.0) + 2.0 * problem.alpha * problem.size


def log_covering_number(problem: Problem, radius: float) -> float:
    """Return log N(F, α₀, ‖·‖∞) = d · log(h s √d / α₀) of equation (14) for balls of radius α₀."""
    return problem.dim * (log_slope(problem) + math.log(problem.size * math.sqrt(problem.dim) / radius))


def margin_dimension(problem: Problem, tolerance: float) -> float:
    """Return Lemma 2's bound on dim_M(F, ε) = 3d · e/(e − 1) · log(3 (2 S₀ h γ / ε)²) + 1 with S₀ = 1 and γ = s."""
    log_ratio = math.log(2.0 * problem.size / tolerance) + log_slope(problem)
    return 3.0 * problem.dim * math.e / (math.e - 1.0) * (math.log(3.0) + 2.0 * log_ratio) + 1.0


def confidence_width(problem: Problem, rounds: int) -> float:
    """Return β*_T of Lemma 1 = 8 log(N/δ) + 2 α₀ T (15/2 · C + log(2T²/δ)) with α₀ = δ = 1/T²."""
    small = float(rounds) ** -2
    discretization = 2.0 * small * rounds * (7.5 * CEILING + math.log(2.0 / small**2))
    return 8.0 * (log_covering_number(problem, small) - math.log(small)) + discretization


def regret_bound(problem: Problem, rounds: int) -> float:
    """Return Lemma 1's bound on the regret of T rounds: 4 √(dim_M · β*_T · T) + 1 + (dim_M + 1) C."""
    if rounds < 2:
        raise ValueError(f"rounds is {rounds}; Lemma 1 needs δ = 1/T² ≤ 1/2T, so it must be 2 or more")
    dimension = margin_dimension(problem, 1.0 / rounds)
    return 4.0 * math.sqrt(dimension * confidence_width(problem, rounds) * rounds) + 1.0 + (dimension + 1.0) * CEILING


def regret_rate(problem: Problem, rounds: int) -> float:
    """Return the expression inside the O of Theorem 1: d · log(α s e^{2αs} T √d) · √T."""
    log_argument = math.log(problem.alpha * problem.size * rounds * math.sqrt(problem.dim))
    return problem.dim * (log_argument + 2.0 * problem.alpha * problem.size) * math.sqrt(rounds)


def first_meaningful_round(problem: Problem) -> float:
    """Return the smallest T at which the bound is below T · C, which holds without any proof (to one part in 1000)."""
    low, high = 2.0, NEVER
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        is_meaningful = regret_bound(problem, math.ceil(middle)) < middle * CEILING
        low, high = (low, middle) if is_meaningful else (middle, high)
    return high


def least_ceiling(problem: Problem) -> float:
    """Return a reward that a world with ‖θ‖ ≤ 1 and ‖x‖ ≤ 1 pays if s ≤ d, so that C cannot be smaller.

    It is the best of slates of unit vectors that all make the same angle with θ, ‖θ‖ = 1, and are otherwise as far
    apart as they can be.
    """
    cosines = [step / 1000.0 for step in range(1, 1001)]
    return max(math.exp(problem.size * _log_quality(problem, cosine)) * _volume(problem, cosine) for cosine in cosines)


def _log_quality(problem: Problem, logit: float) -> float:
    """Return log p + 2α log r of one item."""
    return 2.0 * problem.alpha * logit - math.log1p(math.exp(-logit))


def _volume(problem: Problem, cosine: float) -> float:
    """Return the largest det(X_S X_Sᵀ) of s unit vectors with this cosine to θ: pairwise products g = max(0, …)."""
    others = problem.size - 1
    product = max(0.0, (problem.size * cosine**2 - 1.0) / others) if others else 0.0
    return (1.0 - product) ** others * (1.0 + others * product)
