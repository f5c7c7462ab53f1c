"""What every store promises, held by each of them."""

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import astuple, replace
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest

from slatewise.store import Store, StoreError, StoreUnavailableError, open_store
from slatewise.store.memory import LOG, MemoryStore
from slatewise.store.protocol import (
    CLOSED,
    START,
    WITHDRAWN,
    BeliefRecord,
    FitRecord,
    PolicyCounts,
    SlateRecord,
    Transaction,
    UserRecord,
)
from tests.support.postgres_kinds import POSTGRES_KINDS, url_of
from tests.support.store_rows import NASTY, answer, at_once, belief, do, event, fill, one_more, slate, user_row

KINDS = ["memory", "sqlite", *POSTGRES_KINDS]


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty store of each kind is."""
    return url_of(request.param, request, tmp_path)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """An empty store of each kind."""
    opened = open_store(url)
    yield opened
    opened.close()


def everything(store: Store, user: str) -> Any:
    """All that a store says of a user."""
    user_row, *log = store.read(lambda t: (t.lock(user), t.slates_of(user), t.feedback_of(user), t.belief(user)))
    events, choices = store.read(lambda t: (t.events_of(user), t.choices_of(user)))
    return (user_row, *log, *filter(None, (events, choices)))


def test_a_user_never_seen_is_empty(store: Store) -> None:
    assert do(store, lambda t: t.lock("nobody")) == UserRecord("nobody")
    assert everything(store, "nobody") == (UserRecord("nobody"), [], [], BeliefRecord("nobody"))
    assert list(store.users()) == []
    assert do(store, lambda t: t.forget("nobody")) is False


@pytest.mark.parametrize("user", NASTY, ids=range(len(NASTY)))
def test_rows_come_back_as_they_went(store: Store, user: str) -> None:
    fill(store, [user, "someone else"])
    slates, answers = [slate(user, n) for n in range(3)], [answer(user, n) for n in range(3)]
    assert everything(store, user) == (user_row(user), slates, answers, belief(user))
    assert [type(item) for item in everything(store, user)[1][0].items] == [int, str, int, str, int]
    assert store.read(lambda t: t.slate(slate(user, 1).slate_id)) == slate(user, 1)
    assert store.read(lambda t: t.feedback_on(slate(user, 1))) == [answer(user, 1)]
    assert set(store.users()) == {user, "someone else"}


def test_in_memory_the_log_of_a_user_is_read_without_looking_at_others() -> None:
    class Unscanned(dict[Any, Any]):
        def _refuse(self) -> Any:
            raise AssertionError("the rows of all users were looked at")

        __iter__ = items = keys = values = _refuse

    store = MemoryStore()
    fill(store, ["ann", "ben"])
    before = everything(store, "ann")
    for name in (*LOG, "choices"):
        setattr(store.tables, name, Unscanned(getattr(store.tables, name)))
    assert everything(store, "ann") == before
    assert store.read(lambda t: t.feedback_on(slate("ann", 1))) == [answer("ann", 1)]


def test_numbers_come_back_to_the_last_bit(store: Store) -> None:
    values = [0.1 + 0.2, 1e-310, 1.7976931348623157e308, -0.5, 5.0, 5, -0.0, 2**53 + 0.0]
    for number, value in enumerate(values):
        do(store, methodcaller("add_slate", slate("u", number, created_at=value, variety=value)))
    assert [(row.created_at, row.variety) for row in everything(store, "u")[1]] == [(v, v) for v in values]


def test_an_unknown_variety_comes_back_as_unknown(store: Store) -> None:
    do(store, methodcaller("add_slate", slate("u", 0, variety=None)))
    assert everything(store, "u")[1][0].variety is None


def test_what_is_not_there_is_none(store: Store) -> None:
    fill(store, ["u"])
    assert store.read(lambda t: (t.slate("no"), t.slate_of_request("u", "no"), t.event("u", "no"))) == (None,) * 3
    assert store.read(lambda t: (t.feedback_on(slate("no", 0), "no"), t.fit("no"))) == ([], None)
    assert store.read(lambda t: (t.choices_of("u"), t.counts_of("no"), t.position_at("no", 1e12))) == ({}, {}, 0)


def test_slates_by_number_and_answers_by_arrival(store: Store) -> None:
    for number in (2, 0, 1):
        do(store, methodcaller("add_slate", slate("u", number)))
    given = enumerate((("z", 1), ("a", 0), ("m", 1), ("b", 2)))
    events = [answer("u", number, name, received_at=float(at)) for at, (name, number) in given]
    for one in events:
        do(store, methodcaller("add_feedback", one))
    do(store, lambda t: t.add_slate(slate("v", 0)))
    do(store, lambda t: t.add_feedback(answer("v", 0)))
    _, slates, answers, _ = everything(store, "u")
    assert [row.number for row in slates] == [0, 1, 2]
    assert answers == events
    assert store.read(lambda t: t.feedback_on(slate("u", 1))) == [events[0], events[2]]
    assert store.read(lambda t: t.feedback_on(slate("u", 1), events[3].event_id)) == [events[0], events[2], events[3]]


def test_feedback_comes_back_with_what_was_seen_graded_and_disliked(store: Store) -> None:
    said = [
        answer("u", 0, received_at=1.0, seen=(), values=((0, 0.1 + 0.2), ("0", 1.0))),
        answer("u", 1, received_at=2.0, seen=(1, "1", 2**70), disliked=("ü\n",)),
        answer("u", 2, received_at=3.0, values=((-1, 0.0),), disliked=(2,)),
    ]
    for one in said:
        do(store, methodcaller("add_feedback", one))
    assert everything(store, "u")[2] == said


def test_events_come_back_by_arrival_and_page_by_page(store: Store) -> None:
    events = [event("u", n, received_at=float(n // 3), value=None if n % 2 else n / 7) for n in range(8)]
    for one in reversed(events):
        do(store, methodcaller("add_event", one))
    do(store, lambda t: t.add_event(event("v", 0)))
    assert store.read(lambda t: t.events_of("u")) == events
    assert store.read(lambda t: t.event("u", "event 3 of u")) == events[3]
    assert store.read(lambda t: t.event("v", "event 3 of u")) is None
    pages, after = list[Any](), START
    while page := store.read(lambda t, after=after: t.events_of("u", after, 3)):  # type: ignore[misc]
        pages.append(page)
        after = (page[-1].received_at, page[-1].event_id)
    assert [one for page in pages for one in page] == events
    assert [len(page) for page in pages] == [3, 3, 2]
    assert store.read(lambda t: t.events_of("u", (1.0, ""))) == events[3:]
    with pytest.raises(StoreError):
        do(store, lambda t: t.add_event(events[0]))


def test_the_same_event_id_of_two_users_is_two_events(store: Store) -> None:
    for user in ("u", "v"):
        do(store, methodcaller("add_feedback", answer(user, 0, event_id="one")))
        do(store, methodcaller("add_event", event(user, 0, event_id="one")))
    assert [len(store.read(methodcaller("feedback_of", user))) for user in ("u", "v")] == [1, 1]
    assert [len(store.read(methodcaller("events_of", user))) for user in ("u", "v")] == [1, 1]


def test_slates_and_how_they_were_chosen_page_by_page(store: Store) -> None:
    choices = [{"k": n, "of": ["ü", 0.1 + 0.2, None, {"a": [n]}]} if n != 2 else None for n in range(5)]
    for number, choice in enumerate(choices):
        do(store, methodcaller("add_slate", slate("u", number), choice))
    kept = {number: choice for number, choice in enumerate(choices) if choice is not None}
    assert store.read(lambda t: t.choices_of("u")) == kept
    assert store.read(lambda t: t.choices_of("u", 1, 2)) == {1: kept[1], 3: kept[3]}
    assert store.read(lambda t: t.slates_of("u", 2)) == [slate("u", n) for n in (2, 3, 4)]
    assert store.read(lambda t: t.slates_of("u", 1, 2)) == [slate("u", n) for n in (1, 2)]
    assert store.read(lambda t: t.slates_of("u", 9)) == []


def test_a_request_id_is_unique_to_its_user(store: Store) -> None:
    for user in ("u", "v"):
        do(store, methodcaller("add_slate", slate(user, 0, request_id="r")))
        assert store.read(lambda t, user=user: t.slate_of_request(user, "r")) == slate(user, 0, request_id="r")  # type: ignore[misc]
    do(store, lambda t: t.add_slate(slate("u", 1)))
    assert store.read(lambda t: t.slate_of_request("u", "other")) is None


@pytest.mark.parametrize(("at", "position"), [(0.5, 0), (1.0, 1), (2.5, 2), (3.0, 3), (9.0, 3)])
def test_the_position_of_an_event_is_after_the_slates_before_it(store: Store, at: float, position: int) -> None:
    for number in range(3):
        do(store, methodcaller("add_slate", slate("u", number, created_at=number + 1.0)))
    assert store.read(lambda t: t.position_at("u", at)) == position


def test_fits_are_replaced_by_name(store: Store) -> None:
    for fitted_at in (1.5, 2.5):
        fit = FitRecord("attention", fitted_at, {"curve": [1.0, 0.1 + 0.2], "of": "ü"})
        do(store, methodcaller("save_fit", fit))
        assert store.read(lambda t: t.fit("attention")) == fit
    assert store.read(lambda t: t.fit("other")) is None


def test_a_slate_changes_status_and_time(store: Store) -> None:
    fill(store, ["u"])
    changed = [
        slate("u", 0).with_status(CLOSED, 5.5),
        replace(slate("u", 1), status=WITHDRAWN, closed_at=7.0),
        slate("u", 2),
    ]
    for row in changed[:2]:
        do(store, methodcaller("update_slate", row))
    assert everything(store, "u")[1] == changed
    assert changed[0].status == CLOSED


def test_a_transaction_sees_its_own_writes(store: Store) -> None:
    def work(t: Transaction) -> Any:
        t.add_slate(slate("u", 0))
        t.save_user(UserRecord("u", "one", 1))
        t.save_belief(BeliefRecord("u", "space", 1, b"1"))
        t.add_feedback(answer("u", 0))
        t.update_slate(slate("u", 0).with_status(CLOSED, 1.0))
        return t.lock("u"), t.slates_of("u"), t.feedback_of("u"), t.belief("u")

    seen = do(store, work)
    learned = BeliefRecord("u", "space", 1, b"1")
    assert seen == (UserRecord("u", "one", 1), [slate("u", 0).with_status(CLOSED, 1.0)], [answer("u", 0)], learned)
    assert everything(store, "u") == seen


def test_a_belief_is_replaced_whole(store: Store) -> None:
    fill(store, ["u", "v"])
    replaced = BeliefRecord("u", "another space", 2**40, bytes(range(256)) * 50)
    for row in (BeliefRecord("u", "", 0, b"\x00"), replaced):
        do(store, methodcaller("save_belief", row))
        assert everything(store, "u")[3] == row
    assert everything(store, "v")[3] == belief("v")


def test_a_users_row_and_the_belief_about_them_are_independent(store: Store) -> None:
    do(store, lambda t: t.save_belief(belief("u")))
    assert everything(store, "u") == (UserRecord("u"), [], [], belief("u"))
    assert list(store.users()) == []
    for number in range(2):
        row = UserRecord("u", f"stamp {number}", number)
        do(store, methodcaller("save_user", row))
        assert everything(store, "u") == (row, [], [], belief("u"))
    learned = BeliefRecord("u", "another space", 7, b"more")
    do(store, lambda t: t.save_belief(learned))
    assert everything(store, "u") == (row, [], [], learned)
    do(store, lambda t: t.save_user(UserRecord("v", "stamp", 1)))
    assert everything(store, "v") == (UserRecord("v", "stamp", 1), [], [], BeliefRecord("v"))


def test_a_belief_alone_can_be_forgotten(store: Store) -> None:
    do(store, lambda t: t.save_belief(belief("u")))
    assert do(store, lambda t: t.forget("u")) is True
    assert everything(store, "u")[3] == BeliefRecord("u")
    assert do(store, lambda t: t.forget("u")) is False


def test_an_event_id_is_recorded_once(store: Store) -> None:
    fill(store, ["u"])
    with pytest.raises(StoreError):
        do(store, lambda t: t.add_feedback(answer("u", 0)))
    assert len(everything(store, "u")[2]) == 3


def sums(counts: list[PolicyCounts]) -> list[float]:
    """The fields of PolicyTotals, by loops."""
    columns = [[float(value) for value in column] for column in zip(*map(astuple, counts), strict=True)]
    _, shown, clicks, variety, varied = columns
    pairs = [(shown, shown), (clicks, clicks), (clicks, shown), (varied, varied), (variety, variety), (variety, varied)]
    products = [sum(a * b for a, b in zip(*pair, strict=True)) for pair in pairs]
    return [len(counts), *map(sum, columns), *products]


def test_totals_are_the_sums_over_users(store: Store) -> None:
    generator = random.Random(3)
    counts: dict[tuple[str, str], PolicyCounts] = {}
    for _ in range(60):
        user, policy = f"user {generator.randrange(7)}", generator.choice(["dc2b", "EASE", "popular"])
        counted = (1, generator.randrange(11), generator.randrange(5), generator.random(), generator.randrange(2))
        more = PolicyCounts(*counted)
        before = counts.get((user, policy), PolicyCounts())
        counts[user, policy] = PolicyCounts(*map(sum, zip(astuple(before), counted, strict=True)))
        do(store, methodcaller("count", user, policy, more))
    totals = store.read(lambda t: t.totals())
    assert [one.policy for one in totals] == ["EASE", "dc2b", "popular"]
    for one in totals:
        expected = sums([count for (_, name), count in counts.items() if name == one.policy])
        assert astuple(one)[1:] == pytest.approx(expected, rel=1e-12)
        assert [type(value) for value in astuple(one)[1:]] == [int] * 4 + [float] * 8


def test_expired_slates_come_oldest_first(store: Store) -> None:
    rows = [slate(f"u{number}", 0, created_at=float(100 - number)) for number in range(10)]
    rows[4] = rows[4].with_status(CLOSED, 200.0)
    for row in rows:
        do(store, methodcaller("add_slate", row))
    expected = [row for row in reversed(rows) if row.created_at < 98.0 and row.status == "open"]
    assert store.read(lambda t: t.expired(98.0, 100)) == expected
    assert store.read(lambda t: t.expired(98.0, 3)) == expected[:3]
    assert store.read(lambda t: t.expired(98.0, 3, 2)) == expected[2:5]
    assert store.read(lambda t: t.count_expired(98.0, 100)) == (len(expected), 91.0)
    assert store.read(lambda t: t.count_expired(98.0, 3)) == (3, 91.0)
    assert store.read(lambda t: t.count_expired(91.0, 100)) == (0, None)


def test_forgetting_removes_one_user_and_all_of_them(store: Store) -> None:
    fill(store, ["u", "v"])
    for user in ("u", "v"):
        do(store, methodcaller("count", user, "dc2b", PolicyCounts(1, 10, 2, 0.5)))
        do(store, methodcaller("add_event", event(user, 0)))
        do(store, methodcaller("add_slate", slate(user, 3), {"k": 1}))
        assert store.read(methodcaller("counts_of", user)) == {"dc2b": PolicyCounts(1, 10, 2, 0.5)}
    kept = everything(store, "v")
    assert do(store, lambda t: t.forget("u")) is True
    assert everything(store, "u") == (UserRecord("u"), [], [], BeliefRecord("u"))
    assert store.read(lambda t: t.slate(slate("u", 0).slate_id)) is None
    assert store.read(lambda t: t.feedback_on(slate("u", 0), answer("u", 0).event_id)) == []
    assert everything(store, "v") == kept
    assert list(store.users()) == ["v"]
    assert store.read(lambda t: t.totals())[0].users == 1
    assert do(store, lambda t: t.forget("u")) is False
    fill(store, ["u"])
    assert len(everything(store, "u")[1]) == 3
    assert everything(store, "u")[3] == belief("u")


WRITES: dict[str, Callable[[Transaction], Any]] = {
    "save_user": lambda t: t.save_user(UserRecord("u", "other", 9)),
    "save_belief": lambda t: t.save_belief(BeliefRecord("u", "space", 3, b"other")),
    "add_slate": lambda t: t.add_slate(slate("u", 3)),
    "update_slate": lambda t: t.update_slate(slate("u", 0).with_status(CLOSED, 1.0)),
    "add_feedback": lambda t: t.add_feedback(answer("u", 0, "again")),
    "add_event": lambda t: t.add_event(event("u", 0)),
    "count": lambda t: t.count("u", "dc2b", PolicyCounts(1, 1, 1, 1.0)),
    "forget": lambda t: t.forget("u"),
}


@pytest.mark.parametrize(
    ("name", "error"),
    [*((name, ValueError) for name in WRITES), ("add_slate", KeyboardInterrupt), ("forget", SystemExit)],
)
def test_a_work_that_fails_leaves_nothing(store: Store, name: str, error: type[BaseException]) -> None:
    fill(store, ["u"])
    before = everything(store, "u"), store.read(lambda t: t.totals())

    def work(t: Transaction) -> None:
        WRITES[name](t)
        raise error("on purpose")

    with pytest.raises(error, match="on purpose"):
        do(store, work)
    assert (everything(store, "u"), store.read(lambda t: t.totals())) == before
    do(store, WRITES[name])
    assert (everything(store, "u"), store.read(lambda t: t.totals())) != before


def test_a_first_belief_is_undone_with_the_work_that_failed(store: Store) -> None:
    def work(t: Transaction) -> None:
        t.save_belief(belief("u"))
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        do(store, work)
    assert everything(store, "u") == (UserRecord("u"), [], [], BeliefRecord("u"))


def test_works_that_fail_do_not_touch_their_neighbours(store: Store) -> None:
    def failing(t: Transaction) -> None:
        one_more("u")(t)
        raise ValueError

    futures: list[Future[Any]] = [store.write(failing if n % 3 == 1 else one_more("u")) for n in range(30)]
    failed = [isinstance(future.exception(timeout=30), ValueError) for future in futures]
    assert failed == [n % 3 == 1 for n in range(30)]
    assert everything(store, "u")[0].n_slates == everything(store, "u")[3].covers == 20


def test_no_update_is_lost_among_eight_writers(store: Store) -> None:
    at_once([lambda: [do(store, one_more("u")) for _ in range(20)]] * 8)
    assert everything(store, "u")[0].n_slates == everything(store, "u")[3].covers == 160


def test_reading_outside_the_transaction_does_lose_updates(store: Store) -> None:
    """The negative control of the test above."""

    everybody_has_read = threading.Barrier(8)

    def careless() -> None:
        n_slates = everything(store, "u")[0].n_slates
        everybody_has_read.wait(timeout=30)
        do(store, lambda t: t.save_user(UserRecord("u", "stamp", n_slates + 1)))

    at_once([careless] * 8)
    assert everything(store, "u")[0].n_slates == 1


def test_closing_finishes_what_was_submitted(store: Store) -> None:
    futures = [store.write(one_more("u")) for _ in range(50)]
    store.close()
    assert sorted(future.result(timeout=0) for future in futures) == list(range(1, 51))
    store.close()
    with pytest.raises(StoreUnavailableError, match="closed"):
        do(store, one_more("u"))
    with pytest.raises(StoreUnavailableError, match="closed"):
        store.read(lambda t: t.lock("u"))
    with pytest.raises(StoreUnavailableError, match="closed"):
        store.health()


def test_health_gives_numbers_and_vacuum_keeps_everything(store: Store, url: str) -> None:
    fill(store, ["u"])
    before = everything(store, "u")
    store.vacuum()
    assert everything(store, "u") == before
    health = store.health()
    assert health.pop("kind") == url.partition(":")[0]
    assert all(isinstance(value, int | float) and value >= 0 for value in health.values())


class TestOnDisk:
    """What only stores on disk can promise."""

    @pytest.fixture(params=KINDS[1:])
    def url(self, request: pytest.FixtureRequest, tmp_path: Path) -> str:
        return url_of(request.param, request, tmp_path)

    def test_everything_is_there_after_opening_again(self, store: Store, url: str) -> None:
        fill(store, ["u", "v"])
        before = everything(store, "u")
        store.close()
        again = open_store(url)
        assert everything(again, "u") == before
        assert list(again.users()) == ["u", "v"]
        again.close()

    def test_a_read_is_a_snapshot(self, store: Store) -> None:
        fill(store, ["u"])

        def seen(t: Transaction) -> tuple[list[SlateRecord], BeliefRecord]:
            return t.slates_of("u"), t.belief("u")

        def work(t: Transaction) -> Any:
            before = seen(t)
            for name in ("add_slate", "update_slate", "save_belief"):
                do(store, WRITES[name])
            return before, seen(t)

        before, after = store.read(work)
        assert before == after
        assert len(everything(store, "u")[1]) == 4
        assert everything(store, "u")[3].content == b"other"

    def test_a_read_cannot_write(self, store: Store) -> None:
        fill(store, ["u"])
        before = everything(store, "u")
        for name in ("count", "add_slate", "save_belief", "forget"):
            with pytest.raises(StoreError):
                store.read(WRITES[name])
        assert everything(store, "u") == before

    def test_a_failed_statement_cannot_be_swallowed(self, store: Store) -> None:
        fill(store, ["u"])

        def work(t: Transaction) -> None:
            for _ in range(2):
                try:
                    t.add_feedback(answer("u", 0))
                except StoreError:
                    one_more("u")(t)

        with pytest.raises(StoreError):
            do(store, work)
        assert everything(store, "u")[0].n_slates == 3

    def test_text_that_cannot_be_stored_is_refused(self, store: Store) -> None:
        for user in ("half \ud800 character", "nul \x00 inside"):
            try:
                do(store, one_more(user))
            except StoreError:
                continue
            assert everything(store, user)[0].n_slates == 1
        with pytest.raises(StoreError, match="surrogate"):
            do(store, one_more("\udfff"))

    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    def test_numbers_that_no_database_keeps_are_refused(self, store: Store, value: float) -> None:
        with pytest.raises(StoreError, match="finite"):
            do(store, lambda t: t.add_slate(slate("u", 0, variety=value)))

    def test_read_only_beside_the_writer(self, store: Store, url: str) -> None:
        fill(store, ["u"])
        reader = open_store(url, read_only=True)
        assert everything(reader, "u") == everything(store, "u")
        for write in (lambda: do(reader, one_more("u")), reader.vacuum):
            with pytest.raises(StoreUnavailableError, match="reading only"):
                write()
        do(store, one_more("u"))
        assert everything(reader, "u")[0].n_slates == 4
        reader.close()


@pytest.mark.parametrize("url", ["slates.db", "mysql://x", "sqlite:///", "", "sqlite"])
def test_urls_that_are_none_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="sqlite:///"):
        open_store(url)
