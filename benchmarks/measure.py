"""How things are measured here: medians of interleaved repeats, memory in a fresh process."""

import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from statistics import median

Work = Callable[[], object]


def seconds(work: Mapping[str, Work], repeats: int) -> dict[str, float]:
    """Median seconds of each piece of work; the pieces take turns, so that noise hits all of them alike."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(repeats):
        for name, run in work.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in times.items()}


def peak_megabytes(code: str) -> float:
    """Largest resident size of a fresh Python process that runs this code."""
    report = "\nimport resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    done = subprocess.run([sys.executable, "-c", code + report], capture_output=True, text=True, check=True)  # noqa: S603
    return int(done.stdout.split()[-1]) / 1024


def machine() -> str:
    """One line about where the figures come from."""
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}"
