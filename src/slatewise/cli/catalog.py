"""`slatewise catalog`: inspect a trained catalog."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from slatewise.cli.console import print_json, stdout

if TYPE_CHECKING:
    from slatewise.catalog import Catalog

app = typer.Typer(help="Inspect a trained catalog.", no_args_is_help=True)


@app.command(epilog="Example: slatewise catalog show demo --find 'star wars'")
def show(
    directory: Annotated[Path, typer.Argument(help="Directory of the catalog.", show_default=False)],
    find: Annotated[str, typer.Option(help="Show only items whose id or title contains this text.")] = "",
    items: Annotated[int, typer.Option(min=0, help="How many items to show, most liked first.")] = 10,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show where a catalog came from, its size and its items, most liked first."""
    from slatewise.catalog import Catalog

    catalog = Catalog.load(directory)
    if json:
        print_json(
            {
                "items": catalog.n_items,
                "dim": catalog.dim,
                "categories": list(catalog.category_names),
                "about": catalog.about,
                "shown": [_row(catalog, item) for item in _most_liked(catalog, find, items)],
            }
        )
    else:
        show_catalog(catalog, find, items)


def show_catalog(catalog: "Catalog", find: str = "", n_shown: int = 10) -> None:
    """Print a catalog as a table."""
    about = catalog.about
    source = about.get("data", {}).get("name", "given vectors")
    stdout.print(
        f"{catalog.n_items:,} items in {catalog.n_categories} categories, {catalog.dim} dimensions, from {source}",
        markup=False,
    )
    table = Table("id", "title", "categories", "liked by")
    for item in _most_liked(catalog, find, n_shown):
        row = _row(catalog, item)
        cells = (str(row["id"]), str(row["title"]), ", ".join(catalog.categories_of(item)), f"{row['liked_by']:.1%}")
        table.add_row(*map(Text, cells))
    stdout.print(table)


def _most_liked(catalog: "Catalog", find: str, n_shown: int) -> list[int]:
    wanted = find.casefold()
    shown: list[int] = []
    for item in (-catalog.log_odds).argsort(kind="stable").tolist():
        if len(shown) == n_shown:
            break
        if not wanted or wanted in f"{catalog.item_ids[item]}\n{catalog.titles[item]}".casefold():
            shown.append(item)
    return shown


def _row(catalog: "Catalog", item: int) -> dict[str, object]:
    from math import exp

    identifier = catalog.item_ids[item]
    return {
        "id": identifier if isinstance(identifier, int) else str(identifier),
        "title": catalog.titles[item],
        "categories": list(catalog.categories_of(item)),
        "liked_by": round(1.0 / (1.0 + exp(-catalog.log_odds[item])), 4),
    }
