"""`slatewise reproduce`, `report` and `tune`: the paper's tables and figures."""

import os
import shlex
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slatewise.cli.console import print_json, stdout, steps, tell
from slatewise.cli.inputs import Data, Interactions, Items, Json, OwnTables, Positive, load_dataset

if TYPE_CHECKING:
    from slatewise.data.dataset import Dataset
    from slatewise.lab.experiment import Experiment, Results
    from slatewise.lab.reproduction import Evidence
    from slatewise.report import Report, Section

EXAMPLE = "Example: slatewise reproduce table2 --data ml-100k --splits 5 --out results/ml-100k"
REGRET = "regret"
REPORT_EXAMPLE = "Example: slatewise report table2 --data ml-100k --out results/ml-100k"

Target = Annotated[
    str,
    typer.Argument(
        help="table1, table2, table3, figure-alpha, figure-size, all (of these); "
        "readings, baselines, beyond, rounds; or regret, which needs no data.",
        show_default=False,
    ),
]
Splits = Annotated[int, typer.Option(min=1, help="How many random divisions into training and test users.")]
Seed = Annotated[int, typer.Option(min=0, max=2**31, help="Seed of the first division; the others follow it.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes; default: one per core.")]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy", help="One more policy to compare, such as a plug-in; may be repeated.", show_default=False
    ),
]
Out = Annotated[Path | None, typer.Option(help="Directory for records, CSV, figures and report.html.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite another report in that directory.")]


@dataclass(frozen=True)
class Request:
    """What is wanted, and where it goes."""

    target: str
    out: Path
    splits: int
    seed: int
    force: bool


@dataclass(frozen=True)
class Place:
    """Where records are kept, and who makes them: so many processes (None: one per core), or a Dask cluster."""

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
    splits: Splits = 5,
    seed: Seed = 0,
    policy: Policies = None,
    workers: Workers = None,
    out: Out = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Run a table or figure of the paper on a data set and set our numbers beside the published ones.

    Writes the records of every shown item (Parquet), a CSV per table, PNG and SVG per figure, and report.html.
    """
    from slatewise.lab.reproduction import TARGETS, Evidence, find_experiment

    _check(target, TARGETS, policy or [])
    if target == REGRET:
        _regret(Request(target, out or Path("results") / REGRET, 1, seed, force), json)
        return
    dataset = load_dataset(data, OwnTables(interactions, items, positive))
    request = Request(target, out or Path("results") / dataset.name, splits, seed, force)
    _refuse_another(request, (repr(dataset), dataset.digest))
    evidence = {}
    for name in TARGETS[target]:
        experiment = find_experiment(name, splits, seed, policy or ())
        results = results_of(experiment, dataset, Place(request.out / "records", workers))
        evidence[name] = Evidence(experiment, results)
    _present(request, dataset, evidence, json)


def _regret(request: Request, json: bool) -> None:
    """Run the regret laboratory, which makes its own worlds and needs no data."""
    from slatewise.lab.regret import Settings, as_json, n_steps, run, sections

    settings, data = Settings(seed=request.seed), ("worlds drawn from the seed", f"seed {request.seed}")
    _refuse_another(request, data)
    with steps(REGRET, n_steps(settings)) as one_step:
        frame = run(settings, one_step)
    request.out.mkdir(parents=True, exist_ok=True)
    frame.write_parquet(request.out / "regret.parquet")
    _publish(request, _report(request, data, sections(frame)), as_json(frame) if json else None)


def _refuse_another(request: Request, data: tuple[str, str]) -> None:
    """Refuse to overwrite another report before any work is done, not after."""
    from slatewise.report import refuse_another

    if not request.force:
        refuse_another(request.out, _report(request, data, ()))


def results_of(experiment: "Experiment", dataset: "Dataset", place: Place) -> "Results":
    """Run an experiment, unless its very records are there already."""
    from slatewise.data.tables import DataError
    from slatewise.lab.experiment import load_results, n_tasks, run, save_results

    if not place.again:
        with suppress(DataError):
            results = load_results(place.folder, experiment, dataset)
            tell(f"{experiment.name}: records of the same experiment found in {place.folder}, not simulated again")
            return results
    with steps(experiment.name, n_tasks(experiment, dataset)) as one_task:
        results = run(experiment, dataset, place.workers or os.cpu_count() or 1, one_task, place.cluster)
    save_results(results, place.folder, experiment, dataset)
    return results


def report(
    target: Target,
    out: Annotated[Path, typer.Option(help="Directory that `reproduce` wrote.", show_default=False)],
    data: Data = None,
    interactions: Interactions = None,
    items: Items = None,
    positive: Positive = None,
    splits: Splits = 5,
    seed: Seed = 0,
    policy: Policies = None,
    json: Json = False,
) -> None:
    """Make metrics, tables and report again from stored records, without simulating anything."""
    from slatewise.lab.experiment import load_results
    from slatewise.lab.reproduction import TARGETS, Evidence, find_experiment

    _check(target, TARGETS, policy or [])
    if target == REGRET:
        raise typer.BadParameter("regret has its own records; `slatewise reproduce regret` makes them in two minutes")
    dataset = load_dataset(data, OwnTables(interactions, items, positive))
    evidence = {}
    for name in TARGETS[target]:
        experiment = find_experiment(name, splits, seed, policy or ())
        evidence[name] = Evidence(experiment, load_results(out / "records", experiment, dataset))
    _present(Request(target, out, splits, seed, True), dataset, evidence, json)


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


def _present(request: Request, dataset: "Dataset", evidence: "dict[str, Evidence]", json: bool) -> None:
    """Write the report and print the result."""
    from slatewise.lab.reproduction import as_json, sections

    made = _report(request, (repr(dataset), dataset.digest), sections(request.target, dataset, evidence))
    _publish(request, made, as_json(request.target, dataset, evidence) if json else None)


def _report(request: Request, data: tuple[str, str], sections: "tuple[Section, ...]") -> "Report":
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


def _publish(request: Request, made: "Report", document: dict[str, Any] | None) -> None:
    """Write the report; print the document for programs, or the tables for people."""
    from slatewise.report import markdown_table, write_report

    page = write_report(request.out, made, request.force)
    if document is not None:
        print_json(document)
        return
    for table in made.tables:
        stdout.print(f"\n{markdown_table(table)}", markup=False, soft_wrap=True)
    tell(f"written to {page}")


def _command() -> str:
    return shlex.join(["slatewise", *sys.argv[1:]])
