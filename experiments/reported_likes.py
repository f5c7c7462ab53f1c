"""`python experiments/reported_likes.py NAME [--splits N]`: the first slate of people who reported some likes.

Validation users, who are some of the training users, report n of their likes; how many of the ten items of their first
slate (diversity 0) are among their other likes, what was said about that, and the log-loss of what was said. Reports
are learned as they are by a service, and, for comparison, as if they were items that were seen and liked.
"""

import argparse
from collections.abc import Iterator
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from slatewise.catalog import Catalog
from slatewise.catalog.embeddings import BprSettings
from slatewise.data.dataset import Dataset
from slatewise.data.sources import load
from slatewise.evidence import Evidence
from slatewise.lab.tuning import VALIDATION_SHARE
from slatewise.policies import Available
from slatewise.policies.calibrated import Calibrated
from slatewise.randomness import Streams, user_keys

REPORTED = (1, 3, 5, 10, 20, 40)
OTHERS = 15
"""People have at least so many likes that they did not report."""
PEOPLE, K = 400, 10
NEARLY = 0.005
"""A probability is taken for no nearer to 0 or 1 than this, so that log-losses are finite."""

Integers = NDArray[np.int64]
Outcome = tuple[float, float, float]


def main() -> None:
    """Print a row for each number of reports, learned in both ways."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--splits", type=int, default=2)
    given = parser.parse_args()
    outcomes: dict[tuple[int, bool], list[Outcome]] = {}
    for seed in range(given.splits):
        training, _ = load(given.name).split(0.2, seed=seed)
        rest, validation = training.split(VALIDATION_SHARE, seed=seed)
        policy = Calibrated(Catalog.train(rest, BprSettings(epochs=1)), diversity=0.0)
        people = list(likes_of_people(policy.catalog, validation, seed))
        for number in REPORTED:
            for as_reports in (False, True):
                found = first_slates(policy, people, number, as_reports)
                outcomes.setdefault((number, as_reports), []).append(found)
    print("| reported | as seen: said, liked, log-loss | as reports: said, liked, log-loss |\n|---|---|---|")
    for number in REPORTED:
        cells = [in_words(outcomes[number, as_reports]) for as_reports in (False, True)]
        print(f"| {number} | {cells[0]} | {cells[1]} |")


def in_words(outcomes: list[Outcome]) -> str:
    """Return the means over splits."""
    return ", ".join(f"{mean(values):.3f}" for values in zip(*outcomes, strict=True))


def likes_of_people(catalog: Catalog, people: Dataset, seed: int) -> Iterator[Integers]:
    """Yield the likes of up to PEOPLE people, as item numbers in random order."""
    draw, numbers = np.random.default_rng(seed), catalog.item_ids.find_all(list(people.item_ids))
    for user in draw.permutation(people.n_users)[:PEOPLE].tolist():
        likes = numbers[people.items[people.users == user]]
        yield draw.permutation(likes[likes >= 0])


def first_slates(policy: Calibrated, people: list[Integers], number: int, as_reports: bool) -> Outcome:
    """Return what was said of first slates, how much of them is liked, and the log-loss, as means."""
    said, liked, random = list[float](), list[bool](), Streams(0, user_keys(["anybody"]), 0)
    for likes in people:
        known, others = likes[:number], likes[number:]
        if len(others) < OTHERS:
            continue
        ones = np.ones((1, number))
        evidence = Evidence(known[None], ones, ones, ones, np.full((1, number), as_reports))
        state = policy.update(policy.start(1), evidence)
        slate = policy.select(state, Available.of(policy.catalog.n_items, known), K, random)
        said += slate.probability[0].tolist()
        liked += np.isin(slate.items[0], others).tolist()
    p, y = np.clip(said, NEARLY, 1.0 - NEARLY), np.array(liked)
    return float(np.mean(said)), float(y.mean()), float(-np.log(np.where(y, p, 1.0 - p)).mean())


if __name__ == "__main__":
    main()
