"""The laboratory: Table 2 for one split, and the cost of our policy over that of the paper's."""

import os
import time
from functools import partial
from pathlib import Path

from benchmarks.data import archive_of
from benchmarks.measure import MEGABYTE, python, seconds
from slatewise.catalog import Catalog
from slatewise.data.sources import load
from slatewise.lab.simulate import simulate
from slatewise.policies import make_policy

TABLE_2 = """
import resource, sys
from dataclasses import replace
from benchmarks.measure import peak_bytes
from slatewise.data.sources import load
from slatewise.lab.experiment import run
from slatewise.lab.reproduction import find_experiment

def main():
    experiment = find_experiment("table2", splits=1, seed=0)
    experiment = replace(experiment, arms=experiment.arms[:7])
    run(experiment, load(sys.argv[1]), workers=2)
    worker = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print(peak_bytes() + 2 * worker)

if __name__ == "__main__":
    main()
"""


def run() -> dict[str, float]:
    """Measure both; the memory figure adds the parent and two workers at their peaks."""
    figures = {}
    for archive in [archive_of(name) for name in ("ml-100k", "ml-1m")]:
        name = archive.stem
        start = time.perf_counter()
        memory = _table_2(name)
        figures[f"table2_{name}_s"] = time.perf_counter() - start
        figures[f"table2_{name}_peak_mb"] = memory
    return {**figures, "calibrated_over_dc2b": _calibrated_over_dc2b()}


def _table_2(name: str) -> float:
    script = Path(os.environ["SLATEWISE_CACHE"]) / "table2.py"
    script.write_text(TABLE_2)
    return float(python([str(script), name])) / MEGABYTE


def _calibrated_over_dc2b() -> float:
    train, test = load("ml-1m", report=lambda _line: None).split(0.2, seed=0)
    catalog = Catalog.train(train)
    tasks = {name: partial(simulate, make_policy(name, catalog), test) for name in ("dc2b", "dc2b-calibrated")}
    times = seconds(tasks, repeats=3)
    return times["dc2b-calibrated"] / times["dc2b"]
