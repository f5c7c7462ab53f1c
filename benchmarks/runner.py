"""Groups run one after the other, each in a new process with one thread; their figures become one document.

`python -m benchmarks.runner GROUP` measures one group in this process and prints it as JSON.
"""

import json
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from benchmarks.figures import names_in
from benchmarks.machine import load_average, machine
from benchmarks.measure import MissingError, python

GROUPS = {
    "slates": "policies.slates",
    "updates": "policies.updates",
    "diversify": "diversify.run",
    "dense": "dense.run",
    "arms": "arms.run",
    "startup": "startup.run",
    "memory": "memory.run",
    "simulator": "simulator.run",
    "growth": "growth.run",
    "history": "history.run",
    "items": "items.run",
    "data": "data.run",
    "laboratory": "laboratory.run",
    "hardest": "scale_slates.hardest",
    "trained": "scale_slates.trained",
    "workers": "scale_workers.run",
    "publications": "publications.run",
    "sizes": "scale_sizes.run",
    "training": "training.run",
    "round_trips": "round_trips.run",
}
"""The function of this package that measures each group, in the order in which they run."""
NEEDS_DATA = ("data", "laboratory")
SCALE = ("hardest", "trained", "workers", "publications", "sizes", "training", "round_trips")
"""What is measured at scale: minutes, and memory for ten million items."""
QUICK = tuple(group for group in GROUPS if group not in (*NEEDS_DATA, *SCALE))
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
ALL_THREADS = (*BLAS_THREADS, "POLARS_MAX_THREADS")


@dataclass
class Results:
    """Measured figures by name, why others are missing, by group, and how busy the machine was before."""

    load_before: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def document(self, command: str) -> dict[str, Any]:
        """Return everything for programs; a figure that could not be measured is null."""
        unmeasured = {name: None for group in self.missing for name in names_in(group)}
        about = {"command": command, "machine": machine(), "load_before": round(self.load_before, 2)}
        return {**about, **_nested(unmeasured | _rounded(self.figures)), "missing": self.missing}


def run(groups: Iterable[str]) -> Results:
    """Measure groups, and say on stderr which one is being measured."""
    results = Results(load_average())
    with tempfile.TemporaryDirectory() as cache:
        for group in groups:
            print(f"measuring {group}", file=sys.stderr, flush=True)
            measured = _in_a_new_process(group, cache)
            results.figures |= measured.get("figures", {})
            if "missing" in measured:
                results.missing[group] = measured["missing"]
    return results


def _in_a_new_process(group: str, cache: str) -> dict[str, Any]:
    """Run a group with one thread; only polars keeps its threads where reading files is measured."""
    threads = BLAS_THREADS if group in NEEDS_DATA else ALL_THREADS
    environment = {**dict.fromkeys(threads, "1"), "SLATEWISE_CACHE": cache}
    measured: dict[str, Any] = json.loads(python(["-m", "benchmarks.runner", group], environment))
    return measured


def measure(group: str) -> dict[str, Any]:
    """Run a group in this process; what it lacks on this machine is a result, not a failure."""
    module, function = GROUPS[group].split(".")
    try:
        return {"figures": getattr(import_module(f"benchmarks.{module}"), function)()}
    except ModuleNotFoundError as error:
        return {"missing": f"{error.name} is not installed; pip install -e '.[dev]' installs it"}
    except MissingError as error:
        return {"missing": str(error)}


def _rounded(value: Any) -> Any:
    """Round every number within lists and objects."""
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return round(value, 4) if isinstance(value, float) else value


def _nested(figures: dict[str, Any]) -> dict[str, Any]:
    """Turn names with dots into objects within objects."""
    document: dict[str, Any] = {}
    for name, value in figures.items():
        *path, last = name.split(".")
        parent = document
        for part in path:
            parent = parent.setdefault(part, {})
        parent[last] = value
    return document


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
