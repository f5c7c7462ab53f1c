"""Leave one data set out: settings of `dc2b-calibrated` chosen on two data sets, judged on the third.

Run: python experiments/leave_one_out.py [--splits 2] [--out experiments/results]
Settings are chosen by F on validation users, who are some of the training users of each split, as the mean over the two
data sets of F minus that of the shipped defaults. The third data set's test users are looked at once: by the setting of
the other two, by the shipped defaults and, as the best that could be hoped for, by its own validation users' choice.
"""

import argparse
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl

from slatewise.catalog import Catalog, taste
from slatewise.catalog.embeddings import BprSettings
from slatewise.data.dataset import Dataset
from slatewise.data.sources import load
from slatewise.lab.experiment import TEST_SHARE
from slatewise.lab.metrics import per_split, per_user
from slatewise.lab.simulate import Session, simulate
from slatewise.lab.tuning import VALIDATION_SHARE
from slatewise.policies.calibrated import Calibrated
from slatewise.report import Table
from slatewise.report.document import csv_text, markdown_table

NAMES = ("ml-100k", "ml-1m", "anime-5k")
METRICS = ("p@50", "diversity", "f")


@dataclass(frozen=True)
class Setting:
    """What is chosen: the most directions of taste, the weight of categories, the knob."""

    rank: int = 50
    category_weight: float = 0.25
    diversity: float = 0.5

    def __str__(self) -> str:
        return f"rank {self.rank}, category_weight {self.category_weight:g}, diversity {self.diversity:g}"


SHIPPED = Setting()
GRID = tuple(Setting(*values) for values in product((25, 50, 100), (0.0, 0.25, 0.5), (0.35, 0.5, 0.65)))

Means = dict[Setting, dict[str, float]]
"""Metrics of settings, means over splits."""


def measure(dataset: Dataset, splits: int, settings: tuple[Setting, ...], on_test_users: bool) -> Means:
    """Simulate settings on the validation users of each split, or on its test users."""
    rows: dict[Setting, list[dict[str, float]]] = {setting: [] for setting in settings}
    for split in range(splits):
        training, people = dataset.split(TEST_SHARE, split)
        if not on_test_users:
            training, people = training.split(VALIDATION_SHARE, split)
        catalog = Catalog.train(training, BprSettings(seed=split))
        for rank in sorted({setting.rank for setting in settings}):
            ranked = replace(catalog, taste_vectors=taste.taste_vectors(training, rank).astype(np.float32))
            for setting in settings:
                if setting.rank == rank:
                    rows[setting].append(_metrics(setting, ranked, people, split))
        print(f"{dataset.name}: split {split + 1} of {splits}, {'test' if on_test_users else 'validation'}", flush=True)
    return {
        key: {name: float(np.mean([row[name] for row in found])) for name in METRICS} for key, found in rows.items()
    }


def _metrics(setting: Setting, catalog: Catalog, people: Dataset, seed: int) -> dict[str, float]:
    policy = Calibrated(catalog, diversity=setting.diversity, category_weight=setting.category_weight)
    records = simulate(policy, people, Session(seed=seed))
    run = records.with_columns(dataset=pl.lit(people.name), split=pl.lit(0), policy=pl.lit("ours"))
    return {
        name: float(value)
        for name, value in per_split(per_user(run, people.categories)).row(0, named=True).items()
        if name in METRICS
    }


def best(validation: dict[str, Means], names: tuple[str, ...]) -> Setting:
    """Return the setting with the largest F above the shipped defaults, as a mean over data sets."""
    gains = {
        key: float(np.mean([validation[n][key]["f"] - validation[n][SHIPPED]["f"] for n in names])) for key in GRID
    }
    return max(GRID, key=lambda key: gains[key])


def run(splits: int) -> Table:
    """Choose on two data sets and judge on the third, three times."""
    datasets = {name: load(name) for name in NAMES}
    validation = {name: measure(dataset, splits, GRID, False) for name, dataset in datasets.items()}
    rows: list[tuple[str | float, ...]] = []
    for name, dataset in datasets.items():
        chosen = {
            "the other two": best(validation, tuple(other for other in NAMES if other != name)),
            "shipped": SHIPPED,
            "itself": best(validation, (name,)),
        }
        judged = measure(dataset, splits, tuple(dict.fromkeys(chosen.values())), True)
        for by, setting in chosen.items():
            rows.append((name, by, str(setting), *(round(judged[setting][metric], 4) for metric in METRICS)))
    caption = f"One data set left out: settings chosen on validation users, judged on test users, {splits} splits"
    return Table("leave-one-out", caption, ("judged on", "chosen on", "setting", "P@50", "Diversity", "F"), tuple(rows))


def main() -> None:
    """Run, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    table = run(options.splits)
    print(markdown_table(table))
    if options.out:
        (options.out / f"{table.name}.csv").write_text(csv_text(table), encoding="utf-8")


if __name__ == "__main__":
    main()
