"""`slatewise run`: run an experiment file on this machine or on a cluster."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slatewise.cli.console import print_json, stdout, tell
from slatewise.cli.dataset_options import Columns, Data, Interactions, Items, Json, OwnTables, Positive, load_dataset
from slatewise.cli.reproduce import RunOptions, Workers, run_or_load

if TYPE_CHECKING:
    from slatewise.data.dataset import Dataset
    from slatewise.lab.experiment import Experiment, Results

EXAMPLE = "Example: slatewise run table2 --data ml-100k --cluster tcp://10.0.0.1:8786"


def run(
    experiment: Annotated[
        str,
        typer.Argument(help="A TOML file, or the name of a built-in experiment.", show_default=False),
    ],
    data: Data = None,
    interactions: Interactions = None,
    items: Items = None,
    positive: Positive = None,
    columns: Columns = None,
    splits: Annotated[int | None, typer.Option(min=1, help="Number of splits, instead of the file's own.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**31, help="Seed, instead of the file's own.")] = None,
    workers: Workers = None,
    cluster: Annotated[str | None, typer.Option(help="Address of a Dask scheduler.")] = None,
    out: Annotated[Path | None, typer.Option(help="Directory; records go into its subfolder `records`.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Run even if the same records already exist.")] = False,
    json: Json = False,
) -> None:
    """Run an experiment in processes on this machine or on a Dask cluster; the records are the same.

    Writes a record of every shown item and the options that tuning chose (Parquet); `reproduce` and `report` use them.
    """
    if workers is not None and cluster is not None:
        raise typer.BadParameter("use either --workers or --cluster, not both")
    wanted = _load(experiment)
    wanted = replace(wanted, splits=splits or wanted.splits, seed=wanted.seed if seed is None else seed)
    dataset = load_dataset(data, OwnTables(interactions, items, positive, columns))
    folder = (out or Path("results") / dataset.name) / "records"
    results = run_or_load(wanted, dataset, RunOptions(folder, workers, cluster, again))
    rows = _rows(wanted, dataset, results)
    if json:
        choices = results.choices.drop("dataset").to_dicts()
        print_json({"experiment": wanted.name, "dataset": dataset.name, "rows": rows, "choices": choices})
        return
    _show(wanted.title, rows)
    tell(f"records in {folder}")


def _load(name: str) -> "Experiment":
    """Read an experiment file, or one that comes with slatewise."""
    from slatewise.lab.experiment import load_experiment, shipped

    path = Path(name)
    if not path.is_file():
        if name not in shipped():
            known = ", ".join(shipped())
            raise typer.BadParameter(f"there is no file or experiment {name!r}; choose a TOML file or one of {known}")
        path = shipped()[name]
    try:
        return load_experiment(path)
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(str(error), param_hint="EXPERIMENT") from error


def _rows(experiment: "Experiment", dataset: "Dataset", results: "Results") -> list[dict[str, Any]]:
    """Return the metrics of every arm: means over splits, and standard deviations."""
    from slatewise.lab.metrics import CUT_OFFS, per_split, per_user, summary

    reached = {arm.rounds * arm.k for arm in experiment.arms}
    users = per_user(results.records, dataset.categories, sorted({*CUT_OFFS, *reached}))
    return summary(per_split(users)).drop("dataset").to_dicts()


def _show(title: str, rows: list[dict[str, Any]]) -> None:
    from slatewise.report import Comparison, Table, markdown_table

    metrics = [name for name in rows[0] if name not in ("policy", "splits") and not name.endswith(" sd")]
    cells = tuple((row["policy"], *(Comparison(row[name], sd=row[f"{name} sd"]) for name in metrics)) for row in rows)
    table = Table("run", title, ("policy", *(name.replace("p@", "P@") for name in metrics)), cells)
    stdout.print(markdown_table(table), markup=False, soft_wrap=True)
