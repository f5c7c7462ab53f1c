"""How things are measured here: medians of interleaved repeats after a warm-up, memory in a fresh process."""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

STATUS = Path("/proc/self/status")

Work = Callable[[], object]


class MissingError(Exception):
    """Something that a figure needs is not on this machine; the other figures are measured all the same."""


def seconds(work: Mapping[str, Work], repeats: int, warm_ups: int = 1) -> dict[str, float]:
    """Median seconds of each piece of work; the pieces take turns, so that noise hits all of them alike."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for number in range(warm_ups + repeats):
        for name, run in work.items():
            start = time.perf_counter()
            run()
            if number >= warm_ups:
                times[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in times.items()}


def peak_megabytes(code: str) -> float:
    """Largest resident size of a fresh Python process that runs this code."""
    report = "\nfrom slatewise.bench.measure import peak_bytes; print(peak_bytes())"
    done = subprocess.run([sys.executable, "-c", code + report], capture_output=True, text=True, check=True)  # noqa: S603
    return int(done.stdout.split()[-1]) / 2**20


def resident_bytes() -> int:
    """Memory that this process holds now."""
    return _status("VmRSS")


def peak_bytes() -> int:
    """The most memory that this process ever held; `ru_maxrss` would count what its parent held when it began."""
    return _status("VmHWM")


def _status(field: str) -> int:
    """One of the kernel's figures about this process, in bytes."""
    if not STATUS.exists():
        raise MissingError(f"memory is read from {STATUS}, which this machine does not have")
    found = re.search(rf"^{field}:\s+(\d+) kB$", STATUS.read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0
