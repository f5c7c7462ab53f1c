"""`slatewise serve`: the recommender behind HTTP."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slatewise.cli.catalog import variety_words
from slatewise.cli.console import stdout, warn_of_password

if TYPE_CHECKING:
    from slatewise.service.settings import Settings

EXAMPLE = "Example: slatewise serve --catalog demo --store sqlite:///slates.db"
ONE_THREAD = "OPENBLAS_NUM_THREADS"


def serve(
    catalog: Annotated[Path | None, typer.Option(help="Directory of the catalog.", show_default=False)] = None,
    store: Annotated[
        str | None, typer.Option(help="memory://, sqlite:///FILE or postgresql://…  [default: sqlite:///slates.db]")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="A policy, or shares of users: dc2b-calibrated=0.9,popular=0.1", metavar="SHARES")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.  [default: 127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 picks a free one.  [default: 8000]")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes; more than one requires PostgreSQL.  [default: 1]")
    ] = None,
    keys: Annotated[Path | None, typer.Option(help="File of API keys.  [default: keys.json, if it exists]")] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A host name by which clients call the service; may be repeated.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file of settings.  [default: slatewise.toml, if it exists]")
    ] = None,
) -> None:
    """Serve slates over HTTP until Ctrl-C; the page is at /, the API reference at /docs.

    Every setting can also come from the environment (SLATEWISE_PORT=8080) or a TOML file; flags win over the
    environment, the environment over the file.
    """
    _restart_with_one_thread()
    from slatewise.service.settings import load_settings
    from slatewise.store import StoreError

    if store is not None:
        warn_of_password(store)
    flags = {
        "catalog": catalog,
        "store": store,
        "policies": policy,
        "host": host,
        "port": port,
        "workers": workers,
        "keys": keys,
        "allowed_hosts": allow_host or None,
    }
    try:
        _serve(load_settings(flags, config))
    except (ValueError, StoreError) as error:
        sys.exit(f"error: {error}")


def _serve(settings: "Settings") -> None:
    from slatewise.service.server import address_of, check, listen, make_recommender, run_server, run_workers

    check(settings)
    with listen(settings) as listener:
        recommender = make_recommender(settings)
        address = address_of(settings, listener.getsockname()[1])
        stdout.print(f"serving {recommender.catalog.n_items:,} items at {address} (Ctrl-C stops)", markup=False)
        for sentence in variety_words(recommender.catalog):
            stdout.print(sentence, markup=False)
        if settings.workers == 1:
            run_server(settings, listener, recommender)
            return
    recommender.close()
    run_workers(settings)


def _restart_with_one_thread() -> None:
    """Restart with BLAS on one thread: it reads this variable when NumPy is loaded, which has happened by now."""
    if ONE_THREAD not in os.environ:
        os.environ[ONE_THREAD] = "1"
        os.execv(sys.executable, [sys.executable, "-m", "slatewise", *sys.argv[1:]])  # noqa: S606
