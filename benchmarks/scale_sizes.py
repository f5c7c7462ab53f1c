"""What 10⁵, 10⁶ and 10⁷ items take: the catalog's file, the int8 copy, the start of a process, and its memory."""

import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.large_catalogs import random_tastes
from benchmarks.measure import MEGABYTE, python, resident_bytes

SERVE = """
import json, sys, time
from benchmarks.inputs import Visitor
from benchmarks.measure import peak_bytes, resident_bytes
from slatewise.catalog import Catalog
from slatewise.policies import make_policy

Visitor.new("dc2b-calibrated", Catalog.load(sys.argv[2])).select()  # compiles, or reads what was compiled
before, start = resident_bytes(), time.perf_counter()
catalog = Catalog.load(sys.argv[1])
loaded = time.perf_counter()
policy = make_policy("dc2b-calibrated", catalog, category_weight=0.0)
copy = policy.items.quantized
copied = time.perf_counter()
Visitor.returning("dc2b-calibrated", catalog, category_weight=0.0).select()
print(json.dumps({
    "load_s": loaded - start,
    "copy_s": copied - loaded,
    "copy_mb": copy.nbytes / 2**20,
    "resident_mb": (resident_bytes() - before) / 2**20,
    "peak_mb": (peak_bytes() - before) / 2**20,
}))
"""


def run(sizes: tuple[int, ...] = (100_000, 1_000_000, 10_000_000)) -> dict[str, Any]:
    """Measure each size in a process of its own."""
    resident_bytes()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        tiny = Path(folder) / "tiny"
        random_tastes(10_000).save(tiny)
        for n_items in sizes:
            directory = Path(folder) / str(n_items)
            random_tastes(n_items).save(directory)
            file_mb = sum(path.stat().st_size for path in directory.iterdir()) / MEGABYTE
            measured = json.loads(python(["-c", SERVE, str(directory), str(tiny)]))
            rows.append({"items": n_items, "file_mb": file_mb, **measured})
    return {"sizes": rows}
