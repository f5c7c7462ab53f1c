"""What smaller beliefs would lose, as float32, as float16 or of a lower rank, on validation users.

`python experiments/belief_precision.py ml-100k --splits 5` prints P@50 of `dc2b-calibrated` by precision and rank, and
the bytes of a belief. Beliefs are rounded after every slate, which is more often than they are saved.
"""

import argparse
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from slatewise.catalog import Catalog
from slatewise.data.sources import load
from slatewise.evidence import Evidence
from slatewise.lab.simulate import Session, simulate
from slatewise.lab.tuning import VALIDATION_SHARE
from slatewise.policies import Slates, State, make_policy
from slatewise.recommender import state_codec

TEST_SHARE = 0.2
POLICY, TODAY = "dc2b-calibrated", "float64, as it is"


class Rounded:
    """A policy whose beliefs are rounded to a type of numbers after every slate."""

    def __init__(self, catalog: Catalog, kind: str) -> None:
        self.policy = make_policy(POLICY, catalog)
        self.kind = kind
        self.one_at_a_time = self.policy.one_at_a_time

    def start(self, n_users: int) -> State:
        """Return the beliefs about new users."""
        return self.policy.start(n_users)

    def select(self, *situation: Any) -> Slates:
        """Choose slates."""
        return self.policy.select(*situation)

    def update(self, state: State, evidence: Evidence) -> State:
        """Learn, and round."""
        learned = self.policy.update(state, evidence)
        return {name: array.astype(self.kind).astype(np.float64) for name, array in learned.items()}


def precision(catalog: Catalog, kind: str, people: Any, seed: int) -> float:
    """Return the share of clicked items in five rounds of ten."""
    records = simulate(Rounded(catalog, kind), people, Session(seed=seed))  # type: ignore[arg-type]
    return float(records.get_column("clicked").mean())  # type: ignore[arg-type]


def rows_of(name: str, seed: int) -> list[dict[str, Any]]:
    """Return P@50 of one split by precision and rank."""
    training, _ = load(name).split(TEST_SHARE, seed)
    others, validation = training.split(VALIDATION_SHARE, seed)
    catalog, rows = Catalog.train(others), []
    rank = catalog.taste_vectors.shape[1]
    lower = [(f"rank {less}", "f8", less) for less in (30, 20, 10)]
    for label, kind, kept in [(TODAY, "f8", rank), ("float32", "f4", rank), ("float16", "f2", rank), *lower]:
        smaller = replace(catalog, taste_vectors=np.ascontiguousarray(catalog.taste_vectors[:, :kept]))
        state = make_policy(POLICY, smaller).start(1)
        size = len(state_codec.to_bytes(state)) * int(kind[1]) // 8
        found = precision(smaller, kind, validation, seed)
        rows.append({"split": seed, "belief": label, "rank": kept, "bytes": size, "p@50": found})
    return rows


def main() -> None:
    """Print the mean over splits, and the difference from today's beliefs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--splits", type=int, default=5)
    given = parser.parse_args()
    table = pl.DataFrame([row for seed in range(given.splits) for row in rows_of(given.data, seed)])
    today = table.filter(pl.col("belief") == TODAY).select("split", today="p@50")
    compared = table.join(today, on="split").with_columns(loss=pl.col("today") - pl.col("p@50"))
    means = compared.group_by("belief", maintain_order=True).agg(
        pl.col("rank", "bytes", "p@50", "loss").mean(), largest=pl.col("loss").abs().max()
    )
    with pl.Config(float_precision=5):
        print(means)


if __name__ == "__main__":
    main()
