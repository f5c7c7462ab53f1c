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
from slatewise.recommender import Recommender, states
from slatewise.store import open_store
from slatewise.store.protocol import Transaction
from tests.durability.notes import Notes
from tests.durability.served import Caller, Place, start
from tests.durability.visitors import Visitor

LEARNERS = ("dc2b-calibrated", "dc2b", "c2ucb", "ec-bandit")
N_SLATES = 5


def belief_after(catalog: Catalog, policy: str, path: Path, seed: int) -> State:
    """Show slates, then send all clicks on them, in an order drawn by the seed; return the stored belief."""
    with Recommender(catalog, policy, f"sqlite:///{path}") as recommender:
        slates = [recommender.recommend("ann", 6) for _ in range(N_SLATES)]
        clicks: list[tuple[str, Any]] = [
            (slate.slate_id or "", item.id) for slate in slates for item in slate.items[::2]
        ]
        random.Random(seed).shuffle(clicks)
        for number, (slate_id, item) in enumerate(clicks):
            recommender.feedback(slate_id, [item], event_id=str(number), final=True)
        row = recommender.store.read(lambda transaction: transaction.lock("ann"))
        assert row.belief is not None
        return states.from_bytes(row.belief)


@pytest.mark.parametrize("policy", LEARNERS)
def test_the_order_of_events_does_not_matter(policy: str, catalog: Catalog, tmp_path: Path) -> None:
    found = [belief_after(catalog, policy, tmp_path / f"{seed}.db", seed) for seed in range(3)]
    for one, other in pairwise(found):
        assert states.difference(one, other) <= 1e-9


def verified(place: Place) -> int:
    """Return the exit code of `slatewise store verify`."""
    command = [sys.executable, "-m", "slatewise", "store", "verify", "--store", place.store]
    return subprocess.run([*command, "--catalog", str(place.catalog)], check=False, capture_output=True).returncode  # noqa: S603


def test_the_command_that_verifies_agrees_and_can_disagree(place: Place) -> None:
    service, notes = start(place), Notes()
    with Caller(place) as caller:
        visitor = Visitor(place, notes, ("ann", "ben"), random.Random(0))
        assert all(visitor.take_one(caller) for _ in range(10))
        assert verified(place) == 0
    service.stop()
    store = open_store(place.store)
    store.submit(learn_something_else).result()
    store.close()
    assert verified(place) != 0


def learn_something_else(transaction: Transaction) -> None:
    """Change a belief as a bug would: under a checksum that fits."""
    row = transaction.lock("ann")
    assert row.belief is not None
    state = states.from_bytes(row.belief)
    transaction.save_user(replace(row, belief=states.to_bytes({**state, "shift": state["shift"] + 1e-6})))
