"""The loop of a service for many synthetic people: traffic, evidence, rates, retraining (experiments/scale.py).

People are worked on in processes, chunk by chunk. What they saw and clicked is written to files; nothing but sums over
items comes back.
"""

from collections.abc import Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slatewise.belief.rates import Rates
from slatewise.catalog import Catalog
from slatewise.data.sparse_world import USERS_AT_ONCE
from slatewise.evidence import Attention, Evidence, Reactions
from slatewise.lab.click_models import inverse_root
from slatewise.lab.simulate import users_at_once
from slatewise.policies.calibrated import Calibrated
from slatewise.randomness import Streams, user_keys
from slatewise.retraining import InteractionLog

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]
Integers = NDArray[np.integer[Any]]

K = 10
WAVES = 5
"""How often a day the rates of all processes are brought together."""
PEOPLE_PER_TASK = 5_000


@dataclass(frozen=True, eq=False)
class Sums:
    """What some people did: how many places they liked and clicked, and per item how often it was seen and liked.

    `explained` counts likes beyond what a person's own taste explains.
    """

    liked: float
    clicked: float
    seen: Floats
    explained: Floats

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(
            self.liked + other.liked,
            self.clicked + other.clicked,
            self.seen + other.seen,
            self.explained + other.explained,
        )


@dataclass(frozen=True)
class Visit:
    """People `first` to `last` of a chunk who come on a day, and where their likes, their catalog and their log are."""

    likes: Path
    catalog: Path
    log: Path
    day: int
    first: int
    last: int

    def log_of(self, day: int) -> Path:
        """Where what these people saw on a day is written."""
        return self.log / f"{self.likes.stem}-{self.first:05d}-{day}.npy"


def visits(likes: Iterable[Path], catalog: Path, log: Path, day: int, n_users: int) -> list[Visit]:
    """Divide all people of a world."""
    result = []
    for chunk, file in enumerate(likes):
        n_here = min(USERS_AT_ONCE, n_users - chunk * USERS_AT_ONCE)
        result += [
            Visit(file, catalog, log, day, first, min(first + PEOPLE_PER_TASK, n_here))
            for first in range(0, n_here, PEOPLE_PER_TASK)
        ]
    return result


def run_day(processes: Executor, todo: list[Visit], catalog: Catalog) -> tuple[Sums, list[float]]:
    """Let everybody come, wave by wave; return the sums, and the share of places that were liked in each wave."""
    total = Sums(0.0, 0.0, np.zeros(catalog.n_items), np.zeros(catalog.n_items))
    strength, rates = catalog.rate_strengths, 1.0 / (1.0 + np.exp(-catalog.log_odds))
    shares = []
    for wave in np.array_split(np.arange(len(todo)), min(WAVES, len(todo))):
        now = (strength * rates + total.explained) / (strength + total.seen)
        mean = np.clip(now, 1e-4, 1.0 - 1e-4)
        some = [todo[position] for position in wave]
        results = list(processes.map(visit, some, [mean] * len(some), [strength + total.seen] * len(some)))
        n_places = K * sum(part.last - part.first for part in some)
        shares.append(sum(result.liked for result in results) / n_places)
        total = sum(results, total)
    return total, shares


@lru_cache(maxsize=1)
def _policy(catalog: Path) -> Calibrated:
    return Calibrated(Catalog.load(catalog))


@lru_cache(maxsize=1)
def _likes(file: Path) -> tuple[Integers, Integers]:
    frame = pl.read_parquet(file)
    return frame["user_id"].to_numpy(), frame["item_id"].to_numpy()


def visit(job: Visit, mean: Floats, strength: Floats) -> Sums:
    """Show each person one slate, chosen by what they did before and by the rates of now; write down what they saw."""
    policy = _policy(job.catalog).with_rates(Rates(mean, strength))
    n_items, sums, shown = len(mean), [], []
    for first in range(job.first, job.last, users_at_once(n_items)):
        last = min(first + users_at_once(n_items), job.last)
        rows = slice(first - job.first, last - job.first)
        earlier = [np.load(job.log_of(day))[rows] for day in range(job.day)]
        items, result = _serve(policy, _table(job.likes, first, last, n_items), earlier, (job, first))
        shown.append(items)
        sums.append(result)
    np.save(job.log_of(job.day), np.concatenate(shown))
    return sum(sums[1:], sums[0])


def _table(file: Path, first: int, last: int, n_items: int) -> Booleans:
    users, items = _likes(file)
    begin, end = np.searchsorted(users, users[0] + np.array([first, last]))
    liked = np.zeros((last - first, n_items), dtype=bool)
    liked[users[begin:end] - users[0] - first, items[begin:end]] = True
    return liked


def _serve(policy: Calibrated, likes: Booleans, earlier: list[Integers], who: tuple[Visit, int]) -> tuple[Any, Sums]:
    """Return what was shown, coded as `code` does, and the sums."""
    (job, first), n_users = who, len(likes)
    state, available = policy.start(n_users), np.ones_like(likes)
    for codes in earlier:
        evidence = decode(codes)
        state = policy.update(state, evidence)
        np.put_along_axis(available, codes.astype(np.int64) >> 2, False, axis=1)
    keys = user_keys([f"{job.likes.stem} {person}" for person in range(first, first + n_users)])
    items = policy.select(state, available, K, Streams(0, keys, job.day)).items
    liked = np.take_along_axis(likes, items, axis=1)
    clicked, seen = inverse_root(liked, Streams(1, keys, job.day))
    codes = code(items, clicked, seen)
    evidence, sums = decode(codes), np.zeros((2, likes.shape[1]))
    taste = np.linalg.solve(state["precision"], state["shift"][..., None])[..., 0]
    expected = np.einsum("ur,ukr->uk", taste, policy.vectors[items].astype(np.float64))
    np.add.at(sums[0], items[seen], 1.0)
    np.add.at(sums[1], items[seen], (evidence.value - expected)[seen])
    return codes, Sums(float(liked.sum()), float(clicked.sum()), *sums)


def code(items: Integers, clicked: Booleans, seen: Booleans) -> NDArray[np.int32]:
    """Pack an item with whether it was clicked and seen into one number."""
    return np.asarray(items * 4 + clicked * 2 + seen, dtype=np.int32)


def decode(codes: Integers) -> Evidence:
    """Return what codes (n_users, k) teach, as a service learns it from a client that says what was seen."""
    clicked, seen = (codes & 2) > 0, (codes & 1) > 0
    value = np.where(clicked, 1.0, np.nan)
    told = np.ones(len(codes), dtype=bool)
    return Attention().evidence(Reactions(codes.astype(np.int64) >> 2, value, seen, told))


def interaction_log(days: list[list[Path]], n_items: int) -> InteractionLog:
    """Return the log of all people, with one step per day; `days` lists the files of each day."""
    codes = np.stack([np.concatenate([np.load(file) for file in files]) for files in days], axis=1)
    seen = (codes & 1) > 0
    observed = codes[seen]
    n_people, n_days = codes.shape[:2]
    return InteractionLog(
        item_ids=tuple(range(n_items)),
        people=np.arange(n_people + 1, dtype=np.int64) * n_days,
        starts=np.concatenate([[0], np.cumsum(seen.sum(axis=2).ravel())]).astype(np.int64),
        at=np.tile(np.arange(n_days, dtype=np.float64), n_people) * 86_400.0,
        is_slate=np.ones(n_people * n_days, dtype=bool),
        items=(observed >> 2).astype(np.int64),
        value=((observed & 2) > 0).astype(np.float64),
        weight=np.ones(len(observed)),
        examined=np.ones(len(observed)),
    )
