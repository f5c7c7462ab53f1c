"""Why the paper's figure drops at α = 10 and 100: Algorithm 2 as printed overflows, the log-domain form does not.

Run: python experiments/overflow.py ml-100k     (two minutes; prints P@50 of one split for both forms)
"""

import sys
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slatewise.catalog import Catalog
from slatewise.data.sources import load
from slatewise.lab.simulate import simulate
from slatewise.policies import Available, Slates, State
from slatewise.policies.dc2b import Dc2b
from slatewise.policies.protocol import as_table
from slatewise.randomness import Streams


def printed_greedy(
    logits: NDArray[np.float64], vectors: NDArray[np.float64], available: NDArray[np.bool_], k: int, alpha: float
) -> list[int]:
    """Algorithm 2 to the letter, in float64: L = VVᵀ with V_i = exp(θ·x_i)^α x_i, then Chen's updates."""
    items = np.flatnonzero(available)
    scaled = np.exp(logits[items])[:, None] ** alpha * vectors[items]
    kernel = scaled @ scaled.T
    probability = np.exp(logits[items]) / (1.0 + np.exp(logits[items]))
    lengths, columns = np.diag(kernel).copy(), np.zeros((len(items), 0))
    chosen: list[int] = []
    for _ in range(k):
        gains = np.log(lengths) + np.log(probability)
        gains[chosen] = -np.inf
        best = int(np.argmax(gains))
        step = (kernel[best] - columns @ columns[best]) / np.sqrt(lengths[best])
        columns, lengths = np.column_stack([columns, step]), lengths - step**2
        chosen.append(best)
    return [int(item) for item in items[chosen]]


@dataclass(frozen=True, eq=False)
class PrintedDc2b(Dc2b):
    """DC²B whose slates come from the printed greedy."""

    def select(self, state: State, available: NDArray[np.bool_] | Available, k: int, random: Streams) -> Slates:
        """Sample as usual, then choose with the printed arithmetic."""
        precision, shift = state["precision"], state["shift"]
        mean = np.linalg.solve(precision, shift[:, :, None])[:, :, 0]
        root = np.linalg.cholesky(precision).swapaxes(1, 2)
        theta = mean + np.linalg.solve(root, random.normal(self.catalog.dim)[:, :, None])[:, :, 0]
        vectors = self.vector_length * self.catalog.vectors.astype(np.float64)
        with np.errstate(all="ignore"):
            chosen = [
                printed_greedy(vectors @ one, vectors, allowed, k, self.alpha)
                for one, allowed in zip(theta, as_table(available, len(theta), len(vectors)), strict=True)
            ]
        items = np.array(chosen, dtype=np.int64)
        return Slates(items, np.full(items.shape, 0.5), np.zeros(items.shape), np.zeros(items.shape))


def main(name: str) -> None:
    """Print P@50 of both forms for each α of the paper's figure."""
    train, test = load(name).split(0.2, seed=0)
    catalog = Catalog.train(train)
    print(f"{'alpha':>8}{'printed':>10}{'log domain':>12}")
    for alpha in (1.0, 3.0, 5.0, 10.0, 100.0):
        shares = [
            simulate(policy(catalog, alpha=alpha), test).select(pl.col("clicked").mean()).item()
            for policy in (PrintedDc2b, Dc2b)
        ]
        print(f"{alpha:>8g}{shares[0]:>10.3f}{shares[1]:>12.3f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "ml-100k")
