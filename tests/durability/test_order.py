"""The order of events does not matter, and the log alone gives the belief back."""

import random
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from slatewise.catalog import Catalog
from slatewise.policies import State
from slatewise.recommender import Recommender, state_codec
from slatewise.recommender.profile import LEARNED, SAVE_EVERY
from slatewise.store.protocol import BeliefRecord, Transaction
from tests.support.beliefs import misread, misserved, wrong_beliefs
from tests.support.notes import Notes
from tests.support.recommending import state_of
from tests.support.served import Caller, Place, start
from tests.support.visitors import Visitor

LEARNERS = ("dc2b-calibrated", "dc2b", "c2ucb", "ec-bandit")
N_SLATES = 5


def belief_after(catalog: Catalog, policy: str, path: Path, seed: int) -> State:
    """Show slates, then send all clicks on them, in an order drawn by the seed; return what was learned."""
    with Recommender(catalog, policy, f"sqlite:///{path}") as recommender:
        slates = [recommender.recommend("ann", 6) for _ in range(N_SLATES)]
        clicks: list[tuple[str, Any]] = [(slate.slate_id, item.id) for slate in slates for item in slate.items[::2]]
        random.Random(seed).shuffle(clicks)
        for number, (slate_id, item) in enumerate(clicks):
            recommender.feedback(slate_id, [item], event_id=str(number), final=True)
        assert dict(recommender.verify()) == {"ann": None}
        assert misread(recommender, "ann") is None
        return state_of(recommender, "ann")


@pytest.mark.parametrize("policy", LEARNERS)
def test_the_order_of_events_does_not_matter(policy: str, catalog: Catalog, tmp_path: Path) -> None:
    found = [belief_after(catalog, policy, tmp_path / f"{seed}.db", seed) for seed in range(3)]
    for one, other in pairwise(found):
        assert state_codec.difference(one, other) <= 1e-9


@pytest.mark.parametrize("policy", LEARNERS)
def test_the_log_alone_gives_it_back(policy: str, catalog: Catalog, tmp_path: Path) -> None:
    learned = belief_after(catalog, policy, tmp_path / "slates.db", seed=0)
    with Recommender(catalog, policy, f"sqlite:///{tmp_path / 'slates.db'}") as recommender:
        recommender.rebuild("ann")
        row = recommender.store.read(lambda transaction: transaction.belief("ann"))
    assert row.covers == N_SLATES
    assert state_codec.difference(state_in(row), learned) <= 1e-9


def state_in(belief: BeliefRecord) -> State:
    """The state of the policy in a stored belief, without what else is kept with it."""
    arrays = state_codec.from_bytes(belief.content or b"")
    return {name: array for name, array in arrays.items() if not name.startswith(LEARNED)}


def verified(place: Place) -> int:
    """Return the exit code of `slatewise store verify`."""
    command = [sys.executable, "-m", "slatewise", "store", "verify", "--store", place.store]
    return subprocess.run([*command, "--catalog", str(place.catalog)], check=False, capture_output=True).returncode  # noqa: S603


@pytest.mark.slow
def test_the_checks_of_beliefs_agree_and_can_disagree(place: Place, catalog: Catalog) -> None:
    service, notes = start(place), Notes()
    with Caller(place) as caller:
        visitor = Visitor(place, notes, ("ann",), random.Random(0))
        assert all(visitor.take_one(caller) for _ in range(SAVE_EVERY + 2))
        assert verified(place) == 0
        assert wrong_beliefs(caller, place.store, catalog, ["ann"]) == []
        with Recommender(catalog) as without_the_log:
            assert misserved(caller, without_the_log, "ann")
    service.stop()
    with Recommender(catalog, store=place.store) as recommender:
        recommender.store.write(learn_something_else).result()
        assert misread(recommender, "ann")
    assert verified(place) != 0


def learn_something_else(transaction: Transaction) -> None:
    """Change a belief as a bug would: under a checksum that fits."""
    row = transaction.belief("ann")
    assert row.content is not None
    state = state_codec.from_bytes(row.content)
    transaction.save_belief(replace(row, content=state_codec.to_bytes({**state, "shift": state["shift"] + 1e-6})))
