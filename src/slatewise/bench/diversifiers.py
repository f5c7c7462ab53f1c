"""Slates from the same vectors and scores as pyversity's DPP and MMR.

DPP: pyversity maximises det L_S greedily, L_ij = w_i w_j cos(i, j), w = exp((1 − diversity)·z), z the standardised
scores; that is our rule on unit vectors with 2·log w as scores. MMR: pyversity takes the largest cosine with the chosen
items, ours the mean, so the slates are compared instead. Both peers run at their default diversity; its MMR is spared
the normalising by `normalize=False`, which its DPP cannot be.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from slatewise import slates
from slatewise.bench.measure import Work, seconds
from slatewise.bench.worlds import SLATE_SIZE, random_vectors

DIM = 20
DIVERSITY = 0.5
SIZES = {"10k": 10_000, "100k": 100_000}

Items = NDArray[np.integer]


@dataclass(frozen=True)
class Inputs:
    """Unit vectors (n_items, dim) and relevance (n_items,) in (0, 1), both float32: what every side is given."""

    vectors: NDArray[np.float32]
    relevance: NDArray[np.float32]

    @classmethod
    def draw(cls, n_items: int) -> "Inputs":
        """Similar items are similarly relevant, as in a catalogue: relevance is σ(θ·x)."""
        vectors = random_vectors(n_items, DIM)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        theta = 2.0 * random_vectors(1, DIM, seed=1)[0]
        return cls(vectors, 1.0 / (1.0 + np.exp(-vectors @ theta)))

    @cached_property
    def prepared(self) -> slates.ItemVectors:
        """The vectors as our rules want them, made once per catalogue."""
        return slates.ItemVectors.of(self.vectors)

    @cached_property
    def available(self) -> NDArray[np.bool_]:
        """Everything may be shown."""
        return np.ones((1, len(self.vectors)), dtype=np.bool_)


def dpp(inputs: Inputs, vectors: slates.ItemVectors) -> Items:
    """Choose by our rule what pyversity's DPP maximises."""
    relevance = inputs.relevance.astype(np.float64)
    scores = 2.0 * (1.0 - DIVERSITY) * (relevance - relevance.mean()) / relevance.std()
    return np.ravel(slates.dpp_greedy(scores[None, :], vectors, inputs.available, SLATE_SIZE).items)


def mmr(inputs: Inputs, vectors: slates.ItemVectors) -> Items:
    """Choose by our MMR with the same trade-off."""
    chosen = slates.mmr(inputs.relevance[None, :], vectors, inputs.available, SLATE_SIZE, 1.0 - DIVERSITY)
    return np.ravel(chosen.items)


def peer_dpp(inputs: Inputs) -> Items:
    """Choose by pyversity's DPP."""
    import pyversity

    return np.asarray(pyversity.dpp(inputs.vectors, inputs.relevance, SLATE_SIZE, diversity=DIVERSITY).indices)


def peer_mmr(inputs: Inputs) -> Items:
    """Choose by pyversity's MMR."""
    import pyversity

    chosen = pyversity.mmr(inputs.vectors, inputs.relevance, SLATE_SIZE, diversity=DIVERSITY, normalize=False)
    return np.asarray(chosen.indices)


RULES: dict[str, tuple[Callable[[Inputs, slates.ItemVectors], Items], Callable[[Inputs], Items]]] = {
    "dpp": (dpp, peer_dpp),
    "mmr": (mmr, peer_mmr),
}


def run(sizes: dict[str, int] | None = None, repeats: int = 15) -> dict[str, float]:
    """Measure both rules at both sizes, and compare what they choose."""
    drawn = {size: Inputs.draw(n_items) for size, n_items in (sizes or SIZES).items()}
    figures: dict[str, float] = {}
    for size, inputs in drawn.items():
        for rule in RULES:
            figures |= {f"pyversity_{rule}_{size}_{name}": ratio for name, ratio in _speedups(inputs, rule, repeats)}
    return {**figures, **_agreement(drawn["10k"])}


def _speedups(inputs: Inputs, rule: str, repeats: int) -> list[tuple[str, float]]:
    """The peer's time over ours, with vectors prepared once per catalogue and prepared at every call."""
    ours, theirs = RULES[rule]
    work: dict[str, Work] = {
        "speedup": lambda: ours(inputs, inputs.prepared),
        "unprepared_speedup": lambda: ours(inputs, slates.ItemVectors.of(inputs.vectors)),
    }
    times = seconds({**work, "theirs": partial(theirs, inputs)}, repeats)
    return [(name, times["theirs"] / times[name]) for name in work]


def _agreement(inputs: Inputs) -> dict[str, float]:
    """How alike the slates are: the same items for the same objective, the same quality for another one."""
    shared = np.isin(dpp(inputs, inputs.prepared), peer_dpp(inputs)).mean()
    ours, theirs = mmr(inputs, inputs.prepared), peer_mmr(inputs)
    return {
        "pyversity_dpp_shared": float(shared),
        "pyversity_mmr_relevance_ratio": float(inputs.relevance[ours].mean() / inputs.relevance[theirs].mean()),
        "pyversity_mmr_cosine_difference": _mean_cosine(inputs, ours) - _mean_cosine(inputs, theirs),
    }


def _mean_cosine(inputs: Inputs, items: Items) -> float:
    """Mean cosine over the pairs of a slate."""
    chosen = inputs.vectors[items].astype(np.float64)
    return float((chosen @ chosen.T)[np.triu_indices(len(items), 1)].mean())
