"""What one request of a service takes: time to choose from a large catalog, and time and bytes of a store."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from slatewise.catalog import Catalog
from slatewise.catalog.identifiers import Identifiers, PackedText
from slatewise.policies.calibrated import Calibrated
from slatewise.randomness import Streams, user_keys
from slatewise.recommender import Recommender

K = 10
REPEATS = 12
PEOPLE, SLATES = 100, 9
"""Whose slates and feedback are written; a belief is saved with the eighth slate."""


def measure_slate(catalog: Catalog, n_items: int) -> dict[str, float]:
    """Return the milliseconds of a core that an exact slate takes, and one pass over the vectors, for many items.

    The items of the catalog are drawn again and again until there are so many.
    """
    rows = np.random.default_rng(0).integers(0, catalog.n_items, n_items)
    arrays = {name: getattr(catalog, name)[rows] for name in ("categories", "vectors", "log_odds", "taste_vectors")}
    ids, titles = Identifiers.of(list(range(n_items))), PackedText.pack([""] * n_items)
    policy = Calibrated(replace(catalog, item_ids=ids, titles=titles, rate_strength=None, **arrays))
    state, available = policy.start(1), np.ones((1, n_items), dtype=bool)
    taste, keys = np.ones(policy.vectors.shape[1], dtype=np.float32), user_keys(["ann"])
    slate = _least(lambda: policy.select(state, available, K, Streams(0, keys, 0)))
    one_pass = _least(lambda: policy.vectors @ taste)
    return {"items": n_items, "rank": policy.vectors.shape[1], "slate_ms": slate, "pass_ms": one_pass}


def measure_store(catalog: Catalog, folder: Path) -> dict[str, float]:
    """Write slates and feedback of some people to SQLite; return bytes per person, and CPU time per slate."""
    file = folder / "slates.db"
    with Recommender(catalog, store=f"sqlite:///{file}") as recommender:
        recommender.recommend("warm-up", K)
        start = time.process_time()
        for person in range(PEOPLE):
            for _ in range(SLATES):
                slate = recommender.recommend(f"person {person}", K)
                ids = [item.id for item in slate.items]
                recommender.feedback(slate.slate_id, ids[:2], seen=ids)
        used = time.process_time() - start
        belief = recommender.store.read(lambda transaction: transaction.belief("person 0").content or b"")
        recommender.store.vacuum()
    each = file.stat().st_size / PEOPLE
    return {
        "people": PEOPLE,
        "slates_each": SLATES,
        "belief_bytes": len(belief),
        "log_bytes_per_slate": (each - len(belief)) / SLATES,
        "cpu_ms_per_slate": 1000.0 * used / (PEOPLE * SLATES),
    }


def _least(task: Callable[[], object]) -> float:
    """Return the fewest milliseconds of a core that a task took."""
    return 1000.0 * min(map(partial(_seconds, task), range(REPEATS)))


def _seconds(task: Callable[[], object], _: int) -> float:
    start = time.process_time()
    task()
    return time.process_time() - start
