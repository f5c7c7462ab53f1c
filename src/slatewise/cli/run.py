"""`slatewise run`: run an experiment file on this machine or on a cluster."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slatewise.cli.console import print_json, print_table, tell
from slatewise.cli.dataset_options import Columns, Data, Interactions, Items, Json, OwnTables, Positive, load_dataset
from slatewise.cli.reproduce import RunOptions, Workers, run_or_load

if TYPE_CHECKING:
    from slatewise.lab.experiment import Experiment

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
    from slatewise.lab.metrics import per_split, summary
    from slatewise.lab.own import as_json, metrics_by_user, metrics_table
    from slatewise.lab.tuning import OptionError

    wanted = load_named(experiment)
    wanted = replace(wanted, splits=splits or wanted.splits, seed=wanted.seed if seed is None else seed)
    dataset = load_dataset(data, OwnTables(interactions, items, positive, columns))
    folder = (out or Path("results") / dataset.name) / "records"
    try:
        results = run_or_load(wanted, dataset, RunOptions(folder, workers, cluster, again))
    except OptionError as error:
        raise typer.BadParameter(str(error), param_hint="EXPERIMENT") from error
    if json:
        print_json(as_json(wanted, dataset, results))
        return
    print_table(metrics_table(summary(per_split(metrics_by_user(wanted, dataset, results))), wanted.title))
    tell(f"records in {folder}; `slatewise report {experiment}` turns them into tables, tests and figures")


def load_named(name: str) -> "Experiment":
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
