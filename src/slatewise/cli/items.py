"""`slatewise items`: the item table of a service's store."""

import re
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from slatewise.cli.console import amounts, print_json, stdout, tell
from slatewise.cli.importing import without_garbage_collection
from slatewise.cli.store import DEFAULT_STORE, StoreUrl, existing, reporting_errors
from slatewise.plurals import counted

if TYPE_CHECKING:
    from polars import DataFrame

    from slatewise.catalog import Catalog
    from slatewise.store import Store
    from slatewise.store.protocol import Transaction
    from slatewise.store.records import ItemRecord

app = typer.Typer(help="The items of a service: import, list, withdraw.", no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]

PER_READ = 1_000
WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")


@app.command("import", epilog="Example: slatewise items import items.csv --store sqlite:///slates.db")
def import_table(
    file: Annotated[
        Path,
        typer.Argument(
            help="CSV, Parquet or JSON lines: item_id, optionally title, categories, available, published_at, vector; "
            "every other column is an attribute."
        ),
    ],
    store: StoreUrl = DEFAULT_STORE,
    catalog: Annotated[
        Path | None,
        typer.Option(help="Directory of the catalog, to check by its ids rather than by those of the item table."),
    ] = None,
    json: Json = False,
) -> None:
    """Add items, or replace what was said about them before. Stop a SQLite service first.

    Items that say the same as before are left alone, so an import that was interrupted is resumed by running it again.
    """
    from slatewise.catalog import Catalog
    from slatewise.cli.item_table import check_ids, check_kinds, read_items
    from slatewise.store import open_store

    started, frame = time.perf_counter(), read_items(file)
    trained = None if catalog is None else Catalog.load(catalog)
    with reporting_errors(), closing(open_store(store)) as opened:
        check_ids(frame, str(file), trained or next(_all(opened), None))
        check_kinds(frame, str(file), _all(opened))
        version = write_items(opened, frame)
    seconds = time.perf_counter() - started
    if json:
        print_json({"items": len(frame), "version": version, "seconds": round(seconds, 3)})
    else:
        rate = len(frame) / max(seconds, 1e-9)
        tell(f"{counted(len(frame), 'item')} imported ({rate:,.0f} per second); the item table has version {version}")


@app.command("list", epilog="Example: slatewise items list --withdrawn --store sqlite:///slates.db")
def list_items(
    store: StoreUrl = DEFAULT_STORE,
    limit: Annotated[int, typer.Option(min=1, help="How many items to show, in the order of their appearance.")] = 50,
    withdrawn: Annotated[bool, typer.Option("--withdrawn", help="Only items that are not available.")] = False,
    json: Json = False,
) -> None:
    """List what the item table says, also while a service runs."""
    from slatewise.store import open_store

    with reporting_errors(), closing(open_store(store, read_only=True)) as opened:
        records: list[ItemRecord] = []
        for record in _all(opened):
            if not (withdrawn and record.available):
                records.append(record)
            if len(records) == limit:
                break
    if json:
        print_json([_described(record) for record in records])
        return
    table = Table("id", "title", "categories", "available", "attributes")
    for record in records:
        attributes = "; ".join(f"{name} {_in_words(value)}" for name, value in record.attributes.items())
        row = {**_described(record), "attributes": attributes}
        table.add_row(*(Text(_in_words(row[name])) for name in COLUMNS))
    stdout.print(table)


@app.command(epilog="Example: slatewise items withdraw 42 43 --store sqlite:///slates.db")
def withdraw(
    items: Annotated[list[str], typer.Argument(help="Ids of items; a plain integer is one.", show_default=False)],
    store: StoreUrl = DEFAULT_STORE,
    catalog: Annotated[
        Path | None,
        typer.Option(
            envvar="SLATEWISE_CATALOG", help="Directory of the catalog, for items that the item table does not have."
        ),
    ] = None,
) -> None:
    """Offer items no more; feedback on them still counts. Stop a SQLite service first.

    If one of the items is unknown, none is withdrawn.
    """
    from slatewise.catalog import Catalog
    from slatewise.store import open_store

    trained, names = None if catalog is None else Catalog.load(catalog), [*dict.fromkeys(items)]
    with reporting_errors(), closing(open_store(existing(store))) as opened:
        version = opened.write(partial(_withdraw, names, trained)).result()
    tell(f"{counted(len(names), 'item')} withdrawn; the item table has version {version}")


COLUMNS = ("id", "title", "categories", "available", "attributes")


def write_items(store: "Store", frame: "DataFrame") -> int:
    """Write a table of items portion by portion, one transaction each; return the version of the item table."""
    from slatewise.cli.item_table import items_in

    waiting: list[tuple[Future[int], int]] = []
    version = store.read(lambda transaction: transaction.item_table()).version
    with without_garbage_collection(), amounts("importing", len(frame)) as count:
        for records in items_in(frame, time.time()):
            waiting.append((store.write(partial(_put, records)), len(records)))
            if len(waiting) > 1:
                version = waiting[0][0].result()
                count(waiting.pop(0)[1])
        for future, n_written in waiting:
            version = future.result()
            count(n_written)
    return version


def _withdraw(names: list[str], catalog: "Catalog | None", transaction: "Transaction") -> int:
    """Make items unavailable; all of them or, if some are unknown, none."""
    from slatewise.store.protocol import WRITER_OF_ITEMS

    transaction.lock(WRITER_OF_ITEMS)
    records = {name: _known(transaction, catalog, name) for name in names}
    unknown = [name for name, record in records.items() if record is None]
    if unknown:
        where = "the item table has" if catalog is None else "the item table and the catalog have"
        advice = "; give --catalog DIR for items that only the catalog has" if catalog is None else "; check the ids"
        raise ValueError(f"{where} no item {', '.join(map(repr, unknown))}, and nothing was withdrawn{advice}")
    now = time.time()
    return transaction.put_items(
        [record._replace(available=False, updated_at=now) for record in records.values() if record]
    )


def _known(transaction: "Transaction", catalog: "Catalog | None", name: str) -> "ItemRecord | None":
    """Return what the item table says about an item, or that the catalog has it; None if nobody knows it."""
    from slatewise.recommender.items import catalog_id
    from slatewise.store.records import ItemRecord

    ids: list[int | str] = [int(name), name] if WHOLE_NUMBER.fullmatch(name) else [name]
    for item in ids:
        record = transaction.item(item)
        if record is not None:
            return record
    if catalog is None:
        return None
    in_catalog = (item for item in ids if catalog.item_ids.find(catalog_id(catalog, item)) is not None)
    return next(map(ItemRecord, in_catalog), None)


def _in_words(value: object) -> str:
    """Return a value of an item as a person would write it."""
    if isinstance(value, dict):
        return f"{datetime.fromtimestamp(value['time'], UTC):%Y-%m-%dT%H:%M:%SZ}"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)


def _put(records: list["ItemRecord"], transaction: "Transaction") -> int:
    return transaction.put_items(records)


def _all(store: "Store") -> Iterator["ItemRecord"]:
    number = 0
    while page := store.read(methodcaller("items_by_number", number, PER_READ)):
        yield from page
        number = page[-1].number


def _described(record: "ItemRecord") -> dict[str, object]:
    categories = None if record.categories is None else list(record.categories)
    others = {"published_at": record.published_at, "updated_at": record.updated_at, "version": record.version}
    described = {"id": record.item, "title": record.title, "categories": categories, "available": record.available}
    return {**described, "attributes": dict(record.attributes), **others}
