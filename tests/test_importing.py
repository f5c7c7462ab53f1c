"""History for a store: tables are checked row by row, nothing is recorded twice, customers are known from the start."""

import gc
import json
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from itertools import islice, pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from slatewise.catalog import Catalog
from slatewise.cli import app
from slatewise.cli.event_table import Meaning, events_in, read_events
from slatewise.cli.importing import without_garbage_collection
from slatewise.data.tables import DataError
from slatewise.recommender import ConflictError, Recommender
from slatewise.recommender.events import Event
from slatewise.recommender.history import add_history
from slatewise.store import open_store
from slatewise.store.memory import MemoryStore
from slatewise.store.protocol import BeliefRecord, EventRecord, Store
from tests.support.recommending import Clock, make_catalog
from tests.support.store_rows import do, emptied

NOW = 1_700_000_000.0


def past(user: str, item: int | str, kind: str = "like", **more: Any) -> Event:
    return Event(user, item, kind, **more)


def written(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def read(path: Path, *lines: str, kind: str | None = None, ratings: tuple[float, float] | None = None) -> list[Any]:
    """The events in a table of these lines."""
    return list(events_in(read_events(written(path / "events.csv", *lines), Meaning(kind, ratings))))


def recorded(store: Store, user: str) -> list[EventRecord]:
    return store.read(lambda transaction: transaction.events_of(user))


def add(store: Store, events: Sequence[Event], now: float = NOW) -> tuple[int, int]:
    """Import events; return how many there were and how many of them were new."""
    counts = list(add_history(store, events, lambda: now))
    return sum(looked_at for looked_at, _ in counts), sum(new for _, new in counts)


def test_ids_keep_their_type_but_users_are_text(tmp_path: Path) -> None:
    assert read(tmp_path, "user_id,item_id", "7,1", "3,2") == [past("3", 2), past("7", 1)]
    assert read(tmp_path, "user_id,item_id", "ann,007") == [past("ann", "007")]


def test_every_column_is_read(tmp_path: Path) -> None:
    events = read(
        tmp_path,
        "user_id,item_id,kind,value,at,event_id",
        "ann,1,purchase,,1600000000,e1",
        "ann,2,rating,-0.5,1600000001.5,e2",
        "ann,3,,,,e3",
        kind="hide",
    )
    assert events[0] == Event("ann", 1, "purchase", None, 1.6e9, "e1")
    assert events[1] == Event("ann", 2, "rating", -0.5, 1600000001.5, "e2")
    assert events[2] == past("ann", 3, "hide", event_id="e3")


def test_values_without_a_kind_are_ratings_on_a_scale_of_the_table(tmp_path: Path) -> None:
    events = read(tmp_path, "user_id,item_id,rating", "ann,1,1", "ann,2,3", "ann,3,5", ratings=(1.0, 5.0))
    assert [(event.kind, event.value) for event in events] == [("rating", -1.0), ("rating", 0.0), ("rating", 1.0)]


@pytest.mark.parametrize("at", ["2020-01-31", "2020-01-31T00:00:00", "2020-01-31T00:00:00Z", "1580428800"])
def test_times_are_seconds_or_dates(tmp_path: Path, at: str) -> None:
    assert read(tmp_path, "user_id,item_id,timestamp", f"ann,1,{at}")[0].at == 1580428800.0


def test_parquet_is_read_too(tmp_path: Path) -> None:
    frame = pl.DataFrame({"user_id": [1], "item_id": ["tea"], "timestamp": ["2020-01-31"]})
    frame.with_columns(pl.col("timestamp").str.to_date()).write_parquet(tmp_path / "events.parquet")
    table = read_events(tmp_path / "events.parquet", Meaning())
    assert list(events_in(table)) == [past("1", "tea", at=1580428800.0)]


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["user_id,item", "ann,1"], "has no column 'item_id'"),
        (["user_id,item_id,kind", "ann,1,like", "ann,2,adored"], "line 3: kind 'adored'; choose one of like, purchase"),
        (["user_id,item_id,rating", "ann,1,0.5", "ann,2,4"], "line 3: rating 4.0; .* for example --ratings 1:5"),
        (["user_id,item_id,kind,value", "ann,1,like,1"], "line 2: value 1.0; a like has no value"),
        (["user_id,item_id,kind,value", "ann,1,view,"], "line 2: value None; a view has a value from 0 to 1"),
        (["user_id,item_id,timestamp", "ann,1,1600000000000"], "line 2: .* in the future; .* not milliseconds"),
        (["user_id,item_id,timestamp", "ann,1,2020-01-31", "ann,2,soon"], "line 3: timestamp 'soon'; give seconds"),
        (["user_id,item_id", "ann,1", ",2"], "line 3"),
        (["user_id,item_id", f"{'x' * 300},1"], "at most 256 characters"),
        (["user_id,item_id,value,rating", "ann,1,1,1"], "'value' and 'rating' mean the same"),
    ],
)
def test_a_wrong_row_is_named_before_anything_is_written(tmp_path: Path, lines: list[str], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        read(tmp_path, *lines)


def test_nothing_is_recorded_twice() -> None:
    """Neither a row that stands in the table twice, nor the same table again; the same item at another time is new."""
    store = MemoryStore()
    events = [past("ann", 1, at=5.0), past("ann", 1, at=5.0), past("ann", 2), past("ben", 1)]
    assert add(store, events) == (4, 3)
    assert add(store, events, NOW + 99.0) == (4, 0)
    assert add(store, [*events, past("ann", 1, at=6.0)]) == (5, 1)
    assert [event.item for event in recorded(store, "ann")] == [1, 2, 1]


def test_an_id_that_was_used_for_something_else_is_refused() -> None:
    store = MemoryStore()
    add(store, [past("ann", 1, event_id="e")])
    assert add(store, [past("ben", 2, event_id="e")]) == (1, 1)
    with pytest.raises(ConflictError, match="'e' of user 'ann'"):
        add(store, [past("ann", 2, event_id="e")])
    assert len(recorded(store, "ann")) == 1


def test_events_of_a_user_arrive_one_after_the_other_and_after_everything_before() -> None:
    store = MemoryStore()
    add(store, [past("ann", item) for item in range(2_500)])
    add(store, [past("ann", item, "purchase") for item in range(3)], NOW - 60.0)
    events = recorded(store, "ann")
    times = [event.received_at for event in events]
    assert all(earlier < later for earlier, later in pairwise(times))
    assert [event.kind for event in events[-3:]] == ["purchase"] * 3
    assert all(event.at == event.received_at for event in events)
    assert store.read(lambda t: t.lock("ann")).updated_at >= times[-1]


def test_an_event_is_learned_between_the_slates_it_happened_between() -> None:
    clock = Clock()
    with Recommender(make_catalog(30), clock=clock) as recommender:
        for _ in range(3):
            clock.now += 10.0
            recommender.recommend("ann", 2)
        happened = [clock.now - 100.0, clock.now - 20.0, clock.now - 1.0, None]
        events = [past("ann", item, at=at) for item, at in enumerate(happened)]
        add(recommender.store, events, clock.now + 5.0)
        assert [event.position for event in recorded(recommender.store, "ann")] == [0, 1, 2, 3]


def many(number: int) -> Iterator[Event]:
    for at in range(number):
        yield past(f"user {at // 20}", at, at=float(at))


def interrupted(events: Iterator[Event], after: int) -> Iterator[Event]:
    yield from islice(events, after)
    raise KeyboardInterrupt


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_an_import_that_was_interrupted_is_resumed_by_running_it_again(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path / 's.db'}" if kind == "sqlite" else emptied(request.getfixturevalue("postgres_server"))
    with closing(open_store(url)) as store, suppress(KeyboardInterrupt):
        list(add_history(store, interrupted(many(6_000), 4_011)))
    with closing(open_store(url)) as store:
        counts = list(add_history(store, many(6_000)))
        assert sum(looked_at for looked_at, _ in counts) == 6_000
        assert 0 < sum(new for _, new in counts) < 6_000
        kept = [event.item for user in store.users() for event in recorded(store, user)]
        assert sorted(kept) == list(range(6_000))


def test_the_check_of_repeated_imports_can_fail() -> None:
    """Negative control: ids that do not depend on the content."""
    store = MemoryStore()
    for _ in range(2):
        add(store, [past("ann", 1, event_id=uuid4().hex)])
    assert len(recorded(store, "ann")) == 2


def test_a_belief_that_does_not_know_the_history_is_discarded() -> None:
    store = MemoryStore()
    do(store, lambda t: t.save_belief(BeliefRecord("ann", "key", 3, b"belief")))
    add(store, [past("ann", 1)])
    assert store.read(lambda t: t.belief("ann")).content is None


def slatewise(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


def test_the_command_says_what_it_did(tmp_path: Path) -> None:
    table = written(tmp_path / "likes.csv", "user_id,item_id", "1,10", "1,11", "2,10")
    url = f"sqlite:///{tmp_path / 's.db'}"
    done = slatewise("store", "import", table, "--store", url, "--json")
    assert done.exit_code == 0, done.output
    assert {**json.loads(done.stdout), "seconds": 0} == {"events": 3, "new": 3, "seconds": 0}
    assert "0 events imported, 3 were there before" in slatewise("store", "import", table, "--store", url).output
    with closing(open_store(url)) as store:
        assert [(event.item, event.kind) for event in recorded(store, "1")] == [(10, "like"), (11, "like")]
        refused = slatewise("store", "import", table, "--store", url)
        assert refused.exit_code == 1
        assert "belongs to process" in refused.output


@pytest.mark.parametrize("ratings", ["5", "5:1", "a:b"])
def test_a_range_of_ratings_has_two_ends(tmp_path: Path, ratings: str) -> None:
    table = written(tmp_path / "likes.csv", "user_id,item_id", "1,10")
    done = slatewise("store", "import", table, "--ratings", ratings)
    assert done.exit_code == 2
    assert "is not a range such as 1:5" in done.output


LIKES = [(user, item) for user in range(30) for item in range(40) if (item < 20) == (user < 15) and (user + item) % 3]
"""Half of the users like the first twenty items, the others the rest; everybody two of three."""


def test_a_known_customer_gets_a_personal_slate_of_things_they_do_not_own(tmp_path: Path) -> None:
    """Trained, recorded and served from the command line's files; the control is somebody nobody knows."""
    table = written(tmp_path / "likes.csv", "user_id,item_id", *(f"{user},{item}" for user, item in LIKES))
    url, out = f"sqlite:///{tmp_path / 's.db'}", tmp_path / "shop"
    done = slatewise("train", "--interactions", table, "--out", out, "--record-in", url)
    assert done.exit_code == 0, done.output
    assert f"{len(LIKES):,} events imported" in done.output
    with Recommender(Catalog.load(out), store=url) as recommender:
        for user in ("0", "29"):
            owned = {item for one, item in LIKES if str(one) == user}
            known, unknown = recommender.recommend(user, 6), recommender.preview(f"nobody like {user}", 6)
            assert not owned & {item.id for item in known.items}
            same_half = [(int(item.id) < 20) == (int(user) < 15) for item in known.items]
            assert sum(same_half) > len(same_half) / 2
            assert [item.id for item in known.items] != [item.id for item in unknown.items]


def test_garbage_is_collected_again_after_an_import_that_failed() -> None:
    def fail() -> None:
        with without_garbage_collection():
            raise RuntimeError("on" if gc.isenabled() else "off")

    with pytest.raises(RuntimeError, match="off"):
        fail()
    assert gc.isenabled()
