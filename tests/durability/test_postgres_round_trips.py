"""Slates and feedback wait for PostgreSQL a few times only; what is sent ahead never changes what is read."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from benchmarks.round_trips import counted, measure_round_trips
from slatewise.catalog import Catalog
from slatewise.recommender import Event, Recommender
from slatewise.recommender.feedback import FeedbackEvent
from slatewise.recommender.types import UnknownSlateError
from slatewise.store import StoreDamagedError, statements
from slatewise.store.postgres import PostgresStore
from slatewise.store.postgres_reader import Reader
from slatewise.store.postgres_transaction import PostgresTransaction
from slatewise.store.protocol import START, BeliefRecord, Transaction
from tests.support.postgres import Server
from tests.support.postgres_proxy import Proxy, proxy_to
from tests.support.recommending import serving
from tests.support.store_rows import answer, do, emptied, event, fill, slate

MAX_FOR_SLATE, MAX_FOR_CACHED, MAX_FOR_FEEDBACK = 3, 2, 2


@pytest.fixture
def url(postgres_server: Server) -> str:
    return emptied(postgres_server)


@pytest.fixture
def recommender(url: str) -> Iterator[Recommender]:
    vectors = np.random.default_rng(0).normal(size=(300, 4))
    with Recommender(Catalog.from_vectors(range(300), vectors), store=url) as opened:
        yield opened


def test_slates_and_feedback_take_few_round_trips(url: str) -> None:
    assert measure_round_trips(url) == {
        "pg_round_trips_slate": MAX_FOR_SLATE,
        "pg_round_trips_slate_cached": MAX_FOR_CACHED,
        "pg_round_trips_feedback": MAX_FOR_FEEDBACK,
    }


def test_a_store_that_sends_nothing_ahead_is_caught(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("expect_profile", "expect_feedback"):
        monkeypatch.setattr(PostgresTransaction, name, lambda *_: None)
    found = measure_round_trips(url)
    assert found["pg_round_trips_slate"] > MAX_FOR_SLATE
    assert found["pg_round_trips_feedback"] > MAX_FOR_FEEDBACK


@pytest.fixture
def proxy(postgres_server: Server) -> Iterator[Proxy]:
    emptied(postgres_server)
    with proxy_to(postgres_server) as one:
        yield one


def test_they_are_as_few_on_the_wire(proxy: Proxy) -> None:
    """The least of several: what is sent without waiting for a response may look like a round trip."""
    catalog, found = Catalog.from_vectors(range(90), [[float(item), 1.0] for item in range(90)]), []
    with Recommender(catalog, store=proxy.url) as one, counted() as count:
        for number in range(8):
            before = proxy.round_trips, count.n
            slate = one.recommend("ann", 5)
            between = proxy.round_trips, count.n
            one.feedback(slate.slate_id, [slate.items[0].id], event_id=str(number))
            after = proxy.round_trips, count.n
            found.append([between[0] - before[0], between[1] - before[1], after[0] - between[0], after[1] - between[1]])
    by_wire, by_count, feedback_by_wire, feedback_by_count = np.min(found, axis=0).tolist()
    assert by_wire == by_count == MAX_FOR_CACHED
    assert feedback_by_wire == feedback_by_count == MAX_FOR_FEEDBACK


def read_profile(t: Transaction, user: str, first: int, since: Any) -> Any:
    return t.lock(user), t.belief(user), t.slates_of(user, first), t.feedback_of(user, since), t.events_of(user, since)


@pytest.mark.parametrize("covers", [None, 0, 2, 3])
@pytest.mark.parametrize("known", [True, False])
def test_what_is_read_ahead_is_what_would_have_been_read(url: str, covers: int | None, known: bool) -> None:
    """Whatever belief there is, and whatever part of the log is asked for."""
    store = PostgresStore.open(url)
    if known:
        fill(store, ["u", "v"])
    for number in range(3):
        do(store, lambda t, number=number: t.add_event(event("u", number, received_at=1e9 + number / 3)))  # type: ignore[misc]
        do(store, lambda t, number=number: t.add_feedback(answer("u", number, " more", received_at=1e9 + number / 3)))  # type: ignore[misc]
    if covers is None:
        do(store, lambda t: t.discard_belief("u"))
    else:
        do(store, lambda t: t.save_belief(BeliefRecord("u", "space", covers, b"x")))

    def both(t: Transaction) -> tuple[Any, Any]:
        asked = [(first, since) for first in range(3) for since in (START, *((1e9 + n / 3, "") for n in range(4)))]
        plainly = [read_profile(t, "u", *one) for one in asked]
        t.expect_profile("u")
        return plainly, [read_profile(t, "u", *one) for one in asked]

    plainly, ahead = store.read(both)
    assert plainly == ahead
    store.close()


def test_a_reader_that_takes_any_part_of_the_log_for_all_of_it_is_caught(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reader, "since", lambda *_: float("-inf"))
    with pytest.raises((AssertionError, StoreDamagedError)):
        test_what_is_read_ahead_is_what_would_have_been_read(url, 2, True)


def test_profiles_loaded_ahead_give_the_same_slates(recommender: Recommender, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody comes back after slates, late feedback and events from elsewhere."""
    draw, slates = random.Random(5), []
    for number in range(40):
        serving(recommender).profiles.drop("ann")
        with monkeypatch.context() as plainly:
            plainly.setattr(PostgresTransaction, "expect_profile", lambda *_: None)
            expected = recommender.preview("ann", 5).items
        serving(recommender).profiles.drop("ann")
        assert recommender.preview("ann", 5).items == expected
        slates.append(recommender.recommend("ann", 5))
        late = draw.choice(slates)
        recommender.feedback(late.slate_id, [late.items[0].id], event_id=str(number), final=draw.random() < 0.7)
        if draw.random() < 0.3:
            recommender.record_event(Event("ann", draw.randrange(300), "like", event_id=f"event {number}"))
    assert dict(recommender.verify()) == {"ann": None}


def test_feedback_that_names_another_user_finds_its_slate(recommender: Recommender) -> None:
    """What was expected of the user who was named is of no use."""
    slate = recommender.recommend("ann", 5)
    recommender.recommend("ben", 5)
    receipt = recommender.feedback(slate.slate_id, [slate.items[0].id], event_id="1", user="ben")
    assert receipt.slate_id == slate.slate_id
    assert [one["event_id"] for one in recommender.export("ann")["feedback"]] == ["1"]
    with pytest.raises(UnknownSlateError):
        recommender.feedback_later(FeedbackEvent("none", event_id="2", user="ben")).result()


def test_the_statement_for_all_feedback_names_the_user_twice() -> None:
    """The values are exchanged by position."""
    assert statements.FEEDBACK_ON_OR_WITH_ID.count("user_id = ?") == 2
    assert statements.FEEDBACK_ON_OR_WITH_ID.count("?") == len((slate("u", 0).user, "s", "u", "e", "s"))
