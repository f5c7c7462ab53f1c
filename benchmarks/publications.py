"""Rates of items that are published while a large catalog is served: processor time until a slate is chosen by them."""

import math
import time
from statistics import median
from typing import cast
from unittest.mock import patch

import numpy as np

from benchmarks.inputs import Visitor
from benchmarks.large_catalogs import random_tastes
from slatewise.belief.rates import Rates
from slatewise.catalog import versioned_arrays
from slatewise.policies.calibrated import Calibrated

MOVED = 100
"""How many rates move each time."""
EXPLORE, TURNS, PUBLICATIONS = 0.5, 3, 12


def run(n_items: int = 1_000_000) -> dict[str, float]:
    """Publish by turns, with tables that share what stays the same, and with copies of them."""
    catalog, times = random_tastes(n_items), dict[str, list[float]](publish_rates_ms=[], publish_rates_copied_ms=[])
    least_mapped = (versioned_arrays.LEAST_MAPPED, math.inf)
    for _ in range(TURNS):
        for spent, least in zip(times.values(), least_mapped, strict=True):
            with patch.object(versioned_arrays, "LEAST_MAPPED", least):
                visitor = Visitor.returning("dc2b-calibrated", catalog, explore=EXPLORE)
                _, *later = follow_rates(visitor, PUBLICATIONS)  # the first one makes the first file
            spent += later
    return {name: 1000.0 * median(spent) for name, spent in times.items()}


def follow_rates(visitor: Visitor, n_publications: int) -> list[float]:
    """Let somebody's policy choose by rates that are published again and again; return the seconds of each time."""
    policy, random, times = cast(Calibrated, visitor.policy), np.random.default_rng(0), []
    mean, strength = policy.current.mean, policy.current.strength
    for _ in range(n_publications):
        moved = random.choice(len(mean), min(MOVED, len(mean)), replace=False)
        mean, strength = mean.copy(), strength.copy()
        mean[moved], strength[moved] = 0.9 * mean[moved], strength[moved] + 1.0
        began = time.process_time()
        visitor.policy = policy = policy.with_rates(Rates(mean, strength))
        visitor.select()
        times.append(time.process_time() - began)
    return times
