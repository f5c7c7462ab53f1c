"""Processor time per slate of `slatewise evaluate`: `python -m benchmarks.judging` prints milliseconds as JSON.

The log: people of ML-100K are shown ten slates of ten each, drawn with `explore_slates`, and click what they liked;
rates of items are learned now and then. `--folder` keeps catalog and log, so that another version can judge by the same
log, and the estimates are printed to be compared.
"""

import argparse
import gc
import json
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.inputs import SLATE_SIZE
from benchmarks.machine import load_average, machine
from slatewise.catalog import Catalog
from slatewise.data.sources import load
from slatewise.recommender import PolicyShare, Recommender
from slatewise.store import open_store

SLATES, LEARNED_EVERY = 10, 300
SHARES = {"drawn": PolicyShare("dc2b-calibrated", options={"explore_slates": 0.05})}
TARGETS: dict[str, tuple[str, dict[str, Any]]] = {
    "popular": ("popular", {}),
    "explore_slates": ("dc2b-calibrated", {"explore_slates": 0.1, "diversity": 0.7}),
    "dc2b": ("dc2b", {}),
}


def make_log(folder: Path, n_users: int) -> None:
    """Serve a log and save it with its catalog."""
    dataset, clock = load("ml-100k"), count(1.7e9).__next__
    catalog, draw = Catalog.train(dataset), np.random.default_rng(3)
    catalog.save(folder / "catalog")
    users = draw.permutation(np.repeat(np.arange(n_users), SLATES)).tolist()
    with Recommender(catalog, SHARES, f"sqlite:///{folder}/slates.db", clock=clock) as recommender:
        for step, user in enumerate(users):
            liked = set(dataset.items[dataset.users == user].tolist())
            slate = recommender.recommend(f"user {user}", SLATE_SIZE)
            clicked = [item.id for item in slate.items if catalog.item_ids.find(item.id) in liked]
            recommender.feedback(slate.slate_id, clicked, final=True)
            if step % LEARNED_EVERY == LEARNED_EVERY - 1:
                recommender.learn_rates()


def judge(folder: Path, targets: Sequence[str], runs: int) -> dict[str, Any]:
    """Return the least milliseconds per slate of some runs for each policy, after one to warm up, and its estimates."""
    times, estimates = {name: list[float]() for name in targets}, dict[str, Any]()
    store = open_store(f"sqlite:///{folder}/slates.db", read_only=True)
    with Recommender(Catalog.load(folder / "catalog"), SHARES, store) as recommender:
        gc.freeze()  # as the command does
        for _ in range(runs + 1):
            for name in targets:
                before = time.process_time()
                found = recommender.evaluate(*TARGETS[name])
                times[name].append(1_000.0 * (time.process_time() - before) / found.slates)
                estimates[name] = found.as_json()
    return {"ms": {name: round(min(taken[1:]), 3) for name, taken in times.items()}, "estimates": estimates}


def main() -> None:
    """Make a log if there is none, measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.judging", description=__doc__)
    parser.add_argument("--users", type=int, default=300)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--policies", nargs="+", choices=[*TARGETS], default=[*TARGETS])
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        if not (folder / "slates.db").exists():
            make_log(folder, given.users)
        found = judge(folder, given.policies, given.runs)
    print(json.dumps({"machine": machine(), "load": load_average(), **found}))


if __name__ == "__main__":
    main()
