"""The approximate choice: always a valid slate, exact where no item lies closer than the limit, and watched."""

import random
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from slatewise.policies import Available, calibrated, make_policy
from slatewise.policies.calibrated import Calibrated
from slatewise.randomness import Streams
from slatewise.recommender import Boost, PolicyShare, Recommender, SlateRules
from slatewise.recommender.replay import APPROXIMATE
from slatewise.slates import LinearItems, Scores, choose, rules
from slatewise.slates import quantized as module
from tests.support.recommending import Clock, ids, make_catalog, served_policy
from tests.support.serving import Local, local, new_slate
from tests.test_quantized import KINDS, SEEDS, SIZES, WAYS, K, World

ROUGH = {"approximate": PolicyShare("dc2b-calibrated", options={"approximate": 0.95})}


@pytest.fixture
def approximate_catalogs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small catalogs are large enough for an int8 copy, and for the approximate choice."""
    monkeypatch.setenv(module.VARIABLE, "1")
    monkeypatch.setattr(calibrated, "APPROXIMATE_FROM", 1)


def items_of(scores: Scores, world: World, available: Available | NDArray[np.bool_]) -> list[int]:
    rule = rules.overlap(world.sets, 0.2)
    return [item for item in choose(scores, rule, available, K).items[0].tolist() if item >= 0]


@given(seed=SEEDS, kind=KINDS, way=WAYS, n_items=SIZES, limit=st.sampled_from([0.0, 0.3, 0.9]))
@settings(max_examples=200, deadline=None)
def test_slates_are_whole_and_available(seed: int, kind: str, way: str, n_items: int, limit: float) -> None:
    world = World(seed, kind, "overlap", n_items)
    available = world.available(way)
    table = available.table()[0] if isinstance(available, Available) else available[0]
    scores, _ = world.scores(is_quantized=True)
    chosen = items_of(scores._replace(cosine_limit=limit), world, available)
    assert len(set(chosen)) == len(chosen) == min(K, int(table.sum()))
    assert table[chosen].all()


def largest_cosine(items: LinearItems, weights: NDArray[np.float64]) -> float:
    """How closely any item lies in the direction of the weights, across the axis of the copy."""
    features = np.delete(items.features.astype(np.float64), items.quantized.axis, axis=1)
    direction = np.delete(weights, items.quantized.axis)
    lengths = np.linalg.norm(features, axis=1) * np.linalg.norm(direction)
    return float((features @ direction / np.where(lengths > 0.0, lengths, np.inf)).max())


@given(seed=SEEDS, kind=st.sampled_from(["normal", "zeros", "lengths", "one axis"]), way=WAYS)
@settings(max_examples=100, deadline=None)
def test_what_is_not_closer_than_the_limit_is_never_lost(seed: int, kind: str, way: str) -> None:
    world = World(seed, kind, "overlap", 700)
    available = world.available(way)
    scores, _ = world.scores(is_quantized=True)
    limit = min(max(largest_cosine(scores.items, world.weights[0]) + 1e-6, 0.0), 1.0)
    assert items_of(scores._replace(cosine_limit=limit), world, available) == items_of(scores, world, available)


def test_what_is_closer_may_be_lost() -> None:
    """Negative control: a limit that is too low changes slates."""
    different = 0
    for seed in range(20):
        world = World(seed, "lengths", "overlap", 700)
        scores, _ = world.scores(is_quantized=True)
        slates = [
            items_of(scores._replace(cosine_limit=limit), world, Available.of(world.n_items)) for limit in (0.0, 1.0)
        ]
        different += slates[0] != slates[1]
    assert different >= 5


def selected(policy: Calibrated, available: Available) -> list[int]:
    state = policy.start(1)
    state["shift"] = np.random.default_rng(3).normal(size=state["shift"].shape)
    slate = policy.select(state, available, 10, Streams(0, np.zeros(1, dtype=np.uint64), 0))
    return [int(item) for item in slate.items[0]]


@pytest.mark.usefixtures("approximate_catalogs")
def test_the_policy_is_exact_by_default_for_few_candidates_and_for_small_catalogs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog = make_catalog(5_000)
    exact, rough = (make_policy("dc2b-calibrated", catalog, approximate=share) for share in (0.0, 0.95))
    assert isinstance(exact, Calibrated)
    assert isinstance(rough, Calibrated)
    assert make_policy("dc2b-calibrated", catalog).cosine_limit == exact.cosine_limit == 1.0  # type: ignore[attr-defined]
    everything, few = Available.of(5_000), Available.of(5_000, (), range(0, 5_000, 50))
    assert selected(exact, everything) != selected(rough, everything)
    assert selected(exact, few) == selected(rough, few)
    assert selected(exact, everything) == selected(rough.with_approximate(0.0), everything)
    assert rough.with_approximate(0.0).items is rough.items
    monkeypatch.setattr(calibrated, "APPROXIMATE_FROM", 5_001)
    assert selected(exact, everything) == selected(replace(rough), everything)
    assert not replace(rough).is_approximate


@pytest.mark.usefixtures("approximate_catalogs")
def test_beliefs_do_not_depend_on_it_and_the_log_chooses_the_same_again() -> None:
    clock, catalog = Clock(), make_catalog(3_000)
    with Recommender(catalog, ROUGH, clock=clock) as recommender:
        for number in range(12):
            clock.now += 1.0
            slate = recommender.recommend(f"user {number % 3}", 5)
            recommender.feedback(slate.slate_id, ids(slate)[:2])
        assert all(one.is_same for one in recommender.replay())
        [choice, *_] = [row["choice"] for row in recommender.export("user 0")["slates"]]
        assert choice["exploration"]["approximate"] == 0.95
        plain = {"approximate": PolicyShare("dc2b-calibrated")}
        exact = Recommender(catalog, plain, recommender.store, clock=clock)
        assert served_policy(exact).key == served_policy(recommender).key
        assert all(one.is_same or one.obstacle == APPROXIMATE for one in exact.replay())
        assert "approximate" not in exact.draft(exact.request("ann")).choice(0)["exploration"]


@pytest.mark.usefixtures("approximate_catalogs")
def test_a_slate_is_compared_with_the_exact_one_unless_it_was_exact_anyway() -> None:
    with Recommender(make_catalog(3_000), ROUGH) as recommender, Recommender(make_catalog(3_000)) as exact:
        assert recommender.is_exact(recommender.draft(recommender.request("ann"))) is True  # without a taste yet
        slate = recommender.recommend("ann")
        recommender.feedback(slate.slate_id, ids(slate)[:2])
        assert recommender.is_exact(recommender.draft(recommender.request("ann"))) is False
        few = recommender.request("ann", candidates=range(100, 200))
        assert recommender.is_exact(recommender.draft(few)) is None
        boosted = recommender.request("ann", rules=SlateRules(boost=(Boost("array_contains(categories, 'A')", 2.0),)))
        assert recommender.is_exact(recommender.draft(boosted)) is None
        assert exact.is_exact(exact.draft(exact.request("ann"))) is None


def wait_for(service: Local, line: str) -> str:
    """The metrics once they contain a line; what is counted after a response is there a moment later."""
    deadline = time.monotonic() + 10.0
    while line not in (text := service.client.get("/metrics").text) and time.monotonic() < deadline:
        time.sleep(0.01)
    return str(text)


@pytest.mark.usefixtures("approximate_catalogs")
@pytest.mark.parametrize(("share", "n_checked", "n_same"), [(1.0, 3, 2), (0.0, 0, 0)])
def test_the_service_counts_what_it_checks(share: float, n_checked: int, n_same: int, tmp_path: Path) -> None:
    """Without a taste, both choices are the same; of somebody who likes something, they differ."""
    catalog = make_catalog(3_000)
    catalog.save(tmp_path / "catalog")
    before = random.getstate()
    with local(tmp_path, Recommender(catalog, ROUGH), approximate_checks=share) as service:
        new_slate(service, user="ben")
        slate = new_slate(service, user="ann")
        clicks = {"slate_id": slate["slate_id"], "clicked": [item["id"] for item in slate["items"][:2]]}
        assert service.client.post("/v1/feedback", json=clicks).status_code == 200
        new_slate(service, user="ann")
        text = wait_for(service, f"slatewise_slates_checked_total {n_checked}.0")
    assert f"slatewise_slates_checked_total {n_checked}.0" in text
    [same] = [line for line in text.splitlines() if line.startswith("slatewise_slates_checked_exact_total ")]
    assert float(same.split()[1]) == n_same
    assert random.getstate() == before, "a program's own random numbers must not depend on slates served"
