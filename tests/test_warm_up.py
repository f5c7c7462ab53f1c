"""A service that has warmed up compiles nothing, and reads no machine code, while somebody waits."""

import json
import subprocess
import sys

import pytest

from slatewise import Recommender
from tests.conftest import ROOT
from tests.support.serving import small_catalog

VISIT = """
import json, sys
from slatewise import compiled

prepared = []
prepare = compiled.Kernel.compile_and_call

def noting(kernel, *arguments):
    prepared.append(kernel.__wrapped__.__name__)
    return prepare(kernel, *arguments)

compiled.Kernel.compile_and_call = noting

from slatewise import Recommender
from tests.support.serving import small_catalog

recommender = Recommender(small_catalog(), {"dc2b-calibrated": 0.5, "dc2b": 0.5})
if sys.argv[1] == "warm":
    recommender.warm_up()
prepared.clear()
for policy in ("dc2b-calibrated", "dc2b"):
    for _ in range(4):
        slate = recommender.recommend("ann", policy=policy)
        recommender.feedback(slate.slate_id, [slate.items[0].id], final=True)
print(json.dumps(prepared))
"""


def prepared_while_somebody_waits(how: str) -> list[str]:
    """Return the kernels that were compiled or read from the disk during the visits of one user."""
    command = [sys.executable, "-c", VISIT, how]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)  # noqa: S603
    names: list[str] = json.loads(done.stdout)
    return names


@pytest.mark.process
def test_nobody_waits_for_kernels_after_a_warm_up() -> None:
    assert prepared_while_somebody_waits("warm") == []


@pytest.mark.process
def test_control_without_a_warm_up_somebody_does() -> None:
    assert prepared_while_somebody_waits("cold") != []


def test_a_warm_up_records_nothing_and_changes_no_slate() -> None:
    with Recommender(small_catalog()) as rehearsed, Recommender(small_catalog()) as other:
        rehearsed.warm_up()
        assert [*rehearsed.store.read(lambda transaction: transaction.totals())] == []
        assert rehearsed.rebuilt == 0
        chosen, expected = rehearsed.recommend("ann"), other.recommend("ann")
        assert (chosen.number, chosen.items) == (0, expected.items)


def test_a_warm_up_of_a_catalog_with_nothing_to_show_is_no_failure() -> None:
    catalog = small_catalog()
    with Recommender(catalog) as recommender:
        recommender.withdraw_items([*catalog.item_ids])
        recommender.warm_up()
