"""The scale proof: a service of many synthetic people, from the first draw to retraining, with the cost of every stage.

Run: python experiments/scale.py [--users 1000000] [--items 10000] [--workers 2] [--out experiments/results]

The same loop runs for a tenth of the people first, so that growth can be told. A fifth of all people are there before
the service starts and train the first catalog, out of core. Then everybody comes on two days and gets one slate a day;
rates learn during the day, and in the night the catalog is trained again from the log. Memory is the proportional set
size (PSS) of this process and all its children together, sampled twice a second.
"""

import argparse
import json
import math
import os
import platform
import shlex
import sys
import tempfile
import threading
import time
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psutil

from slatewise.catalog import Catalog
from slatewise.catalog.without_bpr import train_without_bpr
from slatewise.data.sparse_world import SparseWorld
from slatewise.data.stored_likes import StoredLikes, Tables
from slatewise.data.synthetic import WorldSize
from slatewise.lab.service_costs import measure_store
from slatewise.lab.service_loop import interaction_log, run_day, visits
from slatewise.report import versions
from slatewise.retraining import refit

SECONDS_BETWEEN_SAMPLES = 0.5
MEGABYTE = 1e6
TRAINING_SHARE = 0.2
DAYS = 2


@dataclass
class Stages:
    """Watches time and memory of this process and its children, stage after stage."""

    rows: dict[str, dict[str, float]] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    used: float = 0.0
    peak: float = 0.0

    def __post_init__(self) -> None:
        self.used = sum(map(_processor_seconds, _family()))
        threading.Thread(target=self._watch, daemon=True).start()

    def end(self, name: str) -> None:
        """Close a stage."""
        self._sample()
        used = sum(map(_processor_seconds, _family()))
        row = {"seconds": time.monotonic() - self.began, "cpu_s": used - self.used, "peak_mb": self.peak}
        self.rows[name] = row
        told = f"{name}: {row['seconds']:.0f} s, {row['cpu_s']:.0f} s of processors, at most {self.peak:.0f} MB"
        print(told, file=sys.stderr, flush=True)
        self.began, self.used, self.peak = time.monotonic(), used, 0.0

    def _watch(self) -> None:
        while True:
            time.sleep(SECONDS_BETWEEN_SAMPLES)
            self._sample()

    def _sample(self) -> None:
        self.peak = max(self.peak, sum(map(_megabytes, _family())))


def _family() -> list[psutil.Process]:
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


def _megabytes(process: psutil.Process) -> float:
    try:
        return float(process.memory_full_info().pss) / MEGABYTE
    except psutil.Error:
        return 0.0


def _processor_seconds(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def run_loop(size: WorldSize, folder: Path, processes: Executor, name: str) -> dict[str, Any]:
    """Run the whole loop for one number of people; return sizes, the cost of each stage, and what people liked."""
    stages, world = Stages(), SparseWorld.draw(size)
    world.write_items(folder / "items.parquet")
    n_likes = sum(processes.map(partial(world.write_chunk, folder / "likes"), range(world.n_chunks)))
    files = sorted((folder / "likes").iterdir())
    stages.end(f"{name}: drawing the world")
    catalog, n_trained = _first_catalog(files, folder)
    catalog.save(folder / "catalog-0")
    stages.end(f"{name}: first training")
    (folder / "log").mkdir()
    shares, clicked, seen = [], 0.0, 0.0
    for day in range(DAYS):
        todo = visits(files, folder / f"catalog-{day}", folder / "log", day, size.n_users)
        sums, shares_of_day = run_day(processes, todo, Catalog.load(folder / f"catalog-{day}"))
        shares.append(shares_of_day)
        clicked, seen = clicked + sums.clicked, seen + float(sums.seen.sum())
        stages.end(f"{name}: day {day + 1}")
        if day == DAYS - 1:
            break
        days = [[one.log_of(earlier) for one in todo] for earlier in range(day + 1)]
        refit(catalog, interaction_log(days, catalog.n_items)).save(folder / f"catalog-{day + 1}")
        stages.end(f"{name}: retraining")
    return {
        "users": size.n_users,
        "items": catalog.n_items,
        "likes": n_likes,
        "likes_trained": n_trained,
        "rank": catalog.taste_vectors.shape[1],
        "slates": DAYS * size.n_users,
        "seen": seen,
        "clicked": clicked,
        "liked_by_wave": shares,
        "log_bytes": sum(path.stat().st_size for path in (folder / "log").iterdir()),
        "stages": {stage.partition(": ")[2]: row for stage, row in stages.rows.items()},
    }


def _first_catalog(files: list[Path], folder: Path) -> tuple[Catalog, int]:
    """Train on the first people, with all items of the world in the catalog, and return how many likes that took."""
    first = files[: math.ceil(TRAINING_SHARE * len(files))]
    parts = folder / "parts"
    parts.mkdir()
    likes = StoredLikes.from_tables(Tables(first, folder / "items.parquet"), parts)
    return train_without_bpr(likes), likes.n_interactions


def machine() -> str:
    """Describe this machine and the versions of everything."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    installed = ", ".join(f"{name} {number}" for name, number in versions().items())
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {next(names, 'unknown')}; {installed}"


def main() -> None:
    """Run the loop for a tenth of the people and for all, measure what a store takes, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, help="directory for scale.json")
    options = parser.parse_args()
    runs: list[dict[str, Any]] = []
    load_before = round(os.getloadavg()[0], 2)
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as processes:
        for n_users in (options.users // 10, options.users):
            with tempfile.TemporaryDirectory(prefix="slatewise-scale-") as name:
                folder = Path(name)
                size = WorldSize(n_users, options.items, 18, top_log_odds=0.3, taste_spread=2.5)
                runs.append(run_loop(size, folder, processes, f"{n_users:,} people"))
                catalog = Catalog.load(folder / f"catalog-{DAYS - 1}")
    with tempfile.TemporaryDirectory(prefix="slatewise-scale-") as name:
        document = {
            "command": shlex.join(["python", "experiments/scale.py", *sys.argv[1:]]),
            "machine": machine(),
            "load_before": load_before,
            "workers": options.workers,
            "runs": runs,
            "store": measure_store(catalog, Path(name)),
        }
    print(json.dumps(document, indent=1))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "scale.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
