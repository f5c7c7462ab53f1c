"""Probabilities that make up for skips of little weight: the formula, what it leaves alone, and that it holds."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from slatewise.catalog import Catalog
from slatewise.catalog.embeddings import BprSettings
from slatewise.data.dataset import DataError, Dataset
from slatewise.data.sources import load
from slatewise.data.synthetic import WorldSize, make_world
from slatewise.evidence import SERVICE_DEFAULT
from slatewise.lab import calibration
from slatewise.lab.simulate import Audience, Session, simulate
from slatewise.policies.calibrated import HALFWAY, Calibrated, odds_factor, slope_with_odds, with_odds
from slatewise.randomness import Streams, user_keys
from slatewise.recommender import Recommender

WORLD = make_world(WorldSize(n_users=80, n_items=120, n_categories=6), seed=2).dataset


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.train(WORLD, BprSettings(epochs=1))


def test_odds_by_hand() -> None:
    """Odds p / (1 − p) times w^(n / (n + h)); the slope by a difference."""
    probability = np.array([[0.0, 0.1, 0.5, 0.9, 1.0]] * 3)
    rounds, weight = np.array([0, 3, 300]), 0.3
    factor = odds_factor(rounds, weight)
    said = with_odds(probability, factor)
    for user, n in enumerate(rounds.tolist()):
        for place, p in enumerate(probability[user].tolist()):
            odds = p / (1 - p) * weight ** (n / (n + HALFWAY)) if p < 1 else np.inf
            assert said[user, place] == pytest.approx(odds / (1 + odds) if p < 1 else 1.0)
    inside = probability[:, 1:4]
    step = 1e-6
    differences = (with_odds(inside + step, factor) - with_odds(inside - step, factor)) / (2 * step)
    np.testing.assert_allclose(slope_with_odds(inside, factor), differences, rtol=1e-6)
    assert np.isfinite(slope_with_odds(probability, odds_factor(rounds, 0.0))).all()


def test_items_and_beliefs_are_the_same_and_their_order_too(catalog: Catalog) -> None:
    """The first slate is said as it is; at weight 1 everything is, to the last bit."""
    plain, lowered = (Calibrated(catalog, skip_weight=weight) for weight in (1.0, 0.3))
    audience = Audience(attention=SERVICE_DEFAULT)
    one, other = (simulate(policy, WORLD, Session(audience=audience)) for policy in (plain, lowered))
    assert one.drop("log_probability").equals(other.drop("log_probability"))
    before, after = (frame["log_probability"].to_numpy() for frame in (one, other))
    first = one["round"].to_numpy() == 0
    assert np.array_equal(before[first], after[first])
    assert (after[~first] < before[~first])[before[~first] < 0].all()
    by_slate = one.with_columns(other["log_probability"].alias("after")).partition_by("user", "round")
    for slate in by_slate[:60]:
        order = np.argsort(slate["log_probability"].to_numpy(), kind="stable")
        assert (np.diff(slate["after"].to_numpy()[order]) >= 0).all()


def test_probabilities_of_all_items_are_those_of_slates(catalog: Catalog) -> None:
    policy = Calibrated(catalog, skip_weight=0.3)
    state = {**policy.start(2), "rounds": np.array([0, 4])}
    everything = np.ones((2, catalog.n_items), dtype=np.bool_)
    slates = policy.select(state, everything, 5, Streams(0, user_keys(["a", "b"]), 0))
    expected = np.take_along_axis(policy.probabilities(state), slates.items, axis=1)
    np.testing.assert_allclose(slates.probability, expected, rtol=1e-6)


def test_a_recommender_says_probabilities_for_its_attention(catalog: Catalog) -> None:
    """The same items, learned in the same way; at a weight of 1 as the belief has it."""
    said = []
    for attention in (SERVICE_DEFAULT, replace(SERVICE_DEFAULT, skip_weight=1.0)):
        with Recommender(catalog, attention=attention) as recommender:
            item, *others = [int(str(one)) for one in catalog.item_ids]
            recommender.feedback(recommender.recommend("ann", 1, candidates=[item]).slate_id, [item])
            said += [one.probability for one in recommender.preview("ann", 3, candidates=others).items]
    lowered, plain = np.array(said[:3]), np.array(said[3:])
    np.testing.assert_allclose(lowered, with_odds(plain[None], odds_factor(np.array([1]), 0.3))[0], atol=1e-6)


def test_the_study_by_hand() -> None:
    """Bins by a loop; what is shown is closer to what is clicked than what is believed."""
    results = calibration.run(WORLD, range(2))
    document = calibration.as_json(results, WORLD)
    assert json.loads(json.dumps(document)) == document
    assert [(row["evidence"], row["way"]) for row in document["rows"]] == [
        (evidence, way) for evidence in calibration.EVIDENCE for way in (calibration.BELIEVED, calibration.SHOWN)
    ]
    for row in document["rows"]:
        part = results.filter((pl.col("evidence") == row["evidence"]) & (pl.col("way") == row["way"]))
        pairs = list(zip(part["said"], part["clicked"], strict=True))
        by_bin: dict[int, list[tuple[float, float]]] = {}
        for said, clicked in pairs:
            by_bin.setdefault(min(int(said * 10), 9), []).append((said, clicked))
        assert [one["n"] for one in row["curve"]] == [len(by_bin[number]) for number in sorted(by_bin)]
        gaps = [abs(sum(said for said, _ in one) - sum(clicked for _, clicked in one)) for one in by_bin.values()]
        assert row["error"] == pytest.approx(sum(gaps) / len(pairs))
    [section] = calibration.sections(results, WORLD)
    assert [table.name for table in section.tables] == ["calibration", "calibration-curve"]
    with pytest.raises(DataError, match="40 items, but calibration shows 50"):
        calibration.run(make_world(WorldSize(n_users=30, n_items=40), seed=0).dataset, range(1))


def error(policy: Calibrated, people: Dataset) -> float:
    """How far what is said to people who look at everything is from the share they click, on average over tenths."""
    records = simulate(policy, people, Session(audience=Audience(attention=SERVICE_DEFAULT)))
    later = records.filter(records["round"] > 0)
    said, clicked = np.exp(later["log_probability"].to_numpy()), later["clicked"].to_numpy()
    tenth = np.minimum((said * 10).astype(int), 9)
    return float(np.abs(np.bincount(tenth, said, 10) - np.bincount(tenth, clicked, 10)).sum() / len(said))


def test_said_is_clicked_on_films(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On users whom no number was chosen by; without making up for skips, probabilities are far too high."""
    monkeypatch.setenv("SLATEWISE_DATA", str(real_data))
    training, test = load("ml-100k").split(0.2, seed=0)
    plain = Calibrated(Catalog.train(training, BprSettings(epochs=1)))
    assert error(replace(plain, skip_weight=SERVICE_DEFAULT.skip_weight), test) < 0.06
    assert error(plain, test) > 0.09
