"""Test users react to slates: five rounds of ten items, in the paper with a click on all they are known to like."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slatewise.data.dataset import Dataset
from slatewise.evidence import Attention, Evidence, Reactions
from slatewise.lab.click_models import ClickModel, everything
from slatewise.policies.protocol import Policy, Slates
from slatewise.randomness import Streams, user_keys

CHUNK_CELLS = 2_000_000
MOST_USERS = 2_000
LEAST_PROBABILITY = 1e-9
SALT = "clicks of "


@dataclass(frozen=True)
class Audience:
    """What people look at and click, and what a policy learns of it: what was seen is told, or left to `attention`."""

    click_model: ClickModel = everything
    attention: Attention = field(default_factory=Attention)
    tells_seen: bool = False

    def evidence(self, outcome: "Outcome") -> Evidence:
        """Return what a policy learns from what users did."""
        told = np.full(len(outcome.clicks), self.tells_seen)
        value = np.where(outcome.clicks, 1.0, np.nan)
        return self.attention.evidence(Reactions(outcome.slates.items, value, outcome.seen, told))


@dataclass(frozen=True)
class Session:
    """How long each person is asked: rounds of k items; the seed of every random draw; and who looks at what."""

    rounds: int = 5
    k: int = 10
    seed: int = 0
    audience: Audience | None = None


@dataclass(frozen=True)
class Outcome:
    """Slates and, each (n_users, k), what users like of them, saw and clicked."""

    slates: Slates
    liked: NDArray[np.bool_]
    seen: NDArray[np.bool_]
    clicks: NDArray[np.bool_]


def simulate(policy: Policy, people: Dataset, session: Session | None = None, chunk: int | None = None) -> pl.DataFrame:
    """Let every person of a data set react to a policy's slates; return one flat record per shown item.

    Columns: user, round, position, item, clicked, log_probability, diversity_gain; with an audience also liked and
    seen, which are otherwise the same as clicked and true. Users are worked on in chunks, bounded by memory; neither
    their size nor the order of users changes any record.
    """
    session = session or Session()
    size = chunk or users_at_once(people.n_items)
    parts = [
        _simulate_users(policy, people, np.arange(start, min(start + size, people.n_users)), session)
        for start in range(0, people.n_users, size)
    ]
    return pl.concat(parts)


def users_at_once(n_items: int) -> int:
    """How many users are worked on together: their tables (n_users, n_items) and their beliefs must fit in memory."""
    return min(MOST_USERS, max(1, CHUNK_CELLS // n_items))


def _simulate_users(policy: Policy, people: Dataset, users: NDArray[np.int64], session: Session) -> pl.DataFrame:
    """Run all rounds for one chunk of users."""
    liked, audience = _liked(people, users), session.audience or Audience()
    available = np.ones_like(liked)
    ids = people.user_ids[users].tolist()
    keys, keys_of_clicks = user_keys(ids), user_keys(f"{SALT}{user}" for user in ids)
    state, shown = policy.start(len(users)), []
    for number in range(session.rounds):
        for step, k in _steps(policy, number, session.k):
            slates = policy.select(state, available, k, Streams(session.seed, keys, step))
            is_liked = np.take_along_axis(liked, np.maximum(slates.items, 0), axis=1) & (slates.items >= 0)
            clicks, seen = audience.click_model(is_liked, Streams(session.seed, keys_of_clicks, step))
            shown.append(Outcome(slates, is_liked, seen, clicks))
            state = policy.update(state, audience.evidence(shown[-1]))
            _withdraw(available, slates.items)
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


def _records(users: NDArray[np.int64], session: Session, shown: list[Outcome]) -> pl.DataFrame:
    """Lay all slates out flat, by user, round and position; positions without an item leave no record."""
    probability = _flat([outcome.slates.probability for outcome in shown])
    rounds, positions = np.divmod(np.arange(session.rounds * session.k), session.k)
    frame = pl.DataFrame(
        {
            "user": np.repeat(users.astype(np.int32), len(rounds)),
            "round": np.tile(rounds.astype(np.int16), len(users)),
            "position": np.tile(positions.astype(np.int16), len(users)),
            "item": _flat([outcome.slates.items for outcome in shown]).astype(np.int32),
            "clicked": _flat([outcome.clicks for outcome in shown]),
            "log_probability": np.log(np.maximum(probability, LEAST_PROBABILITY)).astype(np.float32),
            "diversity_gain": _flat([outcome.slates.diversity_gain for outcome in shown]).astype(np.float32),
        }
    )
    if session.audience is not None:
        seen, liked = (_flat([getattr(outcome, name) for outcome in shown]) for name in ("seen", "liked"))
        frame = frame.with_columns(liked=pl.Series(liked), seen=pl.Series(seen))
    return frame.filter(pl.col("item") >= 0).with_columns(pl.col("log_probability").fill_nan(None))


def _flat(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Join arrays (n_users, k) of one round after the other, user by user."""
    return np.concatenate(parts, axis=1).ravel()
