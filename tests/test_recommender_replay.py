"""The log can choose again: every logged slate, item by item, from the log as it was."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from slatewise.evidence import SERVICE_DEFAULT, Attention
from slatewise.recommender import Recommender
from slatewise.store import open_store
from tests.support.recommending import Clock, make_catalog
from tests.test_recommender_evidence import ACTS, CATALOG, Person

QUIET = [act for act in ACTS if act not in ("merge", "forget")]


@pytest.mark.parametrize("name", ["dc2b-calibrated", "dc2b", "c2ucb"])
@pytest.mark.parametrize("rule", [Attention(), SERVICE_DEFAULT])
def test_every_slate_is_chosen_again(name: str, rule: Attention, tmp_path: Path) -> None:
    draw, clock, store = random.Random(name), Clock(), open_store(f"sqlite:///{tmp_path}/slates.db")
    with Recommender(CATALOG, name, store, clock=clock, attention=rule, repeat_after=50.0) as recommender:
        person = Person(recommender, clock)
        for _ in range(250):
            person.act(draw.choice(QUIET), draw.choice(["ann", "session"]), draw.randrange(10))
        replayed = list(person.recommender.replay())
        assert len(replayed) == sum(map(len, person.slates.values())) > 20
        assert [one for one in replayed if not one.is_same] == []


def test_slates_before_and_after_a_merge_are_chosen_again() -> None:
    draw, clock = random.Random(3), Clock()
    with Recommender(CATALOG, clock=clock) as recommender:
        person = Person(recommender, clock)
        for act in ("slate", "click", "event", "slate", "click", "merge", "slate", "click", "slate"):
            for user in ("ann",) if act == "merge" else ("ann", "session"):
                person.act(act, user, draw.randrange(10))
        replayed = list(person.recommender.replay(["ann"]))
        moved = [one for one in replayed if one.obstacle is not None]
        assert {one.obstacle for one in moved} == {"it was shown to a user who was merged into this one"}
        assert all(one.is_same for one in replayed if one not in moved)
        assert len(replayed) > len(moved) > 0


def test_another_attention_is_replayed_with_its_own(tmp_path: Path) -> None:
    clock, store = Clock(), open_store(f"sqlite:///{tmp_path}/slates.db")
    person = Person(Recommender(CATALOG, store=store, clock=clock, attention=SERVICE_DEFAULT), clock)
    for act in ("slate", "click", "slate", "close", "slate"):
        person.act(act, "ann", 1)
    with Recommender(CATALOG, store=store, clock=clock) as other:
        assert all(one.is_same for one in other.replay())


def test_what_cannot_be_chosen_again_says_why_and_a_changed_slate_is_noticed() -> None:
    """Negative control: a slate whose log was changed afterwards is not the same."""
    clock = Clock()
    with Recommender(CATALOG, clock=clock) as recommender:
        person = Person(recommender, clock)
        for act in ("slate", "close", "slate", "close", "slate"):
            person.act(act, "ann", 1)
        tables = recommender.store.tables  # type: ignore[attr-defined]
        key, event = next(iter(tables.feedback.items()))
        other = person.slates["ann"][0].items[-1].id
        tables.feedback[key] = replace(event, clicked=(other,))
        assert next(one.is_same for one in recommender.replay())
        assert not all(one.is_same for one in recommender.replay())
        recommender.use_catalog(make_catalog(100, seed=9))
        assert {one.obstacle for one in recommender.replay()} == {"it was chosen from another catalog"}
