"""One slate of ten million items: exact over one pass, by two threads, filtered; trained vectors, approximate too."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median
from typing import cast

import numpy as np

from benchmarks.inputs import SEED, SLATE_SIZE, SLATES_BEFORE, Visitor
from benchmarks.large_catalogs import random_tastes, resampled_tastes
from benchmarks.measure import MissingError, Task, seconds
from slatewise.catalog import Catalog
from slatewise.data.errors import DataError
from slatewise.data.sources import load
from slatewise.policies import Available, Slates, make_policy
from slatewise.policies.calibrated import Calibrated
from slatewise.slates import pack_closed
from slatewise.slates.quantized import NOT_QUANTIZED
from slatewise.slates.threads import VARIABLE

TRAINED_ON = "ml-1m"
CLICKED = 0.3
APPROXIMATE = 0.35
"""What docs/scale.md recommends."""


def hardest(n_items: int = 10_000_000, repeats: int = 9) -> dict[str, float]:
    """Measure items of equal lengths and rates, of which no block can be passed over without reading it."""
    catalog = random_tastes(n_items, equal=True)
    visitor, random = _visitors(catalog, 1)[0], np.random.default_rng(SEED)
    half, theta = random.random(n_items) < 0.5, np.ones(catalog.taste_vectors.shape[1], dtype=np.float32)
    shown = np.sort(random.choice(n_items, 100, replace=False))
    filtered = Available(n_items, shown, closed=pack_closed(half))
    tasks: dict[str, Task] = {
        "pass": partial(np.matmul, catalog.taste_vectors, theta),
        "slate": visitor.select,
        "filtered": replace(visitor, available=filtered).select,
        "two threads": partial(_with_threads, visitor, 2),
    }
    times = seconds(tasks, repeats)
    return {
        "pass_10m_ms": times["pass"] * 1e3,
        "slate_10m_over_pass": times["slate"] / times["pass"],
        "slate_10m_filtered_over_pass": times["filtered"] / times["pass"],
        "slate_10m_threads2_speedup": times["slate"] / times["two threads"],
    }


def trained(n_items: int = 10_000_000, n_users: int = 20, repeats: int = 5, data: str = TRAINED_ON) -> dict[str, float]:
    """Measure items like those of a data set; compare approximate slates with those chosen without the int8 copy."""
    try:
        catalog = resampled_tastes(load(data), n_items)
    except DataError as error:
        raise MissingError(str(error)) from error
    times: dict[str, list[float]] = {"index": [], "exact": [], "exact_threads2": []}
    same = []
    for visitor in _visitors(catalog, n_users):
        approximate = _changed(visitor, approximate=APPROXIMATE)
        tasks: list[Callable[[], Slates]] = [approximate.select, visitor.select, partial(_with_threads, visitor, 2)]
        for _ in range(repeats):
            for taken, task in zip(times.values(), tasks, strict=True):
                start = time.perf_counter()
                task()
                taken.append(time.perf_counter() - start)
        same.append(np.array_equal(approximate.select().items, _without_copy(visitor).select().items))
    medians = {f"{name}_p50_ms": median(taken) * 1e3 for name, taken in times.items()}
    return {**medians, "index_same_share": float(np.mean(same))}


def _visitors(catalog: Catalog, n_users: int) -> list[Visitor]:
    """Return people who have reacted to five slates, each with their own clicks; they share one policy."""
    policy, random, visitors = (
        make_policy("dc2b-calibrated", catalog, category_weight=0.0),
        np.random.default_rng(SEED),
        [],
    )
    for number in range(n_users):
        visitor = Visitor(policy, policy.start(1), Available.of(catalog.n_items), step=number * SLATES_BEFORE)
        for _ in range(SLATES_BEFORE):
            visitor.select_and_update(random.random((1, SLATE_SIZE)) < CLICKED)
        visitors.append(visitor)
    return visitors


def _with_threads(visitor: Visitor, n_threads: int) -> Slates:
    os.environ[VARIABLE] = str(n_threads)
    try:
        return visitor.select()
    finally:
        del os.environ[VARIABLE]


def _changed(visitor: Visitor, approximate: float) -> Visitor:
    return replace(visitor, policy=cast(Calibrated, visitor.policy).with_approximate(approximate))


def _without_copy(visitor: Visitor) -> Visitor:
    slow = _changed(visitor, approximate=0.0)
    policy = cast(Calibrated, slow.policy)
    vars(policy)["items"] = replace(policy.items, quantized=NOT_QUANTIZED)
    return slow
