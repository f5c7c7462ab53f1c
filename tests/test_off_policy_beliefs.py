"""What is learned for many users in step, against the profile of each slate by itself; what is prepared only once."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from operator import methodcaller
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from slatewise.policies import State, make_policy
from slatewise.randomness import Streams, user_keys
from slatewise.recommender import Event, Recommender, Slate, SlateRules
from slatewise.recommender.loading import LogTail
from slatewise.recommender.off_policy_beliefs import Asked, BeliefsInStep, Lesson, ShownInStep, UserHistory
from slatewise.recommender.profile import learn_everything
from slatewise.recommender.recommend import situation
from slatewise.recommender.replay import logged_request, profile_before
from slatewise.recommender.served_catalog import ServedCatalog, ServedPolicy
from slatewise.store.records import Choice, SlateRecord
from tests.support.recommending import Clock, make_catalog, served_catalog

Asking = tuple[LogTail, SlateRecord, Choice]
N_USERS, DAY = 6, 86_400.0
LIMITS: list[dict[str, Any]] = [{}, {}, {}, {"exclude": [101, 102]}, {"categories": ["A", "F"]}]
AGING = {"half_life": 3.0, "repeat_after": 5.0 * DAY}


def serve(recommender: Recommender, clock: Clock, draw: np.random.Generator) -> None:
    """Slates of three lengths, more than a user has items for; late feedback, events, wishes, what is taken back."""
    slates, events = list[Slate](), list[str]()
    for step in range(150):
        clock.now += draw.exponential(DAY / 4.0)
        user = f"user {draw.integers(N_USERS)}"
        limits: dict[str, Any] = LIMITS[draw.integers(len(LIMITS))]
        if step % 11 == 4:
            limits = {"rules": SlateRules(exclude_owned=True)} if step % 2 else {"candidates": [103, 104, 105]}
        last = next((one.slate_id for one in reversed(slates) if one.user == user), None)
        replaces = last if step % 7 == 3 else None
        slate = recommender.recommend(user, int(draw.integers(1, 4)), replaces=replaces, **limits)
        slates.append(slate)
        if step % 9:
            seen = [item.id for item in slate.items] if step % 4 == 0 else None
            clicked = [item.id for item in slate.items if draw.random() < 0.4]
            recommender.feedback(slate.slate_id, clicked, seen=seen, final=step % 3 == 0)
        if step % 6 == 5:
            late = slates[int(draw.integers(max(0, step - 20), step))]
            recommender.feedback(late.slate_id, [late.items[-1].id])
        if step % 5 == 2:
            kind = ("purchase", "hide", "more", "less", "dislike", "view")[draw.integers(6)]
            about = "A" if kind in ("more", "less") else int(draw.integers(100, 112))
            value = 0.5 if kind == "view" else None
            at = clock.now - draw.exponential(DAY) if step % 2 else None
            events.append(f"event {step}")
            recommender.record_events([Event(user, about, kind, value, at, events[-1])])
            if step % 3 == 0:
                recommender.record_events([Event(user, events[-1], "retract")])


def asked(recommender: Recommender, every: int) -> list[list[Asking]]:
    """The slates of each user but every so many, users with the most slates first."""
    found = []
    for user in recommender.store.users():
        log = recommender.store.read(partial(LogTail.read, user=user))
        choices = recommender.store.read(methodcaller("choices_of", user))
        found.append([(log, one, choices[one.number]) for one in log.slates if (one.number + 1) % every])
    return sorted(found, key=lambda one: -len(one))


def by_itself(served: ServedCatalog, policy: ServedPolicy, asking: Asking) -> tuple[State, NDArray[np.bool_]]:
    """The slow twin: learn the log from its beginning, as it was when the slate was chosen."""
    log, slate, choice = asking
    learned = learn_everything(profile_before(served, policy, log, slate, None))
    request = logged_request(slate.user, choice)
    _, state, available, _ = situation(served, policy, learned, request, choice["at"])
    return state, available.table()[0]


def in_step(served: ServedCatalog, policy: ServedPolicy, users: Sequence[Sequence[Asking]]) -> Any:
    """Yield what was asked about, with the state and what was available, as they are learned in step."""
    histories = [UserHistory(served, one[0][0]) for one in users]
    beliefs, shown = BeliefsInStep(policy, len(users)), ShownInStep(served, policy, len(users))
    for turn in range(len(users[0])):
        now = [one[turn] for one in users if len(one) > turn]
        lessons = [history.lesson(slate) for history, (_, slate, _) in zip(histories, now, strict=False)]
        beliefs.learn(lessons)
        shown.learn(lessons)
        for places in (np.arange(0, len(now), 2), np.arange(1, len(now), 2)):
            some = [Asked.of(now[place][1], now[place][2], lessons[place]) for place in places.tolist()]
            states, (table, is_possible) = beliefs.known(places, some), shown.available(places, some)
            assert is_possible.all()
            for row, place in enumerate(places.tolist()):
                yield now[place], {name: array[[row]] for name, array in states.items()}, table[row]


@cache
def eventful(**rules: Any) -> tuple[Recommender, ServedCatalog]:
    """A recommender with a log; tests only read from it, so it is served once per rules."""
    clock = Clock()
    recommender = Recommender(make_catalog(12), clock=clock, **rules)
    serve(recommender, clock, np.random.default_rng(8))
    return recommender, served_catalog(recommender)


@pytest.mark.parametrize(
    ("name", "rules"),
    [("dc2b-calibrated", {}), ("popular", {}), ("dc2b", {}), ("dc2b-calibrated", AGING), ("popular", AGING)],
)
@pytest.mark.parametrize("every", [3, 1_000])
def test_users_learned_in_step_are_known_as_each_by_itself(name: str, every: int, rules: dict[str, float]) -> None:
    recommender, served = eventful(**rules)
    policy, n_seen = served.policy(name), 0
    for asking, state, available in in_step(served, policy, asked(recommender, every)):
        expected, is_open = by_itself(served, policy, asking)
        assert available.tolist() == is_open.tolist()
        assert state.keys() == expected.keys()
        for one, value in state.items():
            np.testing.assert_allclose(value, expected[one], rtol=1e-9, atol=1e-10, err_msg=one)
        n_seen += 1
    assert n_seen > 90


@pytest.mark.parametrize("broken", ["late feedback", "waiting events", "what was shown"])
def test_what_is_left_out_in_step_is_noticed(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative controls: late feedback that is not learned again, events that wait, slates that are offered again."""
    lesson, note, hear = UserHistory.lesson, ShownInStep.note, UserHistory.hear

    def deaf(history: UserHistory, now: float) -> bool:
        hear(history, now)
        return False

    if broken == "late feedback":
        monkeypatch.setattr(UserHistory, "hear", deaf)
    if broken == "waiting events":
        monkeypatch.setattr(UserHistory, "lesson", lambda *given: replace(lesson(*given), waiting=()))
    if broken == "what was shown":
        monkeypatch.setattr(ShownInStep, "note", lambda self, users, *others: note(self, 0 * users, *others))
    recommender, served = eventful()
    policy, n_wrong = served.policy("dc2b-calibrated"), 0
    for asking, state, available in in_step(served, policy, asked(recommender, 1_000)):
        expected, is_open = by_itself(served, policy, asking)
        is_same = all(np.allclose(state[one], value, atol=1e-9) for one, value in expected.items())
        n_wrong += not (is_same and available.tolist() == is_open.tolist())
    assert n_wrong > 5


def test_a_lesson_says_what_came_since_the_last() -> None:
    recommender, served = eventful()
    log, _, _ = asked(recommender, 1_000)[0][0]
    history = UserHistory(served, log)
    lessons: list[Lesson] = [history.lesson(slate) for slate in log.slates]
    assert any(one.is_again for one in lessons)
    assert any(one.waiting for one in lessons)
    assert all(len(one.parts) <= 3 for one in lessons if not one.is_again)


@pytest.mark.parametrize("options", [{}, {"explore": 1.0}, {"temperature": 0.5}])
def test_what_is_scored_once_is_drawn_by_as_if_it_were_scored_again(options: dict[str, float]) -> None:
    catalog = make_catalog(30)
    model: Any = make_policy("dc2b-calibrated", catalog, **({"explore": 1.0} if "explore" in options else {}))
    alone: Any = make_policy("dc2b-calibrated", catalog, explore_slates=0.2, diversity=0.8, **options)
    state, random = model.start(3), Streams(4, user_keys(range(3)), 0)
    state["shift"] = np.random.default_rng(2).normal(size=state["shift"].shape)
    scored, prepared = model.scored(state), alone.prepared_as(model)
    assert prepared.items is model.items
    for one in (alone, prepared):
        np.testing.assert_array_equal(one.softmax(state, random, scored).scores, alone.softmax(state, random).scores)
    np.testing.assert_array_equal(model.probabilities(state, scored), model.probabilities(state))
    assert prepared.diversity == 0.8
    assert make_policy("dc2b-calibrated", catalog, explore=0.5).prepared_as(model) is None  # type: ignore[attr-defined]
