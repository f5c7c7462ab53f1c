"""The worlds in which people do not look at everything, from end to end; and what a single like teaches."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from slatewise import belief
from slatewise.catalog import Catalog
from slatewise.catalog.embeddings import BprSettings
from slatewise.data.dataset import DataError, Dataset
from slatewise.data.sources import load
from slatewise.data.synthetic import WorldSize, make_world
from slatewise.evidence import SERVICE_DEFAULT, Attention, Evidence
from slatewise.lab.attention import EVIDENCE, Results, as_json, audiences, fit_rules, run, sections, slate_log, summary
from slatewise.lab.click_models import CLICK_MODELS
from slatewise.lab.simulate import Audience, Session, simulate
from slatewise.policies.calibrated import Calibrated
from slatewise.recommender.explain import lifts
from slatewise.recommender.wishes import category_centers
from tests.test_cli import slatewise

WORLD = make_world(WorldSize(n_users=200, n_items=80), seed=3).dataset
POLICIES = ["dc2b-calibrated, diversity 0", "dc2b-calibrated", "ease", "popular"]


@pytest.fixture(scope="module")
def results() -> Results:
    return run(WORLD, range(2))


def test_every_world_policy_and_kind_of_evidence_has_a_row(results: Results) -> None:
    document = as_json(results, WORLD)
    assert json.loads(json.dumps(document))["rows"] == document["rows"]
    assert (document["dataset"], document["splits"]) == (WORLD.name, 2)
    found = [(row["world"], row["policy"], row["evidence"]) for row in document["rows"]]
    assert found == [(world, policy, name) for world in CLICK_MODELS for policy in POLICIES for name in EVIDENCE]
    for row in document["rows"]:
        assert set(row) == {"world", "policy", "evidence", "p@50", "diversity", "sd"}
        assert 0.0 < row["p@50"] < 1.0
    assert len(document["fits"]) == 2 * len(CLICK_MODELS) * 3


def test_rows_are_means_over_splits_of_liked_items(results: Results) -> None:
    """Popular never learns: in every world it shows the same items, and what is clicked of them does not count."""
    popular = [row["p@50"] for row in summary(results) if row["policy"] == "popular"]
    assert len(set(popular)) == 1
    by_hand = []
    for seed in range(2):
        training, test = WORLD.split(0.2, seed)
        order = np.argsort(-Catalog.train(training, BprSettings(epochs=1, seed=seed)).log_odds, kind="stable")[:50]
        by_hand.append(np.mean([np.isin(order, test.items[test.users == user]).mean() for user in range(test.n_users)]))
    assert popular[0] == pytest.approx(np.mean(by_hand))


def test_where_everything_is_seen_telling_it_changes_nothing_but_the_skip_weight(results: Results) -> None:
    fits = {(fit["world"], fit["evidence"], fit["split"]): fit["fit"] for fit in results.fits}
    rows = results.rows.filter(world="everything", policy="dc2b-calibrated")
    for split in range(2):
        told, all_seen = (rows.filter(split=split, evidence=name)["p@50"].item() for name in ("told", "all"))
        if fits["everything", "told", split].skip_weight.value == 1.0:
            assert told == all_seen


def test_a_log_has_the_slates_of_the_records() -> None:
    catalog = Catalog.train(WORLD, BprSettings(epochs=1))
    audience = Audience(CLICK_MODELS["cascade"])
    records = simulate(Calibrated(catalog), WORLD.take(range(9)), Session(audience=audience))
    log = slate_log(records.sample(fraction=1.0, shuffle=True, seed=0), tells_seen=True)
    assert log.users.tolist() == np.repeat(np.arange(9), 5).tolist()
    for number, (user, start) in enumerate((user, start) for user in range(9) for start in range(5)):
        slate = records.filter(user=user, round=start).sort("position")
        assert log.reactions.items[number].tolist() == slate["item"].to_list()
        assert log.reactions.has_value[number].tolist() == slate["clicked"].to_list()
        assert log.reactions.seen[number].tolist() == slate["seen"].to_list()
    assert log.reactions.is_seen_told.all()


def test_audiences_differ_only_in_what_is_told() -> None:
    others, validation = WORLD.split(0.3, 1)
    fitted = fit_rules(Calibrated(Catalog.train(others, BprSettings(epochs=1))), validation, "1/r", 1)
    found = audiences("1/r", fitted)
    assert list(found) == list(EVIDENCE)
    assert {audience.click_model for audience in found.values()} == {CLICK_MODELS["1/r"]}
    assert [name for name, audience in found.items() if audience.tells_seen] == ["told"]
    assert found["all"].attention == Attention()
    assert found["service default"].attention == SERVICE_DEFAULT
    assert len(found["curve"].attention.curve) == 10


def test_the_report_has_the_tables_and_the_figure(results: Results) -> None:
    [section] = sections(results, WORLD)
    assert [table.name for table in section.tables] == ["attention", "attention-fits"]
    assert len(section.tables[0].rows) == len(CLICK_MODELS) * len(POLICIES)
    assert all(world in section.figures[0].description for world in CLICK_MODELS)


def test_a_catalog_that_is_too_small_is_refused() -> None:
    with pytest.raises(DataError, match="40 items, but attention shows 50"):
        run(make_world(WorldSize(n_users=30, n_items=40), seed=0).dataset, range(1))


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    command = ("reproduce", "attention", "--data", "synthetic", "--splits", "1", "--out", tmp_path)
    done = slatewise(*command, "--json", "--workers", "1")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert {row["sd"] for row in document["rows"]} == {None}
    assert {"attention.csv", "attention-fits.csv", "figure-attention.svg", "report.html"} <= {
        path.name for path in tmp_path.iterdir()
    }
    done = slatewise("report", "attention", "--data", "synthetic", "--out", tmp_path)
    assert done.returncode == 2
    assert "attention keeps no records" in " ".join(done.stderr.replace("│", " ").split())


@dataclass(frozen=True)
class Taught:
    """What single likes lead to: how often a category of the liked item is among the three leading ones of the belief,
    and how often the very first; and how many of the ten items that gained most are among its twenty nearest neighbors.
    """

    among_three: float
    leads: float
    neighbors: float


LEAST = {0.0: Taught(0.65, 0.36, 0.45), 0.25: Taught(0.95, 0.85, 0.48)}
"""By category_weight; what single likes of validation users reach in splits 0 to 2, with some room."""


def single_likes(catalog: Catalog, people: Dataset) -> NDArray[np.int64]:
    """Slates (n, 10) of one item that a user likes, in front, and nine popular ones that the user does not."""
    random, rates, slates = np.random.default_rng(0), Calibrated(catalog).rates, []
    for user in range(people.n_users):
        liked = people.items[people.users == user]
        others = rates.copy()
        others[liked] = 0.0
        for item in random.choice(liked, min(4, len(liked)), replace=False):
            if catalog.categories[item].any():
                skipped = random.choice(len(rates), 9, replace=False, p=others / others.sum())
                slates.append([item, *skipped])
    return np.array(slates, dtype=np.int64)


def what_single_likes_teach(policy: Calibrated, people: Dataset, skip_weight: float) -> Taught:
    """Let a belief learn from one like among ten seen items, for many likes."""
    catalog, slates = policy.catalog, single_likes(policy.catalog, people)
    clicks = np.zeros(slates.shape)
    clicks[:, 0] = 1.0
    evidence = Evidence(slates, clicks, np.where(clicks, 1.0, skip_weight), np.ones(slates.shape))
    before, now = (
        belief.Beliefs(state["precision"], state["shift"])
        for state in (policy.start(1), policy.update(policy.start(len(slates)), evidence))
    )
    lift, _ = lifts(before, now, category_centers(catalog, policy.vectors))
    liked, tastes = slates[:, 0], policy.vectors.astype(np.float64)
    is_own = np.take_along_axis(catalog.categories[liked], np.argsort(-lift, axis=1), axis=1)
    unit = tastes / np.maximum(np.linalg.norm(tastes, axis=1, keepdims=True), 1e-12)
    gained, near = belief.mean(now) @ tastes.T, unit[liked] @ unit.T
    for scores in (gained, near):
        np.put_along_axis(scores, slates, -np.inf, axis=1)
    first, nearest = np.argsort(-gained, axis=1)[:, :10], np.argsort(-near, axis=1)[:, :20]
    neighbors = [np.isin(*pair).mean() for pair in zip(first, nearest, strict=True)]
    return Taught(float(is_own[:, :3].any(axis=1).mean()), float(is_own[:, 0].mean()), float(np.mean(neighbors)))


@pytest.fixture(scope="module")
def films(real_data: Path) -> tuple[Catalog, Dataset]:
    """A catalog of training users of ML-100K, and users whom no threshold was set by."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SLATEWISE_DATA", str(real_data))
        training, test = load("ml-100k").split(0.2, seed=0)
    return Catalog.train(training, BprSettings(epochs=1)), test


@pytest.mark.parametrize("category_weight", LEAST)
def test_one_like_among_ten_leads_to_its_categories_and_its_neighbors(
    films: tuple[Catalog, Dataset], category_weight: float
) -> None:
    """If every skip weighs as much as the like, the like leads less often."""
    policy, least = Calibrated(films[0], category_weight=category_weight), LEAST[category_weight]
    taught = what_single_likes_teach(policy, films[1], SERVICE_DEFAULT.skip_weight)
    assert taught.among_three >= least.among_three
    assert taught.leads >= least.leads
    assert taught.neighbors >= least.neighbors
    in_full = what_single_likes_teach(policy, films[1], 1.0)
    assert taught.among_three > in_full.among_three
    assert taught.leads > in_full.leads
    if category_weight == 0.0:  # with columns for categories, neighbors gain as much either way
        assert taught.neighbors > in_full.neighbors


def test_with_the_vectors_of_other_items_the_likes_lead_nowhere(films: tuple[Catalog, Dataset]) -> None:
    """Negative control."""
    catalog, test = films
    by_chance = np.random.default_rng(0).permutation(catalog.n_items)
    shuffled = replace(catalog, taste_vectors=catalog.taste_vectors[by_chance])
    assert (
        what_single_likes_teach(
            Calibrated(shuffled, category_weight=0.0), test, SERVICE_DEFAULT.skip_weight
        ).among_three
        < 0.5
    )
