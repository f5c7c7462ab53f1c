"""Evidence from the world: what was seen, graded, disliked, done elsewhere or under another id."""

import itertools
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slatewise.evidence import SERVICE_DEFAULT, Attention
from slatewise.recommender import ConflictError, Event, Recommender, RequestError, Slate, state_codec
from slatewise.recommender.learning import state_at
from slatewise.recommender.loading import load_profile
from slatewise.recommender.profile import UserProfile, learn_closed, learn_everything
from slatewise.recommender.verify import difference
from slatewise.store import Store, open_store
from slatewise.store.memory import MemoryTables
from slatewise.store.records import FitRecord
from tests.support.recommending import (
    Clock,
    folded,
    ids,
    loaded_profile,
    make_catalog,
    restarted,
    served_catalog,
    served_policy,
    state_of,
)
from tests.support.store_rows import emptied

CATALOG = make_catalog(120, seed=1)
DAY = 86_400.0


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "postgresql":
        url = emptied(request.getfixturevalue("postgres_server"))
    else:
        url = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/slates.db"}[request.param]
    opened = open_store(url)
    yield opened
    opened.close()


def loaded(recommender: Recommender, user: str, use_saved: bool) -> UserProfile:
    """The profile of a user, from the saved belief or from the whole log."""
    served, policy = served_catalog(recommender), served_policy(recommender)
    return recommender.store.read(lambda t: load_profile(t, t.lock(user), served, policy, use_saved=use_saved))


def check(recommender: Recommender, users: tuple[str, ...] = ("ann", "session")) -> None:
    """What is cached, loaded or learned again is the plain fold of the log, and the next slate is the same."""
    for user in users:
        policy, profiles = served_policy(recommender), [loaded(recommender, user, saved) for saved in (True, False)]
        assert difference(profiles[0].learned, profiles[1].learned) <= 1e-9
        state = learn_everything(learn_closed(profiles[0])).state
        assert state_codec.difference(state, folded(recommender, user, policy)) <= 1e-9
        assert profiles[0].liked() == profiles[1].liked()
        assert ids(recommender.preview(user, 5)) == ids(restarted(recommender).preview(user, 5))
    assert [problem for _, problem in recommender.verify() if problem] == []


ACTS: tuple[str, ...] = ("slate", "click", "dislike", "grade", "seen", "retract", "close", "late", "replace", "expire")
ACTS += ("event", "old event", "hide", "wish", "old wish", "undo", "again", "merge", "restart", "rebuild", "forget")
KINDS = (("like", None), ("rating", -0.5), ("view", 0.7), ("dislike", None), ("owned", None), ("purchase", None))
STEPS = st.lists(st.tuples(st.sampled_from(ACTS), st.sampled_from(["ann", "session"]), st.integers(0, 9)), max_size=30)
RULES = (Attention(), SERVICE_DEFAULT, Attention("curve", 0.5, (1.0, 0.6, 0.3)))


class Person:
    """Does things as one of two users."""

    def __init__(self, recommender: Recommender, clock: Clock) -> None:
        self.recommender, self.clock = recommender, clock
        self.slates: dict[str, list[Slate]] = {"ann": [], "session": []}
        self.said: list[tuple[Any, dict[str, Any]]] = []
        self.events: list[Event] = []
        self.count = itertools.count()

    def act(self, act: str, user: str, number: int) -> None:
        self.clock.now += 1.0 + DAY * (number == 9)
        slates = self.slates[user]
        if act == "slate" or not slates:
            slates.append(self.recommender.recommend(user, 5))
        elif act == "replace":
            slates.append(self.recommender.recommend(user, 5, replaces=slates[-1].slate_id))
        elif act == "expire":
            self.clock.now += 3600.0
            self.recommender.close_expired()
        elif act in ("event", "old event", "hide"):
            kind, value = ("hide", None) if act == "hide" else KINDS[number % len(KINDS)]
            at = self.clock.now - 2.0 * number if act == "old event" else None
            self._send(Event(user, 100 + 11 * number, kind, value, at, f"e{next(self.count)}"))
        elif act in ("wish", "old wish"):
            at = self.clock.now - 2.0 * number if act == "old wish" else None
            kind, category = ("more", "less")[number % 2], "ABCDEFGX"[number % 8]
            self._send(Event(user, category, kind, None, at, f"w{next(self.count)}"))
        elif act == "undo":
            mine = [event for event in self.events if event.user == user and event.kind != "retract"]
            if mine:
                self._send(
                    Event(user, str(mine[number % len(mine)].event_id), "retract", event_id=f"u{next(self.count)}")
                )
        elif act == "again":
            self._send_again()
        elif act == "merge":
            self.recommender.merge("ann", "session")
            self.slates["ann"] += self.slates["session"]
            self.slates["session"], self.said, self.events = [], [], []
        elif act == "restart":
            self.recommender = restarted(self.recommender)
        elif act == "rebuild":
            self.recommender.rebuild(user)
        elif act == "forget":
            self.recommender.forget(user)
            self.slates[user], self.said, self.events = [], [], []
        else:
            self._react(act, slates, number)

    def _send(self, event: Event) -> None:
        self.events.append(event)
        self.recommender.record_event(event)

    def _react(self, act: str, slates: list[Slate], number: int) -> None:
        slate = slates[number % len(slates)] if act == "late" else slates[-1]
        item = slate.items[number % len(slate.items)].id
        kinds: dict[str, dict[str, Any]] = {
            "dislike": {"disliked": [item]},
            "grade": {"values": {item: number / 9}},
            "seen": {"seen": number},
            "retract": {"retracted": [item]},
        }
        said = kinds.get(act, {"clicked": [item]})
        options = {**said, "final": act == "close", "event_id": f"f{next(self.count)}"}
        self.said.append((slate.slate_id, options))
        self.recommender.feedback(slate.slate_id, **options)

    def _send_again(self) -> None:
        for slate_id, options in self.said[-3:]:
            assert self.recommender.feedback(slate_id, **options).duplicate
        for event in self.events[-3:]:
            assert self.recommender.record_event(event).duplicate


@settings(max_examples=60, deadline=None)
@given(
    steps=STEPS,
    name=st.sampled_from(["dc2b-calibrated", "c2ucb", "dc2b"]),
    rule=st.sampled_from(RULES),
    half_life=st.sampled_from([math.inf, 0.5]),
)
def test_whatever_happens_the_belief_is_the_fold_of_the_log(
    steps: list[tuple[str, str, int]], name: str, rule: Attention, half_life: float
) -> None:
    clock, half_life = Clock(), math.inf if name == "dc2b" else half_life
    with Recommender(CATALOG, name, clock=clock, attention=rule, half_life=half_life) as recommender:
        person = Person(recommender, clock)
        for act, user, number in steps:
            person.act(act, user, number)
        check(person.recommender)


def test_random_days_on_every_store(store: Store) -> None:
    draw, clock = random.Random(5), Clock()
    person = Person(Recommender(CATALOG, store=store, clock=clock), clock)
    for count in range(120):
        act = draw.choice([act for act in ACTS if act not in ("forget", "merge") or count % 40 == 39])
        person.act(act, draw.choice(["ann", "session"]), draw.randrange(10))
    check(person.recommender)


def test_a_slate_without_any_event_teaches_nothing() -> None:
    clock = Clock()
    with Recommender(CATALOG, clock=clock) as recommender:
        start = served_policy(recommender).start
        for _ in range(3):
            recommender.recommend("ann")
        clock.now += 3600.0
        recommender.close_expired()
        assert state_codec.difference(state_of(recommender, "ann"), start) == 0.0
        last = recommender.recommend("ann")
        recommender.feedback(last.slate_id, [])
        assert state_codec.difference(state_of(recommender, "ann"), start) > 1e-6


@pytest.mark.parametrize("seen", [2, "first two"])
def test_what_was_not_seen_teaches_nothing_and_may_be_offered_again(seen: Any) -> None:
    states = []
    for told in (True, False):
        with Recommender(CATALOG) as recommender:
            slate = recommender.recommend("ann", 5)
            looked_at = ids(slate)[:2] if seen == "first two" else seen
            recommender.feedback(slate.slate_id, ids(slate)[:1], seen=looked_at if told else None)
            shown = loaded_profile(recommender, "ann").learned.shown.numbers
            assert len(shown) == (2 if told else 5)
            states.append(state_of(recommender, "ann"))
            left = ids(recommender.recommend("ann", 120 - len(shown)))
            assert set(ids(slate)[2:]) <= set(left) if told else not set(ids(slate)) & set(left)
    assert state_codec.difference(*states) > 1e-6


def test_a_hidden_or_owned_item_is_never_offered_even_if_nothing_else_is_left() -> None:
    catalog = make_catalog(8)
    with Recommender(catalog) as recommender:
        recommender.record_events([Event("ann", 100, "hide"), Event("ann", 101, "owned"), Event("ann", 102, "like")])
        assert set(ids(recommender.recommend("ann", 8))) == set(range(102, 108))
        assert recommender.export("ann")["events"][0]["kind"] == "hide"
        with pytest.raises(RequestError, match="nothing is left"):
            recommender.recommend("ann", candidates=[100, 101])
        assert recommender.forget("ann")
        assert len(ids(recommender.recommend("ann", 8))) == 8


def test_an_event_on_an_unknown_item_teaches_from_the_day_the_catalog_has_it() -> None:
    with Recommender(make_catalog(60)) as recommender:
        assert not recommender.record_event(Event("ann", 170, "like")).known
        start = served_policy(recommender).start
        assert state_codec.difference(state_of(recommender, "ann"), start) == 0.0
        recommender.use_catalog(make_catalog(80))
        assert state_codec.difference(state_of(recommender, "ann"), served_policy(recommender).start) > 1e-6
        check(recommender, ("ann",))


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (Event("ann", 100, "stroke"), "no such kind"),
        (Event("ann", 100, "rating"), "value from -1 to 1"),
        (Event("ann", 100, "rating", 1.5), "value from -1 to 1"),
        (Event("ann", 100, "like", 1.0), "no value"),
    ],
)
def test_events_that_make_no_sense_are_refused(event: Event, why: str) -> None:
    with Recommender(CATALOG) as recommender:
        with pytest.raises(RequestError, match=why):
            recommender.record_event(event)
        assert list(recommender.store.users()) == []


def test_an_event_may_be_a_day_ahead_of_the_clock_and_no_more() -> None:
    """A client's clock may be wrong; milliseconds are no time in seconds."""
    clock = Clock()
    with Recommender(CATALOG, clock=clock) as recommender:
        recommender.record_event(Event("ann", 1, "like", at=clock.now + DAY))
        [recorded] = recommender.store.read(lambda transaction: transaction.events_of("ann"))
        assert recorded.at == recorded.received_at == clock.now
        for at in (clock.now + DAY + 1.0, 1_000.0 * clock.now):
            with pytest.raises(RequestError, match=r"a day ahead of the clock here; .* not milliseconds"):
                recommender.record_event(Event("ann", 2, "like", at=at))
        assert [event["item"] for event in recommender.export("ann")["events"]] == [1]


def test_an_event_id_with_other_content_is_refused_and_without_one_the_content_counts() -> None:
    with Recommender(CATALOG) as recommender:
        recommender.record_event(Event("ann", 100, "like", event_id="e"))
        assert recommender.record_event(Event("ann", 100, "like", event_id="e")).duplicate
        assert not recommender.record_event(Event("ben", 101, "like", event_id="e")).duplicate
        with pytest.raises(ConflictError):
            recommender.record_event(Event("ann", 101, "like", event_id="e"))
        said = [recommender.record_event(Event("ann", 105, kind)) for kind in ("like", "like", "dislike", "like")]
        assert [receipt.duplicate for receipt in said] == [False, True, False, False]


def test_without_event_ids_order_does_not_matter_and_click_retract_click_counts() -> None:
    with Recommender(CATALOG) as recommender:
        slate = recommender.recommend("ann", 5)
        one, two = ids(slate)[:2]
        send = [([one, two], []), ([two, one], []), ([], [one]), ([one], []), ([one], [])]
        said = [recommender.feedback(slate.slate_id, yes, retracted=no, final=False) for yes, no in send]
        assert [receipt.duplicate for receipt in said] == [False, True, False, False, True]
        recommender.feedback(slate.slate_id, [], seen=5)
        assert recommender.explain("ann").clicks == 2


def test_the_same_request_id_gets_the_same_slate(store: Store) -> None:
    recommender = Recommender(CATALOG, store=store)
    first = recommender.recommend("ann", 5, request_id="r", exclude=[100])
    for again in (recommender, restarted(recommender)):
        assert again.recommend("ann", 5, request_id="r", exclude=[100]) == first
    assert recommender.recommend("ann", 5).number == 1, "the control: without an id it is the next slate"
    assert recommender.recommend("ann", 5, request_id="r", exclude=[100]) == first
    with pytest.raises(ConflictError, match="request_id"):
        recommender.recommend("ann", 6, request_id="r", exclude=[100])
    assert recommender.recommend("ben", 5, request_id="r").user == "ben"
    assert [slate["number"] for slate in recommender.export("ann")["slates"]] == [0, 1]


def test_a_request_that_was_recorded_just_before_its_draft_is_not_recorded_twice(store: Store) -> None:
    """A client sends again while the first attempt is committed: the second had looked for a slate before."""
    with Recommender(CATALOG, store=store) as recommender:
        request = recommender.request(user="ann", k=5, request_id="r")
        assert recommender.recorded(request) is None
        first = recommender.recommend("ann", 5, request_id="r")
        assert recommender.record(recommender.draft(request)).result() is None
        assert recommender.recorded(request) == first
        other = recommender.request(user="ann", k=5, request_id="another")
        assert recommender.record(recommender.draft(other)).result() is not None


def test_old_evidence_counts_half_after_the_half_life() -> None:
    shifts = []
    for days in (0.0, 3.0):
        clock = Clock()
        with Recommender(CATALOG, clock=clock, half_life=3.0) as recommender:
            recommender.record_event(Event("ann", 100, "like"))
            clock.now += days * DAY
            recommender.record_event(Event("ann", 999, "like"))
            profile = loaded_profile(recommender, "ann")
            learned = learn_everything(profile)
            shifts.append(state_at(profile.policy, learned, clock.now)["shift"])
    assert shifts[1] == pytest.approx(shifts[0] / 2.0, rel=1e-6)
    with pytest.raises(RequestError, match="half_life"):
        Recommender(CATALOG, "dc2b", half_life=3.0)


def test_a_shown_item_returns_after_a_while_if_it_may() -> None:
    clock = Clock()
    with Recommender(make_catalog(12), clock=clock, repeat_after=60.0) as recommender:
        first = recommender.recommend("ann", 6)
        recommender.feedback(first.slate_id, [])
        second = recommender.recommend("ann", 6)
        assert not set(ids(first)) & set(ids(second))
        clock.now += 61.0
        assert set(ids(recommender.recommend("ann", 12))) == {*ids(first), *ids(second)}


def test_a_merged_session_is_as_if_it_had_always_been_the_users(store: Store) -> None:
    recommender = Recommender(CATALOG, store=store)
    for user, n_slates in (("ann", 3), ("session", 10)):
        for _ in range(n_slates):
            slate = recommender.recommend(user, 5)
            recommender.feedback(slate.slate_id, ids(slate)[:2], event_id=f"click {slate.number}")
        recommender.record_event(Event(user, 100, "like", event_id="same", at=5.0))
        recommender.record_event(Event(user, 101 if user == "ann" else 102, "like", event_id="other"))
    receipt = recommender.merge("ann", "session")
    assert (receipt.slates, receipt.feedback, receipt.events) == (10, 10, 1)
    assert recommender.merge("ann", "session").slates == 0
    assert list(store.users()) == ["ann"]
    check(recommender, ("ann",))
    export = recommender.export("ann")
    assert [slate["number"] for slate in export["slates"]] == list(range(13))
    assert {event["item"] for event in export["events"]} == {100, 101, 102}
    assert recommender.explain("ann").clicks == 26
    assert recommender.feedback(slate.slate_id, ids(slate)[3:4], user="session").late
    check(recommender, ("ann",))
    with pytest.raises(RequestError, match="themselves"):
        recommender.merge("ann", "ann")


def test_attention_follows_the_latest_fit() -> None:
    with Recommender(CATALOG, attention="curve") as recommender:
        assert recommender.attention == SERVICE_DEFAULT
        key = served_policy(recommender).key
        content = {"rule": "curve", "skip_weight": 0.4, "curve": [1.0, 0.5]}
        recommender.store.write(lambda t: t.save_fit(FitRecord("attention", 1.0, content))).result()
        assert recommender.follow_fit()
        assert not recommender.follow_fit()
        assert recommender.attention == Attention("curve", 0.4, (1.0, 0.5))
        assert served_policy(recommender).key != key


def test_a_long_history_is_read_from_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cold slate, a replacement, a view and late feedback read a part of the log that does not grow with it."""
    read: list[int] = []
    for name in ("slates_of", "feedback_of"):
        method = getattr(MemoryTables, name)

        def counting(tables: MemoryTables, *given: Any, method: Any = method) -> Any:
            rows = method(tables, *given)
            read.append(len(rows))
            return rows

        monkeypatch.setattr(MemoryTables, name, counting)
    with Recommender(make_catalog(900)) as recommender:
        slates = []
        for _ in range(250):
            slates.append(recommender.recommend("ann", 3))
            recommender.feedback(slates[-1].slate_id, ids(slates[-1])[:1])
        read.clear()
        restarted(recommender).recommend("ann", 3)
        restarted(recommender).recommend("ann", 3, replaces=slates[-1].slate_id)
        assert sum(read) <= 50
        recommender.feedback(slates[3].slate_id, retracted=ids(slates[3])[:1])
        read.clear()
        recommender.recommend("ann", 3)
        assert sum(read) <= 60
        assert recommender.rebuilt == 0
        read.clear()
        recommender.explain("ann")
        assert sum(read) <= 300
        read.clear()
        recommender.recommend("ann", 3, policy="c2ucb")
        assert sum(read) > 400, "the whole log is never read"
        check(recommender, ("ann",))


def test_an_export_comes_in_pages() -> None:
    with Recommender(CATALOG) as recommender:
        for number in range(5):
            slate = recommender.recommend("ann", 5)
            recommender.feedback(slate.slate_id, ids(slate)[:1])
            recommender.record_event(Event("ann", 100 + number, "view", 0.5))
        whole, pages, after = recommender.export("ann"), list[dict[str, Any]](), None
        while True:
            pages.append(recommender.export("ann", after=after, limit=4))
            after = pages[-1]["next"]
            if after is None:
                break
        for section in ("slates", "feedback", "events"):
            assert [row for page in pages for row in page[section]] == whole[section]
        with pytest.raises(RequestError, match="next"):
            recommender.export("ann", after="nonsense")
