"""`slatewise store`: maintain the store of a service."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slatewise.cli.console import print_json, stdout, tell, warn_of_password

if TYPE_CHECKING:
    from slatewise.recommender import Recommender

app = typer.Typer(help="Maintain the store of a service.", no_args_is_help=True)

StoreUrl = Annotated[
    str,
    typer.Option(
        "--store", envvar="SLATEWISE_STORE", callback=warn_of_password, help="sqlite:///FILE or postgresql://…"
    ),
]
CatalogDirectory = Annotated[Path, typer.Option(help="Directory of the catalog that is served.", show_default=False)]
Config = Annotated[
    Path | None,
    typer.Option(help="Settings of the service, if not slatewise.toml or the environment.", show_default=False),
]
DEFAULT_STORE = "sqlite:///slates.db"


@app.command(epilog="Example: slatewise store verify --catalog demo --store sqlite:///slates.db")
def verify(
    catalog: CatalogDirectory,
    store: StoreUrl = DEFAULT_STORE,
    config: Config = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Compare every belief with the log it was learned from, also while a service runs; fail if anything is wrong."""
    with opened(store, catalog, config, read_only=True) as recommender:
        problems: list[tuple[str | None, str]] = [(None, problem) for problem in recommender.store.check()]
        verified = list(recommender.verify())
        problems += [(user, problem) for user, problem in verified if problem is not None]
    if json:
        listed = [{"user": user, "problem": problem} for user, problem in problems]
        print_json({"users": len(verified), "problems": listed})
    else:
        for user, problem in problems:
            stdout.print(_line(user, problem), markup=False, soft_wrap=True)
        stdout.print(f"{len(verified):,} users verified, {len(problems):,} problems", markup=False)
    if problems:
        raise typer.Exit(1)


@app.command(epilog="Example: slatewise store rebuild --catalog demo --store sqlite:///slates.db")
def rebuild(
    catalog: CatalogDirectory,
    store: StoreUrl = DEFAULT_STORE,
    config: Config = None,
    user: Annotated[str | None, typer.Option(help="Only this user.", show_default=False)] = None,
    everybody: Annotated[bool, typer.Option("--all", help="All users, also those without problems.")] = False,
) -> None:
    """Rebuild from the log the beliefs of all users with a problem and the rates of items, or the belief of one user.

    Stop a SQLite service first.
    """
    with opened(store, catalog, config, read_only=False) as recommender:
        users = [user] if user is not None else [name for name, wrong in recommender.verify() if wrong or everybody]
        if user is not None and user not in set(recommender.store.users()):
            raise ValueError(f"the store knows no user {user!r}")
        for name in users:
            recommender.rebuild(name)
        if user is None:
            recommender.rebuild_rates()
    tell(f"{len(users):,} beliefs rebuilt from the log")


@app.command(epilog="Example: slatewise store vacuum --store sqlite:///slates.db")
def vacuum(store: StoreUrl = DEFAULT_STORE) -> None:
    """Return unused space and leave no trace of forgotten users. Stop a SQLite service first."""
    from slatewise.store import open_store

    with reporting_errors():
        opened = open_store(existing(store))
        try:
            opened.vacuum()
            tell(f"vacuumed; {opened.health().get('bytes', 0):,} bytes remain")
        finally:
            opened.close()


@app.command(epilog="Example: slatewise store partition 16 --store postgresql://slatewise@db.internal/slatewise")
def partition(
    partitions: Annotated[int, typer.Argument(help="How many partitions each table about people is to have.")],
    store: Annotated[str, typer.Option("--store", envvar="SLATEWISE_STORE", callback=warn_of_password)],
) -> None:
    """Divide the tables about people into hash partitions by user, in PostgreSQL, while everybody else is refused.

    Best done before the first user comes. It can be done again with another number.
    """
    from slatewise.store.postgres_partitions import partition_tables

    with reporting_errors():
        if not store.startswith("postgresql://"):
            raise ValueError("only a PostgreSQL store has partitions; give --store postgresql://…")
        partition_tables(store, partitions, tell)
    tell(f"each table about people has {partitions:,} partitions")


def _line(user: str | None, problem: str) -> str:
    return f"the store: {problem}" if user is None else f"user {user!r}: {problem}"


@contextmanager
def opened(store: str, catalog: Path, config: Path | None, read_only: bool) -> Iterator["Recommender"]:
    """Open a store with the settings that the service has: beliefs learned by other rules could not be compared."""
    from slatewise.service.server import make_recommender
    from slatewise.service.settings import load_settings
    from slatewise.store import open_store

    with reporting_errors():
        settings = load_settings({"catalog": catalog, "store": store}, config)
        with make_recommender(settings, open_store(existing(store), read_only=read_only)) as recommender:
            yield recommender


@contextmanager
def reporting_errors() -> Iterator[None]:
    """Report errors of the store in one sentence."""
    from slatewise.store import StoreError

    try:
        yield
    except (StoreError, ValueError) as error:
        sys.exit(f"error: {error}")


def existing(store: str) -> str:
    """Refuse a SQLite file that does not exist, rather than create an empty one."""
    name = store.removeprefix("sqlite:///")
    if name not in ("", store) and not Path(name).is_file():
        raise ValueError(f"there is no store at {name}; give --store URL")
    return store
