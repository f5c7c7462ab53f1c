"""An experiment is named data: TOML → frozen dataclass → records, the same on any number of workers."""

import hashlib
import json
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slatewise.catalog import Catalog
from slatewise.catalog.embeddings import BprSettings
from slatewise.data.dataset import DataError, Dataset
from slatewise.files import write_whole
from slatewise.lab.cluster import Cluster
from slatewise.lab.parcels import Packed, Parcel
from slatewise.lab.simulate import Session, simulate, users_at_once
from slatewise.lab.tuning import VALIDATION_SHARE, Candidate, grid_of, train_catalog, tune
from slatewise.lab.workers import Here, Processes, Workers
from slatewise.policies import POLICIES, make_policy, policy_options
from slatewise.policies.protocol import Policy
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


def shipped() -> dict[str, Path]:
    """Return the files of the experiments that come with slatewise, by name."""
    package = Path(__file__).resolve().parents[1]
    installed, checkout = package / "experiments", package.parents[1] / "experiments"
    folder = installed if installed.is_dir() else checkout
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def run(
    experiment: Experiment,
    dataset: Dataset,
    workers: int = 1,
    on_task: Callable[[], None] | None = None,
    cluster: str | None = None,
) -> Results:
    """Train and simulate every split and arm; the records do not depend on where, nor on the number of workers.

    Work is done in this process, in processes on this machine, or by the Dask cluster with this address.
    """
    people = [_chunks(experiment, dataset, split) for split in range(experiment.splits)]
    with _employ(workers, cluster, on_task or (lambda: None)) as crew:
        data = crew.share(Packed.of(dataset))
        catalogs = _train_all(crew, experiment, data)
        runs, choices = _tune_all(crew, experiment, data, catalogs)
        tasks = [
            (_simulate, data, catalogs[split, False], arm, experiment.seed + split, users)
            for split, arm in runs
            for users in people[split]
        ]
        answers = iter(crew.map(tasks))
    _policy.cache_clear()
    records = [
        next(answers).with_columns(dataset=pl.lit(dataset.name), split=pl.lit(split), policy=pl.lit(arm.label))
        for split, arm in runs
        for _ in people[split]
    ]
    rows = [{"dataset": dataset.name, **choice} for choice in choices]
    return Results(pl.concat(records), pl.DataFrame(rows, schema=CHOICE_COLUMNS))


def save_results(results: Results, directory: Path, experiment: Experiment, dataset: Dataset) -> None:
    """Keep records and choices as Parquet, so that metrics and reports can be made again without simulating.

    Files are named by what they depend on, so records of other data, seeds or settings are never overwritten.
    The description, written last, says that the others are whole.
    """
    directory.mkdir(parents=True, exist_ok=True)
    stem, description = _identity(experiment, dataset)
    (directory / f"{stem}.json").unlink(missing_ok=True)
    results.records.write_parquet(directory / f"{stem}.parquet")
    results.choices.write_parquet(directory / f"{stem}-choices.parquet")
    write_whole(directory / f"{stem}.json", [description.encode()])


def load_results(directory: Path, experiment: Experiment, dataset: Dataset) -> Results:
    """Read what `save_results` wrote for this very experiment and data."""
    stem, _ = _identity(experiment, dataset)
    if not (directory / f"{stem}.json").is_file():
        raise DataError(
            f"{directory} holds no records of {experiment.name} with this data, number of splits, seed and settings; "
            f"make them with `slatewise run`"
        )
    records = pl.read_parquet(directory / f"{stem}.parquet")
    return Results(records, pl.read_parquet(directory / f"{stem}-choices.parquet"))


def _identity(experiment: Experiment, dataset: Dataset) -> tuple[str, str]:
    """Name and describe records by everything they depend on: data, settings, grids, versions of the code."""
    grids = {arm.policy: grid_of(arm.policy) for arm in experiment.arms if arm.tuned}
    facts = {"slatewise": __version__, "data": dataset.digest, **asdict(experiment), "grids": grids}
    plugins = {arm.policy: provider for arm in experiment.arms if (provider := POLICIES.provider(arm.policy))}
    if plugins:
        facts["plugins"] = plugins
    description = json.dumps(facts, indent=1, sort_keys=True)
    return f"{experiment.name}-{hashlib.sha256(description.encode()).hexdigest()[:12]}", description


def n_tasks(experiment: Experiment, dataset: Dataset) -> int:
    """How many times `run` will call `on_task`."""
    n_tuned = sum(arm.tuned for arm in experiment.arms)
    n_chunks = sum(len(_chunks(experiment, dataset, split)) for split in range(experiment.splits))
    return experiment.splits * (len(_parts_of_training(experiment)) + n_tuned) + n_chunks * len(experiment.arms)


def _known(content: dict[str, Any], kind: type, path: Path) -> dict[str, Any]:
    unknown = set(content) - {one.name for one in fields(kind)}
    if unknown:
        raise ValueError(f"{path}: unknown key {', '.join(sorted(unknown))} for {kind.__name__}")
    return content


def _employ(workers: int, cluster: str | None, on_task: Callable[[], None]) -> Workers:
    if cluster is not None:
        return Cluster(cluster, on_task)
    return Here(on_task) if workers == 1 else Processes(workers, on_task)


def _chunks(experiment: Experiment, dataset: Dataset, split: int) -> list[NDArray[np.int64]]:
    """Return the numbers of the test users of one split, divided into tasks by a rule that no worker has a say in."""
    shown = max(arm.rounds * arm.k for arm in experiment.arms)
    if dataset.n_items < shown:
        raise DataError(f"{dataset.name} has {dataset.n_items} items, but {experiment.name} shows {shown} to everyone")
    _, test = dataset.split_users(experiment.test_share, experiment.seed + split)
    test = test[np.diff(dataset.user_starts)[test] >= experiment.min_positives]
    if not len(test):
        raise DataError(
            f"none of the test users has {experiment.min_positives} positives; {experiment.name} asks for them"
        )
    size = users_at_once(dataset.n_items)
    return [test[start : start + size] for start in range(0, len(test), size)]


def _parts_of_training(experiment: Experiment) -> tuple[bool, ...]:
    """Whether a catalogue is for tuning: trained on some of the training users, to be validated on the others."""
    return (False, True) if any(arm.tuned for arm in experiment.arms) else (False,)


def _train_all(crew: Workers, experiment: Experiment, data: Parcel) -> dict[tuple[int, bool], Parcel]:
    """Train the catalogues of every split and let all workers know them."""
    parts = [(split, inner) for split in range(experiment.splits) for inner in _parts_of_training(experiment)]
    trained = crew.map([(_train, data, experiment, split, inner) for split, inner in parts])
    return {part: crew.share(packed) for part, packed in zip(parts, trained, strict=True)}


def _tune_all(
    crew: Workers, experiment: Experiment, data: Parcel, catalogs: dict[tuple[int, bool], Parcel]
) -> tuple[list[tuple[int, Arm]], list[dict[str, Any]]]:
    """Return every split and arm, with the options that tuning chose; and these choices."""
    runs = [(split, arm) for split in range(experiment.splits) for arm in experiment.arms]
    tasks = [(_tune, data, catalogs[split, True], experiment, split, arm) for split, arm in runs if arm.tuned]
    found, choices = iter(crew.map(tasks)), []
    for place, (split, arm) in enumerate(runs):
        if arm.tuned:
            best = next(found)
            options = {**arm.options, **best.options}
            runs[place] = (split, replace(arm, options=options))
            choices.append({"split": split, "policy": arm.label, "options": json.dumps(options), "f": best.f})
    return runs, choices


def _train(dataset: Dataset, experiment: Experiment, split: int, inner: bool) -> Packed:
    """Train one catalogue: on all training users, or on those inside them that tuning may learn from."""
    seed = experiment.seed + split
    people, _ = dataset.split(experiment.test_share, seed)
    if inner:
        people, _ = people.split(VALIDATION_SHARE, seed)
    policies = {arm.policy for arm in experiment.arms}
    return Packed.of(train_catalog(people, replace(experiment.embedding, seed=seed), policies))


def _tune(dataset: Dataset, catalog: Catalog, experiment: Experiment, split: int, arm: Arm) -> Candidate:
    """Choose the options of one arm on the validation users, who are training users."""
    seed = experiment.seed + split
    people, _ = dataset.split(experiment.test_share, seed)
    _, validation = people.split(VALIDATION_SHARE, seed)
    return tune(arm.policy, catalog, validation, Session(arm.rounds, arm.k, seed))


def _simulate(dataset: Dataset, catalog: Catalog, arm: Arm, seed: int, users: NDArray[np.int64]) -> pl.DataFrame:
    """Let some test users answer one arm."""
    policy = _policy(arm.policy, catalog, json.dumps(arm.options))
    records = simulate(policy, dataset.take(users), Session(arm.rounds, arm.k, seed))
    return records.with_columns(pl.Series("user", users[records["user"].to_numpy()], pl.Int32))


@lru_cache(maxsize=2)
def _policy(name: str, catalog: Catalog, options: str) -> Policy:
    """Make a policy once for the many tasks of one arm; some prepare much."""
    return make_policy(name, catalog, **json.loads(options))
