"""The command line; its commands follow the stages of the flow."""

from typing import Annotated

import typer

from slatewise.cli import (
    about,
    catalog,
    data,
    demo,
    evaluate,
    importing,
    items,
    keys,
    reproduce,
    run,
    serve,
    store,
    store_backup,
    store_log,
    train,
    tune,
)
from slatewise.version import __version__

app = typer.Typer(
    help="Slates that learn: short, varied lists of items, personalized click by click.",
    epilog="Start with: slatewise data describe ml-100k",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("about", epilog=about.EXAMPLE)(about.about)
app.add_typer(data.app, name="data")
app.command("train", epilog=train.EXAMPLE)(train.train)
app.add_typer(catalog.app, name="catalog")
app.command("run", epilog=run.EXAMPLE)(run.run)
app.command("reproduce", epilog=reproduce.EXAMPLE)(reproduce.reproduce)
app.command("report", epilog=reproduce.REPORT_EXAMPLE)(reproduce.report)
app.command("tune", epilog=tune.EXAMPLE)(tune.tune)
app.command("demo", epilog=demo.EXAMPLE)(demo.demo)
app.command("evaluate", epilog=evaluate.EXAMPLE)(evaluate.evaluate)
app.command("serve", epilog=serve.EXAMPLE)(serve.serve)
app.add_typer(keys.app, name="keys")
app.add_typer(items.app, name="items")
app.add_typer(store.app, name="store")
store.app.command("backup", epilog=store_backup.BACKUP_EXAMPLE)(store_backup.backup)
store.app.command("restore", epilog=store_backup.RESTORE_EXAMPLE)(store_backup.restore)
store.app.command("export", epilog=store_backup.EXPORT_EXAMPLE)(store_backup.export)
store.app.command("import", epilog=importing.EXAMPLE)(importing.import_table)
store.app.command("fit", epilog=store_log.FIT_EXAMPLE)(store_log.fit)
store.app.command("replay", epilog=store_log.REPLAY_EXAMPLE)(store_log.replay)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"slatewise {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    del version
