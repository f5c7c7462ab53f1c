"""`diversify` against the greedy on a dense kernel (Chen, Zhang and Zhou 2018), which one would write first.

The kernel depends on the relevance of the items for one user, so building it is part of the task; the figure without it
is given as well. Both sides start from the same raw vectors and relevance, and maximize the same objective.
"""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.diversify import Inputs, our_call
from benchmarks.inputs import SLATE_SIZE
from benchmarks.measure import seconds

DIM = 20

Floats = NDArray[np.float64]


def build_kernel(inputs: Inputs) -> Floats:
    """Build L (n_items, n_items) with L_ij = w_i w_j cos(i, j)."""
    scaled = inputs.units() * np.exp(inputs.log_weights())[:, None]
    return np.asarray(scaled @ scaled.T)


def dense_greedy(kernel: Floats, k: int) -> list[int]:
    """Choose k items one by one; each adds a row to the Cholesky factor of the chosen items' kernel."""
    residual, rows = np.diag(kernel).copy(), np.zeros((k, len(kernel)))
    chosen: list[int] = []
    for position in range(k):
        best = int(residual.argmax())
        chosen.append(best)
        row = kernel[best] - rows[:position, best] @ rows[:position]
        rows[position] = row / np.sqrt(residual[best])
        residual -= np.square(rows[position])
        residual[best] = -np.inf
    return chosen


def build_and_choose(inputs: Inputs) -> list[int]:
    """Build the kernel and choose ten items."""
    return dense_greedy(build_kernel(inputs), SLATE_SIZE)


def run(n_items: int = 2_000, repeats: int = 31) -> dict[str, float]:
    """Measure `diversify` and the dense greedy, with and without building the kernel."""
    inputs = Inputs.draw(n_items, DIM)
    kernel = build_kernel(inputs)
    times = seconds(
        {
            "ours": our_call("dpp", inputs),
            "dense": partial(build_and_choose, inputs),
            "given kernel": partial(dense_greedy, kernel, SLATE_SIZE),
        },
        repeats,
    )
    return {
        "dense_greedy_2k_speedup": times["dense"] / times["ours"],
        "dense_greedy_2k_given_kernel_speedup": times["given kernel"] / times["ours"],
    }
