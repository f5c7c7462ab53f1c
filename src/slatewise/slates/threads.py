"""One slate of a very large catalog by several threads: they read the int8 copy, and the greedy choice does the rest.

The bounds of blocks are all that threads write. A block that they pass over keeps the bound that it began with, so what
is chosen does not depend on them.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

import numpy as np

from slatewise.compiled import compiled
from slatewise.slates.kernels import BLOCK, Floats, read_only
from slatewise.slates.quantized import limit_of_block, quantized_bounds
from slatewise.slates.scores import ScoreArguments, int8_weights, rounding_error

VARIABLE = "SLATEWISE_SLATE_THREADS"
FEWEST_BLOCKS = 1 << 13
"""Of fewer blocks than this, half a million items, the bounds are found sooner than a thread is woken."""
RUN = 64
"""Threads take turns by runs of so many blocks."""


def thread_count() -> int:
    """How many threads choose one slate: 1, or what the environment says."""
    given = os.environ.get(VARIABLE, "1")
    if not (given.isdecimal() and int(given) >= 1):
        raise ValueError(f"{VARIABLE} is {given!r}; give a number of threads, 1 or more")
    return int(given)


def bounded_by_threads(scores: ScoreArguments, k: int) -> ScoreArguments:
    """Return the scores of one user with better bounds of the blocks that may matter; with one thread, as they are."""
    n_threads, (*others, copy) = thread_count(), scores
    if n_threads == 1:
        return scores
    limits = np.zeros(copy[4].shape)
    task = partial(bound_some, scores, k, n_threads, limits)
    running = [_pool(n_threads - 1).submit(task, part) for part in range(1, n_threads)]
    task(0)
    for future in running:
        future.result()
    return (*others, (*copy[:4], read_only(limits, np.float64), *copy[5:]))  # type: ignore[return-value]


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads, "slatewise-blocks")


@compiled
def bound_some(scores: ScoreArguments, k: int, n_parts: int, limits: Floats, part: int) -> None:
    """Fill in the bounds of the blocks of one part, as limits for any direction.

    A block is passed over, with what it began with, if k others have better bounds than it can have.
    """
    int8 = int8_weights(scores, 0, rounding_error(scores, 0), scores[9][3].size)
    if not int8[0]:
        return
    products, values, best = np.empty(BLOCK, dtype=np.int32), np.empty(BLOCK), np.full(k, -np.inf)
    for block in range(limits.shape[1]):
        if block // RUN % n_parts == part:
            bound = limit_of_block(scores[9], int8, block)
            if bound >= best[0]:
                bound = quantized_bounds(scores[9], int8, block, products, values)
            if bound > best[0]:
                best[0] = bound
                best.sort()
            limits[0, block] = bound
