"""`slatewise keys`: who may use the service."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from slatewise.cli.console import print_json, stdout, tell

app = typer.Typer(help="Create and revoke the API keys of the service.", no_args_is_help=True)

DAY = 86_400.0
File = Annotated[Path, typer.Option("--keys", envvar="SLATEWISE_KEYS", help="File of API keys.")]
Identifier = Annotated[str, typer.Argument(help="The key's id: `slatewise keys list` shows it.", show_default=False)]
Days = Annotated[float | None, typer.Option(min=0.0, help="Days after which the key expires; by default never.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
KEYS_FILE = Path("keys.json")


@app.command(epilog="Example: slatewise keys add shop --scope serve")
def add(
    name: Annotated[str, typer.Argument(help="Who will hold the key.", show_default=False)],
    scope: Annotated[list[str], typer.Option(help="serve (slates, feedback), read (results, metrics) or admin.")],
    days: Days = None,
    keys: File = KEYS_FILE,
    json: Json = False,
) -> None:
    """Create a key; it is printed once and kept only as a hash."""
    from slatewise.service.keys import edit_keys, new_key

    with _clear_errors():
        text, key = new_key(name, scope, None if days is None else time.time() + days * DAY)
        with edit_keys(keys) as known:
            known.append(key)
    _hand_out(text, key.id, json)


@app.command("list", epilog="Example: slatewise keys list --json")
def list_(keys: File = KEYS_FILE, json: Json = False) -> None:
    """List keys: id, holder, scopes, and whether they are still active."""
    from slatewise.service.keys import read_keys

    with _clear_errors():
        known = read_keys(keys)
    rows = [
        {
            "id": key.id,
            "name": key.name,
            "scopes": list(key.scopes),
            "created": _date(key.created),
            "expires": _date(key.expires),
            "revoked": _date(key.revoked),
            "active": key.is_active(time.time()),
        }
        for key in known
    ]
    if json:
        print_json(rows)
        return
    table = Table("id", "name", "scopes", "created", "expires", "revoked", "active")
    for row in rows:
        words = {**row, "scopes": " ".join(row["scopes"]), "active": "yes" if row["active"] else "no"}  # type: ignore[arg-type]
        table.add_row(*(Text(str(word or "–")) for word in words.values()))
    stdout.print(table)


@app.command(epilog="Example: slatewise keys revoke 1a2b3c4d")
def revoke(identifier: Identifier, keys: File = KEYS_FILE) -> None:
    """Revoke a key; a running service notices at once."""
    from slatewise.service.keys import edit_keys
    from slatewise.service.keys import revoke as revoke_key

    with _clear_errors(), edit_keys(keys) as known:
        revoke_key(known, identifier)
    tell(f"key {identifier} is revoked")


@app.command(epilog="Example: slatewise keys rotate 1a2b3c4d --grace 24")
def rotate(
    identifier: Identifier,
    grace: Annotated[float, typer.Option(min=0.0, help="Hours for which the old key still works.")] = 0.0,
    keys: File = KEYS_FILE,
    json: Json = False,
) -> None:
    """Create a new key with the name and scopes of an old one, which stops working."""
    from slatewise.service.keys import edit_keys
    from slatewise.service.keys import rotate as rotate_key

    with _clear_errors(), edit_keys(keys) as known:
        text, key = rotate_key(known, identifier, time.time() + grace * 3600.0)
    _hand_out(text, key.id, json)


def _hand_out(text: str, identifier: str, json: bool) -> None:
    if json:
        print_json({"id": identifier, "key": text})
        return
    tell("this key is shown only once; keep it like a password:")
    print(text)


def _date(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


@contextmanager
def _clear_errors() -> Iterator[None]:
    from slatewise.service.keys import KeyFileError

    try:
        yield
    except KeyFileError as error:
        sys.exit(f"error: {error}")
