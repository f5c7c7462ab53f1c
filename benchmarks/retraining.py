"""What `train --store` costs as the log grows: CPU time and peak memory for more people, and for more slates of each.

Every size is measured in a new process, which does what `train --store` does: it holds the cache of the last training,
collects the log of everybody again (somebody about whom anything was written is read from their first step on), writes
the cache, and fits 10,000 items of rank 50. The log is drawn at random, five seen items per slate; the time of reading
one from a store is measured apart, on SQLite, through the recommender.

`python -m benchmarks.retraining` prints the figures as JSON; `--out FILE` also writes them.
"""

import argparse
import json
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.inputs import random_catalog
from benchmarks.machine import load_average, machine
from benchmarks.measure import MEGABYTE, peak_bytes, python
from slatewise.evidence import Evidence
from slatewise.files import write_whole
from slatewise.recommender import Recommender
from slatewise.recommender.interaction_log import read_interaction_log
from slatewise.recommender.rules import LearningRules
from slatewise.retraining import InteractionLog, LogBuilder, refit
from slatewise.retraining.log_cache import KnownLog, key_of

SIZES = ((10_000, 1), (40_000, 1), (10_000, 10), (10_000, 40))
"""People, and how many slates each of them saw."""
READ = (100, 30)
"""People and slates of the store that is read."""
N_ITEMS, RANK, K, SEEN = 10_000, 50, 10, 5
CLICKED = 0.3
RULES = "drawn"

Row = dict[str, float]


def run(sizes: tuple[tuple[int, int], ...] = SIZES, read: tuple[int, int] = READ) -> dict[str, Any]:
    """Measure training from logs of several sizes, and reading a store."""
    with tempfile.TemporaryDirectory() as name:
        _in_a_new_process("fit", Path(name), 10, 1)  # compiles, if need be
        rows = [_training(Path(name), *size) for size in sizes]
        return {"training": rows, "read_ms_per_slate": _reading(Path(name), *read)}


def _training(folder: Path, people: int, slates: int) -> Row:
    """Write the cache of an earlier training, then train."""
    _in_a_new_process("collect", folder, people, slates)
    row = _in_a_new_process("fit", folder, people, slates)
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def _in_a_new_process(function: str, folder: Path, people: int, slates: int) -> Row:
    code = f"import json, pathlib; from benchmarks.retraining import {function} as work"
    call = f"print(json.dumps(work(pathlib.Path({str(folder)!r}), {people}, {slates})))"
    row: Row = json.loads(python(["-c", f"{code}\n{call}"]))
    return row


def fit(folder: Path, people: int, slates: int) -> Row:
    """Collect a log and fit; return CPU seconds of the fit, and the peak memory of both in MB."""
    catalog, log = random_catalog(N_ITEMS, RANK), _collected(folder / "cache", people, slates)
    start = time.process_time()
    refit(catalog, log.before(math.inf))
    used = time.process_time() - start
    return {"people": people, "slates_each": slates, "fit_cpu_s": used, "peak_mb": peak_bytes() / MEGABYTE}


def collect(folder: Path, people: int, slates: int) -> int:
    """Write the cache that a training leaves; return the number of slates in it."""
    return _collected(folder / "cache", people, slates).n_slates


def _collected(cache: Path, people: int, slates: int) -> InteractionLog:
    """Collect a log next to the cache of the last one, and write its own, as `read_news` and `train --store` do."""
    _last, builder, draw = KnownLog.read(cache, RULES), LogBuilder(), np.random.default_rng(0)
    builder.number(range(N_ITEMS))
    for _ in range(people):
        _add_person(builder, draw, slates)
    keys = tuple(key_of(str(person), str(slates)) for person in range(people))
    known = KnownLog(builder.log(), keys, np.arange(people))
    known.write(cache, RULES)
    return known.log


def _add_person(builder: LogBuilder, draw: np.random.Generator, slates: int) -> None:
    """Add somebody who sees a slate a day."""
    items = draw.integers(0, N_ITEMS, (slates, SEEN))
    evidence = Evidence.of_clicks(items, draw.random(items.shape) < CLICKED)
    for day in range(slates):
        builder.add_slate(86_400.0 * day, evidence, day)
    builder.end_person()


def _reading(folder: Path, people: int, slates: int) -> float:
    """Return the CPU milliseconds of reading one slate with its feedback from SQLite."""
    with Recommender(random_catalog(N_ITEMS, RANK), store=f"sqlite:///{folder / 'slates.db'}") as recommender:
        for person in range(people):
            for _ in range(slates):
                slate = recommender.recommend(f"person {person}", K)
                ids = [item.id for item in slate.items]
                recommender.feedback(slate.slate_id, ids[:2], seen=ids[:SEEN])
        read_interaction_log(recommender.store, LearningRules())
        start = time.process_time()
        log = read_interaction_log(recommender.store, LearningRules())
        return 1e3 * (time.process_time() - start) / log.n_slates


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures there too")
    out = parser.parse_args().out
    about = {"command": "python -m benchmarks.retraining", "machine": machine(), "load_before": load_average()}
    text = json.dumps({**about, **run()}, indent=2)
    print(text)
    if out is not None:
        write_whole(out, [f"{text}\n".encode()])


if __name__ == "__main__":
    main()
