"""Test users answer slates: five rounds of ten items, a click on whatever they are known to like (DESIGN 1.6)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slatewise.data.dataset import Dataset
from slatewise.evidence import Evidence
from slatewise.policies.protocol import Policy, Slates
from slatewise.randomness import Streams, user_keys

CHUNK_CELLS = 2_000_000
MOST_USERS = 2_000
LEAST_PROBABILITY = 1e-9


@dataclass(frozen=True)
class Session:
    """How long each person is asked: rounds of k items; the seed of every random draw."""

    rounds: int = 5
    k: int = 10
    seed: int = 0


def simulate(policy: Policy, people: Dataset, session: Session | None = None, chunk: int | None = None) -> pl.DataFrame:
    """Let every person of a data set answer a policy; return one flat record per shown item.

    Columns: user, round, position, item, clicked, log_probability, diversity_gain. Users are worked on in chunks,
    bounded by memory; neither their size nor the order of users changes any record.
    """
    session = session or Session()
    size = chunk or users_at_once(people.n_items)
    parts = [
        _answer(policy, people, np.arange(start, min(start + size, people.n_users)), session)
        for start in range(0, people.n_users, size)
    ]
    return pl.concat(parts)


def users_at_once(n_items: int) -> int:
    """How many users are worked on together: their tables (n_users, n_items) and their beliefs must fit in memory."""
    return min(MOST_USERS, max(1, CHUNK_CELLS // n_items))


def _answer(policy: Policy, people: Dataset, users: NDArray[np.int64], session: Session) -> pl.DataFrame:
    """Run all rounds for one chunk of users."""
    liked = _liked(people, users)
    available = np.ones_like(liked)
    keys = user_keys(people.user_ids[users].tolist())
    state, shown = policy.start(len(users)), []
    for number in range(session.rounds):
        for step, k in _steps(policy, number, session.k):
            slates = policy.select(state, available, k, Streams(session.seed, keys, step))
            clicks = np.take_along_axis(liked, np.maximum(slates.items, 0), axis=1) & (slates.items >= 0)
            state = policy.update(state, Evidence.of_clicks(slates.items, clicks))
            _withdraw(available, slates.items)
            shown.append((slates, clicks))
    return _records(users, session, shown)


def _steps(policy: Policy, number: int, k: int) -> Iterator[tuple[int, int]]:
    """Yield (step, items to choose): one step for a whole slate, or one per item for policies that need it."""
    if policy.one_at_a_time:
        yield from ((number * k + position, 1) for position in range(k))
    else:
        yield number * k, k


def _liked(people: Dataset, users: NDArray[np.int64]) -> NDArray[np.bool_]:
    """What each of these users likes, as a table (n_users, n_items)."""
    rows = slice(people.user_starts[users[0]], people.user_starts[users[-1] + 1])
    liked = np.zeros((len(users), people.n_items), dtype=bool)
    liked[people.users[rows] - users[0], people.items[rows]] = True
    return liked


def _withdraw(available: NDArray[np.bool_], items: NDArray[np.int64]) -> None:
    """Take shown items (n_users, k) out of what is available (Algorithm 1)."""
    users, positions = np.nonzero(items >= 0)
    available[users, items[users, positions]] = False


def _records(users: NDArray[np.int64], session: Session, shown: list[tuple[Slates, NDArray[np.bool_]]]) -> pl.DataFrame:
    """Lay all slates out flat, by user, round and position; positions without an item leave no record."""
    items = np.concatenate([slates.items for slates, _ in shown], axis=1).ravel()
    probability = np.concatenate([slates.probability for slates, _ in shown], axis=1).ravel()
    rounds, positions = np.divmod(np.arange(session.rounds * session.k), session.k)
    frame = pl.DataFrame(
        {
            "user": np.repeat(users.astype(np.int32), len(rounds)),
            "round": np.tile(rounds.astype(np.int16), len(users)),
            "position": np.tile(positions.astype(np.int16), len(users)),
            "item": items.astype(np.int32),
            "clicked": np.concatenate([clicks for _, clicks in shown], axis=1).ravel(),
            "log_probability": np.log(np.maximum(probability, LEAST_PROBABILITY)).astype(np.float32),
            "diversity_gain": np.concatenate([s.diversity_gain for s, _ in shown], axis=1).ravel().astype(np.float32),
        }
    )
    return frame.filter(pl.col("item") >= 0).with_columns(pl.col("log_probability").fill_nan(None))
