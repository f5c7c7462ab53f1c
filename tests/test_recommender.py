"""The online recommender on the plain store: what is shown, what is learnt, and what counts once."""

import gc
import itertools
import random
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slatewise.catalog import Catalog
from slatewise.policies import POLICIES, State
from slatewise.recommender import ConflictError, Recommender, RequestError, Slate, UnknownSlateError, people, states
from slatewise.recommender.spaces import Spaces
from slatewise.recommender.views import CLOSE, CROWD, EXPLORING

LEARNERS = ("dc2b-calibrated", "dc2b", "c2ucb", "ec-bandit")


class Clock:
    """A time that tests move."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def make_catalog(n_items: int = 60, seed: int = 0) -> Catalog:
    draw = np.random.default_rng(seed)
    categories = [f"{'ABCD'[at % 4]}|{'EFG'[at % 3]}" for at in range(n_items)]
    return Catalog.from_vectors(range(100, 100 + n_items), draw.normal(size=(n_items, 6)), categories=categories)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return make_catalog()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recommender(catalog: Catalog, clock: Clock) -> Iterator[Recommender]:
    with Recommender(catalog, clock=clock) as opened:
        yield opened


def ids(slate: Slate) -> list[Any]:
    return [item.id for item in slate.items]


def state_of(recommender: Recommender, user: str) -> State:
    row = recommender.store.read(lambda transaction: transaction.lock(user))
    assert row.belief is not None
    return states.from_bytes(row.belief)


def refolded(recommender: Recommender, user: str) -> State:
    """The slow twin: everything from the log, nothing from caches."""
    spaces = Spaces(recommender.catalog)
    row = recommender.store.read(lambda transaction: transaction.lock(user))
    space = next(one for one in map(spaces.space, spaces.usable) if one.key == row.space)
    return recommender.store.read(lambda t: people.load(t, row, spaces, space, refold=True)).state


def test_a_slate_says_what_and_why(recommender: Recommender) -> None:
    slate = recommender.recommend("ann", 5)
    assert len(set(ids(slate))) == 5
    assert slate.number == 0
    assert slate.policy == "dc2b-calibrated"
    assert 0.0 <= slate.variety <= 1.0
    for item in slate.items:
        assert item.title == str(item.id)
        assert item.categories
        assert item.probability is not None
        assert 0.0 <= item.probability <= 1.0
        assert item.deviation is not None
        assert item.reason in (CROWD, EXPLORING)


def test_what_was_clicked_gives_the_reason(recommender: Recommender) -> None:
    first = recommender.recommend("ann", 10)
    recommender.feedback(first.slate_id or "", ids(first)[:3])
    later = [item for _ in range(4) for item in recommender.recommend("ann", 10).items]
    close = [item for item in later if item.reason == CLOSE]
    assert close
    assert all(item.because in ids(first)[:3] and item.because_title for item in close)


def test_clicks_change_the_next_slate(catalog: Catalog) -> None:
    with Recommender(catalog) as one, Recommender(catalog) as other:
        for recommender, clicked in ((one, slice(0, 3)), (other, slice(7, 10))):
            slate = recommender.recommend("ann", 10)
            recommender.feedback(slate.slate_id or "", ids(slate)[clicked])
        assert ids(one.recommend("ann")) != ids(other.recommend("ann"))


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "ease"])
def test_nothing_is_shown_twice_until_the_catalogue_runs_out_and_then_the_oldest_return(name: str) -> None:
    with Recommender(make_catalog(23), name) as recommender:
        slates = [ids(recommender.recommend("ann", 10)) for _ in range(4)]
    assert len({*slates[0], *slates[1]}) == 20
    assert {*slates[0], *slates[1], *slates[2]} == set(range(100, 123))
    assert set(slates[2]) & {*slates[0], *slates[1]} <= set(slates[0])
    assert len(set(slates[3])) == 10
    assert not set(slates[3]) & (set(slates[2]) - set(slates[0]))


def test_filters(recommender: Recommender) -> None:
    only = [100, 105, 110, 115]
    assert set(ids(recommender.recommend("ann", 10, candidates=only))) == set(only)
    assert 100 not in ids(recommender.recommend("ben", 60, exclude=[100]))
    varied = recommender.recommend("cat", 60, categories=["A", "B"])
    assert all(set(item.categories) & {"A", "B"} for item in varied.items)
    assert len(varied.items) == 30
    both = recommender.recommend("dan", 10, candidates=only, categories=["A", "B"], exclude=[100])
    assert ids(both) == [105]


@pytest.mark.parametrize(
    "wishes",
    [
        {"k": 0},
        {"k": 501},
        {"k": True},
        {"user": ""},
        {"user": "x" * 257},
        {"user": "nul\0"},
        {"user": "\ud800"},
        {"diversity": 1.5},
        {"diversity": float("nan")},
        {"candidates": [1]},
        {"candidates": []},
        {"categories": ["no such"]},
        {"policy": "no such"},
        {"policy": "ease"},
    ],
)
def test_what_cannot_be_served_is_refused_and_changes_nothing(recommender: Recommender, wishes: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        recommender.recommend(**{"user": "ann", **wishes})
    assert list(recommender.store.users()) == []


def test_diversity_is_a_knob(catalog: Catalog) -> None:
    varieties = []
    for diversity in (0.0, 1.0):
        with Recommender(catalog) as recommender:
            first = recommender.recommend("ann", diversity=diversity)
            recommender.feedback(first.slate_id or "", ids(first)[:2])
            varieties.append(recommender.recommend("ann", diversity=diversity).variety)
    assert varieties[0] < varieties[1]


def test_a_preview_records_nothing_and_tells_the_truth(recommender: Recommender) -> None:
    preview = recommender.recommend("ann", preview=True)
    assert preview.slate_id is None
    assert list(recommender.store.users()) == []
    assert ids(recommender.recommend("ann")) == ids(preview)
    after = recommender.recommend("ann", preview=True)
    assert ids(recommender.recommend("ann")) == ids(after)


def test_a_replaced_slate_was_never_shown(recommender: Recommender) -> None:
    first = recommender.recommend("ann", diversity=0.0)
    other = recommender.recommend("ann", diversity=1.0, replaces=first.slate_id)
    recommender.feedback(other.slate_id or "", [])
    assert recommender.explain("ann").slates == 1
    third = recommender.recommend("ann", 60 - 10)
    assert not set(ids(third)) & set(ids(other))
    assert set(ids(third)) >= set(ids(first)) - set(ids(other))


def test_a_click_on_a_replaced_slate_still_counts(recommender: Recommender) -> None:
    first = recommender.recommend("ann")
    recommender.recommend("ann", replaces=first.slate_id)
    receipt = recommender.feedback(first.slate_id or "", ids(first)[:1])
    assert receipt.late
    assert recommender.explain("ann").clicks == 1
    assert states.difference(state_of(recommender, "ann"), refolded(recommender, "ann")) <= 1e-9


def test_a_slate_with_clicks_is_closed_not_replaced(recommender: Recommender) -> None:
    first = recommender.recommend("ann")
    recommender.feedback(first.slate_id or "", ids(first)[:1], final=False)
    recommender.recommend("ann", replaces=first.slate_id)
    assert recommender.explain("ann").slates == 1


def test_a_slate_closes_when_told_when_the_next_is_asked_for_or_after_a_while(
    recommender: Recommender, clock: Clock
) -> None:
    told = recommender.recommend("ann")
    assert not recommender.feedback(told.slate_id or "", ids(told)[:1], final=False).closed
    assert recommender.explain("ann").slates == 0
    assert recommender.feedback(told.slate_id or "", []).closed
    assert recommender.explain("ann").slates == 1
    recommender.recommend("ann")
    recommender.recommend("ann")
    assert recommender.explain("ann").slates == 2
    clock.now += 1799
    assert recommender.close_expired() == 0
    clock.now += 2
    assert recommender.close_expired() == 1
    assert recommender.explain("ann").slates == 3
    assert recommender.close_expired() == 0


def test_events_count_once(recommender: Recommender) -> None:
    slate = recommender.recommend("ann")
    clicked = ids(slate)[:2]
    receipts = [recommender.feedback(slate.slate_id or "", clicked, event_id="e1") for _ in range(3)]
    assert [one.duplicate for one in receipts] == [False, True, True]
    assert recommender.feedback(slate.slate_id or "", clicked[:1]).duplicate is False
    assert recommender.feedback(slate.slate_id or "", clicked[:1]).duplicate is True
    assert recommender.explain("ann").clicks == 2
    with pytest.raises(ConflictError):
        recommender.feedback(slate.slate_id or "", ids(slate)[2:3], event_id="e1")
    assert recommender.explain("ann").clicks == 2


def test_feedback_that_makes_no_sense_is_refused(recommender: Recommender) -> None:
    slate = recommender.recommend("ann")
    with pytest.raises(UnknownSlateError):
        recommender.feedback("no such slate", [])
    for wrong in ([1], [str(ids(slate)[0])], [True]):
        with pytest.raises(RequestError):
            recommender.feedback(slate.slate_id or "", wrong)
    with pytest.raises(RequestError):
        recommender.feedback(slate.slate_id or "", ids(slate)[:1], retracted=ids(slate)[:1])
    assert recommender.export("ann")["answers"] == []


def test_numpy_ids_are_ids(recommender: Recommender) -> None:
    slate = recommender.recommend("ann")
    assert not recommender.feedback(slate.slate_id or "", np.array(ids(slate)[:2])).duplicate


@pytest.mark.parametrize("name", LEARNERS)
def test_undo_is_as_if_it_had_never_been_clicked(catalog: Catalog, name: str) -> None:
    found = []
    for undo in (False, True):
        with Recommender(catalog, name) as recommender:
            slate = recommender.recommend("ann")
            one, two = ids(slate)[:2]
            if undo:
                recommender.feedback(slate.slate_id or "", [two], event_id="like", final=False)
                recommender.feedback(slate.slate_id or "", [], retracted=[two], event_id="undo", final=False)
            recommender.feedback(slate.slate_id or "", [one])
            found.append(state_of(recommender, "ann"))
    assert states.difference(*found) == 0.0


@pytest.mark.parametrize("name", LEARNERS)
def test_the_order_of_events_does_not_matter(catalog: Catalog, name: str) -> None:
    """Clicks on three slates come in any order, before or after closing: the belief is the same."""
    found = []
    for seed in range(6):
        with Recommender(catalog, name) as recommender:
            slates = [recommender.recommend("ann", candidates=range(100 + 10 * at, 110 + 10 * at)) for at in range(3)]
            events = [(slate, ids(slate)[place : place + 1]) for slate in slates for place in (0, 3, 5)]
            events = [(slate, [min(ids(slate)) + place]) for slate, place in itertools.product(slates, (1, 4, 8))]
            random.Random(seed).shuffle(events)
            for number, (slate, clicked) in enumerate(events):
                recommender.feedback(slate.slate_id or "", clicked, final=number % 2 == 0, event_id=f"{number}")
            recommender.feedback(slates[-1].slate_id or "", [], event_id="last")
            found.append(state_of(recommender, "ann"))
            assert states.difference(found[-1], refolded(recommender, "ann")) <= 1e-9
    assert all(states.difference(found[0], other) <= 1e-9 for other in found[1:])


def test_the_check_of_order_can_fail(catalog: Catalog) -> None:
    """Negative control: a belief that forgets a late click is told apart."""
    found = []
    for late in (True, False):
        with Recommender(catalog) as recommender:
            slate = recommender.recommend("ann")
            recommender.feedback(slate.slate_id or "", [])
            if late:
                recommender.feedback(slate.slate_id or "", ids(slate)[:1])
            found.append(state_of(recommender, "ann"))
    assert states.difference(*found) > 1e-6


STEPS = st.lists(
    st.tuples(st.sampled_from(["slate", "click", "close", "undo", "replace", "wait", "late"]), st.integers(0, 9)),
    min_size=1,
    max_size=25,
)


@settings(max_examples=40, deadline=None)
@given(steps=STEPS, name=st.sampled_from(["dc2b-calibrated", "dc2b"]))
def test_the_live_belief_is_the_fold_of_the_log(steps: list[tuple[str, int]], name: str) -> None:
    clock = Clock()
    with Recommender(SMALL, name, clock=clock) as recommender:
        slates: list[Slate] = [recommender.recommend("ann")]
        for number, (what, place) in enumerate(steps):
            last, some = slates[-1], slates[place % len(slates)]
            clock.now += 1.0
            if what == "slate":
                slates.append(recommender.recommend("ann"))
            elif what == "replace":
                slates.append(recommender.recommend("ann", replaces=last.slate_id))
            elif what == "wait":
                clock.now += 3600.0
                recommender.close_expired()
            else:
                target = some if what == "late" else last
                item = [target.items[place].id]
                clicked, retracted = ([], item) if what == "undo" else (item, [])
                options: dict[str, Any] = {"event_id": str(number), "final": what == "close"}
                recommender.feedback(target.slate_id or "", clicked, retracted=retracted, **options)
        assert states.difference(state_of(recommender, "ann"), refolded(recommender, "ann")) <= 1e-9
        problems = [problem for _, problem in recommender.verify()]
        assert problems == [None]
        totals = recommender.experiments()[0]
        view = recommender.explain("ann")
        assert (totals.slates, totals.clicks) == (view.slates, view.clicks)


SMALL = make_catalog(200, seed=1)


def test_verify_finds_a_belief_that_is_not_the_logs(recommender: Recommender) -> None:
    slate = recommender.recommend("ann")
    recommender.feedback(slate.slate_id or "", ids(slate)[:1])
    row = recommender.store.read(lambda transaction: transaction.lock("ann"))
    wrong = states.from_bytes(row.belief or b"")
    wrong["shift"][0, 0] += 1e-6
    spoilt = replace(row, belief=states.to_bytes(wrong))
    recommender.store.submit(lambda transaction: transaction.save_user(spoilt)).result()
    assert [user for user, problem in recommender.verify() if problem] == ["ann"]
    recommender.rebuild("ann")
    assert not any(problem for _, problem in recommender.verify())


def test_another_catalogue_takes_over_and_old_slates_still_take_feedback(recommender: Recommender) -> None:
    old = recommender.recommend("ann")
    recommender.feedback(old.slate_id or "", ids(old)[:1])
    open_one = recommender.recommend("ann")
    larger = make_catalog(80, seed=5)
    gone = make_catalog(30, seed=6)
    for catalog in (larger, gone):
        recommender.use_catalog(catalog)
        fresh = recommender.recommend("ann", 5)
        assert not set(ids(fresh)) & {*ids(old), *ids(open_one)}
        assert set(ids(fresh)) <= set(catalog.item_ids)
        receipt = recommender.feedback(open_one.slate_id or "", [ids(open_one)[catalog.n_items // 30]])
        assert receipt.late
        assert states.difference(state_of(recommender, "ann"), refolded(recommender, "ann")) <= 1e-9
    assert recommender.rebuilt >= 2


def test_a_catalogue_that_is_no_longer_served_is_let_go(recommender: Recommender) -> None:
    first = make_catalog(40, seed=7)
    recommender.use_catalog(first)
    recommender.recommend("ann")
    gone = weakref.ref(first)
    recommender.use_catalog(make_catalog(40, seed=8))
    del first
    gc.collect()
    assert gone() is None


def test_what_is_at_hand_is_what_the_log_says_even_after_items_returned() -> None:
    with Recommender(make_catalog(12)) as recommender:
        for _ in range(3):
            last = recommender.recommend("ann", 5)
        recommender.recommend("ann", 5, replaces=last.slate_id)
        row = recommender.store.read(lambda transaction: transaction.lock("ann"))
        spaces = recommender.desk.spaces
        at_hand = recommender.desk.at_hand.people["ann"]
        fresh = recommender.store.read(lambda t: people.load(t, row, spaces, at_hand.space))
    assert at_hand.shown.tolist() == fresh.shown.tolist()
    assert at_hand.n_slates == fresh.n_slates


def test_slates_asked_for_by_name_do_not_bias_the_comparison(catalog: Catalog) -> None:
    with Recommender(catalog, {"dc2b-calibrated": 0.5, "popular": 0.5}) as recommender:
        for user in map(str, range(20)):
            for policy in ("popular", "dc2b-calibrated"):
                slate = recommender.recommend(user, 5, policy=policy)
                recommender.feedback(slate.slate_id or "", ids(slate)[:1])
        results = recommender.experiments()
    assert sum(result.users for result in results) == 20
    assert sum(result.slates for result in results) == 20


def test_a_repeat_of_an_event_in_time_is_not_late(recommender: Recommender) -> None:
    slate = recommender.recommend("ann")
    receipts = [recommender.feedback(slate.slate_id or "", ids(slate)[:1], event_id="e") for _ in range(2)]
    assert [one.late for one in receipts] == [False, False]


def test_users_are_split_between_policies_for_good(catalog: Catalog) -> None:
    shares = {"dc2b-calibrated": 0.8, "popular": 0.2}
    with Recommender(catalog, shares) as one, Recommender(catalog, shares) as other:
        chosen = {user: one.recommend(user, 3).policy for user in map(str, range(400))}
        assert all(other.recommend(user, 3).policy == policy for user, policy in chosen.items())
    popular = sum(policy == "popular" for policy in chosen.values())
    assert 400 * 0.2 - 4 * 8 <= popular <= 400 * 0.2 + 4 * 8


@pytest.mark.parametrize("shares", [{}, {"popular": 0.5}, {"popular": 1.5}, {"popular": -1.0, "mmr": 2.0}])
def test_shares_must_make_sense(catalog: Catalog, shares: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="polic"):
        Recommender(catalog, shares)


def test_experiments_count_every_user_once(catalog: Catalog) -> None:
    with Recommender(catalog, {"dc2b-calibrated": 0.5, "popular": 0.5}) as recommender:
        clicks = {"dc2b-calibrated": 0, "popular": 0}
        for user in map(str, range(40)):
            slate = recommender.recommend(user, 5)
            wanted = ids(slate)[: int(user) % 3]
            recommender.feedback(slate.slate_id or "", wanted)
            clicks[slate.policy] += len(wanted)
        for result in recommender.experiments():
            assert result.clicks == clicks[result.policy]
            rate = result.click_rate
            assert rate.value == pytest.approx(result.clicks / (5 * result.users))
            assert (rate.low or 0.0) < result.clicks / (5 * result.users) < (rate.high or 0.0)
        assert sum(result.users for result in recommender.experiments()) == 40


def test_forget_leaves_nothing(recommender: Recommender) -> None:
    slate = recommender.recommend("ann")
    recommender.recommend("ben")
    recommender.feedback(slate.slate_id or "", ids(slate)[:1])
    assert recommender.export("ann")["answers"]
    assert recommender.forget("ann")
    assert not recommender.forget("ann")
    assert list(recommender.store.users()) == ["ben"]
    with pytest.raises(RequestError):
        recommender.export("ann")
    with pytest.raises(UnknownSlateError):
        recommender.feedback(slate.slate_id or "", ids(slate)[:1])
    assert ids(recommender.recommend("ann")) == ids(slate)


def test_explain_shows_taste_by_category(catalog: Catalog) -> None:
    with Recommender(catalog) as recommender:
        for _ in range(3):
            slate = recommender.recommend("ann", 12)
            recommender.feedback(slate.slate_id or "", [item.id for item in slate.items if "A" in item.categories])
        view = recommender.explain("ann")
    assert view.slates == 3
    assert len(view.rounds) == 3
    assert sum(round_.clicks for round_ in view.rounds) == view.clicks
    taste = {one.name: one for one in view.categories}
    assert taste["A"].clicked == view.clicks
    assert taste["A"].lift is not None
    assert all(taste["A"].lift > (taste[other].lift or 0.0) for other in "BCD")
    assert all(round_.x is not None for round_ in view.rounds)
    assert {name for name, _, _ in view.landmarks} == set(catalog.category_names)


@pytest.mark.parametrize("name", ["popular", "dc2b", "c2ucb", "ec-bandit"])
def test_explain_works_for_every_kind_of_policy(catalog: Catalog, name: str) -> None:
    with Recommender(catalog, name) as recommender:
        slate = recommender.recommend("ann")
        recommender.feedback(slate.slate_id or "", ids(slate)[:2])
        assert recommender.explain("ann").clicks == 2
        assert recommender.explain("nobody").slates == 0


@pytest.mark.parametrize("name", LEARNERS)
def test_a_state_survives_as_bytes(catalog: Catalog, name: str) -> None:
    with Recommender(catalog, name) as recommender:
        slate = recommender.recommend("ann")
        recommender.feedback(slate.slate_id or "", ids(slate)[:2])
        state = state_of(recommender, "ann")
        again = states.from_bytes(states.to_bytes(state))
        assert all(np.array_equal(state[key], again[key]) for key in state)
        assert len(states.to_bytes(state)) < sum(array.nbytes for array in state.values()) + 500
