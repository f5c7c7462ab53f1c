"""`slatewise about`: versions, machine, store and settings, for a report of a problem; no secrets."""

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer

from slatewise.cli.console import print_json, stdout
from slatewise.version import __version__

EXAMPLE = "Example: slatewise about --json"
PACKAGES = (
    "numpy",
    "numba",
    "safetensors",
    "polars",
    "cornac",
    "scipy",
    "apsw",
    "psycopg",
    "pydantic",
    "starlette",
    "uvicorn",
    "httpx",
    "distributed",
    "matplotlib",
)
SECRET = {"store", "log_salt", "keys", "catalog"}
"""Settings whose values are not shown: secrets, and paths that may name people."""


def about(
    config: Annotated[Path | None, typer.Option(help="The settings file of the service.", show_default=False)] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Print versions, machine, store and settings, without secrets, to be copied into a report of a problem."""
    facts = describe(config)
    if json:
        print_json(facts)
        return
    for name, value in facts.items():
        shown = ", ".join(f"{key} {part}" for key, part in value.items()) if isinstance(value, dict) else value
        stdout.print(f"{name:10s} {shown or '–'}", markup=False, soft_wrap=True)


def describe(config: Path | None = None) -> dict[str, Any]:
    """Return what `about` prints."""
    packages = {name: version for name in PACKAGES if (version := _version(name)) is not None}
    return {
        "slatewise": __version__,
        "python": f"{platform.python_version()} ({sys.implementation.name})",
        "system": platform.platform(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {_memory()}",
        "packages": packages,
        **_service(config),
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _memory() -> str:
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return "memory unknown"
    return f"{total / 2**30:.0f} GB"


def _service(config: Path | None) -> dict[str, Any]:
    """Describe the store and the settings that differ from their defaults, as far as the service is installed."""
    try:
        from slatewise.service.settings import BadSettingsError, Settings, load_settings
    except ModuleNotFoundError as error:
        return {"store": f"the service is not installed ({error.name} is missing)", "settings": {}}
    given = {} if os.environ.get("SLATEWISE_CATALOG") or _names_catalog(config) else {"catalog": Path()}
    try:
        settings = load_settings(given, config)
    except BadSettingsError as error:
        return {"store": "unknown", "settings": f"cannot be used: {error}"}
    changed = {
        name: "(set)" if name in SECRET else getattr(settings, name)
        for name, field in Settings.model_fields.items()
        if name not in given and getattr(settings, name) != field.default
    }
    return {"store": settings.store_kind, "settings": {name: _plain(value) for name, value in changed.items()}}


def _names_catalog(config: Path | None) -> bool:
    from slatewise.service.settings import CONFIG_FILE

    file = config or CONFIG_FILE
    return file.is_file() and "catalog" in file.read_text(encoding="utf-8", errors="replace")


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) else str(value)
