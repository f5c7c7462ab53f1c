"""Processor time that a shadow policy adds to a slate: `python -m benchmarks.shadow` prints milliseconds as JSON.

Recommenders that differ in their shadow alone take turns: each shows some slates of ten to users who clicked before and
saves them in SQLite. The time is that of the whole process, so what a shadow adds to the log counts, too.
"""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.inputs import SLATE_SIZE, random_catalog
from benchmarks.machine import machine
from slatewise.catalog import Catalog
from slatewise.recommender import PolicyShare, Recommender

DIM, USERS = 50, 50
SHADOWS = {
    "without": None,
    "popular": PolicyShare("popular"),
    "mmr": PolicyShare("mmr"),
    "diversity": PolicyShare("dc2b-calibrated", options={"diversity": 1.0}),
    "explore_slates": PolicyShare("dc2b-calibrated", options={"explore_slates": 0.05}),
}


def run(sizes: Sequence[int] = (1_682, 10_000, 100_000), turns: int = 11) -> dict[str, dict[str, float]]:
    """Return, for each number of items, the milliseconds of a slate without a shadow and what each shadow adds."""
    return {f"{n_items}": added(random_catalog(n_items, DIM), turns) for n_items in sizes}


def added(catalog: Catalog, turns: int) -> dict[str, float]:
    """Return the milliseconds per slate without a shadow, and how many more each shadow takes, medians over turns."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        recommenders = {
            name: stack.enter_context(Recommender(catalog, store=f"sqlite:///{folder}/{name}.db", shadow=shadow))
            for name, shadow in SHADOWS.items()
        }
        times = by_turns(recommenders, turns)
    plain = times.pop("without")
    more = {name: median(map(float.__sub__, taken, plain)) for name, taken in times.items()}
    return {name: round(1000.0 * value, 3) for name, value in {"without": median(plain), **more}.items()}


def by_turns(recommenders: Mapping[str, Recommender], turns: int) -> dict[str, list[float]]:
    """Return the seconds per slate of every turn; the first turn warms up, and every other one is in reverse order."""
    times: dict[str, list[float]] = {name: [] for name in recommenders}
    for turn in range(turns + 1):
        for name in list(recommenders)[:: 1 if turn % 2 else -1]:
            seconds = show(recommenders[name])
            if turn:
                times[name].append(seconds)
    return times


def show(recommender: Recommender) -> float:
    """Show a slate to every user, who then clicks on one item; return the processor time of showing, per slate."""
    before = time.process_time()
    slates = [recommender.recommend(f"user {user}", SLATE_SIZE) for user in range(USERS)]
    taken = time.process_time() - before
    for slate in slates:
        recommender.feedback(slate.slate_id, [slate.items[0].id], final=True)
    return taken / USERS


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shadow", description=__doc__)
    parser.add_argument("--items", type=int, nargs="+", default=[1_682, 10_000, 100_000])
    parser.add_argument("--turns", type=int, default=11)
    given = parser.parse_args()
    print(json.dumps({"machine": machine(), "ms": run(given.items, given.turns)}))


if __name__ == "__main__":
    main()
