"""How things are measured: medians of repeats that take turns after a warm-up, memory and start-up in new processes."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
STATUS = Path("/proc/self/status")
MEGABYTE = 2**20

Task = Callable[[], object]


class MissingError(Exception):
    """Something that a figure needs is not on this machine; the other figures are measured all the same."""


def seconds(tasks: Mapping[str, Task], repeats: int, warm_ups: int = 1) -> dict[str, float]:
    """Return the median seconds of each task; the tasks take turns, so that noise affects all of them alike."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for number in range(warm_ups + repeats):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            if number >= warm_ups:
                times[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in times.items()}


def python(arguments: Sequence[str], environment: Mapping[str, str] | None = None, source: Path = SOURCE) -> str:
    """Run Python in a new process that can import `benchmarks`; return the last line that it prints.

    `source` is the directory whose `slatewise` is used, whichever is installed: by default that of this checkout.
    """
    variables = {**python_environment(source), **(environment or {})}
    done = subprocess.run(  # noqa: S603
        [sys.executable, *arguments], env=variables, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        raise ChildProcessError(f"`python {' '.join(arguments)[:100]}` failed; its message is above")
    return done.stdout.splitlines()[-1]


def python_environment(source: Path = SOURCE) -> dict[str, str]:
    """Return the environment of a process that can import `benchmarks` and the `slatewise` of a directory."""
    return {**os.environ, "PYTHONPATH": python_path(source)}


def python_path(source: Path) -> str:
    """Return the PYTHONPATH with which this `slatewise` and these benchmarks are imported before all others."""
    return os.pathsep.join(filter(None, [str(source), str(ROOT), os.environ.get("PYTHONPATH")]))


def peak_megabytes(code: str) -> float:
    """Return the largest resident size of a new Python process that runs this code."""
    report = "\nfrom benchmarks.measure import peak_bytes; print(peak_bytes())"
    return int(python(["-c", code + report])) / MEGABYTE


def resident_bytes() -> int:
    """Return the memory that this process holds now."""
    return _status("VmRSS")


def peak_bytes() -> int:
    """Return the most memory that this process ever held; `ru_maxrss` would include what its parent held."""
    return _status("VmHWM")


def _status(field: str) -> int:
    """Return one of the kernel's figures about this process, in bytes."""
    if not STATUS.exists():
        raise MissingError(f"memory is read from {STATUS}, which this machine does not have")
    match = re.search(rf"^{field}:\s+(\d+) kB$", STATUS.read_text(), re.MULTILINE)
    return int(match[1]) * 1024 if match else 0
