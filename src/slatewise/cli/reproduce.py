"""`slatewise reproduce` and `slatewise report`: the paper's tables and figures."""

import os
import shlex
import sys
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slatewise.cli.console import print_json, print_table, stdout, steps, tell
from slatewise.cli.dataset_options import Columns, Data, Interactions, Items, Json, OwnTables, Positive, load_dataset

if TYPE_CHECKING:
    from slatewise.data.dataset import Dataset
    from slatewise.lab.experiment import Experiment, Results
    from slatewise.lab.reproduction import ExperimentRun
    from slatewise.report import Report, Section

EXAMPLE = "Example: slatewise reproduce table2 --data ml-100k --splits 5 --out results/ml-100k"
REGRET = "regret"
STUDIES = ("attention", "calibration", "fans", "newcomers")
"""Modules of the laboratory that run, summarize and report on their own."""
LIVING = "living"
REPORT_EXAMPLE = "Example: slatewise report table2 --data ml-100k --out results/ml-100k"

Target = Annotated[
    str,
    typer.Argument(
        help="table1, table2, table3, figure-alpha, figure-size, all (of these); "
        "readings, baselines, beyond, rounds, attention, calibration, fans, newcomers, living; "
        "or regret, which needs no data.",
        show_default=False,
    ),
]
Splits = Annotated[int, typer.Option(min=1, help="Number of random splits into training and test users.")]
Seed = Annotated[int, typer.Option(min=0, max=2**31, help="Seed of the first split; the others count up from it.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Number of processes; one per core by default.")]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy", help="One more policy to compare, such as a plug-in; may be repeated.", show_default=False
    ),
]
Out = Annotated[Path | None, typer.Option(help="Directory for records, CSV, figures and report.html.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite a different report in that directory.")]


@dataclass(frozen=True)
class ReportRequest:
    """What to report, and where to write it."""

    target: str
    out: Path
    splits: int
    seed: int
    force: bool


@dataclass(frozen=True)
class RunOptions:
    """Where records are kept, and what creates them: a number of processes (None: one per core), or a Dask cluster."""

    folder: Path
    workers: int | None = None
    cluster: str | None = None
    again: bool = False


def reproduce(
    target: Target,
    data: Data = None,
    interactions: Interactions = None,
    items: Items = None,
    positive: Positive = None,
    columns: Columns = None,
    splits: Splits = 5,
    seed: Seed = 0,
    policy: Policies = None,
    workers: Workers = None,
    out: Out = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Reproduce a table or figure of the paper on a data set and compare our numbers with the published ones.

    Writes the records of every shown item (Parquet), a CSV per table, PNG and SVG per figure, and report.html.
    """
    from slatewise.lab.reproduction import TARGETS, ExperimentRun, find_experiment

    _check(target, TARGETS, policy or [])
    if target == REGRET:
        _regret(ReportRequest(target, out or Path("results") / REGRET, 1, seed, force), json)
        return
    dataset = load_dataset(data, OwnTables(interactions, items, positive, columns))
    request = ReportRequest(target, out or Path("results") / dataset.name, splits, seed, force)
    _refuse_to_overwrite(request, (repr(dataset), dataset.digest))
    if target == LIVING:
        _living(request, dataset, data, json)
        return
    if target in STUDIES:
        _run_study(request, dataset, workers, json)
        return
    if TARGETS[target]:
        _require_categories(dataset)
    runs = {}
    for name in TARGETS[target]:
        experiment = find_experiment(name, splits, seed, policy or ())
        results = run_or_load(experiment, dataset, RunOptions(request.out / "records", workers))
        runs[name] = ExperimentRun(experiment, results)
    _write_results(request, dataset, runs, json)


def _require_categories(dataset: "Dataset") -> None:
    """Refuse data on which the paper's diversity is not known."""
    if not dataset.categories.any():
        raise typer.BadParameter(
            f"{dataset.name} has no categories, by which the paper measures diversity; add --items"
        )


def _regret(request: ReportRequest, json: bool) -> None:
    """Run the regret experiments, which draw their own worlds and need no data."""
    from slatewise.lab.regret import Settings, as_json, n_steps, run, sections

    settings, data = Settings(seed=request.seed), ("worlds drawn from the seed", f"seed {request.seed}")
    _refuse_to_overwrite(request, data)
    with steps(REGRET, n_steps(settings)) as count_step:
        frame = run(settings, count_step)
    request.out.mkdir(parents=True, exist_ok=True)
    frame.write_parquet(request.out / "regret.parquet")
    _publish(request, _report(request, data, sections(frame)), as_json(frame) if json else None)


def _run_study(request: ReportRequest, dataset: "Dataset", workers: int | None, json: bool) -> None:
    """Run a study of the laboratory on random splits."""
    study = import_module(f"slatewise.lab.{request.target}")
    splits = range(request.seed, request.seed + request.splits)
    with steps(request.target, len(splits)) as count_split:
        results = study.run(dataset, splits, min(workers or os.cpu_count() or 1, len(splits)), count_split)
    report = _report(request, (repr(dataset), dataset.digest), study.sections(results, dataset))
    _publish(request, report, study.as_json(results, dataset) if json else None)


def _living(request: ReportRequest, dataset: "Dataset", data: str | None, json: bool) -> None:
    """Let people come in the order of their timestamps, to services that learn and to one that does not."""
    from slatewise.data.published import SOURCES
    from slatewise.data.sources import fetch
    from slatewise.lab.living import as_json, n_weeks, run, sections

    if data is None or data not in SOURCES:
        raise typer.BadParameter(f"{LIVING} needs a published data set with timestamps, such as --data ml-100k")
    ratings = fetch(data, tell).tables.ratings
    with steps(LIVING, n_weeks(dataset, ratings)) as count_week:
        results = run(dataset, ratings, count_week)
    request.out.mkdir(parents=True, exist_ok=True)
    results.rows.write_parquet(request.out / "living.parquet")
    report = _report(request, (repr(dataset), dataset.digest), sections(results, dataset))
    _publish(request, report, as_json(results, dataset) if json else None)


def _refuse_to_overwrite(request: ReportRequest, data: tuple[str, str]) -> None:
    """Refuse to overwrite a different report before anything runs, not after."""
    from slatewise.report import refuse_to_overwrite

    if not request.force:
        refuse_to_overwrite(request.out, _report(request, data, ()))


def run_or_load(experiment: "Experiment", dataset: "Dataset", options: RunOptions) -> "Results":
    """Run the splits of an experiment that have no records yet, and load all; what was run before is kept."""
    from slatewise.lab.experiment import load_results, missing_splits, n_tasks, run, save_results

    wanted = [*range(experiment.splits)]
    missing = wanted if options.again else missing_splits(options.folder, experiment, dataset)
    workers = options.workers or os.cpu_count() or 1
    parts = [
        replace(experiment, splits=len(batch), seed=experiment.seed + batch[0]) for batch in _batches(missing, workers)
    ]
    if not missing:
        tell(f"{experiment.name}: using the records in {options.folder}, so nothing is simulated again")
    with steps(experiment.name, sum(n_tasks(part, dataset) for part in parts)) as count_task:
        for part in parts:
            results = run(part, dataset, workers, count_task, options.cluster)
            save_results(results, options.folder, part, dataset)
    return load_results(options.folder, experiment, dataset)


def _batches(splits: list[int], size: int) -> list[list[int]]:
    """Group consecutive splits, at most so many, as what is run and saved together."""
    batches: list[list[int]] = []
    for split in splits:
        if batches and len(batches[-1]) < size and batches[-1][-1] == split - 1:
            batches[-1].append(split)
        else:
            batches.append([split])
    return batches


def report(
    target: Annotated[
        str, typer.Argument(help="What `reproduce` or `run` ran: a table, or a TOML file.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="Directory that `reproduce` or `run` wrote.", show_default=False)],
    data: Data = None,
    interactions: Interactions = None,
    items: Items = None,
    positive: Positive = None,
    columns: Columns = None,
    splits: Annotated[int | None, typer.Option(min=1, help="Number of splits; 5, or those of the file.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**31, help="Seed of the first split; 0, or the file's.")
    ] = None,
    policy: Policies = None,
    json: Json = False,
) -> None:
    """Compute metrics, tests, tables and figures from stored records, without simulating anything.

    For an experiment of your own the first arm is compared with all others.
    """
    from slatewise.cli.run import load_named
    from slatewise.lab.experiment import load_results
    from slatewise.lab.reproduction import TARGETS, ExperimentRun, find_experiment

    if target not in TARGETS:
        own = load_named(target)
        wanted = replace(own, splits=splits or own.splits, seed=own.seed if seed is None else seed)
        _report_own(wanted, load_dataset(data, OwnTables(interactions, items, positive, columns)), out, json)
        return
    _check(target, TARGETS, policy or [])
    if target in (REGRET, LIVING, *STUDIES):
        raise typer.BadParameter(f"{target} keeps no records; `slatewise reproduce {target}` runs it again")
    dataset = load_dataset(data, OwnTables(interactions, items, positive, columns))
    runs = {}
    for name in TARGETS[target]:
        experiment = find_experiment(name, splits or 5, seed or 0, policy or ())
        runs[name] = ExperimentRun(experiment, load_results(out / "records", experiment, dataset))
    _write_results(ReportRequest(target, out, splits or 5, seed or 0, True), dataset, runs, json)


def _report_own(experiment: "Experiment", dataset: "Dataset", out: Path, json: bool) -> None:
    """Report on an experiment of one's own, a TOML file, from the records that `run` wrote."""
    from slatewise.lab.experiment import load_results
    from slatewise.lab.own import as_json, sections

    results = load_results(out / "records", experiment, dataset)
    request = ReportRequest(experiment.name, out, experiment.splits, experiment.seed, True)
    document = _report(request, (repr(dataset), dataset.digest), sections(experiment, dataset, results))
    document = replace(document, title=experiment.title)
    _publish(request, document, as_json(experiment, dataset, results) if json else None)


def _check(target: str, known: dict[str, tuple[str, ...]], policies: list[str]) -> None:
    from slatewise.lab.reproduction import COMPARISONS
    from slatewise.policies import POLICIES

    if target not in known:
        raise typer.BadParameter(f"there is no {target!r}; choose one of {', '.join(known)}", param_hint="TARGET")
    if policies and not set(known[target]) & set(COMPARISONS):
        raise typer.BadParameter(f"{target} does not compare policies", param_hint="--policy")
    for name in policies:
        if name not in POLICIES:
            raise typer.BadParameter(
                f"there is no policy {name!r}; choose one of {', '.join(POLICIES)}", param_hint="--policy"
            )


def _write_results(request: ReportRequest, dataset: "Dataset", runs: "dict[str, ExperimentRun]", json: bool) -> None:
    """Write the report and print the result."""
    from slatewise.lab.reproduction import as_json, sections

    document = _report(request, (repr(dataset), dataset.digest), sections(request.target, dataset, runs))
    _publish(request, document, as_json(request.target, dataset, runs) if json else None)


def _report(request: ReportRequest, data: tuple[str, str], sections: "tuple[Section, ...]") -> "Report":
    from slatewise.report import Report, machine, versions

    return Report(
        title=f"slatewise reproduces {'the paper' if request.target == 'all' else request.target}",
        command=_command(),
        data=data[0],
        digest=data[1],
        seeds=tuple(range(request.seed, request.seed + request.splits)),
        machine=machine(),
        versions=versions(),
        sections=sections,
    )


def _publish(request: ReportRequest, document: "Report", json: dict[str, Any] | None) -> None:
    """Write the report; print the JSON document or the tables."""
    from slatewise.report import write_report

    page = write_report(request.out, document, request.force)
    if json is not None:
        print_json(json)
        return
    for table in document.tables:
        print_table(table)
    if document.finding:
        stdout.print(document.finding, markup=False, soft_wrap=True)
    tell(f"written to {page}")


def _command() -> str:
    return shlex.join(["slatewise", *sys.argv[1:]])
