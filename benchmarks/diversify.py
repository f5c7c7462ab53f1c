"""`diversify` against pyversity and against the greedy on a dense kernel, on the same objective and raw vectors.

Nobody prepares anything: each call gets float32 vectors that are not normalized, and float32 relevance. pyversity's
DPP maximizes det L_S greedily, L_ij = w_i w_j cos(i, j), w = exp((1 − diversity)·z), z the standardized relevance. Its
MMR maximizes (1 − diversity)·relevance − diversity·(largest cosine with the chosen items, at least 0).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.inputs import SLATE_SIZE, random_vectors
from benchmarks.measure import Task, seconds
from slatewise.slates import diversify

DIVERSITY = 0.5
REPEATS = {50: 1_001, 200: 501, 1_000: 201, 10_000: 51, 100_000: 9}
"""How often each number of items is measured."""
DIMENSIONS = (20, 384)
ROUNDING = 1e-5
"""Gains that differ by less, relative to 1 + |gain|, are a tie for float32 arithmetic."""
FACTORS = 20
NOISE = 0.3
FLOAT32_EPSILON = float(np.finfo(np.float32).eps)

Floats = NDArray[np.float64]
Rule = Literal["dpp", "mmr"]


@dataclass(frozen=True)
class Inputs:
    """Vectors (n_items, dim) of different lengths and relevance (n_items,) in (0, 1), both float32."""

    vectors: NDArray[np.float32]
    relevance: NDArray[np.float32]

    @classmethod
    def draw(cls, n_items: int, dim: int) -> "Inputs":
        """Draw items from 20 latent factors z plus noise, whatever the dimension, with relevance σ(θ·z).

        Learned embeddings are like that. Independent coordinates would make 384 dimensions too easy: all items would be
        nearly orthogonal, and a slate would hardly differ from the most relevant items.
        """
        factors, theta = random_vectors(n_items, FACTORS), 2.0 * random_vectors(1, FACTORS, seed=1)[0]
        vectors = factors @ random_vectors(FACTORS, dim, seed=2) + NOISE * random_vectors(n_items, dim, seed=3)
        lengths = np.random.default_rng(4).uniform(0.5, 2.0, (n_items, 1)).astype(np.float32)
        return cls((vectors * lengths).astype(np.float32), 1.0 / (1.0 + np.exp(-factors @ theta)))

    def units(self) -> Floats:
        """Return the vectors with length 1, in float64."""
        vectors = self.vectors.astype(np.float64)
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))

    def log_weights(self) -> Floats:
        """Return (1 − diversity)·z, the logarithm of each item's weight in the kernel."""
        relevance = self.relevance.astype(np.float64)
        return np.asarray((1.0 - DIVERSITY) * (relevance - relevance.mean()) / (relevance.std() + FLOAT32_EPSILON))


def our_call(rule: Rule, inputs: Inputs) -> Task:
    """Return the call of `diversify` that chooses ten items."""
    return partial(diversify, inputs.relevance, vectors=inputs.vectors, k=SLATE_SIZE, diversity=DIVERSITY, method=rule)


def their_call(rule: Rule, inputs: Inputs) -> Task:
    """Return the call of pyversity that chooses ten items."""
    import pyversity

    choose: Callable[..., object] = getattr(pyversity, rule)
    return partial(choose, inputs.vectors, inputs.relevance, SLATE_SIZE, diversity=DIVERSITY)


def slate_of(call: Task) -> list[int]:
    """Return the items that a call chooses."""
    result: Any = call()
    return [int(index) for index in result.indices]


def dpp_gains(inputs: Inputs, chosen: Sequence[int]) -> Floats:
    """Return log(w_i² ρ_i²) of every item in float64, ρ_i the part of i's unit vector outside the chosen span."""
    units = inputs.units()
    residuals = np.ones(len(units))
    if chosen:
        basis, _ = np.linalg.qr(units[list(chosen)].T)
        residuals -= np.square(units @ basis).sum(axis=1)
    return np.asarray(2.0 * inputs.log_weights() + np.log(np.maximum(residuals, FLOAT32_EPSILON)))


def mmr_gains(inputs: Inputs, chosen: Sequence[int]) -> Floats:
    """Return what MMR maximizes, for every item in float64."""
    units = inputs.units()
    largest = (units @ units[list(chosen)].T).max(axis=1, initial=0.0)
    return np.asarray((1.0 - DIVERSITY) * inputs.relevance.astype(np.float64) - DIVERSITY * largest)


GAINS: dict[Rule, Callable[[Inputs, Sequence[int]], Floats]] = {"dpp": dpp_gains, "mmr": mmr_gains}


def is_greedy(rule: Rule, inputs: Inputs, slate: Sequence[int]) -> bool:
    """Say whether each item of a slate was the best one left, in float64 and up to a tie for float32."""
    for position, item in enumerate(slate):
        gains = GAINS[rule](inputs, slate[:position])
        gains[list(slate[:position])] = -np.inf
        best = gains.max()
        if best - gains[item] > ROUNDING * (1.0 + abs(best)):
            return False
    return len(set(slate)) == min(SLATE_SIZE, len(inputs.relevance))


def compare(rule: Rule, inputs: Inputs, repeats: int) -> dict[str, Any]:
    """Measure one cell of the grid; slates that differ count as the same only if both are greedy up to ties."""
    calls = {"ours": our_call(rule, inputs), "theirs": their_call(rule, inputs)}
    our_slate, their_slate = map(slate_of, calls.values())
    times = seconds(calls, repeats)
    is_tied = our_slate != their_slate and all(is_greedy(rule, inputs, slate) for slate in (our_slate, their_slate))
    n_items, dim = inputs.vectors.shape
    return {
        "rule": rule,
        "n": n_items,
        "d": dim,
        "speedup": times["theirs"] / times["ours"],
        "same": is_tied or our_slate == their_slate,
        "tied": is_tied,
    }


def run(repeats: dict[int, int] | None = None, dimensions: Sequence[int] = DIMENSIONS) -> dict[str, Any]:
    """Measure every cell of the grid."""
    grid = []
    for n_items, count in (repeats or REPEATS).items():
        for dim in dimensions:
            inputs = Inputs.draw(n_items, dim)
            grid += [compare(rule, inputs, count) for rule in GAINS]
    speedups = [cell["speedup"] for cell in grid]
    return {
        "pyversity_grid": grid,
        "pyversity_grid_min": min(speedups),
        "pyversity_grid_median": median(speedups),
        "pyversity_grid_different": sum(not cell["same"] for cell in grid),
    }
