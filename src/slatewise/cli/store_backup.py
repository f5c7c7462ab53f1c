"""`slatewise store backup`, `restore` and `export`: copies of a store, and back."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slatewise.cli.console import print_json, tell, transfer
from slatewise.cli.store import DEFAULT_STORE, StoreUrl, existing, reporting_errors

if TYPE_CHECKING:
    from slatewise.store import Store

BACKUP_EXAMPLE = "Example: slatewise store backup slates-monday.db --store sqlite:///slates.db"
RESTORE_EXAMPLE = "Example: slatewise store restore slates-monday.db --store sqlite:///slates.db --replace"
EXPORT_EXAMPLE = "Example: slatewise store export --store sqlite:///slates.db > slates.jsonl"
SQLITE = "sqlite:///"
SQLITE_HEADER = b"SQLite format 3\0"
MEGABYTE = 1_000_000
NOT_DRAWN = (
    ": no closed slate of the log has propensities, which this format needs; show slates that are drawn "
    "(`explore_slates`, docs/evaluation.md), or export all slates with `--for parquet`"
)


def backup(
    file: Annotated[Path, typer.Argument(help="The new file.", show_default=False)],
    store: StoreUrl = DEFAULT_STORE,
    rate: Annotated[float, typer.Option(help="Megabytes per second to copy at most.", min=0.1)] = 50.0,
) -> None:
    """Copy a SQLite store as of this moment to a new file, also while a service runs, and check the copy."""
    from slatewise.store.sqlite_backup import back_up

    with reporting_errors():
        if not store.startswith(SQLITE):
            raise ValueError("only SQLite stores are backed up by this command; use pg_dump for PostgreSQL")
        path = Path(existing(store).removeprefix(SQLITE)).resolve()
        with transfer("backup") as show:
            n_users = back_up(path, file.resolve(), rate * MEGABYTE, show)
    tell(f"{n_users:,} users in {file}, {file.stat().st_size:,} bytes; every page and every row of the log was checked")


def restore(
    file: Annotated[Path, typer.Argument(help="A backup, or what `export` has printed.", show_default=False)],
    store: StoreUrl = DEFAULT_STORE,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the SQLite store that is there.")] = False,
) -> None:
    """Put a backup or an export in place, checked and in one step. Stop a SQLite service first.

    An export can also be loaded into an empty PostgreSQL store.
    """
    with reporting_errors():
        if not file.is_file():
            raise ValueError(f"there is no file {file}")
        with file.open("rb") as content:
            is_backup = content.read(len(SQLITE_HEADER)) == SQLITE_HEADER
        if store.startswith(SQLITE):
            n_users = _restore_sqlite(file, Path(store.removeprefix(SQLITE)).resolve(), is_backup, replace)
        elif is_backup:
            raise ValueError(f"{file} is a backup of SQLite; PostgreSQL takes what `slatewise store export` prints")
        else:
            n_users = _load(file, store)
    tell(f"{n_users:,} users restored from {file}")


def export(
    store: StoreUrl = DEFAULT_STORE,
    user: Annotated[str | None, typer.Option(help="Only this user.", show_default=False)] = None,
    program: Annotated[
        str | None, typer.Option("--for", help="obp, vw or parquet: a table of shown items.", show_default=False)
    ] = None,
    to: Annotated[Path | None, typer.Option("--to", help="The file to write with --for.", show_default=False)] = None,
) -> None:
    """Print the log as JSON, one user per line, also while a service runs; `restore` reads it again.

    With --for, write what was shown and clicked, with propensities, to a file that other programs read.
    """
    from slatewise.store import open_store
    from slatewise.store.transfer import export_line, export_lines

    with reporting_errors():
        opened = open_store(existing(store), read_only=True)
        try:
            if program is not None or to is not None:
                _export_table(opened, program, to)
                return
            for line in export_lines(opened) if user is None else [export_line(opened, user)]:
                if line is None:
                    raise ValueError(f"the store knows no user {user!r}")
                print_json(line)
        finally:
            opened.close()


def _export_table(store: "Store", program: str | None, file: Path | None) -> None:
    """Write the table of shown items for another program."""
    from slatewise.cli.export_formats import FORMATS
    from slatewise.recommender.log_table import shown_items

    if program not in FORMATS or file is None:
        raise ValueError(f"give --for one of {', '.join(FORMATS)} and --to FILE")
    n_slates = FORMATS[program](shown_items(store), file)
    tell(f"{n_slates:,} slates in {file}" + ("" if n_slates or program == "parquet" else NOT_DRAWN))


def _restore_sqlite(file: Path, path: Path, is_backup: bool, replace: bool) -> int:
    from slatewise.store import sqlite_backup

    if path.exists() and path.stat().st_size and not replace:
        raise ValueError(f"there is a store at {path}; give --replace to put {file} in its place")
    if not is_backup:
        with sqlite_backup.replacement(path) as copy:
            return _load(file, f"{SQLITE}{copy}")
    with transfer("restore") as show:
        return sqlite_backup.restore(file, path, show)


def _load(file: Path, store: str) -> int:
    from slatewise.store import open_store
    from slatewise.store.transfer import load_lines

    opened = open_store(store)
    try:
        with file.open(encoding="utf-8") as lines:
            return load_lines(opened, lines)
    finally:
        opened.close()
