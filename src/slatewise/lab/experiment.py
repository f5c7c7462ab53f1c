"""An experiment is named data: TOML → frozen dataclass → records, the same on any number of workers."""

import hashlib
import json
import tempfile
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from slatewise.catalog import Catalog
from slatewise.catalog.embeddings import BprSettings
from slatewise.data.dataset import DataError, Dataset
from slatewise.files import write_whole
from slatewise.lab.simulate import Session, simulate
from slatewise.lab.tuning import GRIDS, VALIDATION_SHARE, train_catalog, tune
from slatewise.lab.workers import Workers
from slatewise.policies import make_policy, policy_options
from slatewise.version import __version__

CHOICE_COLUMNS = {"dataset": pl.String, "split": pl.Int64, "policy": pl.String, "options": pl.String, "f": pl.Float64}
TEST_SHARE = 0.2


@dataclass(frozen=True)
class Arm:
    """One row of a table: a policy with options, or with options tuned on validation users of each split."""

    policy: str
    label: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    tuned: bool = False
    rounds: int = 5
    k: int = 10

    def __post_init__(self) -> None:
        unknown = set(self.options) - set(policy_options(self.policy))
        if unknown:
            raise ValueError(f"{self.policy} has no option {', '.join(sorted(unknown))}")
        object.__setattr__(self, "label", self.label or self.policy)


@dataclass(frozen=True)
class Experiment:
    """What is compared, on how many random divisions of the users into training and test.

    Only test users with at least `min_positives` likes are asked.
    """

    name: str
    title: str
    arms: tuple[Arm, ...]
    splits: int = 5
    seed: int = 0
    test_share: float = TEST_SHARE
    min_positives: int = 0
    embedding: BprSettings = field(default_factory=BprSettings)


@dataclass(frozen=True, eq=False)
class Results:
    """Flat records of all splits and arms, and which options tuning chose."""

    records: pl.DataFrame
    choices: pl.DataFrame


def load_experiment(path: Path) -> Experiment:
    """Read an experiment from TOML; an unknown key is an error that names it."""
    with path.open("rb") as file:
        content = tomllib.load(file)
    embedding = BprSettings(**_known(content.pop("embedding", {}), BprSettings, path))
    arms = tuple(Arm(**_known(arm, Arm, path)) for arm in content.pop("arms", []))
    if not arms:
        raise ValueError(f"{path} compares nothing; give it at least one [[arms]] with a policy")
    return Experiment(**_known({**content, "name": path.stem}, Experiment, path), arms=arms, embedding=embedding)


def run(
    experiment: Experiment, dataset: Dataset, workers: int = 1, on_task: Callable[[], None] | None = None
) -> Results:
    """Train and simulate every split and arm; the records do not depend on the number of workers."""
    shown = max(arm.rounds * arm.k for arm in experiment.arms)
    if dataset.n_items < shown:
        raise DataError(f"{dataset.name} has {dataset.n_items} items, but {experiment.name} shows {shown} to everyone")
    splits, arms = range(experiment.splits), experiment.arms
    parts_of_training = (False, True) if any(arm.tuned for arm in arms) else (False,)
    with tempfile.TemporaryDirectory(prefix="slatewise-") as folder, Workers(workers, _keep, dataset, on_task) as pool:
        pool.map(_train, [(experiment, split, inner, folder) for split in splits for inner in parts_of_training])
        parts = pool.map(_simulate, [(experiment, split, arm, folder) for split in splits for arm in arms])
    records = pl.concat([part[0] for part in parts])
    choices = pl.DataFrame([choice for _, some in parts for choice in some], schema=CHOICE_COLUMNS)
    return Results(records, choices)


def save_results(results: Results, directory: Path, experiment: Experiment, dataset: Dataset) -> None:
    """Keep records and choices as Parquet, so that metrics and reports can be made again without simulating.

    Files are named by what they depend on, so records of other data, seeds or settings are never overwritten.
    The description, written last, says that the others are whole.
    """
    directory.mkdir(parents=True, exist_ok=True)
    stem, description = _identity(experiment, dataset)
    results.records.write_parquet(directory / f"{stem}.parquet")
    results.choices.write_parquet(directory / f"{stem}-choices.parquet")
    write_whole(directory / f"{stem}.json", [description.encode()])


def load_results(directory: Path, experiment: Experiment, dataset: Dataset) -> Results:
    """Read what `save_results` wrote for this very experiment and data."""
    stem, _ = _identity(experiment, dataset)
    if not (directory / f"{stem}.json").is_file():
        raise DataError(
            f"{directory} holds no records of {experiment.name} with this data, number of splits, seed and settings; "
            f"make them with `slatewise reproduce`"
        )
    records = pl.read_parquet(directory / f"{stem}.parquet")
    return Results(records, pl.read_parquet(directory / f"{stem}-choices.parquet"))


def _identity(experiment: Experiment, dataset: Dataset) -> tuple[str, str]:
    """Name and describe records by everything they depend on: data, settings, grids and the version of slatewise."""
    grids = {arm.policy: GRIDS[arm.policy] for arm in experiment.arms if arm.tuned}
    facts = {"slatewise": __version__, "data": dataset.digest, **asdict(experiment), "grids": grids}
    description = json.dumps(facts, indent=1, sort_keys=True)
    return f"{experiment.name}-{hashlib.sha256(description.encode()).hexdigest()[:12]}", description


def n_tasks(experiment: Experiment) -> int:
    """How many times `run` will call `on_task`."""
    n_trainings = 2 if any(arm.tuned for arm in experiment.arms) else 1
    return experiment.splits * (n_trainings + len(experiment.arms))


def _known(content: dict[str, Any], kind: type, path: Path) -> dict[str, Any]:
    unknown = set(content) - {one.name for one in fields(kind)}
    if unknown:
        raise ValueError(f"{path}: unknown key {', '.join(sorted(unknown))} for {kind.__name__}")
    return content


_datasets: dict[str, Dataset] = {}


def _keep(dataset: Dataset) -> None:
    """Give a worker its data, once."""
    _datasets["current"] = dataset


def _people(experiment: Experiment, split: int) -> tuple[Dataset, Dataset, Any]:
    """Training people, test people, and the numbers of the test people in the whole data set."""
    dataset = _datasets["current"]
    train, test = dataset.split_users(experiment.test_share, experiment.seed + split)
    likes = np.diff(dataset.user_starts)[test]
    test = test[likes >= experiment.min_positives]
    if not len(test):
        raise DataError(
            f"none of the test users has {experiment.min_positives} positives; {experiment.name} asks for them"
        )
    return dataset.take(train), dataset.take(test), test


def _folder(folder: str, split: int, inner: bool) -> str:
    return str(Path(folder) / f"{split}-{'inner' if inner else 'outer'}")


def _train(experiment: Experiment, split: int, inner: bool, folder: str) -> None:
    """Train one catalogue: on all training users, or on those inside them that tuning may learn from."""
    people, _, _ = _people(experiment, split)
    seed = experiment.seed + split
    if inner:
        people, _ = people.split(VALIDATION_SHARE, seed)
    policies = {arm.policy for arm in experiment.arms}
    train_catalog(people, replace(experiment.embedding, seed=seed), policies).save(_folder(folder, split, inner))


@lru_cache(maxsize=2)
def _catalog(path: str) -> Catalog:
    return Catalog.load(path)


def _simulate(experiment: Experiment, split: int, arm: Arm, folder: str) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
    """Let the test users of one split answer one arm."""
    train, test, numbers = _people(experiment, split)
    session = Session(arm.rounds, arm.k, experiment.seed + split)
    options, choices = arm.options, []
    if arm.tuned:
        _, validation = train.split(VALIDATION_SHARE, session.seed)
        best = tune(arm.policy, _catalog(_folder(folder, split, True)), validation, session)
        options = {**arm.options, **best.options}
        chosen = {"split": split, "policy": arm.label, "options": json.dumps(options), "f": best.f}
        choices.append({"dataset": train.name, **chosen})
    policy = make_policy(arm.policy, _catalog(_folder(folder, split, False)), **options)
    records = simulate(policy, test, session)
    records = records.with_columns(
        pl.Series("user", numbers[records["user"].to_numpy()], pl.Int32),
        dataset=pl.lit(train.name),
        split=pl.lit(split),
        policy=pl.lit(arm.label),
    )
    return records, choices
