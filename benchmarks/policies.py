"""What one user costs, as the service calls a policy: choosing a slate, and learning from one."""

from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl

from benchmarks.inputs import SEED, SLATE_SIZE, THREE_CLICKS, Visitor, random_catalog
from benchmarks.measure import Task, seconds
from slatewise.catalog import Catalog
from slatewise.evidence import Evidence
from slatewise.policies import Available, Policy, make_policy
from slatewise.recommender.item_attributes import ItemAttributes
from slatewise.slates.list_copies import ENOUGH

DIM = 20
FILTERS = {f"{share} % filtered": f"price < {share / 100}" for share in (1, 2, 3, 5, 10, 15, 20, 30, 50, 90, 99)}
"""Conditions, by the share of all items that meet them."""
UPDATES = {"update": "dc2b-calibrated", "update_dc2b": "dc2b"}


def slates(large: int = 1_000_000, small: int = 10_000, repeats: int = 21) -> dict[str, float]:
    """Measure `policy.select`: sampling θ, scoring and choosing, for somebody who has reacted to five slates.

    The pass is the faster of X @ θ with X stored by rows and by columns, both float32.
    """
    catalog = random_catalog(large, DIM)
    columns, theta = np.asfortranarray(catalog.vectors), np.ones(DIM, dtype=np.float32)
    passes = {"rows": partial(np.matmul, catalog.vectors, theta), "columns": partial(np.matmul, columns, theta)}
    of_large = seconds({**passes, **_selections(catalog), **_other_selections(catalog)}, repeats)
    of_small = seconds(_selections(random_catalog(small, DIM)), 10 * repeats, warm_ups=10)
    one_pass = min(of_large[name] for name in passes)
    return {
        "pass_1m_ms": one_pass * 1e3,
        "slate_1m_over_pass": of_large["dc2b"] / one_pass,
        "slate_1m_calibrated_over_pass": of_large["dc2b-calibrated"] / one_pass,
        "slate_1m_filtered_over_whole": max(of_large[name] for name in FILTERS) / of_large["dc2b-calibrated"],
        "slate_1m_by_vectors_over_pass": of_large["by vectors"] / one_pass,
        "slate_10k_ms": of_small["dc2b"] * 1e3,
        "slate_10k_calibrated_ms": of_small["dc2b-calibrated"] * 1e3,
    }


def _selections(catalog: Catalog) -> dict[str, Task]:
    return {name: Visitor.returning(name, catalog).select for name in ("dc2b", "dc2b-calibrated")}


def _other_selections(catalog: Catalog) -> dict[str, Task]:
    """Choose of the items that meet a condition, and without categories."""
    visitor = Visitor.returning("dc2b-calibrated", catalog)
    attributes = ItemAttributes(catalog, pl.DataFrame({"price": np.random.default_rng(SEED).random(catalog.n_items)}))
    found = {name: attributes.select(condition) for name, condition in FILTERS.items()}
    filtered = {
        name: Available(catalog.n_items, np.empty(0, dtype=np.int64), one.numbers, one.closed, one.key)
        for name, one in found.items()
    }
    tasks: dict[str, Task] = {name: replace(visitor, available=one).select for name, one in filtered.items()}
    for task in ENOUGH * [*tasks.values()]:  # a condition that is asked for often has a copy of its items
        task()
    bare = replace(catalog, category_names=(), categories=np.zeros((catalog.n_items, 0), dtype=np.bool_))
    return {**tasks, "by vectors": Visitor.returning("dc2b-calibrated", bare).select}


def updates(n_items: int = 1_000, short: int = 10, long: int = 10_000, repeats: int = 301) -> dict[str, float]:
    """Measure `policy.update` for one user who has answered a few slates, and many."""
    figures = {}
    for figure, name in UPDATES.items():
        policy = make_policy(name, random_catalog(n_items, DIM))
        times = seconds({str(age): _next_update(policy, age) for age in (short, long)}, repeats, warm_ups=10)
        figures[f"{figure}_us"] = times[str(short)] * 1e6
        figures[f"{figure}_over_history"] = times[str(long)] / times[str(short)]
    return figures


def _next_update(policy: Policy, n_slates: int) -> Task:
    """Return the update that follows after so many random slates; its own slate is drawn beforehand."""
    state, random = policy.start(1), np.random.default_rng(SEED)
    for _ in range(n_slates):
        state = policy.update(state, _answered_slate(policy, random))
    return partial(policy.update, state, _answered_slate(policy, random))


def _answered_slate(policy: Policy, random: np.random.Generator) -> Evidence:
    """Draw a slate with three clicks."""
    items = random.integers(policy.catalog.n_items, size=(1, SLATE_SIZE))
    return Evidence.of_clicks(items, THREE_CLICKS)
