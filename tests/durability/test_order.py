"""The order of events does not matter, and the log alone gives the belief back."""

import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from slatewise.catalog import Catalog
from slatewise.policies import State
from slatewise.recommender import Recommender, states
from tests.durability.notes import Notes
from tests.durability.served import Place, start
from tests.durability.visitors import visiting

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


def test_the_command_that_verifies_agrees_and_can_disagree(place: Place) -> None:
    service = start(place)
    with visiting(place, Notes(), 0, clients=2):
        pass
    service.stop()
    command = [sys.executable, "-m", "slatewise", "store", "verify", "--store", place.store]
    command += ["--catalog", str(place.catalog)]
    assert subprocess.run(command, check=False).returncode == 0  # noqa: S603
