"""`slatewise catalog`: inspect a trained catalog and choose which of its versions is in use."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from slatewise.cli.console import print_json, stdout, tell
from slatewise.plurals import counted

if TYPE_CHECKING:
    from slatewise.catalog import Catalog
    from slatewise.catalog.versions import Version

app = typer.Typer(help="Inspect a trained catalog, and choose which of its versions is in use.", no_args_is_help=True)

Directory = Annotated[
    Path, typer.Option("--catalog", envvar="SLATEWISE_CATALOG", help="Directory of the catalog.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
RELOAD = "a running service follows after POST /v1/catalog/reload"


@app.command(epilog="Example: slatewise catalog show demo --find 'star wars'")
def show(
    directory: Annotated[Path, typer.Argument(help="Directory of the catalog.", show_default=False)],
    find: Annotated[str, typer.Option(help="Show only items whose id or title contains this text.")] = "",
    items: Annotated[int, typer.Option(min=0, help="How many items to show on a page, most liked first.")] = 10,
    page: Annotated[int, typer.Option(min=1, help="Which page of items to show.")] = 1,
    json: Json = False,
) -> None:
    """Show where a catalog came from, its size and its items, most liked first."""
    from slatewise.catalog import Catalog

    catalog = Catalog.load(directory)
    matches = _most_liked(catalog, find)
    shown = matches[(page - 1) * items : page * items]
    if json:
        print_json(
            {
                "items": catalog.n_items,
                "dim": catalog.dim,
                "categories": list(catalog.category_names),
                **comparable_items(catalog),
                "about": catalog.about,
                "found": len(matches),
                "shown": [_row(catalog, item) for item in shown],
            }
        )
        return
    describe_catalog(catalog)
    _print_items(catalog, shown)
    stdout.print(_shown_range(len(matches), items, page), markup=False)


@app.command("list", epilog="Example: slatewise catalog list --catalog demo")
def list_versions(catalog: Directory, json: Json = False) -> None:
    """List the versions of a catalog, the newest first; * marks the one in use."""
    from slatewise.catalog.versions import versions

    all_versions = versions(catalog)
    if json:
        print_json({"versions": [_described(version) for version in all_versions]})
        return
    table = Table("", "version", "written", "from", "log until")
    for version in all_versions:
        row = _described(version)
        cells = ("*" if version.is_current else "", version.name, row["written_at"], row["from"], row["log_until"])
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in cells))
    stdout.print(table)


@app.command(epilog="Example: slatewise catalog promote 3f2a9c0d1e4b5a67 --catalog demo")
def promote(
    version: Annotated[str, typer.Argument(help="A version that `slatewise catalog list` shows.", show_default=False)],
    catalog: Directory,
    json: Json = False,
) -> None:
    """Put a version in use, in one step; the one in use until now is kept."""
    from slatewise.catalog.versions import promote as put_in_use

    _tell_change(version, put_in_use(catalog, version), json)


@app.command(epilog="Example: slatewise catalog rollback --catalog demo")
def rollback(catalog: Directory, json: Json = False) -> None:
    """Put the version in use that was in use before the present one."""
    from slatewise.catalog.versions import rollback as go_back

    _tell_change(*go_back(catalog), json)


def _tell_change(version: str, before: str, json: bool) -> None:
    if json:
        print_json({"version": version, "before": before})
    else:
        tell(f"version {version} is in use instead of {before}; {RELOAD}")


def _described(version: "Version") -> dict[str, object]:
    log = version.about.get("log", {})
    return {
        "version": version.name,
        "is_current": version.is_current,
        "written_at": _time(version.written_at),
        "from": str(version.about.get("data", {}).get("name", "given vectors")),
        "log_until": _time(log["until"]) if "until" in log else None,
        "start": version.about.get("start"),
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def show_catalog(catalog: "Catalog", n_shown: int = 10) -> None:
    """Print a catalog and its most liked items."""
    describe_catalog(catalog)
    _print_items(catalog, _most_liked(catalog)[:n_shown])


def describe_catalog(catalog: "Catalog") -> None:
    """Print what a catalog is."""
    about = catalog.about
    source = about.get("data", {}).get("name", "given vectors")
    stdout.print(
        f"{counted(catalog.n_items, 'item')} in {counted(catalog.n_categories, 'category')}, "
        f"{counted(catalog.dim, 'dimension')}, from {source}",
        markup=False,
    )
    for sentence in variety_words(catalog):
        stdout.print(sentence, markup=False)


def _print_items(catalog: "Catalog", shown: list[int]) -> None:
    """Print items as a table; the share of users who like each is (likes + ½) / (users + 1), as in training."""
    table = Table("id", "title", "categories", "liked by (smoothed)")
    for item in shown:
        row = _row(catalog, item)
        cells = (str(row["id"]), str(row["title"]), ", ".join(catalog.categories_of(item)), f"{row['liked_by']:.1%}")
        table.add_row(*map(Text, cells))
    stdout.print(table)


def comparable_items(catalog: "Catalog") -> dict[str, int]:
    """Return how many items have no categories, and how many of these have no vector to compare them by either."""
    has_none = ~catalog.categories.any(axis=1)
    unknown = has_none & ~catalog.similarity_vectors.any(axis=1)
    return {"items_without_categories": int(has_none.sum()), "items_not_comparable": int(unknown.sum())}


def variety_words(catalog: "Catalog") -> list[str]:
    """Say by what the variety of slates is measured, if not by categories alone."""
    n_without, n_unknown = comparable_items(catalog).values()
    if n_unknown == catalog.n_items:
        return ["no item has categories or a vector to compare it by: the variety of slates is unknown"]
    words = []
    if n_without == catalog.n_items:
        words.append("no item has categories: how alike items are is measured by their vectors")
    elif n_by_vector := n_without - n_unknown:
        have, they = ("has", "it is compared") if n_by_vector == 1 else ("have", "they are compared")
        words.append(f"{counted(n_by_vector, 'item')} {have} no categories: {they} by vectors")
    if n_unknown:
        have = "has" if n_unknown == 1 else "have"
        words.append(f"{counted(n_unknown, 'item')} {have} neither categories nor a vector: the variety is unknown")
    return words


def _most_liked(catalog: "Catalog", find: str = "") -> list[int]:
    """Return the items whose id or title has a text in it, most liked first."""
    wanted = find.casefold()
    items: list[int] = (-catalog.log_odds).argsort(kind="stable").tolist()
    if not wanted:
        return items
    return [item for item in items if wanted in f"{catalog.item_ids[item]}\n{catalog.titles[item]}".casefold()]


def _shown_range(n_matches: int, n_on_page: int, page: int) -> str:
    """Say which items are on a page, and where the next ones are."""
    first, last = (page - 1) * n_on_page + 1, min(page * n_on_page, n_matches)
    if first > last:
        return f"no items on page {page}: {counted(n_matches, 'item')} found"
    following = f"; --page {page + 1} shows the next" if last < n_matches else ""
    return f"{first:,} to {last:,} of {counted(n_matches, 'item')}{following}"


def _row(catalog: "Catalog", item: int) -> dict[str, object]:
    from math import exp

    identifier = catalog.item_ids[item]
    return {
        "id": identifier if isinstance(identifier, int) else str(identifier),
        "title": catalog.titles[item],
        "categories": list(catalog.categories_of(item)),
        "liked_by": round(1.0 / (1.0 + exp(-catalog.log_odds[item])), 4),
    }
