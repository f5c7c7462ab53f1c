"""An experiment is a named configuration: TOML → frozen dataclass → records, the same for any number of workers."""

import hashlib
import json
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slatewise.catalog import Catalog
from slatewise.catalog.embeddings import BprSettings
from slatewise.data.dataset import DataError, Dataset
from slatewise.files import write_whole
from slatewise.lab.broadcast import Broadcast, MemoryBroadcast
from slatewise.lab.cluster import Cluster
from slatewise.lab.simulate import Session, simulate, users_at_once
from slatewise.lab.tuning import VALIDATION_SHARE, Candidate, grid_of, policy_with, prepared_policy, train_catalog, tune
from slatewise.lab.workers import InProcess, ProcessPool, Workers, map_by_key
from slatewise.policies import POLICIES, policy_options
from slatewise.version import __version__

CHOICE_COLUMNS = {"dataset": pl.String, "split": pl.Int64, "policy": pl.String, "options": pl.String, "f": pl.Float64}
TEST_SHARE = 0.2
AT = ", diversity "
"""Stands between the label of an arm and the value of `diversity` on its curve."""


@dataclass(frozen=True)
class Arm:
    """One row of a table: a policy with options, or with options tuned on validation users of each split.

    Tuning keeps the options that are given. At each of `diversities` the arm is run once more, with that value of the
    option `diversity` and its other options as they are or were tuned: a curve.
    """

    policy: str
    label: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    tuned: bool = False
    rounds: int = 5
    k: int = 10
    diversities: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "diversities", tuple(self.diversities))
        unknown = {*self.options, *(["diversity"] if self.diversities else [])} - set(policy_options(self.policy))
        if unknown:
            raise ValueError(f"{self.policy} has no option {', '.join(sorted(unknown))}")
        object.__setattr__(self, "label", self.label or self.policy)

    def with_curve(self) -> list["Arm"]:
        """Return the arm and, for each of its diversities, the same with that one."""
        curve = [
            replace(self, label=f"{self.label}{AT}{value:g}", options={**self.options, "diversity": value})
            for value in self.diversities
        ]
        return [self, *curve]


@dataclass(frozen=True)
class Experiment:
    """What is compared, on how many random splits of the users into training and test users.

    Only test users with at least `min_positives` likes take part.
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
    """Flat records of all splits and arms, and the options that tuning chose."""

    records: pl.DataFrame
    choices: pl.DataFrame

    def to_polars(self) -> pl.DataFrame:
        """Return one row per shown item: `dataset, split, policy, user, round, position, item, clicked` and more."""
        return self.records

    def _repr_html_(self) -> str:
        """Show in a notebook how precise each policy was, as means over all that was shown."""
        precision = self.records.group_by("dataset", "policy", maintain_order=True).agg(
            splits=pl.col("split").n_unique(), shown=pl.len(), precision=pl.col("clicked").mean()
        )
        return precision._repr_html_()


def load_experiment(path: Path) -> Experiment:
    """Read an experiment from TOML; an unknown key is an error that names it."""
    with path.open("rb") as file:
        content = tomllib.load(file)
    embedding = BprSettings(**_known(content.pop("embedding", {}), BprSettings, path))
    arms = tuple(Arm(**_known(arm, Arm, path)) for arm in content.pop("arms", []))
    if not arms:
        raise ValueError(f"{path} has nothing to compare; add at least one [[arms]] with a policy")
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
    """Train and simulate every split and arm; neither the place nor the number of workers changes the records.

    Tasks run in this process, in processes on this machine, or on the Dask cluster with this address.
    """
    chunks = [_chunks(experiment, dataset, split) for split in range(experiment.splits)]
    with make_workers(workers, cluster, on_task or (lambda: None)) as pool:
        data = pool.share(MemoryBroadcast.of(dataset))
        catalogs = _train_all(pool, experiment, data)
        chosen, choices = _tune_all(pool, experiment, data, catalogs)
        runs = [(split, arm) for split, whole in chosen for arm in whole.with_curve()]
        tasks = [
            (_simulate, data, catalogs[split, False], arm, experiment.seed + split, users)
            for split, arm in runs
            for users in chunks[split]
        ]
        keys = [(split, arm.policy) for split, arm in runs for _ in chunks[split]]
        simulated = iter(map_by_key(pool, tasks, keys))
    prepared_policy.cache_clear()
    records = [
        next(simulated).with_columns(dataset=pl.lit(dataset.name), split=pl.lit(split), policy=pl.lit(arm.label))
        for split, arm in runs
        for _ in chunks[split]
    ]
    rows = [{"dataset": dataset.name, **choice} for choice in choices]
    return Results(pl.concat(records), pl.DataFrame(rows, schema=CHOICE_COLUMNS))


def save_results(results: Results, directory: Path, experiment: Experiment, dataset: Dataset) -> None:
    """Save records and choices as Parquet, split by split, so that more splits can join them later.

    Files are named after everything they depend on, so records of other data, seeds or settings are never overwritten.
    The description is written last; its presence means that the other files are complete.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for split in range(experiment.splits):
        stem, description = _identity(_single(experiment, split), dataset)
        (directory / f"{stem}.json").unlink(missing_ok=True)
        for frame, name in ((results.records, f"{stem}.parquet"), (results.choices, f"{stem}-choices.parquet")):
            frame.filter(split=split).with_columns(split=pl.lit(0, frame.schema["split"])).write_parquet(
                directory / name
            )
        write_whole(directory / f"{stem}.json", [description.encode()])


def load_results(directory: Path, experiment: Experiment, dataset: Dataset) -> Results:
    """Read what `save_results` wrote for exactly these splits and settings."""
    missing = missing_splits(directory, experiment, dataset)
    if missing:
        raise DataError(
            f"{directory} has no records of {experiment.name} with this data, number of splits, seed and settings "
            f"({len(missing)} of {experiment.splits} splits are missing); create them with `slatewise run`"
        )
    frames: dict[str, list[pl.DataFrame]] = {"": [], "-choices": []}
    for split in range(experiment.splits):
        stem, _ = _identity(_single(experiment, split), dataset)
        for kind, parts in frames.items():
            frame = pl.read_parquet(directory / f"{stem}{kind}.parquet")
            parts.append(frame.with_columns(split=pl.lit(split, frame.schema["split"])))
    return Results(pl.concat(frames[""]), pl.concat(frames["-choices"]))


def missing_splits(directory: Path, experiment: Experiment, dataset: Dataset) -> list[int]:
    """Return the splits of an experiment without records in a directory."""
    stems = [_identity(_single(experiment, split), dataset)[0] for split in range(experiment.splits)]
    return [split for split, stem in enumerate(stems) if not (directory / f"{stem}.json").is_file()]


def _single(experiment: Experiment, split: int) -> Experiment:
    """Return the experiment of one split alone."""
    return replace(experiment, splits=1, seed=experiment.seed + split)


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
    """Return how many times `run` will call `on_task`."""
    n_tuned = sum(arm.tuned for arm in experiment.arms)
    n_chunks = sum(len(_chunks(experiment, dataset, split)) for split in range(experiment.splits))
    n_arms = sum(len(arm.with_curve()) for arm in experiment.arms)
    return experiment.splits * (len(_catalog_purposes(experiment)) + n_tuned) + n_chunks * n_arms


def _known(content: dict[str, Any], kind: type, path: Path) -> dict[str, Any]:
    unknown = set(content) - {known.name for known in fields(kind)}
    if unknown:
        raise ValueError(f"{path}: unknown key {', '.join(sorted(unknown))} for {kind.__name__}")
    return content


def make_workers(number: int, cluster: str | None, on_task: Callable[[], None]) -> Workers:
    """Return what runs tasks: this process, so many processes, or the Dask cluster with this address."""
    if cluster is not None:
        return Cluster(cluster, on_task)
    return InProcess(on_task) if number == 1 else ProcessPool(number, on_task)


def _chunks(experiment: Experiment, dataset: Dataset, split: int) -> list[NDArray[np.int64]]:
    """Divide the test users of a split into chunks, one per task; the division does not depend on the workers."""
    shown = max(arm.rounds * arm.k for arm in experiment.arms)
    if dataset.n_items < shown:
        raise DataError(f"{dataset.name} has {dataset.n_items} items, but {experiment.name} shows {shown} to each user")
    _, test = dataset.split_users(experiment.test_share, experiment.seed + split)
    test = test[np.diff(dataset.user_starts)[test] >= experiment.min_positives]
    if not len(test):
        raise DataError(
            f"no test user has the {experiment.min_positives} positives that {experiment.name} requires; "
            f"lower min_positives"
        )
    size = users_at_once(dataset.n_items)
    return [test[start : start + size] for start in range(0, len(test), size)]


def _catalog_purposes(experiment: Experiment) -> tuple[bool, ...]:
    """List whether each catalog of a split is for tuning: trained on some training users, validated on the others."""
    return (False, True) if any(arm.tuned for arm in experiment.arms) else (False,)


def _train_all(pool: Workers, experiment: Experiment, data: Broadcast) -> dict[tuple[int, bool], Broadcast]:
    """Train the catalogs of every split and share them with all workers; keys are (split, for tuning)."""
    keys = [(split, tuning) for split in range(experiment.splits) for tuning in _catalog_purposes(experiment)]
    trained = pool.map([(_train, data, experiment, split, tuning) for split, tuning in keys])
    return {key: pool.share(catalog) for key, catalog in zip(keys, trained, strict=True)}


def _tune_all(
    pool: Workers, experiment: Experiment, data: Broadcast, catalogs: dict[tuple[int, bool], Broadcast]
) -> tuple[list[tuple[int, Arm]], list[dict[str, Any]]]:
    """Return every split and arm with the options that tuning chose, and the choices."""
    runs = [(split, arm) for split in range(experiment.splits) for arm in experiment.arms]
    tasks = [(_tune, data, catalogs[split, True], experiment, split, arm) for split, arm in runs if arm.tuned]
    keys = [(split, arm.policy) for split, arm in runs if arm.tuned]
    tuned, choices = iter(map_by_key(pool, tasks, keys)), []
    for index, (split, arm) in enumerate(runs):
        if arm.tuned:
            best = next(tuned)
            runs[index] = (split, replace(arm, options=best.options))
            choices.append({"split": split, "policy": arm.label, "options": json.dumps(best.options), "f": best.f})
    return runs, choices


def _train(dataset: Dataset, experiment: Experiment, split: int, tuning: bool) -> MemoryBroadcast:
    """Train a catalog on all training users or, for tuning, on those that are not validation users."""
    seed = experiment.seed + split
    training, _ = dataset.split(experiment.test_share, seed)
    if tuning:
        training, _ = training.split(VALIDATION_SHARE, seed)
    policies = {arm.policy for arm in experiment.arms}
    return MemoryBroadcast.of(train_catalog(training, replace(experiment.embedding, seed=seed), policies))


def _tune(dataset: Dataset, catalog: Catalog, experiment: Experiment, split: int, arm: Arm) -> Candidate:
    """Choose the options of an arm on the validation users, who are some of the training users."""
    seed = experiment.seed + split
    training, _ = dataset.split(experiment.test_share, seed)
    _, validation = training.split(VALIDATION_SHARE, seed)
    return tune(arm.policy, catalog, validation, Session(arm.rounds, arm.k, seed), arm.options)


def _simulate(dataset: Dataset, catalog: Catalog, arm: Arm, seed: int, users: NDArray[np.int64]) -> pl.DataFrame:
    """Simulate an arm for some of the test users."""
    policy = policy_with(arm.policy, catalog, arm.options)
    records = simulate(policy, dataset.take(users), Session(arm.rounds, arm.k, seed))
    return records.with_columns(pl.Series("user", users[records["user"].to_numpy()], pl.Int32))
