"""Fans: visitors who like every item of one category and nothing else, and how soon a policy serves them.

Nobody in the data is like that, so nothing can be looked up: a policy has to recognize the category from the likes.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from slatewise.catalog import Catalog
from slatewise.catalog.embeddings import BprSettings
from slatewise.data.dataset import DataError, Dataset
from slatewise.lab.broadcast import MemoryBroadcast
from slatewise.lab.experiment import TEST_SHARE, make_workers
from slatewise.lab.metrics import slate_diversity
from slatewise.lab.simulate import Session, simulate
from slatewise.policies import Policy, make_policy
from slatewise.report import Section
from slatewise.report.fans_figure import fans_figure, fans_table

ROUNDS, K = 10, 10
LEAST_ITEMS = 20
"""A category with fewer items has no fans here: two slates would show all of it."""
POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "dc2b-calibrated": ("dc2b-calibrated", {}),
    "dc2b-calibrated, category_weight 0": ("dc2b-calibrated", {"category_weight": 0.0}),
    "dc2b-calibrated, categories hidden": ("dc2b-calibrated", {}),
    "popular": ("popular", {}),
}
HIDDEN = "categories hidden"
"""A policy with this in its label has a catalog without categories: fans have to be recognized by likes in common."""


def fans_of(dataset: Dataset) -> Dataset:
    """Return one user for each category with enough items, who likes all of it and nothing else."""
    kept = np.flatnonzero(dataset.categories.sum(axis=0) >= LEAST_ITEMS)
    if len(kept) == 0:
        raise DataError(f"{dataset.name} has no category with at least {LEAST_ITEMS} items, so nobody can be its fan")
    users, items = np.nonzero(dataset.categories[:, kept].T)
    names = np.array([dataset.category_names[number] for number in kept], dtype=object)
    return replace(dataset, user_ids=names, users=users.astype(np.int32), items=items.astype(np.int32))


def without_categories(dataset: Dataset) -> Dataset:
    """Return the same data as it would be if nobody had sorted the items."""
    return replace(dataset, categories=np.zeros((dataset.n_items, 0), dtype=np.bool_), category_names=())


def run(dataset: Dataset, splits: range, workers: int = 1, on_split: Callable[[], None] | None = None) -> pl.DataFrame:
    """Serve the fans by catalogs trained on random splits of the users, given by their seeds.

    Returns one row per split, policy, category and slate: `share`, the part of the slate that is of the category, and
    `diversity`.
    """
    if dataset.n_items < ROUNDS * K:
        raise DataError(f"{dataset.name} has {dataset.n_items} items, but fans are shown {ROUNDS * K}")
    fans_of(dataset)
    with make_workers(workers, None, on_split or (lambda: None)) as pool:
        data = pool.share(MemoryBroadcast.of(dataset))
        parts: list[pl.DataFrame] = pool.map([(run_split, data, seed) for seed in splits])
    return pl.concat(parts)


def run_split(dataset: Dataset, seed: int) -> pl.DataFrame:
    """Serve the fans by every policy, with a catalog of the training users of one split."""
    training, _ = dataset.split(TEST_SHARE, seed)
    catalog, uncategorized = (
        Catalog.train(training_set, BprSettings(epochs=1, seed=seed))
        for training_set in (training, without_categories(training))
    )
    fans = fans_of(dataset)
    parts = []
    for label, (name, options) in POLICIES.items():
        served = serve(make_policy(name, uncategorized if HIDDEN in label else catalog, **options), fans, seed)
        parts.append(served.with_columns(policy=pl.lit(label), split=pl.lit(seed)))
    return pl.concat(parts)


def serve(policy: Policy, fans: Dataset, seed: int) -> pl.DataFrame:
    """Let one policy serve the fans, who look at everything; return one row per category and slate."""
    records = simulate(policy, fans, Session(ROUNDS, K, seed))
    slates = records.group_by("user", "round", maintain_order=True).agg(pl.col("clicked").mean().alias("share"), "item")
    diversity = slate_diversity(np.array(slates["item"].to_list()), fans.categories)
    names = [str(fans.user_ids[user]) for user in slates["user"]]
    return slates.select(
        pl.Series("category", names), pl.col("round") + 1, "share", pl.Series("diversity", diversity)
    ).rename({"round": "slate"})


def summary(results: pl.DataFrame, dataset: Dataset) -> list[dict[str, Any]]:
    """Return `category, items, policy, share, diversity`, the last two by slate, means over splits; largest first."""
    means = results.group_by("category", "policy", "slate", maintain_order=True).agg(
        pl.col("share", "diversity").mean()
    )
    rows = means.group_by("category", "policy", maintain_order=True).agg("share", "diversity").to_dicts()
    n_items = dict(zip(dataset.category_names, dataset.categories.sum(axis=0).tolist(), strict=True))
    order = list(POLICIES)
    rows.sort(key=lambda row: (-n_items[row["category"]], row["category"], order.index(row["policy"])))
    return [{"category": row["category"], "items": n_items[row["category"]], **row} for row in rows]


def as_json(results: pl.DataFrame, dataset: Dataset) -> dict[str, Any]:
    """Return the rows as a JSON document."""
    return {"dataset": dataset.name, "splits": results["split"].n_unique(), "rows": summary(results, dataset)}


def sections(results: pl.DataFrame, dataset: Dataset) -> tuple[Section, ...]:
    """Return the report."""
    rows = summary(results, dataset)
    prose = (
        "Visitors who like every item of one category and nothing else, look at everything, and see ten slates of ten "
        "items, none twice. The numbers are the parts of each slate that are of their category.",
    )
    return (
        Section("Fans of one category", prose, (fans_table(rows, dataset.name),), (fans_figure(rows, dataset.name),)),
    )
