"""Which features of content predict new items best, on validation users inside the training users of each split.

Run: python experiments/newcomers.py ml-100k [--splits 5]
No test user is looked at. A fifth of the items is hidden; P@10 among them after five slates of the others, by content
alone and after 20 impressions each, as in `slatewise reproduce newcomers`.
"""

import argparse
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl

from slatewise.catalog import content
from slatewise.data.dataset import Dataset
from slatewise.data.sources import load
from slatewise.lab.experiment import TEST_SHARE
from slatewise.lab.newcomers import HIDDEN_SHARE, Visitors, hide, impressions, precision, warm, with_newcomers
from slatewise.lab.tuning import VALIDATION_SHARE
from slatewise.policies.calibrated import Calibrated

SETTINGS: dict[str, dict[str, Any]] = {
    "as it is": {"LEAST_ITEMS": content.LEAST_ITEMS},
    "no words": {"MOST_WORDS": 0},
    "at most 300 words": {"MOST_WORDS": 300},
    "at most 3,000 words": {"MOST_WORDS": 3_000},
    "words and pairs of 2 items": {"LEAST_ITEMS": 2},
    "words and pairs of 5 items": {"LEAST_ITEMS": 5},
    "words and pairs of 10 items": {"LEAST_ITEMS": 10},
}


def rows(dataset: Dataset, seed: int) -> Iterator[dict[str, float | str | int]]:
    """Yield P@10 by content and after 20 impressions for every setting, on the validation users of one split."""
    training, _ = dataset.split(TEST_SHARE, seed)
    others, validation = training.split(VALIDATION_SHARE, seed)
    order, n_warm = hide(dataset.n_items, HIDDEN_SHARE, seed)
    is_new = np.arange(len(order)) >= n_warm
    people, earlier = Visitors.of(validation, order), Visitors.of(others.take(range(min(others.n_users, 500))), order)
    for name, changed in SETTINGS.items():
        with patch.multiple(content, **changed):
            policy = Calibrated(with_newcomers(others, order, n_warm), diversity=0.0)
        state, tastes = (warm(policy, visitors, ~is_new, seed) for visitors in (people, earlier))
        shown = policy.with_rates(policy.current.after(impressions(policy, tastes, earlier, (n_warm, 20, seed))))
        by_content, later = (precision(one, state, people, is_new) for one in (policy, shown))
        yield {"setting": name, "split": seed, "content": by_content, "20 impressions": later}


def main() -> None:
    """Print means over splits, and differences from the present setting with their deviation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--splits", type=int, default=5)
    given = parser.parse_args()
    dataset = load(given.data)
    results = pl.DataFrame([row for seed in range(given.splits) for row in rows(dataset, seed)])
    present = results.filter(pl.col("setting") == "as it is").drop("setting")
    paired = results.join(present, on="split", suffix=" now")
    measures = ("content", "20 impressions")
    table = paired.group_by("setting", maintain_order=True).agg(
        *(pl.col(name).mean().round(4) for name in measures),
        *((pl.col(name) - pl.col(f"{name} now")).mean().round(4).alias(f"{name}, more") for name in measures),
        *((pl.col(name) - pl.col(f"{name} now")).std().round(4).alias(f"{name}, sd") for name in measures),
    )
    print(table.write_csv())


if __name__ == "__main__":
    main()
