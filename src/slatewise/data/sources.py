"""Named data sets: find the published ones, verify their content and cache them parsed; plug-ins bring their own.

Sources are tried in this order: the directory in SLATEWISE_DATA (an archive or an unpacked folder), the cache of parsed
tables (SLATEWISE_CACHE, or the platform's cache directory), the data set's home on the web, and for ML-100K a wheel
that contains it. Every failure is reported in one line. Any faithful copy is accepted, whatever its file name, packing
or row order, because counts and digest are computed from the parsed ratings; a damaged copy is refused.
"""

import logging
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from slatewise.data.archives import stamp
from slatewise.data.cache import (
    MANIFEST,
    Fetched,
    cache_directory,
    read_cache,
    read_manifest,
    workspace,
    write_cache,
)
from slatewise.data.dataset import DataError, Dataset
from slatewise.data.download import Progress, download, pip_download
from slatewise.data.formats import LAYOUTS, Layout, measure, read_layout
from slatewise.data.published import SOURCES, Source
from slatewise.data.synthetic import load_synthetic
from slatewise.plugins import PluginError, Registry

__all__ = ["DATASETS", "SOURCES", "Fetched", "Source", "cache_directory", "fetch", "load", "local_copy"]

Report = Callable[[str], None]

_log: Report = logging.getLogger(__name__).warning


def _ignore_progress(_done: int, _total: int | None) -> None:
    """Watch a download in silence."""


def load(name: str, report: Report = _log, progress: Progress = _ignore_progress) -> Dataset:
    """Return a named data set with its positive ratings, ready for use.

    Parameters
    ----------
    name : str
        A key of `DATASETS`: a published data set, `synthetic`, or one that a plug-in provides.
    report : callable, optional
        Called with one line for every source that failed; by default a logged warning.
    progress : callable, optional
        Called with (bytes done, bytes in all or None) while a data set is downloaded.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> from slatewise.data.sources import load
    >>> load("synthetic").n_items
    400
    """
    if name in SOURCES:
        return _load_published(name, report, progress)
    _check_name(name)
    dataset = DATASETS[name]()
    if not isinstance(dataset, Dataset):
        raise PluginError(
            f"the data set {name!r} of the package {DATASETS.provider(name)} returned a {type(dataset).__name__}; "
            f"it must return a slatewise.Dataset"
        )
    return dataset


def _load_published(name: str, report: Report = _log, progress: Progress = _ignore_progress) -> Dataset:
    tables = fetch(name, report, progress).tables
    rule = SOURCES[name].positive
    return Dataset.from_frames(tables.ratings, tables.items, positive=rule, keep_unrated=False, name=name)


DATASETS: Registry[Callable[[], Dataset]] = Registry(
    "slatewise.data",
    "data set",
    {**{name: partial(_load_published, name) for name in SOURCES}, "synthetic": load_synthetic},
)
"""Every data set with a name: published, synthetic or from a plug-in, as a function that returns a Dataset."""


def fetch(name: str, report: Report = _log, progress: Progress = _ignore_progress) -> Fetched:
    """Return the verified tables of a published data set from the first source that has them."""
    source, failures = _source(name), list[str]()

    def tell(failure: str) -> None:
        if failure not in failures:
            failures.append(failure)
            report(failure)

    for attempt in _attempts(source, tell, progress):
        try:
            return attempt()
        except (DataError, OSError) as error:
            tell(str(error))
    tried = "".join(f"\n  - {failure}" for failure in failures)
    raise DataError(
        f"{name} is not available from any source:{tried}\n"
        f"To get it: {source.instructions} and set SLATEWISE_DATA to that directory."
    )


def local_copy(name: str) -> str | None:
    """Say where a published data set would come from without the network; None if it would have to be downloaded."""
    source, directory = _source(name), _data_directory()
    if directory and (copies := _copies(source, directory)):
        return str(copies[0])
    folder = cache_directory() / name
    return f"{folder} (cache)" if (folder / MANIFEST).is_file() else None


def _source(name: str) -> Source:
    _check_name(name)
    if name not in SOURCES:
        raise DataError(f"{name} is not downloaded, so there is nothing to fetch; use it by its name, --data {name}")
    return SOURCES[name]


def _check_name(name: str) -> None:
    if name not in DATASETS:
        raise DataError(f"there is no data set {name!r}; choose one of {', '.join(DATASETS)}")


def _attempts(source: Source, tell: Report, progress: Progress) -> Iterator[Callable[[], Fetched]]:
    if directory := _data_directory():
        yield partial(_from_directory, source, directory, tell)
    yield partial(_from_cache, source)
    if source.home:
        yield partial(_from_home, source, tell, progress)
    if source.wheel:
        yield partial(_from_wheel, source, tell)


def _data_directory() -> Path | None:
    named = os.environ.get("SLATEWISE_DATA")
    return Path(named).expanduser() if named else None


def _copies(source: Source, directory: Path) -> list[Path]:
    """List what could be a copy: archives, then folders, then the directory itself."""
    archives = [directory / f"{stem}.zip" for stem in source.stems]
    folders = [directory / stem for stem in source.stems]
    copies = [path for path in archives if path.is_file()] + [path for path in folders if path.is_dir()]
    is_copy_itself = all((directory / member).is_file() for member in source.layout.members)
    return [*copies, directory] if is_copy_itself else copies


def _from_directory(source: Source, directory: Path, tell: Report) -> Fetched:
    stem = source.stems[0]
    problem = f"has neither {stem}.zip nor a folder {stem}" if directory.is_dir() else "does not exist"
    failure = DataError(f"{directory} (SLATEWISE_DATA) {problem}")
    for path in _copies(source, directory):
        try:
            return _from_copy(source, path, tell)
        except DataError as error:
            failure = error
            tell(str(failure))
    raise failure


def _from_copy(source: Source, path: Path, tell: Report) -> Fetched:
    """Read a local copy, or the cache if the cache was made from this very copy."""
    try:
        manifest = read_manifest(source.name, source.expected.digest)
        if manifest is not None and manifest["origin"] == stamp(path, source.layout.members):
            return read_cache(source.name, manifest)
    except DataError as error:
        tell(str(error))
    return _parse_and_cache(source, source.layout, path, str(path), tell)


def _from_cache(source: Source) -> Fetched:
    manifest = read_manifest(source.name, source.expected.digest)
    if manifest is None:
        raise DataError(f"{source.name} is not in the cache {cache_directory()}")
    return read_cache(source.name, manifest)


def _from_home(source: Source, tell: Report, progress: Progress) -> Fetched:
    with workspace() as folder:
        archive = folder / f"{source.name}.zip"
        download(str(source.home), archive, progress)
        return _parse_and_cache(source, source.layout, archive, str(source.home), tell)


def _from_wheel(source: Source, tell: Report) -> Fetched:
    with workspace() as folder:
        wheel = pip_download(str(source.wheel), folder)
        return _parse_and_cache(source, LAYOUTS["recbole"], wheel, f"the wheel {source.wheel}", tell)


def _parse_and_cache(source: Source, layout: Layout, path: Path, origin: str, tell: Report) -> Fetched:
    """Parse and verify a copy, and keep the tables in the cache."""
    tables = read_layout(path, layout)
    content = measure(tables)
    if difference := source.expected.difference(content):
        raise DataError(f"{source.name} from {origin} is damaged: {difference}")
    fetched = Fetched(tables, origin, str(content.digest))
    try:
        write_cache(source.name, fetched, stamp(path, layout.members))
    except OSError as error:
        tell(f"cannot write the cache {cache_directory()} ({error.strerror}); set SLATEWISE_CACHE to another directory")
    return fetched
