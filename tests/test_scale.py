"""The scale proof: its loop by plain counting, and its pages by computing them again."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import scale_page
from experiments.scale_page import ASSUMED, DOCS, RESULTS, TARGETS, arithmetic, inputs, limits
from slatewise.catalog import Catalog
from slatewise.catalog.without_bpr import train_without_bpr
from slatewise.data.sparse_world import SparseWorld
from slatewise.data.stored_likes import StoredLikes, Tables
from slatewise.data.synthetic import WorldSize
from slatewise.lab import service_loop
from slatewise.lab.service_costs import measure_store
from slatewise.lab.service_loop import K, Visit, decode, interaction_log, run_day, visits


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A world of 700 people, and the catalog that its likes train."""
    place = tmp_path_factory.mktemp("world")
    world = SparseWorld.draw(WorldSize(700, 80, 5, dim=3, taste_spread=1.5))
    world.write_items(place / "items.parquet")
    list(world.write(place / "likes"))
    (place / "parts").mkdir()
    stored = StoredLikes.from_tables(
        Tables(sorted((place / "likes").iterdir()), place / "items.parquet"), place / "parts"
    )
    train_without_bpr(stored).save(place / "catalog")
    return place


@pytest.fixture
def days(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[Visit], Any, list[float]]]:
    monkeypatch.setattr(service_loop, "PEOPLE_PER_TASK", 300)
    catalog, found = Catalog.load(folder / "catalog"), []
    with ThreadPoolExecutor(1) as thread:
        for day in range(2):
            todo = visits(sorted((folder / "likes").iterdir()), folder / "catalog", tmp_path, day, 700)
            found.append((todo, *run_day(thread, todo, catalog)))
    return found


def test_every_day_everybody_sees_something_new_and_it_is_counted(days: Any) -> None:
    shown = [np.concatenate([np.load(one.log_of(day)) for one in todo]) for day, (todo, _, _) in enumerate(days)]
    likes = SparseWorld.draw(WorldSize(700, 80, 5, dim=3, taste_spread=1.5)).likes(0)
    baskets = [set(likes[0][a:b].tolist()) for a, b in zip(likes[1], likes[1][1:], strict=False)]
    assert [one.last - one.first for one in days[0][0]] == [300, 300, 100]
    for person in range(700):
        assert len({*(shown[0][person] >> 2).tolist(), *(shown[1][person] >> 2).tolist()}) == 2 * K
    for codes, (_, sums, shares) in zip(shown, days, strict=True):
        seen, clicked, n_liked = np.zeros(80), 0, 0
        for person in range(700):
            for number in codes[person].tolist():
                liked = number >> 2 in baskets[person]
                n_liked += liked
                seen[number >> 2] += number & 1
                clicked += (number & 2) > 0
                assert (number & 2) == 0 or (liked and number & 1)
        assert (sums.liked, sums.clicked) == (n_liked, clicked)
        assert sums.seen.tolist() == seen.tolist()
        assert np.average(shares, weights=[300, 300, 100]) == pytest.approx(n_liked / 700 / K)


def test_the_log_has_what_was_seen_person_by_person(days: Any) -> None:
    files = [[one.log_of(day) for one in todo] for day, (todo, _, _) in enumerate(days)]
    log = interaction_log(files, 80)
    assert (log.n_people, log.n_slates) == (700, 1400)
    codes = [np.concatenate([np.load(file) for file in day]) for day in files]
    place = 0
    for person in range(700):
        for day in range(2):
            for number in codes[day][person].tolist():
                if number & 1:
                    assert (log.items[place], log.value[place]) == (number >> 2, float(number & 2 > 0))
                    assert log.person_of[place] == person if person % 100 == 0 else True
                    place += 1
    assert place == len(log.items)
    evidence = decode(codes[0])
    assert (evidence.items[(codes[0] & 1) == 0] == -1).all()


@pytest.mark.slow
def test_costs_are_those_of_requests_that_were_made(folder: Path, tmp_path: Path) -> None:
    catalog = Catalog.load(folder / "catalog")
    store = measure_store(catalog, tmp_path)
    rank = catalog.taste_vectors.shape[1] + catalog.n_categories
    assert store["belief_bytes"] > 8 * rank
    assert store["log_bytes_per_slate"] > 10 * K


def test_the_pages_are_those_of_the_measured_figures() -> None:
    """If this fails: python experiments/scale_page.py."""
    measured, text = scale_page.load(), DOCS.read_text(encoding="utf-8")
    assert RESULTS.read_text(encoding="utf-8") == scale_page.page(measured)
    assert scale_page.with_section(text, scale_page.section(measured)) == text
    for other in ({"store": {**measured["store"], "belief_bytes": 1}}, {"exact_p50_ms": 1.0}):
        assert scale_page.with_section(text, scale_page.section({**measured, **other})) != text


RETRAINING: dict[str, Any] = {
    "read_ms_per_slate": 0.2,
    "training": [
        {"people": 1_000_000, "slates_each": 1, "fit_cpu_s": 1_000.0, "peak_mb": 6_000.0},
        {"people": 2_000_000, "slates_each": 1, "fit_cpu_s": 1_500.0, "peak_mb": 10_000.0},
        {"people": 1_000_000, "slates_each": 2, "fit_cpu_s": 1_100.0, "peak_mb": 7_000.0},
        {"people": 1_000_000, "slates_each": 5, "fit_cpu_s": 1_400.0, "peak_mb": 10_000.0},
    ],
}
"""A person takes 0.5 ms and a further slate 0.1; a million people take 4,000 MB, a million further slates 1,000."""


def test_the_arithmetic_by_hand() -> None:
    """Round numbers, so that a head can follow."""
    assert (TARGETS["people"], TARGETS["items"], TARGETS["peak_over_mean"]) == (1e8, 1e7, 3.0)
    stages = {"first training": {"cpu_s": 100.0}}
    run = {"users": 200_000, "likes": 2_000_000, "likes_trained": 1_000_000, "stages": stages}
    store = {"belief_bytes": 10_000, "log_bytes_per_slate": 1_000, "cpu_ms_per_slate": 2.0}
    known = inputs({"runs": [run], "store": store, "exact_p50_ms": 500.0, "retraining": RETRAINING})
    assert known["likes_per_person"] == 10
    assert known["train_us_per_like"] == 100
    assert known["fit_ms_per_person"] == pytest.approx(0.5)
    assert known["fit_ms_per_slate"] == pytest.approx(0.1)
    assert known["retrain_kb_per_person"] == pytest.approx(4.194304)  # 4,000 pieces of 2**20 bytes for a million
    assert known["retrain_kb_per_slate"] == pytest.approx(1.048576)
    found = arithmetic(known)
    assert found["slates_per_second_at_peak"] == pytest.approx(3472.2, abs=0.1)
    assert found["slate_ms"] == pytest.approx(502)
    assert found["serving_cores"] == pytest.approx(3472.2 * 0.502 / ASSUMED["busy_share"], rel=1e-3)
    assert found["indexed_cores"] == pytest.approx(3472.2 * 0.002 / ASSUMED["busy_share"], rel=1e-3)
    assert found["serving_dollars_month"] == pytest.approx(
        found["serving_cores"] * 730 * ASSUMED["dollars_per_core_hour"]
    )
    assert found["beliefs_gb"] == pytest.approx(1_000)
    assert found["log_gb"] == pytest.approx(36_500)
    assert found["storage_dollars_month"] == pytest.approx(37_500 * ASSUMED["dollars_per_gb_month"])
    assert found["database_machines"] == 5
    assert found["train_core_hours"] == pytest.approx(1e9 * 100e-6 / 3600)
    assert found["train_gb_per_process"] == pytest.approx(22.4)
    assert found["read_core_hours"] == pytest.approx(1e8 * 365 * 0.2e-3 / 3600)
    assert found["fit_core_hours"] == pytest.approx(1e8 * (0.5 + 364 * 0.1) * 1e-3 / 3600)
    assert found["retrain_gb"] == pytest.approx(1e8 * (4.194304 + 364 * 1.048576) / 1e6)


def test_every_limit_counts_the_same_days_of_log() -> None:
    known = {**inputs(scale_page.load()), "belief_bytes": 10_000, "log_bytes_per_slate": 1_000}
    found, ends = arithmetic(known), {words: number for number, words in limits(known)}
    assert list(ends.values()) == sorted(ends.values())
    year = (known["retrain_kb_per_person"] + 364 * known["retrain_kb_per_slate"]) / 1e6
    assert ends["retraining from 365 days of log, in memory"] == pytest.approx(ASSUMED["machine_gb"] / year)
    hours = 1e8 * 24 / (found["read_core_hours"] + found["fit_core_hours"])
    assert ends["retraining from 365 days of log, within 24 hours on one core"] == pytest.approx(hours)
    assert ends["exact slates at the peak, in cores"] == pytest.approx(32e8 / found["serving_cores"])
    assert ends["beliefs and 365 days of log, on disk"] == pytest.approx(8_000 / (10_000 + 365_000) * 1e9)
    assert limits({**known, "exact_p50_ms": 1e6})[0][1] == "exact slates at the peak, in cores"
