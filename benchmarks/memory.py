"""What a process holds that serves a large catalog: everything since its imports, over the size of the vectors.

Twice: a minimal catalog of what `dc2b` needs (vectors, integer ids, log-odds, empty titles), and a full one, which also
has titles, 18 categories, and taste vectors as long as the vectors.
"""

import json
import tempfile
from pathlib import Path

from benchmarks.inputs import random_catalog
from benchmarks.measure import python, resident_bytes

DIM = 20
FLOAT32_BYTES = 4
SERVE = """
import json, sys
from benchmarks.inputs import Visitor
from benchmarks.measure import peak_bytes, resident_bytes
from slatewise.catalog import Catalog

before = resident_bytes()
catalog = Catalog.load(sys.argv[2])
loaded = resident_bytes()
visitor = Visitor.returning(sys.argv[1], catalog)
for _ in range(20):
    visitor.select()
print(json.dumps([loaded - before, resident_bytes() - before, peak_bytes() - before]))
"""


def run(n_items: int = 1_000_000) -> dict[str, float]:
    """Measure in new processes: load a saved catalog and serve 20 slates to somebody who has reacted to five."""
    resident_bytes()
    size = n_items * DIM * FLOAT32_BYTES
    with tempfile.TemporaryDirectory() as folder:
        minimal, full = Path(folder) / "minimal", Path(folder) / "full"
        random_catalog(n_items, DIM, is_minimal=True).save(minimal)
        random_catalog(n_items, DIM).save(full)
        loaded, served, peak = _serve("dc2b", minimal)
        full_loaded, full_served, _ = _serve("dc2b", full)
        _, calibrated, _ = _serve("dc2b-calibrated", full)
    return {
        "memory_over_vectors": served / size,
        "memory_catalog_over_vectors": loaded / size,
        "memory_peak_over_vectors": peak / size,
        "memory_whole_over_vectors": full_served / size,
        "memory_whole_catalog_over_vectors": full_loaded / size,
        "memory_whole_calibrated_over_vectors": calibrated / size,
    }


def _serve(policy: str, catalog: Path) -> tuple[int, int, int]:
    """Return the bytes added by loading the catalog, by serving from it, and at the peak."""
    loaded, served, peak = json.loads(python(["-c", SERVE, policy, str(catalog)]))
    return loaded, served, peak
