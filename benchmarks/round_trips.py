"""How often a request waits for PostgreSQL: `python -m benchmarks.round_trips` prints it as JSON.

A round trip is counted where the store waits for a response to something that it has sent since it last waited. What is
sent without waiting, such as the end of a transaction that only read, costs nobody any time.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from slatewise.catalog import Catalog
from slatewise.recommender import Recommender
from slatewise.store.postgres_session import Session, Statement

N_ITEMS, N_SLATES, K = 1_000, 20, 10


class RoundTrips:
    """A count of round trips."""

    def __init__(self) -> None:
        self.n = 0

    def of(self, act: Callable[[], Any]) -> int:
        """Return how many an action takes."""
        before = self.n
        act()
        return self.n - before


@contextmanager
def counted() -> Iterator[RoundTrips]:
    """Count the round trips of all sessions in this process."""
    count, rows, sync = RoundTrips(), Session.rows, Session.sync

    def counting_rows(session: Session, statement: Statement) -> Any:
        count.n += statement.result is None and not session._is_flushed
        return rows(session, statement)

    def counting_sync(session: Session, *, wait: bool = True) -> None:
        count.n += wait
        sync(session, wait=wait)

    with patch.object(Session, "rows", counting_rows), patch.object(Session, "sync", counting_sync):
        yield count


def measure_round_trips(url: str) -> dict[str, float]:
    """Return the most that a slate and a feedback event take on a store, and what a slate of a cached user takes."""
    vectors = np.random.default_rng(0).normal(size=(N_ITEMS, 10))
    with Recommender(Catalog.from_vectors(range(N_ITEMS), vectors), store=url) as recommender, counted() as count:
        for number in range(2):  # connections are made, and the user becomes known
            take_one(recommender, count, f"warm up {number}")
        taken = [take_one(recommender, count, str(number)) for number in range(N_SLATES)]
    slates, cached, feedbacks = zip(*taken, strict=True)
    return {
        "pg_round_trips_slate": max(slates),
        "pg_round_trips_slate_cached": max(cached),
        "pg_round_trips_feedback": max(feedbacks),
    }


def take_one(recommender: Recommender, count: RoundTrips, event: str) -> tuple[int, int, int]:
    """Take a slate for a user who is not cached, one for the user who is then, and react to it."""
    recommender._serving.profiles.drop("ann")
    first = count.of(lambda: recommender.recommend("ann", K))
    slates: list[Any] = []
    second = count.of(lambda: slates.append(recommender.recommend("ann", K)))
    slate = slates[0]
    clicked = [slate.items[0].id]
    return first, second, count.of(lambda: recommender.feedback(slate.slate_id, clicked, event_id=event, user="ann"))


def run() -> dict[str, float]:
    """Measure on a throw-away server."""
    from tests.support.postgres import throw_away_server

    with throw_away_server() as server:
        return measure_round_trips(server.url)


if __name__ == "__main__":
    print(json.dumps(run()))
