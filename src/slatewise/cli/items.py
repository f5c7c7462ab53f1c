"""`slatewise items`: the item table of a service's store."""

import re
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from slatewise.cli.console import amounts, print_json, stdout, tell
from slatewise.cli.importing import without_garbage_collection
from slatewise.cli.store import DEFAULT_STORE, StoreUrl, reporting_errors

if TYPE_CHECKING:
    from polars import DataFrame

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
    json: Json = False,
) -> None:
    """Add items, or replace what was said about them before. Stop a SQLite service first.

    Items that say the same as before are left alone, so an import that was interrupted is resumed by running it again.
    """
    from slatewise.cli.item_table import read_items
    from slatewise.store import open_store

    started, frame = time.perf_counter(), read_items(file)
    with reporting_errors(), closing(open_store(store)) as opened:
        version = write_items(opened, frame)
    seconds = time.perf_counter() - started
    if json:
        print_json({"items": len(frame), "version": version, "seconds": round(seconds, 3)})
    else:
        rate = len(frame) / max(seconds, 1e-9)
        tell(f"{len(frame):,} items imported ({rate:,.0f} per second); the item table has version {version}")


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
        found: list[ItemRecord] = []
        for record in _all(opened):
            if not (withdrawn and record.available):
                found.append(record)
            if len(found) == limit:
                break
    if json:
        print_json([_described(record) for record in found])
        return
    table = Table("id", "title", "categories", "available", "attributes")
    for record in found:
        row = _described(record)
        table.add_row(*(Text("" if row[name] is None else str(row[name])) for name in COLUMNS))
    stdout.print(table)


@app.command(epilog="Example: slatewise items withdraw 42 43 --store sqlite:///slates.db")
def withdraw(
    items: Annotated[list[str], typer.Argument(help="Ids of items; a plain integer is one.", show_default=False)],
    store: StoreUrl = DEFAULT_STORE,
) -> None:
    """Offer items no more; feedback on them still counts. Stop a SQLite service first."""
    from slatewise.store import open_store
    from slatewise.store.protocol import WRITER_OF_ITEMS, ItemRecord

    def job(transaction: "Transaction") -> int:
        transaction.lock(WRITER_OF_ITEMS)
        known = []
        for text in dict.fromkeys(items):
            item = int(text) if WHOLE_NUMBER.fullmatch(text) else text
            known.append(transaction.item(item) or transaction.item(text) or ItemRecord(item))
        return transaction.put_items([one._replace(available=False, updated_at=time.time()) for one in known])

    with reporting_errors(), closing(open_store(store)) as opened:
        version = opened.write(job).result()
    tell(f"{len(set(items))} items withdrawn; the item table has version {version}")


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
