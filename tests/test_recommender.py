"""The online recommender on the plain store: what is shown, what is learnt, and what counts once."""

import gc
import itertools
import random
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slatewise.catalog import Catalog
from slatewise.policies import POLICIES, State
from slatewise.recommender import ConflictError, Recommender, RequestError, Slate, UnknownSlateError, people, states
from slatewise.recommender.people import Person
from slatewise.recommender.spaces import Space, Spaces
from slatewise.recommender.views import CLOSE, CROWD, EXPLORING
from slatewise.store.protocol import CLOSED, BeliefRow

LEARNERS = ("dc2b-calibrated", "dc2b", "c2ucb", "ec-bandit")
ADDITIVE_OR_NOT = ("dc2b-calibrated", "dc2b")
NEARLY = 1e-9


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


def at_hand(recommender: Recommender, user: str) -> Person:
    """Who was kept at hand, and was not written about since."""
    person = recommender.desk.at_hand.get(recommender.store.read(lambda transaction: transaction.lock(user)))
    assert person is not None
    return person


def state_of(recommender: Recommender, user: str) -> State:
    """What will be known when the next slate is chosen."""
    return people.caught_up(at_hand(recommender, user)).state


def loaded(recommender: Recommender, user: str) -> Person:
    """A person as somebody reads them who has only the store."""
    spaces = Spaces(recommender.catalog)
    space = spaces.space(next(iter(recommender.shares)))
    return recommender.store.read(lambda t: people.load(t, t.lock(user), spaces, space))


def stored(recommender: Recommender, user: str) -> BeliefRow:
    return recommender.store.read(lambda transaction: transaction.belief(user))


def refolded(recommender: Recommender, user: str, space: Space, before: float = float("inf")) -> State:
    """The slow twin: the closed slates before a number, from the log, nothing from caches."""
    spaces = Spaces(recommender.catalog)
    history = recommender.store.read(lambda t: people.showings(spaces, t.slates_of(user), t.answers_of(user)))
    counted = [one for one in history if one.slate.status == CLOSED and one.slate.number < before]
    return people.fold(space, counted)


def check_learnt(recommender: Recommender, user: str) -> None:
    """Whoever is at hand, whoever is read from the store and what is stored there are folds of the log."""
    for person in (recommender.desk.at_hand.people.get(user), loaded(recommender, user)):
        if person is not None:
            known = people.caught_up(person)
            assert states.difference(known.state, refolded(recommender, user, person.space)) <= NEARLY
            assert states.difference(person.state, refolded(recommender, user, person.space, person.covers)) <= NEARLY
    belief = stored(recommender, user)
    if belief.content is not None:
        spaces = map(recommender.desk.spaces.space, recommender.policy_names)
        space = next(one for one in spaces if one.key == belief.space)
        content = states.from_bytes(belief.content)
        assert states.difference(content, refolded(recommender, user, space, belief.covers)) <= NEARLY
    assert [problem for _, problem in recommender.verify() if problem] == []


def answered(recommender: Recommender, n_slates: int, user: str = "ann", **wishes: Any) -> list[Slate]:
    """Slates shown and answered one after another, two clicks on each."""
    slates = []
    for _ in range(n_slates):
        slates.append(recommender.recommend(user, 5, **wishes))
        recommender.feedback(slates[-1].slate_id or "", ids(slates[-1])[:2])
    return slates


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
    check_learnt(recommender, "ann")


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
            check_learnt(recommender, "ann")
    assert all(states.difference(found[0], other) <= NEARLY for other in found[1:])


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


ACTS = ("slate", "click", "close", "undo", "replace", "wait", "late", "let go", "another policy")
STEPS = st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 9)), min_size=1, max_size=25)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, name=st.sampled_from(ADDITIVE_OR_NOT), saved_every=st.sampled_from([1, 3, people.SAVED_EVERY]))
def test_the_live_belief_is_the_fold_of_the_log(steps: list[tuple[str, int]], name: str, saved_every: int) -> None:
    clock = Clock()
    with patch.object(people, "SAVED_EVERY", saved_every), Recommender(SMALL, name, clock=clock) as recommender:
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
            elif what == "let go":
                recommender.desk.at_hand.clear()
            elif what == "another policy":
                slates.append(recommender.recommend("ann", policy=ADDITIVE_OR_NOT[place % 2]))
            else:
                target = some if what == "late" else last
                item = [target.items[place].id]
                clicked, retracted = ([], item) if what == "undo" else (item, [])
                options: dict[str, Any] = {"event_id": str(number), "final": what == "close"}
                recommender.feedback(target.slate_id or "", clicked, retracted=retracted, **options)
            check_learnt(recommender, "ann")
        totals = recommender.experiments()[0]
        view = recommender.explain("ann")
        if {slate.policy for slate in slates} == {name}:
            assert (totals.slates, totals.clicks) == (view.slates, view.clicks)


SMALL = make_catalog(200, seed=1)


def shifted(belief: BeliefRow) -> BeliefRow:
    wrong = states.from_bytes(belief.content or b"")
    wrong["shift"][0, 0] += 1e-6
    return replace(belief, content=states.to_bytes(wrong))


def covering_one_more(belief: BeliefRow) -> BeliefRow:
    return replace(belief, covers=belief.covers + 1)


@pytest.mark.parametrize("spoil", [shifted, covering_one_more])
def test_verify_finds_a_belief_that_is_not_the_logs(
    recommender: Recommender, spoil: Callable[[BeliefRow], BeliefRow]
) -> None:
    answered(recommender, people.SAVED_EVERY + 2)
    check_learnt(recommender, "ann")
    spoilt = spoil(stored(recommender, "ann"))
    recommender.store.submit(lambda transaction: transaction.save_belief(spoilt)).result()
    assert [user for user, problem in recommender.verify() if problem] == ["ann"]
    recommender.rebuild("ann")
    assert stored(recommender, "ann").covers == people.SAVED_EVERY + 2
    check_learnt(recommender, "ann")


def test_a_belief_that_cannot_be_read_is_learnt_anew(recommender: Recommender) -> None:
    answered(recommender, people.SAVED_EVERY + 2)
    spoilt = replace(stored(recommender, "ann"), content=b"nothing of the kind")
    recommender.store.submit(lambda transaction: transaction.save_belief(spoilt)).result()
    assert [user for user, problem in recommender.verify() if problem] == ["ann"]
    recommender.desk.at_hand.clear()
    recommender.recommend("ann")
    assert recommender.rebuilt == 1
    check_learnt(recommender, "ann")


@pytest.mark.parametrize("name", ADDITIVE_OR_NOT)
def test_a_belief_is_written_after_eight_slates_and_not_before(name: str) -> None:
    assert people.SAVED_EVERY == 8
    with Recommender(SMALL, name) as recommender:
        for number in range(20):
            slate = recommender.recommend("ann", 5)
            for final in (False, True):
                belief = stored(recommender, "ann")
                assert belief.covers == number // 8 * 8
                assert (belief.content is None) == (number < 8)
                recommender.feedback(slate.slate_id or "", ids(slate)[:2], final=final)
        assert stored(recommender, "ann") == belief
        person = loaded(recommender, "ann")
        whole = refolded(recommender, "ann", person.space)
        check_learnt(recommender, "ann")
    assert (person.saved, person.covers) == (16, 20)
    assert states.difference(person.state, whole) <= NEARLY
    assert states.difference(states.from_bytes(belief.content or b""), whole) > 1e-6


def test_a_person_read_from_belief_and_later_slates_learns_only_the_later_ones() -> None:
    """A belief that is wrong stays wrong by as much: it was used, and not learnt anew."""
    with Recommender(SMALL) as recommender:
        answered(recommender, people.SAVED_EVERY + 3)
        spoilt = shifted(stored(recommender, "ann"))
        recommender.store.submit(lambda transaction: transaction.save_belief(spoilt)).result()
        person = loaded(recommender, "ann")
        difference = person.state["shift"] - refolded(recommender, "ann", person.space)["shift"]
    assert person.covers == people.SAVED_EVERY + 3
    assert difference[0, 0] == pytest.approx(1e-6, rel=1e-3)


def nothing(_: Recommender) -> None:
    pass


def let_go(recommender: Recommender) -> None:
    recommender.desk.at_hand.clear()


def another_policy(recommender: Recommender) -> None:
    recommender.recommend("ann", 5, policy="c2ucb")


def another_policy_that_does_not_add_up(recommender: Recommender) -> None:
    recommender.recommend("ann", 5, policy="ec-bandit")


def another_policy_and_let_go(recommender: Recommender) -> None:
    another_policy(recommender)
    let_go(recommender)


MEANWHILE = [nothing, let_go, another_policy, another_policy_that_does_not_add_up, another_policy_and_let_go]


@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize("n_slates", [2, people.SAVED_EVERY + 2])
@pytest.mark.parametrize("name", ADDITIVE_OR_NOT)
def test_a_late_click_on_a_slate_that_the_stored_belief_covers_is_in_it_afterwards(
    name: str, n_slates: int, meanwhile: Callable[[Recommender], None]
) -> None:
    """With few slates the stored belief is still that of the first policy when another one has served."""
    with Recommender(SMALL, name) as recommender:
        first = answered(recommender, n_slates)[0]
        recommender.recommend("ann", 5)
        if n_slates < people.SAVED_EVERY:
            recommender.feedback(first.slate_id or "", ids(first)[2:3])
        assert stored(recommender, "ann").covers > first.number
        meanwhile(recommender)
        before = recommender.explain("ann").clicks
        assert recommender.feedback(first.slate_id or "", ids(first)[3:4]).late
        assert recommender.explain("ann").clicks == before + 1
        assert stored(recommender, "ann").covers > first.number
        check_learnt(recommender, "ann")
        let_go(recommender)
        recommender.recommend("ann", 5)
        check_learnt(recommender, "ann")


def test_a_stored_belief_that_misses_a_late_click_is_found(recommender: Recommender) -> None:
    """Negative control: the belief as it was before the click, put back."""
    first = answered(recommender, people.SAVED_EVERY + 2)[0]
    before = stored(recommender, "ann")
    recommender.feedback(first.slate_id or "", ids(first)[3:4])
    recommender.store.submit(lambda transaction: transaction.save_belief(before)).result()
    assert [user for user, problem in recommender.verify() if problem] == ["ann"]


@pytest.mark.parametrize("is_at_hand", [True, False])
@pytest.mark.parametrize("name", LEARNERS)
def test_a_late_click_on_a_closed_slate_that_is_not_learnt_yet(name: str, is_at_hand: bool) -> None:
    """It is as good as a click in time."""
    found = []
    for late, clicked in ((True, slice(0, 2)), (False, slice(0, 2)), (False, slice(0, 1))):
        with Recommender(SMALL, name) as recommender:
            answered(recommender, 2)
            slate = recommender.recommend("ann", 5)
            recommender.feedback(slate.slate_id or "", ids(slate)[:1] if late else ids(slate)[clicked])
            assert at_hand(recommender, "ann").covers == slate.number
            if late:
                if not is_at_hand:
                    let_go(recommender)
                assert recommender.feedback(slate.slate_id or "", ids(slate)[1:2]).late
            check_learnt(recommender, "ann")
            found.append((state_of(recommender, "ann"), ids(recommender.recommend("ann", 5))))
            check_learnt(recommender, "ann")
    (late_state, late_slate), (state, slate_in_time), (without, _) = found
    assert states.difference(late_state, state) <= NEARLY
    assert late_slate == slate_in_time
    assert states.difference(late_state, without) > 1e-6


@pytest.mark.parametrize("is_at_hand", [True, False])
@pytest.mark.parametrize("name", LEARNERS)
def test_a_slate_closed_by_expiry_is_learnt_when_the_next_is_chosen(name: str, is_at_hand: bool) -> None:
    clock = Clock()
    with Recommender(SMALL, name, clock=clock) as recommender:
        slate = recommender.recommend("ann", 5)
        recommender.feedback(slate.slate_id or "", ids(slate)[:2], final=False)
        start = at_hand(recommender, "ann")
        clock.now += 3600.0
        if not is_at_hand:
            let_go(recommender)
        assert recommender.close_expired() == 1
        waiting = at_hand(recommender, "ann")
        assert (waiting.covers, waiting.open) == (0, ())
        assert states.difference(waiting.state, start.state) == 0.0
        check_learnt(recommender, "ann")
        recommender.recommend("ann", 5)
        learnt = at_hand(recommender, "ann")
        check_learnt(recommender, "ann")
    assert learnt.covers == 1
    assert states.difference(learnt.state, start.state) > 1e-6


def course(recommender: Recommender, clock: Clock, before_feedback: Callable[[Recommender], None]) -> None:
    """Every kind of feedback: click by click, at once, late on a slate that is learnt, is not yet, or was withdrawn."""

    def say(slate: Slate, *places: int, **options: Any) -> None:
        before_feedback(recommender)
        clicked = [slate.items[place].id for place in places]
        recommender.feedback(slate.slate_id or "", clicked, event_id=f"{slate.number} {places} {options}", **options)

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
        before_feedback(recommender)
        assert recommender.close_expired() == 1
        say(third, 1)
        say(third, retracted=[third.items[0].id])


@pytest.mark.parametrize("name", LEARNERS)
def test_whether_someone_is_at_hand_makes_no_difference(name: str) -> None:
    found = []
    for before_feedback in (nothing, let_go):
        clock = Clock()
        with Recommender(SMALL, name, clock=clock) as recommender:
            course(recommender, clock, before_feedback)
            check_learnt(recommender, "ann")
            found.append((at_hand(recommender, "ann"), recommender.experiments(), recommender.explain("ann")))
            assert not found[-1][0].open
    (one, *known), (other, *read) = found
    assert states.difference(people.caught_up(one).state, people.caught_up(other).state) <= NEARLY
    assert (one.shown.tolist(), one.n_slates) == (other.shown.tolist(), other.n_slates)
    assert set(one.liked) == set(other.liked)
    assert known == read


def test_an_item_liked_once_is_liked_though_it_was_shown_again_and_not_clicked() -> None:
    with Recommender(make_catalog(8)) as recommender:
        first = recommender.recommend("ann", 5)
        recommender.feedback(first.slate_id or "", ids(first))
        second = recommender.recommend("ann", 8)
        assert set(ids(first)) < set(ids(second))
        recommender.feedback(second.slate_id or "", [])
        assert set(at_hand(recommender, "ann").liked) == set(loaded(recommender, "ann").liked)


@pytest.mark.parametrize("n_slates", [0, 1, people.SAVED_EVERY + 2])
@pytest.mark.parametrize("name", ADDITIVE_OR_NOT)
def test_a_click_on_a_withdrawn_slate_is_learnt_in_its_place(name: str, n_slates: int) -> None:
    with Recommender(SMALL, name) as recommender:
        answered(recommender, n_slates)
        withdrawn = recommender.recommend("ann", 5)
        other = recommender.recommend("ann", 5, candidates=range(250, 300), replaces=withdrawn.slate_id)
        recommender.feedback(other.slate_id or "", ids(other)[:2])
        answered(recommender, 2, candidates=range(250, 300))
        assert recommender.explain("ann").slates == n_slates + 3
        check_learnt(recommender, "ann")
        without = state_of(recommender, "ann")
        recommender.feedback(withdrawn.slate_id or "", [])
        assert recommender.explain("ann").slates == n_slates + 3
        assert states.difference(state_of(recommender, "ann"), without) == 0.0
        recommender.feedback(withdrawn.slate_id or "", ids(withdrawn)[1:2])
        assert recommender.explain("ann").slates == n_slates + 4
        check_learnt(recommender, "ann")
        assert stored(recommender, "ann").covers == n_slates + 4
        assert states.difference(state_of(recommender, "ann"), without) > 1e-6
        recommender.feedback(withdrawn.slate_id or "", [], retracted=ids(withdrawn)[1:2])
        assert recommender.explain("ann").slates == n_slates + 4
        check_learnt(recommender, "ann")
        left = 200 - 5 * (n_slates + 4)
        assert not set(ids(recommender.recommend("ann", left))) & set(ids(withdrawn))


def test_whose_slates_are_is_known_as_long_as_they_are_at_hand(recommender: Recommender) -> None:
    recommender.desk.at_hand.most = 2
    slates = {user: recommender.recommend(user, 5) for user in ("ann", "ben", "cat")}
    owners = recommender.desk.at_hand.owners
    assert owners == {slates[user].slate_id: user for user in ("ben", "cat")}
    later = recommender.recommend("ben", 5)
    assert owners == {later.slate_id: "ben", slates["cat"].slate_id: "cat"}
    recommender.forget("cat")
    assert owners == {later.slate_id: "ben"}
    for user in ("ann", "ben"):
        recommender.feedback(slates[user].slate_id or "", ids(slates[user])[:1])
        check_learnt(recommender, user)
        assert recommender.explain(user).clicks == 1
    with pytest.raises(UnknownSlateError):
        recommender.feedback(slates["cat"].slate_id or "", [])
    let_go(recommender)
    assert owners == {}


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
        check_learnt(recommender, "ann")


def test_beliefs_learnt_anew_because_of_another_catalogue_are_counted(recommender: Recommender) -> None:
    for user in ("ann", "ben"):
        answered(recommender, people.SAVED_EVERY + 2, user)
    for number, catalog in enumerate((make_catalog(80, seed=5), make_catalog(80, seed=6))):
        recommender.use_catalog(catalog)
        assert recommender.rebuilt == 2 * number
        for user in ("ann", "ben") * 2:
            recommender.recommend(user, 5)
            check_learnt(recommender, user)
        assert recommender.rebuilt == 2 * number + 2


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
