"""The simulator against the commit before the slate rules were compiled: by turns, each in a process of its own."""

import io
import json
import subprocess
import tarfile
import tempfile
from pathlib import Path
from statistics import median

from benchmarks import simulation
from benchmarks.measure import ROOT, SOURCE, MissingError, python

COMMIT = "4c27cee50869769254f164467a2bb359f484129c"
"""The commit that the simulator is compared with."""
KEYS = {"dc2b": "simulator_speedup_dc2b", "dc2b-calibrated": "simulator_speedup_calibrated"}


def run(size: simulation.Size | None = None, turns: int = 5, repeats: int = 3) -> dict[str, float]:
    """Return how many times as fast the simulator is as at the recorded commit, for both policies and the smaller."""
    size = size or simulation.Size()
    with tempfile.TemporaryDirectory() as folder:
        sources = {"before": extract(COMMIT, Path(folder)), "now": SOURCE}
        times: dict[str, list[dict[str, float]]] = {name: [] for name in sources}
        for _ in range(turns):
            for name, source in sources.items():
                times[name].append(time_source(source, size, repeats))
    speedups = {key: _median(times["before"], policy) / _median(times["now"], policy) for policy, key in KEYS.items()}
    return {"simulator_speedup": min(speedups.values()), **speedups}


def extract(commit: str, folder: Path) -> Path:
    """Write the sources of a commit to a folder; return the directory that holds the package."""
    command = ["git", "archive", commit, "src"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)  # noqa: S603
    except FileNotFoundError:
        raise MissingError("git is not installed, which reads the commit to compare with") from None
    if done.returncode != 0:
        raise MissingError(f"commit {commit[:12]} is not in this clone; `git fetch --unshallow` gets it")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def time_source(source: Path, size: simulation.Size, repeats: int) -> dict[str, float]:
    """Return the seconds of each policy with the package in a directory, in a process of its own."""
    script = ["-m", "benchmarks.simulation", str(size.users), str(size.items), str(repeats)]
    times: dict[str, float] = json.loads(python(script, source=source))
    return times


def _median(times: list[dict[str, float]], policy: str) -> float:
    return median(turn[policy] for turn in times)
