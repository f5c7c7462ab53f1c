"""What /live shows of the past: traffic, rates of items, calibration and trainings; kept in memory, and bounded."""

import json
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from slatewise import Slate
from slatewise.evidence import Attention
from slatewise.recommender import Item
from slatewise.recommender.feedback import FeedbackEvent
from slatewise.recommender.types import SlateItem
from slatewise.service import live_history
from slatewise.service.live_history import MAX_REACTED, MAX_WAITING, POINTS, RecentSlates, Traffic, calibration_bins
from tests.support.serving import local

EVERYTHING = Attention()


def a_slate(name: str, *probabilities: float | None) -> Slate:
    items = tuple(
        SlateItem(place, str(place), (), said, None, 0.0, "popular") for place, said in enumerate(probabilities)
    )
    return Slate(name, "ann", 0, "dc2b-calibrated", None, items, ())


def test_the_first_visit_sees_the_past(tmp_path: Path) -> None:
    with local(tmp_path) as service:
        live, client = service.state.live, service.client
        slate = client.post("/v1/slates", json={"user": "ann", "k": 5}).json()
        event = {"slate_id": slate["slate_id"], "clicked": [slate["items"][0]["id"]], "seen": 2, "event_id": "1"}
        for _ in range(2):
            assert client.post("/v1/feedback", json=event).status_code == 200
        service.recommender.put_items([Item(5001, "Tea")])
        live.tick()
        shown = client.get("/v1/live").json()
        [point] = shown["history"]
        assert point["click_rate"] == 0.2
        assert point["requests_per_second"] > point["slates_per_second"] == point["feedback_per_second"] > 0.0
        assert 0.0 < point["p50"] <= point["p99"]
        assert sum(one["n"] for one in shown["calibration"]) == 2.0
        assert (shown["rates"][0]["id"], shown["rates"][0]["title"], shown["rates"][0]["is_new"]) == (5001, "Tea", True)
        assert all(one["low"] <= one["rate"] <= one["high"] for one in shown["rates"])
        assert shown["trainings"] == []


def test_trainings_show_the_figures_of_the_gate(tmp_path: Path) -> None:
    prediction = {"log_loss": 0.3, "predicted": 0.1, "calibration_error": 0.01}
    gate = {
        "people": 40,
        "serving": prediction,
        "candidate": {**prediction, "log_loss": 0.2},
        "difference": {"value": -0.1, "low": -0.2, "high": -0.05},
    }
    accepted = {"started_at": 5.0, "outcome": "accepted", "finished_at": 6.0, "version": "ab", "words": ["accepted"]}
    rows = [{**accepted, "gate": gate}, {"started_at": 1.0, "outcome": "failed", "words": ["/home/shop: no space"]}]
    with local(tmp_path) as service:
        (tmp_path / "catalog" / "retrainings.json").write_text(json.dumps(rows))
        first, second = service.client.get("/v1/live").json()["trainings"]
    assert (first["log_loss"], first["difference"], first["words"]) == ([0.3, 0.2], [-0.1, -0.2, -0.05], ["accepted"])
    assert (second["outcome"], second["people"], second["words"]) == ("failed", None, [])


def test_uncertain_items_are_new_or_little_known_and_available(tmp_path: Path) -> None:
    with local(tmp_path) as service:
        recommender = service.recommender
        recommender.put_items([Item(item) for item in range(5_001, 5_008)])
        recommender.put_items([Item(5_008, published_at=4e9)])
        recommender.withdraw_items([5_007])
        found = recommender.uncertain_items(6)
        assert [one.id for one in found[:3]] == [5_006, 5_005, 5_004]
        listed = [item for item in recommender.catalog.item_ids if isinstance(item, int) and item < 5_007]
        rates = {item: recommender.rate(item) for item in listed}
        spread = {item: math.sqrt(one.value * (1 - one.value) / (one.seen + 1)) for item, one in rates.items()}
        others = sorted((spread[item] for item in spread if item not in (5_006, 5_005, 5_004)), reverse=True)
        assert [spread[int(one.id)] for one in found[3:]] == pytest.approx(others[:3])
        assert len(recommender.uncertain_items(1_000)) == len(rates)


def test_calibration_is_that_of_a_loop_over_items() -> None:
    random = np.random.default_rng(0)
    rows = np.column_stack([random.random(500), random.choice([0.5, 1.0], 500), random.random(500) < 0.3])
    sums = defaultdict[int, list[float]](lambda: [0.0, 0.0, 0.0])
    for said, seen, value in rows:
        for place, more in enumerate((said * seen, value, seen)):
            sums[int(10 * said)][place] += more
    for found, (_, (said, clicked, seen)) in zip(calibration_bins(rows), sorted(sums.items()), strict=True):
        assert (found.said, found.clicked, found.n) == pytest.approx((said / seen, clicked / seen, seen), abs=1e-4)
        assert 0.0 <= found.low < found.clicked < found.high <= 1.0


def test_what_was_not_seen_and_what_was_retracted_does_not_count() -> None:
    recent = RecentSlates()
    events = [FeedbackEvent("a", clicked=[0, 1], final=False), FeedbackEvent("a", retracted=[1], seen=[0, 1])]
    shown = [a_slate("a", 0.15, 0.15, 0.95), a_slate("b", None, 0.95)]
    assert recent.learn(shown, [*events, FeedbackEvent("b", clicked=[1]), FeedbackEvent("c")], EVERYTHING) == 2 / 5
    low, high = recent.calibration()
    assert (low.said, low.clicked, low.n) == (0.15, 0.5, 2.0)
    assert (high.said, high.clicked, high.n) == (0.95, 1.0, 1.0)
    assert recent.learn([], [FeedbackEvent("a", clicked=[2])], EVERYTHING) == 2 / 3
    assert recent.calibration()[1].n == 2.0


def test_portions_say_what_all_at_once_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where events on one slate fall into different portions; there is a pause between portions, not after."""
    slates = [a_slate(str(number), *(0.1 * (number % 10),) * 3) for number in range(20)]
    events = [FeedbackEvent(str(number % 20), clicked=[1 + number // 20]) for number in range(40)]
    pauses: list[float] = []
    monkeypatch.setattr("slatewise.service.live_history.time.sleep", pauses.append)
    found = []
    for portion in (7, 1_000):
        monkeypatch.setattr(live_history, "PORTION", portion)
        recent = RecentSlates()
        found.append((recent.learn(slates, events, EVERYTHING), recent.calibration(), len(pauses)))
    assert found[0][:2] == found[1][:2]
    assert found[0][2] == found[1][2] == 2 + 5


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slatewise.service.live_history.time.sleep", lambda _seconds: None)  # pauses for other threads
    recent, traffic = RecentSlates(), Traffic()
    for start in range(0, MAX_WAITING + 500, 500):
        names = [str(number) for number in range(start, start + 500)]
        recent.learn([a_slate(name, 0.5) for name in names], [], EVERYTHING)
    forgotten = [FeedbackEvent(str(number)) for number in range(500)]
    assert recent.learn([], forgotten, EVERYTHING) is None
    recent.learn([], [FeedbackEvent(str(number)) for number in range(500, 500 + MAX_REACTED + 1)], EVERYTHING)
    assert recent.calibration()[0].n == MAX_REACTED
    for _ in range(POINTS + 1):
        traffic.add([], 0, 0, None)
    assert len(traffic.points) == POINTS
    assert traffic.points[-1].p50 is None
