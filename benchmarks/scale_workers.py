"""Memory of several workers that serve one catalog: what is mapped from files is held once.

Memory is PSS, in which a page that several processes hold counts for each with its share; `/proc/PID/smaps_rollup`.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.large_catalogs import random_tastes
from benchmarks.measure import MissingError, python_environment
from benchmarks.publications import EXPLORE

WORKER = """
import sys
from pathlib import Path
from benchmarks.inputs import Visitor
from benchmarks.publications import follow_rates
from slatewise.catalog import Catalog
from slatewise.catalog.mapped_arrays import share_through

share_through(Path(sys.argv[2]) if sys.argv[2] else None)
explore = float(sys.argv[3])
visitor = Visitor.returning("dc2b-calibrated", Catalog.load(sys.argv[1]), explore=explore)
if explore:
    follow_rates(visitor, n_publications=4)
print("ready", flush=True)
for _ in sys.stdin:
    print(visitor.select().items.tolist(), flush=True)
"""


def run(n_items: int = 1_000_000, n_workers: int = 4) -> dict[str, float]:
    """Measure one worker and several, each less what as many hold with a catalog of 1,000 items."""
    if not Path("/proc/self/smaps_rollup").exists():
        raise MissingError("memory is read from /proc/PID/smaps_rollup, which this machine does not have")
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder) / "small", Path(folder) / "large"
        random_tastes(1_000).save(small)
        random_tastes(n_items).save(large)
        one = proportional_bytes(large, 1) - proportional_bytes(small, 1)
        several = proportional_bytes(large, n_workers) - proportional_bytes(small, n_workers)
        alone = proportional_bytes(large, n_workers, is_shared=False) - proportional_bytes(small, n_workers)
        rates = [
            proportional_bytes(large, n, explore=EXPLORE) - proportional_bytes(small, n, explore=EXPLORE)
            for n in (1, n_workers)
        ]
    return {
        "workers_share_vectors": several / one,
        "workers_share_nothing": alone / one,
        "workers_share_published": rates[1] / rates[0],
    }


def proportional_bytes(catalog: Path, n_workers: int, is_shared: bool = True, explore: float = 0.0) -> int:
    """Return the memory of workers that have all chosen slates, by published rates if they explore."""
    with tempfile.TemporaryDirectory() as shared, ExitStack() as stack:
        directory = shared if is_shared else ""
        workers = [stack.enter_context(worker(catalog, directory, explore)) for _ in range(n_workers)]
        return sum(_proportional(process.pid) for process in workers)


@contextmanager
def worker(catalog: Path, shared: str, explore: float = 0.0) -> Iterator["subprocess.Popen[str]"]:
    """Start a worker, wait until it has chosen slates, and end it."""
    command = [sys.executable, "-c", WORKER, str(catalog), shared, str(explore)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(command, **pipes, text=True, env=python_environment())  # type: ignore[call-overload]  # noqa: S603
    try:
        if process.stdout.readline() != "ready\n":
            raise ChildProcessError("a worker did not start; its message is above")
        yield process
    finally:
        process.kill()
        process.communicate()


def _proportional(process: int) -> int:
    match = re.search(r"^Pss:\s+(\d+) kB$", Path(f"/proc/{process}/smaps_rollup").read_text(), re.MULTILINE)
    return int(match[1]) * 1024 if match else 0
