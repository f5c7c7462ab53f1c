"""Versions of a catalog in one directory: which one is in use, which were before, and going back.

`catalog.json` is replaced in one step and lists the versions that were in use before, so that a crash at any moment
leaves the old version or the new one in use, and a way back from both. Writers take turns by a lock on the directory;
readers need none.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slatewise.catalog.model_files import (
    MANIFEST,
    PROMOTED,
    Arrays,
    CatalogError,
    manifest_path,
    read_manifest,
    read_model,
    write_arrays,
    write_manifest,
)

KEPT = 5
"""How many versions are kept besides those that they were trained from; the oldest are deleted."""
REMEMBERED = 20
"""How many versions that were in use before are listed."""


@dataclass(frozen=True)
class Version:
    """A version of a catalog: named after its arrays, with what it was made from, and when it was written."""

    name: str
    sha256: str
    written_at: float
    is_current: bool
    about: dict[str, Any]


def add_version(directory: Path, arrays: Arrays, about: dict[str, Any], *, is_promoted: bool = True) -> str:
    """Write a version and put it in use, unless told otherwise; return the sha256 of its arrays."""
    directory.mkdir(parents=True, exist_ok=True)
    with _turn(directory):
        manifest = write_arrays(directory, arrays, about)
        sha256 = str(manifest["arrays"]["sha256"])
        if is_promoted:
            _promote(directory, manifest)
        elif sha256[:16] != _current_name(directory):
            write_manifest(manifest_path(directory, sha256[:16]), manifest)
        _delete_old(directory, sha256[:16])
    return sha256


def versions(directory: Path) -> list[Version]:
    """Return all versions of a catalog, the newest first, without those whose manifest is damaged."""
    current = current_version(directory)
    names = {path.stem.removeprefix("catalog-") for path in directory.glob("catalog-*.json")} - {current}
    result = [_version(directory, current, current)]
    for name in names:
        with suppress(CatalogError):
            result.append(_version(directory, name, current))
    return sorted(result, key=lambda version: (-version.written_at, version.name))


def current_version(directory: Path) -> str:
    """Return the name of the version in use."""
    return str(read_manifest(directory)["arrays"]["sha256"][:16])


def promote(directory: Path, name: str) -> str:
    """Put a version in use, in one step; its hash is checked first. Returns the name of the one before."""
    with _turn(directory):
        before = current_version(directory)
        if name != before:
            read_model(directory, name)
            _promote(directory, read_manifest(directory, name))
    return before


class NoVersionError(CatalogError):
    """There is no version to go back to."""


def rollback(directory: Path) -> tuple[str, str]:
    """Put the version in use that was in use before; return the names of the present and the withdrawn version."""
    with _turn(directory):
        withdrawn, before = current_version(directory), list(read_manifest(directory).get(PROMOTED, []))
        while before:
            name = before.pop()
            if manifest_path(directory, name).is_file():
                read_model(directory, name)
                _point_to(directory, read_manifest(directory, name), before)
                return name, withdrawn
    raise NoVersionError(f"{directory} has no version from before {withdrawn}; `slatewise catalog list` shows all")


def _promote(directory: Path, manifest: dict[str, Any]) -> None:
    before: list[str] = []
    with suppress(CatalogError):  # there is none, or a damaged one, which may be replaced
        current = read_manifest(directory)
        name = current["arrays"]["sha256"][:16]
        before = [earlier for earlier in current.get(PROMOTED, []) if earlier != name]
        before += [] if name == manifest["arrays"]["sha256"][:16] else [name]
    _point_to(directory, manifest, before[-REMEMBERED:])


def _point_to(directory: Path, manifest: dict[str, Any], before: list[str]) -> None:
    """Put a version in use; the present one gets a manifest under its own name first."""
    with suppress(CatalogError):
        current = read_manifest(directory)
        current.pop(PROMOTED, None)
        path = manifest_path(directory, current["arrays"]["sha256"][:16])
        if not path.is_file():
            write_manifest(path, current)
            written = (directory / MANIFEST).stat().st_mtime_ns
            os.utime(path, ns=(written, written))
    write_manifest(directory / MANIFEST, {**manifest, **({PROMOTED: before} if before else {})})


def _current_name(directory: Path) -> str | None:
    try:
        return current_version(directory)
    except CatalogError:
        return None


def _version(directory: Path, name: str, current: str) -> Version:
    own = manifest_path(directory, name)
    path = own if own.is_file() else directory / MANIFEST
    manifest = read_manifest(directory, name if path is own else None)
    about = manifest["about"].get("origin", {})
    return Version(name, manifest["arrays"]["sha256"], path.stat().st_mtime, name == current, about)


def _delete_old(directory: Path, latest: str) -> None:
    """Delete versions beyond those to keep, and what writers that were killed have left."""
    with suppress(CatalogError):
        manifest = read_manifest(directory)
        kept = {latest, manifest["arrays"]["sha256"][:16], *manifest.get(PROMOTED, [])[-1:]}
        known = versions(directory)
        for version in known:
            if len(kept) < KEPT:
                kept.add(version.name)
        kept |= {str(version.about.get("start", version.name)) for version in known if version.name in kept}
        for version in known:
            if version.name not in kept:
                manifest_path(directory, version.name).unlink(missing_ok=True)
        for path in directory.glob("catalog-*.safetensors"):
            if not path.with_suffix(".json").is_file() and path.stem.removeprefix("catalog-") not in kept:
                path.unlink(missing_ok=True)
        for unfinished in directory.glob(".catalog*"):
            unfinished.unlink(missing_ok=True)


@contextmanager
def _turn(directory: Path) -> Iterator[None]:
    """Wait until no other process writes to the directory; a process that dies gives up its turn."""
    if not directory.is_dir():
        raise CatalogError(f"{directory} contains no catalog; create one with `slatewise train`")
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
