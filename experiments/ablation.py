"""What each part of the calibrated policy brings, on validation users inside the training users of each split.

Run: python experiments/ablation.py ml-100k [--splits 5] [--only "no shrinkage"] [--out DIR]
No test user is looked at. Each row changes one thing; differences are paired over splits.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from unittest.mock import patch

import numpy as np
import polars as pl

from slatewise import belief
from slatewise.catalog import Catalog, taste
from slatewise.catalog.embeddings import BprSettings
from slatewise.data.dataset import Dataset
from slatewise.data.sources import load
from slatewise.lab.ablation import ablation_table, paired_differences
from slatewise.lab.experiment import TEST_SHARE
from slatewise.lab.metrics import per_split, per_user
from slatewise.lab.simulate import Session, simulate
from slatewise.lab.tuning import VALIDATION_SHARE
from slatewise.policies.calibrated import Calibrated
from slatewise.policies.protocol import Booleans, Floats, Policy, Slates, State
from slatewise.randomness import Streams
from slatewise.report.document import csv_text, markdown_table
from slatewise.slates import Available, Choice, choose, dpp_greedy
from slatewise.slates.scores import table


@dataclass(frozen=True, eq=False)
class VariedFirstSlate(Calibrated):
    """The first slate is as varied as all others."""

    def overlap_weight(self, is_first: bool) -> float:
        """Ignore which slate it is."""
        del is_first
        return super().overlap_weight(False)


@dataclass(frozen=True, eq=False)
class WholeVariance(Calibrated):
    """The noise of an item is all of its variance, as if taste explained nothing."""

    @cached_property
    def noise(self) -> Floats:
        """Return μ(1 − μ)."""
        return np.asarray(self.rates * (1.0 - self.rates))


@dataclass(frozen=True, eq=False)
class Volume(Calibrated):
    """Variety as in DC²B: the volume of [t / |t|; β g / |g|], quality log p, α = 100 in the first round."""

    beta: float = 2.0
    alpha: float = 1.0

    @cached_property
    def kernel_vectors(self) -> Floats:
        """Unit taste vectors next to unit category vectors."""
        vectors, sets = (table.astype(np.float64) for table in (self.catalog.taste_vectors, self.catalog.categories))
        return np.hstack((_unit(vectors), self.beta * _unit(sets)))

    def select(self, state: State, available: Booleans | Available, k: int, random: Streams) -> Slates:
        """Choose greedily by the determinant."""
        del random
        probability = belief.mean(self.belief_in(state)) @ self.vectors.astype(np.float64).T + self.rates
        alpha = np.where(state["rounds"] == 0, 100.0, self.alpha)[:, None]
        quality = 2.0 * alpha * np.log(np.clip(probability, 1e-6, 1.0))
        return _slates(dpp_greedy(quality, self.kernel_vectors, available, k))


@dataclass(frozen=True, eq=False)
class Optimistic(Calibrated):
    """In rounds 2 to 4, probabilities are taken for some standard deviations more than they are expected to be."""

    optimism: float = 0.2

    def select(self, state: State, available: Booleans | Available, k: int, random: Streams) -> Slates:
        """Choose by the upper bounds."""
        del random
        beliefs, tastes = belief.factor(self.belief_in(state)), self.vectors.astype(np.float64)
        is_early = (state["rounds"] >= 1) & (state["rounds"] <= 3)
        bounds = beliefs.mean @ tastes.T + self.rates
        for user in np.flatnonzero(is_early):
            covariance = np.linalg.inv(state["precision"][user])
            bounds[user] += self.optimism * np.sqrt(np.maximum(((tastes @ covariance) * tastes).sum(axis=1), 0.0))
        return _slates(choose(table(bounds), self._rule(state), available, k))


def _slates(choice: Choice) -> Slates:
    unknown = np.full(choice.items.shape, np.nan)
    return Slates(choice.items, unknown, unknown, choice.variety)


def _unit(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1.0))


def _with_taste(catalog: Catalog, vectors: Floats) -> Catalog:
    return replace(catalog, taste_vectors=vectors.astype(np.float32))


def _unshrunken(catalog: Catalog, people: Dataset) -> Policy:
    with patch.object(taste, "shares_beyond_chance", lambda directions, _people: np.ones(directions.shape[1])):
        return Calibrated(_with_taste(catalog, taste.taste_vectors(people)))


def _rank(largest: int) -> Callable[[Catalog, Dataset], Policy]:
    return lambda catalog, people: Calibrated(_with_taste(catalog, taste.taste_vectors(people, largest)))


def _linearized_bpr(catalog: Catalog, _people: Dataset) -> Policy:
    vectors = catalog.vectors.astype(np.float64)
    tastes = taste.linearized_taste(vectors, catalog.log_odds, catalog.population_covariance)
    return Calibrated(_with_taste(catalog, tastes))


VARIANTS: dict[str, Callable[[Catalog, Dataset], Policy]] = {
    "as it is": lambda catalog, _people: Calibrated(catalog),
    "no shrinkage of the covariance": _unshrunken,
    "rank 10": _rank(10),
    "rank 25": _rank(25),
    "rank 100": _rank(100),
    "taste from 20 BPR dimensions, linearized": _linearized_bpr,
    "noise is the whole variance": lambda catalog, _people: WholeVariance(catalog),
    "no variety": lambda catalog, _people: Calibrated(catalog, diversity=0.0),
    "diversity 0.45": lambda catalog, _people: Calibrated(catalog, diversity=0.45),
    "diversity 0.55": lambda catalog, _people: Calibrated(catalog, diversity=0.55),
    "varied first slate": lambda catalog, _people: VariedFirstSlate(catalog),
    "volume instead of overlap": lambda catalog, _people: Volume(catalog),
    "volume instead of overlap, α = 2": lambda catalog, _people: Volume(catalog, alpha=2.0),
    "optimism of 0.1 deviations in rounds 2 to 4": lambda catalog, _people: Optimistic(catalog, optimism=0.1),
    "optimism of 0.2 deviations in rounds 2 to 4": lambda catalog, _people: Optimistic(catalog, optimism=0.2),
    "optimism of 0.4 deviations in rounds 2 to 4": lambda catalog, _people: Optimistic(catalog, optimism=0.4),
    "sampling, temperature 0.25": lambda catalog, _people: Calibrated(catalog, temperature=0.25),
    "sampling, temperature 1": lambda catalog, _people: Calibrated(catalog, temperature=1.0),
}


def run(dataset: Dataset, splits: int, names: list[str]) -> pl.DataFrame:
    """Return the metrics of every variant and split."""
    records = []
    for split in range(splits):
        people, _ = dataset.split(TEST_SHARE, split)
        inner, validation = people.split(VALIDATION_SHARE, split)
        catalog = Catalog.train(inner, BprSettings(dim=20, seed=split))
        for name in names:
            answers = simulate(VARIANTS[name](catalog, inner), validation, Session(seed=split))
            records.append(answers.with_columns(dataset=pl.lit(dataset.name), split=pl.lit(split), policy=pl.lit(name)))
        print(f"split {split + 1} of {splits} done", flush=True)
    return per_split(per_user(pl.concat(records), dataset.categories))


def main() -> None:
    """Run the ablation and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--only", choices=list(VARIANTS)[1:])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    names = ["as it is", options.only] if options.only else list(VARIANTS)
    splits = run(load(options.data), options.splits, names)
    rows = paired_differences(splits, "as it is")
    table = ablation_table({"dataset": options.data, "splits": options.splits, "rows": rows})
    print(markdown_table(table))
    if options.out and not options.only:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "ablation.csv").write_text(csv_text(table), encoding="utf-8")


if __name__ == "__main__":
    main()
