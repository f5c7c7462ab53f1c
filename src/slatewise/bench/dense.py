"""The greedy maximisation of a DPP on its whole kernel (Chen, Zhang and Zhou 2018), which one would write first.

The kernel L = VVᵀ with V_i = √p_i · r_i^α · x_i depends on the user, so building it is part of the work; the figure
without it is given as well. Both sides start from the same θ and vectors and score all items.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from slatewise import slates
from slatewise.bench.measure import seconds
from slatewise.bench.worlds import SLATE_SIZE, random_vectors

DIM = 20
ALPHA = 3.0

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Problem:
    """Item vectors (n_items, dim) and a user's θ (dim,)."""

    vectors: Floats
    theta: Floats

    @classmethod
    def draw(cls, n_items: int) -> "Problem":
        """Draw items and a user of moderate taste."""
        return cls(random_vectors(n_items, DIM).astype(np.float64), random_vectors(1, DIM, seed=1)[0].astype(float))

    @cached_property
    def prepared(self) -> slates.ItemVectors:
        """The vectors as our rules want them, made once per catalogue."""
        return slates.ItemVectors.of(self.vectors)

    @cached_property
    def available(self) -> NDArray[np.bool_]:
        """Everything may be shown."""
        return np.ones((1, len(self.vectors)), dtype=np.bool_)

    def scores(self) -> Floats:
        """Return log(p_i · r_i^2α) for each item."""
        logits = self.vectors @ self.theta
        return np.asarray(2.0 * ALPHA * logits - np.log1p(np.exp(-logits)))


def ours(problem: Problem) -> Integers:
    """Choose ten items without a kernel."""
    chosen = slates.dpp_greedy(problem.scores()[None, :], problem.prepared, problem.available, SLATE_SIZE)
    return np.ravel(chosen.items)


def kernel(problem: Problem) -> Floats:
    """Build L (n_items, n_items)."""
    scaled = problem.vectors * np.exp(0.5 * problem.scores())[:, None]
    return np.asarray(scaled @ scaled.T)


def dense_greedy(kernel: Floats, k: int) -> Integers:
    """Choose k items one by one; each adds a row to the Cholesky factor of what is chosen."""
    residual, rows = np.diag(kernel).copy(), np.zeros((k, len(kernel)))
    chosen = np.zeros(k, dtype=np.int64)
    for position in range(k):
        best = chosen[position] = residual.argmax()
        row = kernel[best] - rows[:position, best] @ rows[:position]
        rows[position] = row / np.sqrt(residual[best])
        residual -= np.square(rows[position])
        residual[best] = -np.inf
    return chosen


def run(n_items: int = 2_000, repeats: int = 31) -> dict[str, float]:
    """Measure both."""
    problem = Problem.draw(n_items)
    built = kernel(problem)
    times = seconds(
        {
            "ours": lambda: ours(problem),
            "dense": lambda: dense_greedy(kernel(problem), SLATE_SIZE),
            "given kernel": lambda: dense_greedy(built, SLATE_SIZE),
        },
        repeats,
    )
    return {
        "dense_greedy_2k_speedup": times["dense"] / times["ours"],
        "dense_greedy_2k_given_kernel_speedup": times["given kernel"] / times["ours"],
    }
