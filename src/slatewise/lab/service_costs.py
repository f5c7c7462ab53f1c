"""What one request of a service takes: time and bytes of a store."""

import time
from pathlib import Path

from slatewise.catalog import Catalog
from slatewise.recommender import Recommender

K = 10
PEOPLE, SLATES = 100, 9
"""Whose slates and feedback are written; a belief is saved with the eighth slate."""


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
