import json
import os
import signal
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from slatewise.catalog.embeddings import BprSettings
from slatewise.data.dataset import DataError
from slatewise.data.synthetic import WorldSize, make_world
from slatewise.lab import experiment as lab
from slatewise.lab.experiment import (
    Arm,
    Experiment,
    Results,
    load_experiment,
    load_results,
    missing_splits,
    n_tasks,
    run,
    save_results,
    shipped,
)
from slatewise.lab.tuning import GRIDS, candidates, evaluate, tune
from slatewise.lab.workers import InProcess, ProcessPool, map_by_key
from slatewise.policies import POLICIES
from tests.conftest import ROOT

DATASET = make_world(WorldSize(n_users=60, n_items=40, n_categories=5, dim=4), seed=8).dataset
SMALL = Experiment(
    name="small",
    title="A small one",
    arms=(Arm("dc2b", k=4, rounds=2), Arm("mmr", label="mmr (tuned)", tuned=True, k=4, rounds=2)),
    splits=2,
    embedding=BprSettings(dim=3, epochs=3),
)


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("*.toml")), ids=lambda path: path.stem)
def test_every_committed_experiment_can_be_read(path: Path) -> None:
    experiment = load_experiment(path)
    assert experiment.name == path.stem
    labels = [arm.label for arm in experiment.arms]
    assert len(set(labels)) == len(labels)


def test_experiments_that_come_along_are_found_by_name() -> None:
    assert shipped()["table2"] == ROOT / "experiments" / "table2.toml"
    assert "beyond" in shipped()


MISTAKES = {
    'title = "x"\nspilts = 3\n[[arms]]\npolicy = "mmr"': "unknown key spilts for Experiment",
    'title = "x"\n[[arms]]\npolicy = "mmr"\ncolour = 1': "unknown key colour for Arm",
    'title = "x"\n[[arms]]\npolicy = "mmr"\noptions = { alpha = 1 }': "mmr has no option alpha",
    'title = "x"\n[[arms]]\npolicy = "magic"': "there is no policy 'magic'",
    'title = "x"\n[embedding]\nsize = 3\n[[arms]]\npolicy = "mmr"': "unknown key size for BprSettings",
    'title = "x"': "has nothing to compare",
}


@pytest.mark.parametrize(("content", "message"), MISTAKES.items(), ids=MISTAKES.values())
def test_mistakes_in_an_experiment_are_named(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        load_experiment(path)


def test_records_cover_every_split_and_arm() -> None:
    told = []
    results = run(SMALL, DATASET, on_task=lambda: told.append(1))
    assert len(told) == n_tasks(SMALL, DATASET) == 2 * (2 + 1 + 2)
    counts = results.records.group_by("split", "policy").len().sort("split", "policy")
    assert counts["len"].to_list() == [12 * 8] * 4
    assert results.choices["policy"].to_list() == ["mmr (tuned)"] * 2
    assert set(results.records["dataset"]) == {"synthetic"}


def test_test_users_are_those_of_the_split_and_no_others() -> None:
    records = run(SMALL, DATASET).records
    for split in range(2):
        _, test = DATASET.split_users(0.2, split)
        assert sorted(set(records.filter(pl.col("split") == split)["user"])) == test.tolist()
    liked = set(zip(DATASET.users.tolist(), DATASET.items.tolist(), strict=True))
    for user, item, clicked in records.select("user", "item", "clicked").rows():
        assert ((user, item) in liked) == clicked


def assert_same(one: Results, other: Results) -> None:
    assert one.records.schema == other.records.schema
    assert one.records.equals(other.records)
    assert one.choices.equals(other.choices)


@pytest.mark.slow
def test_two_workers_give_the_same_records_even_if_one_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of three users; and the environment is left alone, once cornac, which adds to it, is imported."""
    alone, done = run(SMALL, DATASET), []
    before = dict(os.environ)
    monkeypatch.setattr(lab, "users_at_once", lambda _: 3)

    def kill_a_process() -> None:
        done.append(1)
        if len(done) == 8:
            os.kill(active_children()[0].pid or 0, signal.SIGKILL)

    assert_same(run(SMALL, DATASET, 2, kill_a_process), alone)
    assert len(done) == n_tasks(SMALL, DATASET) == 2 * (2 + 1 + 2 * 4)
    assert dict(os.environ) == before


@pytest.mark.parametrize("chunk", [1, 5, 12])
def test_how_users_are_divided_into_tasks_changes_nothing(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(SMALL, DATASET)
    monkeypatch.setattr(lab, "users_at_once", lambda _: chunk)
    assert_same(run(SMALL, DATASET), whole)


@pytest.mark.process
def test_a_task_that_always_ends_its_process_is_given_up() -> None:
    with ProcessPool(1, lambda: None) as pool, pytest.raises(ChildProcessError, match="died 3 times in a row"):
        pool.map([(os._exit, 1)])


def test_what_a_task_raises_is_raised_here() -> None:
    with ProcessPool(1, lambda: None) as pool, pytest.raises(ZeroDivisionError):
        pool.map([(divmod, 1, 0)])


def test_tasks_with_one_key_follow_each_other_and_results_keep_their_order() -> None:
    ran: list[str] = []

    def task(name: str) -> str:
        ran.append(name)
        return name

    with InProcess(lambda: None) as pool:
        results = map_by_key(pool, [(task, name) for name in "abcd"], [2, 1, 2, 1])
    assert (ran, results) == (["b", "d", "a", "c"], ["a", "b", "c", "d"])


def test_records_are_kept_and_found_again_only_for_the_same_experiment_and_data(tmp_path: Path) -> None:
    one_split = replace(SMALL, splits=1)
    results = run(one_split, DATASET)
    save_results(results, tmp_path, one_split, DATASET)
    assert_same(load_results(tmp_path, one_split, DATASET), results)
    for experiment, dataset in ((replace(one_split, seed=1), DATASET), (one_split, DATASET.take(range(50)))):
        with pytest.raises(DataError, match="create them with `slatewise run`"):
            load_results(tmp_path, experiment, dataset)


def test_splits_are_kept_one_by_one_so_that_more_can_join_them(tmp_path: Path) -> None:
    one_split = replace(SMALL, splits=1)
    save_results(run(one_split, DATASET), tmp_path, one_split, DATASET)
    assert missing_splits(tmp_path, SMALL, DATASET) == [1]
    second = replace(one_split, seed=1)
    save_results(run(second, DATASET), tmp_path, second, DATASET)
    assert_same(load_results(tmp_path, SMALL, DATASET), run(SMALL, DATASET))


def test_an_arm_with_diversities_is_a_curve_of_what_was_tuned() -> None:
    arm = Arm("ease", "ease+mmr", {"rerank": "mmr"}, tuned=True, diversities=(0.0, 0.8), rounds=2, k=4)
    curve = replace(SMALL, arms=(arm,), splits=1)
    told = []
    results = run(curve, DATASET, on_task=lambda: told.append(1))
    assert len(told) == n_tasks(curve, DATASET)
    assert results.records["policy"].unique(maintain_order=True).to_list() == [
        "ease+mmr",
        "ease+mmr, diversity 0",
        "ease+mmr, diversity 0.8",
    ]
    [chosen] = [json.loads(options) for options in results.choices["options"]]
    assert set(chosen) == {"rerank", "regularisation", "diversity"}
    assert chosen["rerank"] == "mmr"
    plain = replace(arm, diversities=(), tuned=False, options={**chosen, "diversity": 0.8})
    alone = run(replace(curve, arms=(plain,)), DATASET).records.drop("policy")
    assert results.records.filter(policy="ease+mmr, diversity 0.8").drop("policy").equals(alone)
    with pytest.raises(ValueError, match="popular has no option diversity"):
        Arm("popular", diversities=(0.5,))


def test_tuning_never_sees_a_test_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tuning is handed, catalog and people, must be the same when all test users change their minds."""
    seen: list[object] = []
    real = tune

    def spy(policy: str, catalog: object, validation: object, session: object, fixed: object) -> object:
        seen.append((catalog.vectors.tobytes(), catalog.log_odds.tobytes(), validation.digest))  # type: ignore[attr-defined]
        return real(policy, catalog, validation, session, fixed)  # type: ignore[arg-type]

    monkeypatch.setattr(lab, "tune", spy)
    one_split = replace(SMALL, splits=1)
    run(one_split, DATASET)
    _, test = DATASET.split_users(0.2, 0)
    is_test = np.isin(DATASET.users, test)
    changed = replace(DATASET, items=np.where(is_test, 39 - DATASET.items, DATASET.items).astype(np.int32))
    run(one_split, changed)
    assert seen[0] == seen[1]
    is_train = ~is_test & (np.arange(len(is_test)) % 2 == 0)
    run(one_split, replace(DATASET, items=np.where(is_train, 39 - DATASET.items, DATASET.items).astype(np.int32)))
    assert seen[2] != seen[0]


def test_every_policy_has_a_grid_of_its_own_options() -> None:
    assert set(GRIDS) == set(POLICIES.built_in)
    for policy in GRIDS:
        for options in candidates(policy):
            Arm(policy, options=options)


def test_tuning_returns_the_best_f() -> None:
    from slatewise.catalog import Catalog
    from slatewise.lab.simulate import Session

    train, validation = DATASET.split(0.3)
    catalog = Catalog.train(train, BprSettings(dim=3, epochs=5))
    results = evaluate("mmr", candidates("mmr"), catalog, validation, Session(rounds=5, k=4))
    assert len(results) == len(GRIDS["mmr"]["trade_off"])
    assert results[0].f == max(candidate.f for candidate in results)
