"""More or less of a category, and taking events back: evidence like any other, exact, and undone without a trace."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slatewise.catalog import Catalog
from slatewise.recommender import ConflictError, Event, Recommender, RequestError
from slatewise.recommender import wishes as taught
from slatewise.recommender.explain import lifts
from slatewise.recommender.interaction_log import read_interaction_log
from slatewise.recommender.types import ASKED, UnknownEventError
from slatewise.store import open_store
from tests.support import recommending
from tests.support.recommending import (
    Clock,
    folded,
    ids,
    make_catalog,
    restarted,
    served_catalog,
    served_policy,
    state_of,
)
from tests.support.serving import local
from tests.support.wishes import direction, mean, members, said

CATALOG = make_catalog(120, seed=1)
POLICIES = ("dc2b-calibrated", "dc2b", "c2ucb")


def lift_of(recommender: Recommender, user: str, category: str) -> tuple[float, float]:
    (view,) = [one for one in recommender.explain(user).categories if one.name == category]
    assert view.lift is not None
    assert view.deviation is not None
    return view.lift, view.deviation


def lift_of_one_wish(recommender: Recommender, category: str) -> float:
    lift, weight = said(served_policy(recommender).policy, category, "more")
    return lift * weight / (1.0 + weight)


def count(recommender: Recommender, user: str, category: str) -> int:
    return sum(category in item.categories for item in recommender.preview(user, 20).items)


@pytest.mark.parametrize("name", POLICIES)
def test_a_wish_alone_moves_a_category_as_far_as_it_weighs(name: str) -> None:
    """An observation of z with variance 1/w, of somebody who was N(0, 1); ±2 with the variance of people is ±1."""
    with Recommender(CATALOG, name) as recommender:
        policy = served_policy(recommender).policy
        for kind in ("more", "less"):
            lift, weight = said(policy, "B", kind)
            assert recommender.record_event(Event(kind, "B", kind)).known
            expected = lift * weight / (1.0 + weight), np.sqrt(1.0 / (1.0 + weight))
            assert lift_of(recommender, kind, "B") == pytest.approx(expected)
            assert name == "dc2b-calibrated" or expected == pytest.approx(((lift > 0) - (lift < 0), np.sqrt(0.5)))


def test_more_is_three_likes_of_a_typical_item_whose_taste_is_the_direction_of_the_category() -> None:
    """Σ⁻¹ += t tᵀ/ψ and Σ⁻¹m += (1 − μ) t/ψ, three times, μ and ψ the means of the category."""
    with Recommender(CATALOG) as recommender:
        policy: Any = served_policy(recommender).policy
    directions, center = taught.Directions.of(policy), direction(policy, "B")
    assert directions is not None
    items = members(policy, "B")
    rate, noise = (float(mean(policy, values, items)) for values in (policy.rates, policy.noise))
    state = directions.add(policy.start(1), np.array([[CATALOG.category_names.index("B"), 1.0, 1.0, 0.0]]))
    precision = np.eye(len(center)) + 3.0 * np.outer(center, center) / noise
    assert np.allclose(state["precision"][0], precision, atol=1e-9)
    assert np.allclose(state["shift"][0], 3.0 * (1.0 - rate) / noise * center, atol=1e-9)


def test_it_takes_more_to_ask_for_what_few_people_like() -> None:
    """Two categories that differ in nothing but how many people like them: the rare one is lifted further."""
    vectors = np.random.default_rng(2).normal(size=(40, 6))
    catalog = Catalog.from_vectors(range(80), np.vstack([vectors, vectors]), categories=["A"] * 40 + ["B"] * 40)
    rare = replace(catalog, log_odds=np.repeat([0.0, -3.0], 40))
    with Recommender(rare) as recommender:
        recommender.record_events([Event("ann", "A", "more"), Event("ben", "B", "more")])
        assert lift_of(recommender, "ben", "B")[0] > 1.2 * lift_of(recommender, "ann", "A")[0]


@pytest.mark.parametrize("name", POLICIES)
def test_what_a_wish_teaches_is_the_textbook_posterior(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: taken for anything else, it is not."""
    with Recommender(CATALOG, name) as recommender:
        slate = recommender.recommend("ann")
        recommender.feedback(slate.slate_id, ids(slate)[:2])
        recommender.record_events([Event("ann", "A", "more"), Event("ann", "F", "less")])

        def error() -> float:
            state, twin = state_of(recommender, "ann"), folded(recommender, "ann", served_policy(recommender))
            return max(float(np.abs(state[array] - twin[array]).max()) for array in state)

        assert error() < 1e-9
        monkeypatch.setattr(recommending, "said", lambda *_: (1.9, 1.0))
        assert error() > 1e-3


def test_more_brings_more_and_less_brings_less() -> None:
    with Recommender(CATALOG) as recommender:
        before = count(recommender, "nobody", "C")
        recommender.record_events([Event("more", "C", "more"), Event("less", "C", "less")])
        assert count(recommender, "less", "C") < before < count(recommender, "more", "C")
        reasons = {(item.reason, item.because) for item in recommender.recommend("more").items}
        assert (ASKED, "more C") in reasons


def test_how_much_somebody_likes_in_all_moves_no_category() -> None:
    """Evidence along the mean of all items alone: nothing is liked more than other things. The control: a wish."""
    with Recommender(CATALOG) as recommender:
        policy: Any = served_policy(recommender).policy
    rates, tastes = policy.rates, policy.vectors.astype(float)
    overall, centers = rates @ tastes / rates.sum(), taught.category_centers(CATALOG, policy.vectors)
    start, directions = policy.start(1), taught.Directions.of(policy)
    assert directions is not None
    colder = {**start, "precision": start["precision"] + np.outer(overall, overall), "shift": -3.0 * overall[None]}
    moved, _ = lifts(policy.belief_in(start), policy.belief_in(colder), centers)
    assert np.abs(moved).max() < 1e-9
    wished, _ = lifts(
        policy.belief_in(start), policy.belief_in(directions.add(start, np.array([[0, 1, 1, 0.0]]))), centers
    )
    assert wished[0, 0] > 1.0


@pytest.mark.parametrize("name", POLICIES)
def test_a_retracted_event_leaves_no_trace(name: str, tmp_path: Path) -> None:
    """After twenty slates, with beliefs saved, all is as if it had never been sent. The control: it stands."""
    offered = []
    for is_undone in (True, False):
        clock, store = Clock(), open_store(f"sqlite:///{tmp_path}/{is_undone}.db")
        with Recommender(CATALOG, name, store, clock=clock) as recommender:
            sent = [Event("ann", "A", "more", None, 5.0, "w"), Event("ann", 199, "hide", None, 5.0, "h")]
            recommender.record_events(sent)
            for _ in range(20):
                slate = recommender.recommend("ann", 3)
                clock.now += 10.0
                recommender.feedback(slate.slate_id, ids(slate)[:1], seen=ids(slate))
            if is_undone:
                recommender.record_events([Event("ann", one, "retract") for one in ("w", "h")])
            again = restarted(recommender)
            state, twin = state_of(again, "ann"), folded(again, "ann", served_policy(again))
            assert all(np.allclose(state[array], twin[array], atol=1e-9) for array in state)
            assert [problem for _, problem in again.verify() if problem] == []
            offered.append(199 in ids(again.preview("ann", 120)))
    assert offered == [True, False]


def test_retractions_are_checked_count_once_and_can_be_followed_by_the_event_again() -> None:
    with Recommender(CATALOG) as recommender:
        with pytest.raises(UnknownEventError):
            recommender.record_event(Event("ann", "nothing", "retract"))
        first = recommender.record_event(Event("ann", "A", "more"))
        undo = Event("ann", first.event_id, "retract", event_id="u")
        assert [recommender.record_event(undo).duplicate for _ in range(2)] == [False, True]
        with pytest.raises(RequestError, match="cannot be retracted"):
            recommender.record_event(Event("ann", "u", "retract"))
        with pytest.raises(ConflictError):
            recommender.record_event(Event("ann", "A", "less", event_id="u"))
        assert lift_of(recommender, "ann", "A")[0] == pytest.approx(0.0)
        second = recommender.record_event(Event("ann", "A", "more"))
        assert (second.duplicate, second.event_id == first.event_id) == (False, False)
        assert lift_of(recommender, "ann", "A")[0] == pytest.approx(lift_of_one_wish(recommender, "A"))
        with pytest.raises(UnknownEventError):
            recommender.record_event(Event("ben", first.event_id, "retract"))


def test_a_wish_is_exported_forgotten_and_merged_with_what_takes_it_back() -> None:
    """Both used the same event id; the session's wish was taken back, the user's stands."""
    with Recommender(CATALOG) as recommender:
        recommender.record_events(
            [Event("ann", "A", "more", event_id="w"), Event("session", "B", "more", event_id="w")]
        )
        recommender.record_event(Event("session", "w", "retract"))
        recommender.merge("ann", "session")
        one = lift_of_one_wish(recommender, "A")
        assert lift_of(recommender, "ann", "A")[0] == pytest.approx(one)
        assert abs(lift_of(recommender, "ann", "B")[0]) < 0.9 * one
        assert [event["kind"] for event in recommender.export("ann")["events"]] == ["more", "more", "retract"]
        recommender.forget("ann")
        assert lift_of(recommender, "ann", "A")[0] == pytest.approx(0.0)


def test_a_wish_is_no_event_about_an_item_of_that_name() -> None:
    catalog = Catalog.from_vectors(["Tea", "ale"], np.eye(2), categories=["Hot", "Tea"])
    with Recommender(catalog) as recommender:
        recommender.record_events([Event("ann", "Tea", "more"), Event("ann", "Nothing", "less")])
        assert set(ids(recommender.recommend("ann", 2))) == {"Tea", "ale"}
        assert read_interaction_log(recommender.store, served_catalog(recommender).rules).n_people == 0
        recommender.record_event(Event("ann", "Tea", "like"))
        assert read_interaction_log(recommender.store, served_catalog(recommender).rules).n_people == 1


def test_over_http(tmp_path: Path) -> None:
    with local(tmp_path) as service:
        name = service.client.get("/v1/catalog").json()["categories"][0]
        wish = {"user": "ann", "category": name, "kind": "more", "event_id": "w"}
        undo = {"user": "ann", "retracts": "w", "kind": "retract"}
        assert service.client.post("/v1/events", json=undo).status_code == 404
        assert service.client.post("/v1/events", json=wish).json()["known"] is True
        assert service.client.post("/v1/events", json=undo).json()["duplicate"] is False
        for wrong in (
            {**wish, "item": 1},
            {"user": "ann", "item": 1, "kind": "more"},
            {**wish, "kind": "like"},
            {**undo, "kind": "more"},
            {"user": "ann", "kind": "like"},
            {**wish, "value": 1.0},
        ):
            sent = service.client.post("/v1/events", json=wrong)
            assert sent.status_code == 422, wrong
