"""What the recommender learns: every belief, cached, stored or loaded, is the fold of the user's log."""

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slatewise.recommender import Recommender, Slate, state_codec
from slatewise.recommender import profile as profile_module
from slatewise.recommender.loading import SHORT_TURN, ShortTurns
from slatewise.recommender.profile import SAVE_EVERY, learn_closed, learn_everything, learn_late
from slatewise.store import open_store
from slatewise.store.protocol import BeliefRecord
from tests.support.recommending import (
    Clock,
    CountingStore,
    cached_profile,
    counted,
    folded,
    ids,
    loaded_profile,
    make_catalog,
    restarted,
    served_policy,
    state_of,
    stored_belief,
)

LEARNERS = ("dc2b-calibrated", "dc2b", "c2ucb", "ec-bandit")
TWO_LEARNERS = ("dc2b-calibrated", "dc2b")
LARGEST_DIFFERENCE = 1e-9
CATALOG = make_catalog(200, seed=1)
HISTORY = {"slates_of", "feedback_of"}
"""The methods of a transaction that read a user's whole log."""


@pytest.fixture
def recommender() -> Iterator[Recommender]:
    with Recommender(CATALOG, clock=Clock()) as opened:
        yield opened


def check_learned(recommender: Recommender, user: str = "ann") -> None:
    """The cached profile and the one that is loaded are folds of the log, with a stored belief or without."""
    for found in (cached_profile(recommender, user), loaded_profile(recommender, user)):
        profile = None if found is None else learn_late(found)
        if profile is not None:
            known, policy = learn_everything(learn_closed(profile)), profile.policy
            assert state_codec.difference(known.state, folded(recommender, user, policy)) <= LARGEST_DIFFERENCE
            before = folded(recommender, user, policy, profile.covers)
            assert state_codec.difference(profile.learned.state, before) <= LARGEST_DIFFERENCE
    assert [problem for _, problem in recommender.verify() if problem] == []


def show_and_click(recommender: Recommender, n_slates: int, user: str = "ann", **options: Any) -> list[Slate]:
    """Show slates one after another and click two items of each."""
    slates = []
    for _ in range(n_slates):
        slates.append(recommender.recommend(user, 5, **options))
        recommender.feedback(slates[-1].slate_id, ids(slates[-1])[:2])
    return slates


def save(recommender: Recommender, belief: BeliefRecord) -> None:
    recommender.store.write(lambda transaction: transaction.save_belief(belief)).result()


@pytest.mark.parametrize("name", LEARNERS)
def test_an_undone_click_was_never_made(name: str) -> None:
    states = []
    for undo in (False, True):
        with Recommender(CATALOG, name) as recommender:
            slate = recommender.recommend("ann")
            first, second = ids(slate)[:2]
            if undo:
                recommender.feedback(slate.slate_id, [second], event_id="like", final=False)
                recommender.feedback(slate.slate_id, [], retracted=[second], event_id="undo", final=False)
            recommender.feedback(slate.slate_id, [first])
            states.append(state_of(recommender, "ann"))
    assert state_codec.difference(*states) == 0.0


@pytest.mark.parametrize("name", LEARNERS)
def test_the_order_of_events_does_not_matter(name: str) -> None:
    """Clicks on three slates come in any order, before or after closing: the belief is the same."""
    states = []
    for seed in range(6):
        with Recommender(CATALOG, name) as recommender:
            slates = [recommender.recommend("ann", candidates=range(100 + 10 * at, 110 + 10 * at)) for at in range(3)]
            events = [(slate, [min(ids(slate)) + offset]) for slate in slates for offset in (1, 4, 8)]
            random.Random(seed).shuffle(events)
            for number, (slate, clicked) in enumerate(events):
                recommender.feedback(slate.slate_id, clicked, final=number % 2 == 0, event_id=f"{number}")
            recommender.feedback(slates[-1].slate_id, [], event_id="last")
            states.append(state_of(recommender, "ann"))
            check_learned(recommender)
    assert all(state_codec.difference(states[0], other) <= LARGEST_DIFFERENCE for other in states[1:])


def test_the_check_of_order_can_fail() -> None:
    """Negative control: a belief that misses a late click is told apart."""
    states = []
    for late in (True, False):
        with Recommender(CATALOG) as recommender:
            slate = recommender.recommend("ann")
            recommender.feedback(slate.slate_id, [])
            if late:
                recommender.feedback(slate.slate_id, ids(slate)[:1])
            states.append(state_of(recommender, "ann"))
    assert state_codec.difference(*states) > 1e-6


ACTS = (
    "slate",
    "click",
    "close",
    "undo",
    "replace",
    "expire",
    "late",
    "restart",
    "another policy",
    "rebuild",
    "forget",
)
STEPS = st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 9)), min_size=1, max_size=25)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, name=st.sampled_from(TWO_LEARNERS), save_every=st.sampled_from([1, 3, SAVE_EVERY]))
def test_the_live_belief_is_the_fold_of_the_log(steps: list[tuple[str, int]], name: str, save_every: int) -> None:
    clock = Clock()
    with patch.object(profile_module, "SAVE_EVERY", save_every), Recommender(CATALOG, name, clock=clock) as opened:
        recommender, slates = opened, [opened.recommend("ann")]
        for number, (act, position) in enumerate(steps):
            clock.now += 1.0
            if act == "restart":
                recommender = restarted(recommender)
            elif act == "forget":
                recommender.forget("ann")
                slates = [recommender.recommend("ann")]
            else:
                _act(recommender, clock, slates, act, position, str(number))
            check_learned(recommender)
            assert ids(recommender.preview("ann", 5)) == ids(restarted(recommender).preview("ann", 5))
        totals, view = recommender.experiments()[0], recommender.explain("ann")
        if {slate.policy for slate in slates} == {name}:
            assert (totals.slates, totals.clicks) == (view.slates, view.clicks)


def _act(recommender: Recommender, clock: Clock, slates: list[Slate], act: str, position: int, event_id: str) -> None:
    last = slates[-1]
    if act == "slate":
        slates.append(recommender.recommend("ann"))
    elif act == "replace":
        slates.append(recommender.recommend("ann", replaces=last.slate_id))
    elif act == "expire":
        clock.now += 3600.0
        recommender.close_expired()
    elif act == "rebuild":
        recommender.rebuild("ann")
    elif act == "another policy":
        slates.append(recommender.recommend("ann", policy=TWO_LEARNERS[position % 2]))
    else:
        slate = slates[position % len(slates)] if act == "late" else last
        item = [slate.items[position].id]
        clicked, retracted = ([], item) if act == "undo" else (item, [])
        recommender.feedback(slate.slate_id, clicked, retracted=retracted, event_id=event_id, final=act == "close")


def shifted(belief: BeliefRecord) -> BeliefRecord:
    state = state_codec.from_bytes(belief.content or b"")
    state["shift"][0, 0] += 1e-6
    return replace(belief, content=state_codec.to_bytes(state))


def knowing_the_future(belief: BeliefRecord) -> BeliefRecord:
    state = state_codec.from_bytes(belief.content or b"")
    state["learned times"][1] = 1e12
    return replace(belief, content=state_codec.to_bytes(state))


def covering_one_more(belief: BeliefRecord) -> BeliefRecord:
    return replace(knowing_the_future(belief), covers=belief.covers + 1)


@pytest.mark.parametrize("spoil", [shifted, covering_one_more])
def test_verify_reports_a_belief_that_does_not_match_the_log(
    recommender: Recommender, spoil: Callable[[BeliefRecord], BeliefRecord]
) -> None:
    show_and_click(recommender, SAVE_EVERY + 2)
    check_learned(recommender)
    save(recommender, spoil(stored_belief(recommender, "ann")))
    assert [user for user, problem in recommender.verify() if problem] == ["ann"]
    recommender.rebuild("ann")
    assert stored_belief(recommender, "ann").covers == SAVE_EVERY + 2
    check_learned(recommender)


def test_a_belief_that_cannot_be_decoded_is_learned_again(recommender: Recommender) -> None:
    show_and_click(recommender, SAVE_EVERY + 2)
    save(recommender, replace(stored_belief(recommender, "ann"), content=b"nothing of the kind"))
    assert [user for user, problem in recommender.verify() if problem] == ["ann"]
    fresh = restarted(recommender)
    fresh.recommend("ann")
    assert fresh.rebuilt == 1
    check_learned(fresh)


@pytest.mark.parametrize("name", TWO_LEARNERS)
def test_a_belief_is_written_after_eight_slates_and_not_before(name: str) -> None:
    assert SAVE_EVERY == 8
    with Recommender(CATALOG, name) as recommender:
        for number in range(20):
            slate = recommender.recommend("ann", 5)
            for final in (False, True):
                belief = stored_belief(recommender, "ann")
                assert belief.covers == number // 8 * 8
                assert (belief.content is None) == (number < 8)
                recommender.feedback(slate.slate_id, ids(slate)[:2], final=final)
        assert stored_belief(recommender, "ann") == belief
        profile = loaded_profile(recommender, "ann")
        whole = folded(recommender, "ann", profile.policy)
        check_learned(recommender)
    assert (profile.saved, profile.covers) == (16, 20)
    assert state_codec.difference(profile.learned.state, whole) <= LARGEST_DIFFERENCE
    assert state_codec.difference(state_codec.from_bytes(belief.content or b""), whole) > 1e-6


def test_a_loaded_profile_learns_only_what_the_stored_belief_has_not() -> None:
    """A belief that is wrong stays wrong by as much: it was used, and not learned again."""
    with Recommender(CATALOG) as recommender:
        show_and_click(recommender, SAVE_EVERY + 3)
        save(recommender, shifted(stored_belief(recommender, "ann")))
        profile = loaded_profile(recommender, "ann")
        difference = profile.learned.state["shift"] - folded(recommender, "ann", profile.policy)["shift"]
    assert profile.covers == SAVE_EVERY + 3
    assert difference[0, 0] == pytest.approx(1e-6, rel=1e-3)


def nothing(recommender: Recommender) -> Recommender:
    return recommender


def another_policy(recommender: Recommender) -> Recommender:
    recommender.recommend("ann", 5, policy="c2ucb")
    return recommender


def another_policy_and_restart(recommender: Recommender) -> Recommender:
    return restarted(another_policy(recommender))


@pytest.mark.parametrize("meanwhile", [nothing, restarted, another_policy, another_policy_and_restart])
@pytest.mark.parametrize("name", LEARNERS)
def test_a_late_click_on_a_slate_that_the_stored_belief_covers_is_worked_in(
    name: str, meanwhile: Callable[[Recommender], Recommender]
) -> None:
    with Recommender(CATALOG, name) as opened:
        first = show_and_click(opened, SAVE_EVERY + 2)[0]
        assert stored_belief(opened, "ann").covers > first.number
        recommender = meanwhile(opened)
        n_clicks = recommender.explain("ann").clicks
        assert recommender.feedback(first.slate_id, ids(first)[3:4]).late
        assert recommender.explain("ann").clicks == n_clicks + 1
        before = stored_belief(recommender, "ann")
        check_learned(recommender)
        n_rebuilt = recommender.rebuilt
        recommender.recommend("ann", 5)
        is_additive = bool(served_policy(recommender).policy.additive)
        assert (recommender.rebuilt == n_rebuilt) == (is_additive and before.key == served_policy(recommender).key)
        assert stored_belief(recommender, "ann") != before
        check_learned(recommender)
        check_learned(restarted(recommender))


def test_a_stored_belief_that_misses_a_late_click_is_reported(recommender: Recommender) -> None:
    """Negative control: a belief that claims to know the click."""
    first = show_and_click(recommender, SAVE_EVERY + 2)[0]
    recommender.feedback(first.slate_id, ids(first)[3:4])
    check_learned(recommender)
    save(recommender, knowing_the_future(stored_belief(recommender, "ann")))
    assert [user for user, problem in recommender.verify() if problem] == ["ann"]


def test_late_feedback_that_changes_nothing_keeps_belief_and_cache(recommender: Recommender) -> None:
    slates = show_and_click(recommender, SAVE_EVERY + 2)
    withdrawn = recommender.recommend("ann", 5)
    recommender.recommend("ann", 5, replaces=withdrawn.slate_id)
    before = stored_belief(recommender, "ann")
    for slate in (slates[0], withdrawn):
        assert recommender.feedback(slate.slate_id, [], event_id=f"late {slate.number}").late
        assert cached_profile(recommender, "ann") is not None
    recommender.feedback(slates[0].slate_id, ids(slates[0])[:1], event_id="clicked before")
    assert stored_belief(recommender, "ann") == before
    check_learned(recommender)
    recommender.recommend("ann", 5)
    assert recommender.rebuilt == 0


@pytest.mark.parametrize("is_cached", [True, False])
@pytest.mark.parametrize("name", LEARNERS)
def test_a_late_click_on_a_closed_slate_that_is_not_learned_yet(name: str, is_cached: bool) -> None:
    """It is as good as a click in time."""
    outcomes = []
    for late, clicked in ((True, slice(0, 2)), (False, slice(0, 2)), (False, slice(0, 1))):
        with Recommender(CATALOG, name) as recommender:
            show_and_click(recommender, 2)
            slate = recommender.recommend("ann", 5)
            recommender.feedback(slate.slate_id, ids(slate)[:1] if late else ids(slate)[clicked])
            profile = cached_profile(recommender, "ann")
            assert profile is not None
            assert profile.covers == slate.number
            if late:
                sender = recommender if is_cached else restarted(recommender)
                assert sender.feedback(slate.slate_id, ids(slate)[1:2]).late
            check_learned(recommender)
            outcomes.append((state_of(recommender, "ann"), ids(recommender.recommend("ann", 5))))
            check_learned(recommender)
    (late_state, late_slate), (state, slate_in_time), (without, _) = outcomes
    assert state_codec.difference(late_state, state) <= LARGEST_DIFFERENCE
    assert late_slate == slate_in_time
    assert state_codec.difference(late_state, without) > 1e-6


@pytest.mark.parametrize("is_cached", [True, False])
@pytest.mark.parametrize("name", LEARNERS)
def test_a_slate_closed_by_expiry_is_learned_when_the_next_is_drafted(name: str, is_cached: bool) -> None:
    clock = Clock()
    with Recommender(CATALOG, name, clock=clock) as recommender:
        slate = recommender.recommend("ann", 5)
        recommender.feedback(slate.slate_id, ids(slate)[:2], final=False)
        start = served_policy(recommender).start
        assert state_codec.difference(state_of(recommender, "ann"), start) == 0.0
        clock.now += 3600.0
        closer = recommender if is_cached else restarted(recommender)
        assert closer.close_expired() == 1
        check_learned(recommender)
        recommender.recommend("ann", 5)
        learned = cached_profile(recommender, "ann")
        check_learned(recommender)
    assert learned is not None
    assert learned.covers == 1
    assert state_codec.difference(learned.learned.state, start) > 1e-6


def session(recommender: Recommender, clock: Clock, again: Callable[[Recommender], Recommender]) -> Recommender:
    """Every kind of feedback: click by click, at once, late on a slate that is learned, is not yet, or was withdrawn.

    `again` returns the recommender that takes the next event.
    """

    def say(slate: Slate, *positions: int, **options: Any) -> None:
        clicked = [slate.items[position].id for position in positions]
        event_id = f"{slate.number} {positions} {options}"
        again(recommender).feedback(slate.slate_id, clicked, event_id=event_id, **options)

    for _ in range(5):
        first = recommender.recommend("ann", 5)
        say(first, 0, final=False)
        say(first, 1, 2)
        say(first, 3)
        second = recommender.recommend("ann", 5)
        third = recommender.recommend("ann", 5, replaces=second.slate_id, exclude=ids(second))
        say(first, 4)
        say(second, 2)
        say(third, 0, final=False)
        clock.now += 3600.0
        assert again(recommender).close_expired() == 1
        say(third, 1)
        say(third, retracted=[third.items[0].id])
    return recommender


@pytest.mark.parametrize("name", LEARNERS)
def test_whether_a_profile_is_cached_makes_no_difference(name: str) -> None:
    """Events arrive at the recommender that showed the slates, or at another one on the same store."""
    outcomes = []
    for again in (nothing, restarted):
        clock = Clock()
        with Recommender(CATALOG, name, clock=clock) as opened:
            recommender = session(opened, clock, again)
            check_learned(recommender)
            next_items = ids(recommender.recommend("ann", 5))
            profile = cached_profile(recommender, "ann")
            assert profile is not None
            facts = (next_items, profile.shown().numbers.tolist(), set(profile.liked()), profile.n_slates)
            outcomes.append((profile.learned.state, facts, recommender.experiments(), recommender.explain("ann")))
    (state, *known), (other_state, *other_known) = outcomes
    assert state_codec.difference(state, other_state) <= LARGEST_DIFFERENCE
    assert known == other_known


def test_an_item_liked_once_is_liked_though_it_was_shown_again_and_not_clicked() -> None:
    with Recommender(make_catalog(8)) as recommender:
        first = recommender.recommend("ann", 5)
        recommender.feedback(first.slate_id, ids(first))
        second = recommender.recommend("ann", 8)
        assert set(ids(first)) < set(ids(second))
        recommender.feedback(second.slate_id, [])
        cached = cached_profile(recommender, "ann")
        assert cached is not None
        assert len(cached.liked()) == 5
        assert set(cached.liked()) == set(loaded_profile(recommender, "ann").liked())


def test_what_is_cached_is_what_the_log_says_even_after_items_returned() -> None:
    with Recommender(make_catalog(12)) as recommender:
        for _ in range(3):
            last = recommender.recommend("ann", 5)
        recommender.recommend("ann", 5, replaces=last.slate_id)
        cached, loaded = cached_profile(recommender, "ann"), loaded_profile(recommender, "ann")
    assert cached is not None
    assert cached.shown().numbers.tolist() == loaded.shown().numbers.tolist()
    assert cached.n_slates == loaded.n_slates


@pytest.mark.parametrize("n_slates", [0, 1, SAVE_EVERY + 2])
@pytest.mark.parametrize("name", TWO_LEARNERS)
def test_a_click_on_a_withdrawn_slate_is_learned_in_its_position(name: str, n_slates: int) -> None:
    with Recommender(CATALOG, name) as recommender:
        show_and_click(recommender, n_slates)
        withdrawn = recommender.recommend("ann", 5)
        other = recommender.recommend("ann", 5, candidates=range(250, 300), replaces=withdrawn.slate_id)
        recommender.feedback(other.slate_id, ids(other)[:2])
        show_and_click(recommender, 2, candidates=range(250, 300))
        assert recommender.explain("ann").slates == n_slates + 3
        check_learned(recommender)
        without = state_of(recommender, "ann")
        recommender.feedback(withdrawn.slate_id, [])
        assert recommender.explain("ann").slates == n_slates + 3
        assert state_codec.difference(state_of(recommender, "ann"), without) == 0.0
        assert recommender.feedback(withdrawn.slate_id, ids(withdrawn)[1:2]).late
        assert recommender.explain("ann").slates == n_slates + 4
        check_learned(recommender)
        assert state_codec.difference(state_of(recommender, "ann"), without) > 1e-6
        recommender.feedback(withdrawn.slate_id, [], retracted=ids(withdrawn)[1:2])
        assert recommender.explain("ann").slates == n_slates + 4
        check_learned(recommender)
        left = 200 - 5 * (n_slates + 4)
        assert not set(ids(recommender.recommend("ann", left))) & set(ids(withdrawn))
        assert (recommender.experiments()[0].slates, recommender.experiments()[0].clicks) == counted(
            recommender, ["ann"]
        )


def test_another_catalog_takes_over_and_old_slates_still_take_feedback() -> None:
    with Recommender(make_catalog()) as recommender:
        old = recommender.recommend("ann")
        recommender.feedback(old.slate_id, ids(old)[:1])
        still_open = recommender.recommend("ann")
        for catalog in (make_catalog(80, seed=5), make_catalog(30, seed=6)):
            recommender.use_catalog(catalog)
            fresh = recommender.recommend("ann", 5)
            assert not set(ids(fresh)) & {*ids(old), *ids(still_open)}
            assert set(ids(fresh)) <= set(catalog.item_ids)
            assert recommender.feedback(still_open.slate_id, [ids(still_open)[catalog.n_items // 30]]).late
            check_learned(recommender)


def test_beliefs_rebuilt_because_of_another_catalog_are_counted(recommender: Recommender) -> None:
    for user in ("ann", "ben"):
        show_and_click(recommender, SAVE_EVERY + 2, user)
    for number, catalog in enumerate((make_catalog(80, seed=5), make_catalog(80, seed=6))):
        recommender.use_catalog(catalog)
        assert recommender.rebuilt == 2 * number
        for user in ("ann", "ben") * 2:
            recommender.recommend(user, 5)
            check_learned(recommender, user)
        assert recommender.rebuilt == 2 * number + 2


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{}/slates.db"])
def test_feedback_does_not_read_a_long_history(url: str, tmp_path: Any) -> None:
    """Whether the profile is cached or not, and whether the event is late or not."""
    store = CountingStore(open_store(url.format(tmp_path)))
    with Recommender(make_catalog(400), store=store) as recommender:
        slates = [recommender.recommend("ann", 1) for _ in range(300)]
        fresh = restarted(recommender)
        for number, sender in enumerate((recommender, fresh) * 2):
            for slate in (slates[-1], slates[150], slates[0]):
                event_id, final = f"{number} {slate.number}", number > 1
                send = partial(sender.feedback, slate.slate_id, ids(slate), event_id=event_id, final=final)
                calls = store.calls_of(send)
                assert not HISTORY & calls.keys()
                assert sum(calls.values()) <= 10
        assert store.calls_of(lambda: fresh.recommend("ann", 1)).keys() >= HISTORY, "the history is never read"
        check_learned(recommender)


@pytest.mark.parametrize(("name", "is_read"), [("dc2b-calibrated", False), ("dc2b", True)])
def test_late_feedback_on_a_cached_user_is_learned_without_reading_the_log(name: str, is_read: bool) -> None:
    """What a policy that is not additive has learned cannot be corrected: that log is read again."""
    store = CountingStore(open_store("memory://"))
    with Recommender(CATALOG, name, store=store) as recommender:
        slates = show_and_click(recommender, 3)
        recommender.recommend("ann", 5)  # all three are learned
        recommender.feedback(slates[0].slate_id, ids(slates[0])[3:4], event_id="late")
        calls = store.calls_of(lambda: recommender.recommend("ann", 5))
        assert bool(HISTORY & calls.keys()) == is_read
        check_learned(recommender)


@pytest.mark.parametrize("name", LEARNERS)
def test_a_state_survives_as_bytes(name: str) -> None:
    with Recommender(CATALOG, name) as recommender:
        slate = recommender.recommend("ann")
        recommender.feedback(slate.slate_id, ids(slate)[:2])
        state = state_of(recommender, "ann")
        again = state_codec.from_bytes(state_codec.to_bytes(state))
        assert all(np.array_equal(state[key], again[key]) for key in state)
        assert len(state_codec.to_bytes(state)) < sum(array.nbytes for array in state.values()) + 500


def test_who_is_cached_stays_cached_when_a_slate_expires_and_rates_are_learned() -> None:
    clock, store = Clock(), CountingStore(open_store("memory://"))
    with Recommender(CATALOG, store=store, clock=clock) as recommender:
        slate = recommender.recommend("ann", 5)
        recommender.feedback(slate.slate_id, ids(slate)[:1], final=False)
        assert not {"slates_of", "choices_of", "feedback_on"} & store.calls_of(recommender.learn_rates).keys()
        clock.now += 3600.0
        assert not {"slate", "feedback_on"} & store.calls_of(recommender.close_expired).keys()
        assert not HISTORY & store.calls_of(lambda: recommender.recommend("ann", 5)).keys()
        check_learned(recommender)


def test_threads_take_short_turns_while_any_of_them_learns_a_long_log() -> None:
    usual, turns = sys.getswitchinterval(), ShortTurns()
    with turns.taken():
        with turns.taken():
            assert sys.getswitchinterval() == pytest.approx(SHORT_TURN)
        assert sys.getswitchinterval() == pytest.approx(SHORT_TURN) != pytest.approx(usual)
    assert sys.getswitchinterval() == pytest.approx(usual)
