"""Arrays on disk without pickle: one safetensors file, and a JSON manifest that holds its sha256.

A directory holds any number of versions, each named after the sha256 of its arrays, `catalog-NAME.safetensors`.
`catalog.json` is the manifest of the version in use; the others have theirs in `catalog-NAME.json`. Every file is
written under a temporary name and renamed, `catalog.json` last, so a reader sees the old version or the new one, never
a mixture, even during a save or after a crash in the middle of one.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save

from slatewise.catalog.mapped_arrays import Arrays as Arrays
from slatewise.catalog.mapped_arrays import map_arrays
from slatewise.files import write_whole

MANIFEST = "catalog.json"
FORMAT = "slatewise-catalog"
VERSION = 1
LARGEST_MANIFEST = 1 << 20
LARGEST_ARRAYS = 64 << 30
PARTS: dict[str, type] = {"arrays": dict, "about": dict}
ARRAYS_PARTS: dict[str, type] = {"file": str, "sha256": str, "bytes": int}
"""What a manifest must contain, and what its description of the arrays must."""
VERSION_NAME = re.compile(r"[0-9a-f]{16}")
FILE_NAME = re.compile(r"catalog-[0-9a-f]{16}\.safetensors")
PROMOTED = "before"
"""The part of `catalog.json` that lists the versions that were in use before, latest last."""


class CatalogError(ValueError):
    """A catalog that cannot be used; the message says what is wrong with which file or part, and how to fix it.

    Examples
    --------
    >>> import numpy as np
    >>> from slatewise import Catalog, CatalogError
    >>> try:
    ...     Catalog.from_vectors(["tea", "tea"], np.eye(2))
    ... except CatalogError as error:
    ...     print(error)
    item 'tea' appears twice; ids must be distinct
    """


def write_arrays(directory: Path, arrays: Arrays, about: dict[str, Any]) -> dict[str, Any]:
    """Write arrays; return the manifest that belongs to them. The same input gives the same bytes."""
    content = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    sha256 = hashlib.sha256(content).hexdigest()
    name = f"catalog-{sha256[:16]}.safetensors"
    write_whole(directory / name, [content])
    described = {"file": name, "sha256": sha256, "bytes": len(content)}
    return {"format": FORMAT, "version": VERSION, "arrays": described, "about": about}


def write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest with its own hash."""
    signed = {**manifest, "sha256": _digest(manifest)}
    write_whole(path, [(json.dumps(signed, indent=1, sort_keys=True) + "\n").encode()])


def manifest_path(directory: Path, version: str | None = None) -> Path:
    """Return where the manifest of a version is; without one, that of the version in use."""
    if version is not None and not VERSION_NAME.fullmatch(version):
        raise CatalogError(f"{version!r} is not the name of a version; `slatewise catalog list` shows them")
    return directory / (MANIFEST if version is None else f"catalog-{version}.json")


def read_model(directory: Path, version: str | None = None) -> tuple[Arrays, dict[str, Any], str]:
    """Check a version; return its arrays, mapped from the file and read-only, their description and their sha256.

    The hash is that of the file as it is now: replace a catalog by renaming a new file, as `save` does, and never write
    into one that is in use.
    """
    manifest = read_manifest(directory, version)
    expected = manifest["arrays"]
    path = directory / expected["file"]
    check_arrays_file(path, expected)
    try:
        return map_arrays(path), manifest["about"], expected["sha256"]
    except (SafetensorError, OSError, KeyError) as error:
        raise CatalogError(f"{path} is not a readable safetensors file ({error}); train or copy it again") from error


def read_manifest(directory: Path, version: str | None = None) -> dict[str, Any]:
    """Read only the manifest and check its hash, format and version."""
    path = manifest_path(directory, version)
    if not path.is_file():
        missing = f"contains no catalog ({MANIFEST} is missing); create one with `slatewise train`"
        raise CatalogError(f"{directory} {missing if version is None else f'has no version {version}'}")
    if path.stat().st_size > LARGEST_MANIFEST:
        raise CatalogError(f"{path} is larger than a manifest can be ({LARGEST_MANIFEST:,} bytes)")
    try:
        manifest = json.loads(path.read_bytes())
        claimed = manifest.pop("sha256")
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError) as error:
        raise CatalogError(f"{path} is not a catalog manifest; train or copy the catalog again") from error
    if manifest.get("format") != FORMAT or claimed != _digest(manifest):
        raise CatalogError(f"{path} is damaged: its sha256 does not match; train or copy the catalog again")
    if manifest.get("version") != VERSION:
        raise CatalogError(
            f"{path} has version {manifest.get('version')}, but this slatewise reads version {VERSION}; train it again"
        )
    _check_parts(path, manifest, PARTS)
    _check_parts(path, manifest["arrays"], ARRAYS_PARTS)
    return dict(manifest)


def _check_parts(path: Path, parts: dict[str, Any], expected: dict[str, type]) -> None:
    for name, kind in expected.items():
        if type(parts.get(name)) is not kind:
            raise CatalogError(f"{path} has no valid part {name!r}; train or copy the catalog again")


def check_arrays_file(path: Path, expected: dict[str, Any]) -> None:
    """Fail unless the file of the arrays is the one that the manifest names, byte by byte."""
    if not FILE_NAME.fullmatch(path.name) or path.name != expected["file"]:
        raise CatalogError(
            f"the manifest names the file {expected['file']!r}, which no catalog uses; train or copy it again"
        )
    if not path.is_file():
        raise CatalogError(f"{path} is missing; train or copy the catalog again")
    size = path.stat().st_size
    if size != expected["bytes"] or size > LARGEST_ARRAYS:
        raise CatalogError(f"{path} is damaged: {size:,} bytes instead of {expected['bytes']:,}")
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 != expected["sha256"]:
        raise CatalogError(f"{path} is damaged: its sha256 does not match; train or copy the catalog again")


def _digest(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
