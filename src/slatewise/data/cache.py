"""A cache of verified data sets as Parquet, so that an archive is parsed only once.

One folder per data set: two tables and, written last, a manifest with their checksums and their origin.
"""

import hashlib
import io
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs
import polars as pl

from slatewise.data.dataset import DataError
from slatewise.data.formats import Tables
from slatewise.files import write_whole

CACHE_FORMAT = 1
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Fetched:
    """A verified data set: its tables, a description of where they came from, and the digest of the ratings."""

    tables: Tables
    origin: str
    digest: str


def cache_directory() -> Path:
    """Return the directory where parsed data sets are kept: SLATEWISE_CACHE, or the platform's cache directory."""
    return Path(os.environ.get("SLATEWISE_CACHE") or platformdirs.user_cache_dir("slatewise")).expanduser()


@contextmanager
def workspace() -> Iterator[Path]:
    """Provide a temporary directory inside the cache, or in the system's own if the cache is not writable."""
    try:
        cache_directory().mkdir(parents=True, exist_ok=True)
        temporary = tempfile.TemporaryDirectory(dir=cache_directory(), prefix=".download-")
    except OSError:
        temporary = tempfile.TemporaryDirectory(prefix="slatewise-")
    with temporary as folder:
        yield Path(folder)


def read_manifest(name: str, digest: str | None) -> dict[str, Any] | None:
    """Return the manifest of a cached data set; None if it is not in the cache."""
    path = cache_directory() / name / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
        described = {key: manifest[key] for key in ("format", "digest", "from", "origin", "files")}
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} in the cache is damaged, so it is ignored ({type(error).__name__})") from error
    if described["format"] != CACHE_FORMAT or digest not in (None, described["digest"]):
        raise DataError(f"{path.parent} in the cache has another version, so it is ignored")
    return described


def read_cache(name: str, manifest: dict[str, Any]) -> Fetched:
    """Return the cached tables; both files are compared with their checksums."""
    folder = cache_directory() / name
    frames = {}
    for table in ("ratings", "items"):
        path = folder / f"{table}.parquet"
        try:
            content = path.read_bytes()
            if hashlib.sha256(content).hexdigest() != manifest["files"][path.name]:
                raise DataError(f"{path} in the cache is damaged (checksum), so it is ignored")
            frames[table] = pl.read_parquet(content)
        except (OSError, KeyError, TypeError, pl.exceptions.PolarsError) as error:
            raise DataError(f"{path} in the cache cannot be read ({type(error).__name__})") from error
    return Fetched(Tables(**frames), f"{folder} (cache of {manifest['from']})", manifest["digest"])


def write_cache(name: str, fetched: Fetched, fingerprint: dict[str, str | int]) -> None:
    """Write both tables as Parquet and then, last, the manifest with their checksums."""
    folder = cache_directory() / name
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {
        "format": CACHE_FORMAT,
        "digest": fetched.digest,
        "from": fetched.origin,
        "origin": fingerprint,
        "files": {
            f"{table}.parquet": _write_parquet(folder / f"{table}.parquet", frame)
            for table, frame in vars(fetched.tables).items()
        },
    }
    write_whole(folder / MANIFEST, [json.dumps(manifest, indent=2).encode()])


def _write_parquet(path: Path, frame: pl.DataFrame) -> str:
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="lz4", statistics=False)
    write_whole(path, [buffer.getvalue()])
    return hashlib.sha256(buffer.getbuffer()).hexdigest()
