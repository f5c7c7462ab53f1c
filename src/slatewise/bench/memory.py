"""What a process holds that serves a large catalogue: everything since its imports, over the size of the vectors.

Twice: a bare catalogue of what `dc2b` needs (vectors, integer ids, log-odds, empty titles), and a whole one, which also
has titles, 18 categories, and taste vectors as long as the vectors.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from slatewise.bench.measure import resident_bytes
from slatewise.bench.worlds import random_catalog

DIM = 20
FLOAT32 = 4
SERVE = """
import json, sys
import slatewise.bench.worlds as worlds
from slatewise.bench.measure import peak_bytes, resident_bytes
from slatewise.catalog import Catalog

before = resident_bytes()
catalog = Catalog.load(sys.argv[2])
loaded = resident_bytes()
visitor = worlds.Visitor.of(sys.argv[1], catalog)
for _ in range(20):
    visitor.ask()
print(json.dumps([loaded - before, resident_bytes() - before, peak_bytes() - before]))
"""


def run(n_items: int = 1_000_000) -> dict[str, float]:
    """Measure in fresh processes: load a saved catalogue and serve 20 slates to someone who has answered five."""
    resident_bytes()
    size = n_items * DIM * FLOAT32
    with tempfile.TemporaryDirectory() as folder:
        bare, whole = Path(folder) / "bare", Path(folder) / "whole"
        random_catalog(n_items, DIM, is_bare=True).save(bare)
        random_catalog(n_items, DIM).save(whole)
        loaded, served, peak = _serve("dc2b", bare)
        whole_loaded, whole_served, _ = _serve("dc2b", whole)
        _, calibrated, _ = _serve("dc2b-calibrated", whole)
    return {
        "memory_over_vectors": served / size,
        "memory_catalog_over_vectors": loaded / size,
        "memory_peak_over_vectors": peak / size,
        "memory_whole_over_vectors": whole_served / size,
        "memory_whole_catalog_over_vectors": whole_loaded / size,
        "memory_whole_calibrated_over_vectors": calibrated / size,
    }


def _serve(policy: str, catalog: Path) -> tuple[int, int, int]:
    """Bytes added by loading the catalogue, by serving from it, and at the peak."""
    command = [sys.executable, "-c", SERVE, policy, str(catalog)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    loaded, served, peak = json.loads(done.stdout)
    return loaded, served, peak
