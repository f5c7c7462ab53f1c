"""Groups run one after the other, each in a fresh process with one thread; their figures become one document."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from slatewise.bench.figures import FIGURES, NEEDS_DATA
from slatewise.bench.machine import load_average, machine
from slatewise.lab.workers import SINGLE_THREADED

BLAS_THREADS = SINGLE_THREADED[:3]


@dataclass
class Results:
    """Measured figures by name, why others are missing, by group, and how busy the machine was before."""

    load_before: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def document(self, command: str) -> dict[str, Any]:
        """Return everything for programs; a figure that could not be measured is null."""
        unmeasured = {name: None for name, figure in FIGURES.items() if figure.group in self.missing}
        rounded = {name: round(value, 4) for name, value in self.figures.items()}
        about = {"command": command, "machine": machine(), "load_before": round(self.load_before, 2)}
        return {**about, **_nested(unmeasured | rounded), "missing": self.missing}


def run(groups: Iterable[str], on_group: Callable[[], None]) -> Results:
    """Measure groups; `on_group` is called as each ends."""
    results = Results(load_average())
    with tempfile.TemporaryDirectory() as cache:
        for group in groups:
            answer = _in_a_fresh_process(group, cache)
            results.figures |= answer.get("figures", {})
            if "missing" in answer:
                results.missing[group] = answer["missing"]
            on_group()
    return results


def _in_a_fresh_process(group: str, cache: str) -> dict[str, Any]:
    """Run one group with one thread; only polars keeps its threads where reading files is measured."""
    single = BLAS_THREADS if group in NEEDS_DATA else SINGLE_THREADED
    environment = {**os.environ, **dict.fromkeys(single, "1"), "SLATEWISE_CACHE": cache}
    command = [sys.executable, "-m", "slatewise.bench", group]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise ChildProcessError(f"measuring {group!r} failed; its message is above")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _nested(figures: dict[str, float | None]) -> dict[str, Any]:
    """Turn names with dots into objects within objects."""
    document: dict[str, Any] = {}
    for name, value in figures.items():
        *path, last = name.split(".")
        place = document
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return document
