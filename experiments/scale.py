"""The scale proof: a large synthetic world from the first draw to precision, with time and memory of every stage.

Run: python experiments/scale.py [--users 100000] [--items 50000] [--workers 2] [--out experiments/results/scale.md]
Memory is the proportional set size (PSS) of this process and all its children together, sampled ten times a second.
"""

import argparse
import os
import platform
import shlex
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import polars as pl
import psutil

from slatewise.data.dataset import Dataset
from slatewise.data.synthetic import WorldSize, make_world
from slatewise.lab.experiment import Experiment, Results, load_experiment, n_tasks, run
from slatewise.lab.metrics import per_split, per_user
from slatewise.lab.simulate import users_at_once
from slatewise.report import versions

SECONDS_BETWEEN_SAMPLES = 0.1
MEGABYTE = 1e6


@dataclass
class Stages:
    """Watches time and memory of this process and its children, stage after stage."""

    rows: list[tuple[str, float, float, float]] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    used: float = 0.0
    peak: float = 0.0

    def __post_init__(self) -> None:
        threading.Thread(target=self._watch, daemon=True).start()

    def end(self, name: str) -> None:
        """Close a stage."""
        self._sample()
        used = sum(map(_processor_seconds, _family()))
        row = (name, time.monotonic() - self.began, used - self.used, self.peak)
        self.rows.append(row)
        print(f"{name}: {row[1]:.0f} s, {row[2]:.0f} s of processors, at most {row[3]:.0f} MB", flush=True)
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
    return float(times.user + times.system + times.children_user + times.children_system)


def play(experiment: Experiment, dataset: Dataset, workers: int, stages: Stages) -> Results:
    """Run the experiment, and close a stage when training ends and when every arm has been answered."""
    n_chunks = (n_tasks(experiment, dataset) - experiment.splits) // len(experiment.arms)
    ends = {experiment.splits: "training: BPR, taste vectors, catalog"}
    for place, arm in enumerate(experiment.arms):
        ends[experiment.splits + (place + 1) * n_chunks] = f"{arm.rounds} rounds of {arm.k}: {arm.label}"
    done = 0

    def on_task() -> None:
        nonlocal done
        done += 1
        if done in ends:
            stages.end(ends[done])

    return run(experiment, dataset, workers, on_task)


def precision_by_round(records: pl.DataFrame) -> pl.DataFrame:
    """The share clicked in each round, and of all items shown so far."""
    rounds = records.group_by("policy", "round", maintain_order=True).agg(pl.col("clicked").mean()).sort("round")
    return rounds.pivot(on="round", index="policy", values="clicked")


def page(world: Dataset, experiment: Experiment, results: Results, stages: Stages) -> str:
    """Write the figures down as Markdown."""
    likes = np.diff(world.user_starts)
    asked = results.records["user"].n_unique()
    metrics = per_split(per_user(results.records, world.categories))
    head = f"""# The scale proof

Command: `{shlex.join(["python", "experiments/scale.py", *sys.argv[1:]])}`

Machine: {platform.system()} {platform.machine()}, {os.cpu_count()} cores, {_processor()}; {
        ", ".join(f"{name} {number}" for name, number in versions().items())
    }.

World: {world.n_users:,} people × {world.n_items:,} items, {world.n_interactions:,} likes ({likes.mean():.0f} per
person, median {np.median(likes):.0f}), {world.n_categories} categories. {world.n_users - asked:,} people train the
catalog; {asked:,} others, whom it has never seen, answer, {users_at_once(world.n_items)} at a time in each process.

Memory is the sum of the proportional set sizes of all processes, sampled ten times a second.

| stage | seconds | seconds of processors | most memory, MB |
| --- | ---: | ---: | ---: |
"""
    rows = "".join(_line(*row) for row in stages.rows)
    _, seconds, used, memory = zip(*stages.rows, strict=True)
    total = _line("all", sum(seconds), sum(used), max(memory))
    rates = "".join(_rate(row, asked, experiment) for row in stages.rows)
    return head + rows + total + rates + _tables(metrics, precision_by_round(results.records))


def _line(name: str, seconds: float, used: float, memory: float) -> str:
    return f"| {name} | {seconds:,.0f} | {used:,.0f} | {memory:,.0f} |\n"


def _rate(row: tuple[str, float, float, float], asked: int, experiment: Experiment) -> str:
    for arm in experiment.arms:
        if row[0].endswith(f": {arm.label}"):
            slates, each = asked * arm.rounds, 1000.0 * row[2] / (asked * arm.rounds)
            return f"\n{arm.label}: {slates / row[1]:,.0f} slates a second, {each:.2f} ms of a core each.\n"
    return ""


def _tables(metrics: pl.DataFrame, rounds: pl.DataFrame) -> str:
    names = ("p@10", "p@30", "p@50", "diversity", "f")
    lines = [f"\n| policy | {' | '.join(names)} |", f"| --- |{' ---: |' * len(names)}"]
    lines += [
        f"| {row['policy']} | {' | '.join(f'{row[name]:.4f}' for name in names)} |"
        for row in metrics.iter_rows(named=True)
    ]
    lines += [
        "\nShare clicked in each round:\n",
        f"| policy | {' | '.join(f'round {name}' for name in _numbers(rounds))} |",
    ]
    lines += [f"| --- |{' ---: |' * (rounds.width - 1)}"]
    lines += [f"| {row[0]} | {' | '.join(f'{value:.4f}' for value in row[1:])} |" for row in rounds.iter_rows()]
    return "\n".join(lines) + "\n"


def _numbers(rounds: pl.DataFrame) -> list[int]:
    return [int(name) + 1 for name in rounds.columns[1:]]


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "processor unknown")


def main() -> None:
    """Make the world, run the experiment, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=100_000)
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--test-share", type=float, default=0.2)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    experiment = load_experiment(Path(__file__).with_suffix(".toml"))
    embedding = replace(experiment.embedding, epochs=options.epochs)
    experiment = replace(experiment, test_share=options.test_share, embedding=embedding)
    stages = Stages()
    world = make_world(WorldSize(options.users, options.items, 18, top_log_odds=0.3, taste_spread=2.5)).dataset
    stages.end("drawing the world")
    results = play(experiment, world, options.workers, stages)
    text = page(world, experiment, results, stages)
    stages.end("records and metrics")
    print(text)
    if options.out:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
