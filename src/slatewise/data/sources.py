"""Where the named data sets come from: find them, verify them by content, keep them parsed.

Tried in this order: the directory in SLATEWISE_DATA (an archive or an unpacked folder), the cache of parsed tables
(SLATEWISE_CACHE, or the platform's cache directory), the home of the data set over HTTPS, and for ML-100K a wheel
that carries it. Every failure is told in one line. Any faithful copy is accepted, whatever its file name, packing or
order of rows, because counts and digest are taken from the parsed ratings; a damaged copy is refused.
"""

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
from slatewise.data.formats import LAYOUTS, Content, Layout, measure, read_layout
from slatewise.data.synthetic import make_world

__all__ = ["SOURCES", "Fetched", "Source", "cache_directory", "fetch", "is_at_hand", "load"]

MOVIELENS_LICENCE = (
    "GroupLens Research, University of Minnesota: research use, no redistribution without permission; "
    "cite Harper and Konstan (2015), The MovieLens Datasets, ACM TiiS 5(4):19"
)
ANIME_LICENCE = "CooperUnion on Kaggle, collected from myanimelist.net; terms on the page of the data set"

Report = Callable[[str], None]


@dataclass(frozen=True)
class Source:
    """One named data set: what it is, how to recognise a copy, which ratings are positive, where to get it.

    A copy in SLATEWISE_DATA is an archive `<stem>.zip` or a folder `<stem>`. Where `expected.digest` is None, only
    the counts are verified.
    """

    name: str
    title: str
    stems: tuple[str, ...]
    layout: Layout
    positive: str
    expected: Content
    way_out: str
    licence: str
    home: str | None = None
    wheel: str | None = None


def _movielens(name: str, title: str, expected: Content, wheel: str | None = None) -> Source:
    home = f"https://files.grouplens.org/datasets/movielens/{name}.zip"
    return Source(
        name=name,
        title=title,
        stems=(name,),
        layout=LAYOUTS[name],
        positive="> 3",
        expected=expected,
        way_out=f"download {home} where that is possible, put {name}.zip into a directory",
        licence=MOVIELENS_LICENCE,
        home=home,
        wheel=wheel,
    )


_ALL = (
    _movielens(
        "ml-100k",
        "MovieLens 100K: 100,000 ratings of 1,682 films by 943 people",
        Content(100_000, 943, 1_682, "9dcd5feb8e298b63be6eb725f9016a84e9732227f10def8241306ceec6f45de6"),
        wheel="recbole==1.2.1",
    ),
    _movielens(
        "ml-1m",
        "MovieLens 1M: 1,000,209 ratings of 3,706 films by 6,040 people",
        Content(1_000_209, 6_040, 3_706, "bee2f850f6ce180edad763576da950dce40f3927de661c340f7c8a58f8f88e16"),
    ),
    Source(
        name="anime",
        title="Anime Recommendations Database: 7,813,737 ratings of 11,200 animes by 73,515 people",
        stems=("anime", "anime-recommendations-database", "archive"),
        layout=LAYOUTS["anime"],
        positive="> 6",
        expected=Content(7_813_737, 73_515, 11_200, None),
        way_out="Kaggle has no anonymous download: sign in, press Download on "
        "https://www.kaggle.com/datasets/CooperUnion/anime-recommendations-database, "
        "put the archive.zip it gives (rating.csv and anime.csv inside) as anime.zip into a directory",
        licence=ANIME_LICENCE,
    ),
    Source(
        name="anime-5k",
        title="a sample of the Anime database: 419,943 ratings of 7,157 animes by 4,714 people",
        stems=("anime-5k",),
        layout=LAYOUTS["anime"],
        positive="> 6",
        expected=Content(419_943, 4_714, 7_157, "6a22b784e6ed2863d097cb5dd504f1edc1a17db6fd06d3ec20ea927d6ac80b04"),
        way_out="the sample has no public home: put your copy of anime-5k.zip into a directory",
        licence=ANIME_LICENCE,
    ),
)
SOURCES: dict[str, Source] = {source.name: source for source in _ALL}
SYNTHETIC = "synthetic"

_log: Report = logging.getLogger(__name__).warning


def _ignore_progress(_done: int, _total: int | None) -> None:
    """Watch a download in silence."""


def load(name: str, report: Report = _log, progress: Progress = _ignore_progress) -> Dataset:
    """Return a named data set with its positive ratings, ready for use."""
    if name == SYNTHETIC:
        return make_world().dataset
    tables = fetch(name, report, progress).tables
    rule = SOURCES[name].positive
    return Dataset.from_frames(tables.ratings, tables.items, positive=rule, keep_unrated=False, name=name)


def fetch(name: str, report: Report = _log, progress: Progress = _ignore_progress) -> Fetched:
    """Return the verified tables of a named data set from the first source that has them."""
    source, failures = _find(name), list[str]()

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
        f"{name} is nowhere to be had:{tried}\nWay out: {source.way_out} and set SLATEWISE_DATA to that directory."
    )


def is_at_hand(name: str) -> str | None:
    """Say where a data set would come from without the network; None when it would have to be downloaded."""
    source, directory = _find(name), _data_directory()
    if directory and (found := _copies(source, directory)):
        return str(found[0])
    folder = cache_directory() / name
    return f"{folder} (cache)" if (folder / MANIFEST).is_file() else None


def _find(name: str) -> Source:
    if name == SYNTHETIC:
        raise DataError(f"{SYNTHETIC} is made on the spot; there is nothing to fetch")
    if name not in SOURCES:
        raise DataError(f"there is no data set {name!r}; choose one of {', '.join(SOURCES)}, {SYNTHETIC}")
    return SOURCES[name]


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
    found = [path for path in archives if path.is_file()] + [path for path in folders if path.is_dir()]
    is_copy_itself = all((directory / member).is_file() for member in source.layout.members)
    return [*found, directory] if is_copy_itself else found


def _from_directory(source: Source, directory: Path, tell: Report) -> Fetched:
    stem = source.stems[0]
    lacks = f"has neither {stem}.zip nor a folder {stem}" if directory.is_dir() else "does not exist"
    failure = DataError(f"{directory} (SLATEWISE_DATA) {lacks}")
    for path in _copies(source, directory):
        try:
            return _from_copy(source, path, tell)
        except DataError as error:
            failure = error
            tell(str(failure))
    raise failure


def _from_copy(source: Source, path: Path, tell: Report) -> Fetched:
    """Take a copy at hand; if the cache was made from this very copy, take the cache."""
    try:
        manifest = read_manifest(source.name, source.expected.digest)
        if manifest is not None and manifest["origin"] == stamp(path, source.layout.members):
            return read_cache(source.name, manifest)
    except DataError as error:
        tell(str(error))
    return _take_in(source, source.layout, path, str(path), tell)


def _from_cache(source: Source) -> Fetched:
    manifest = read_manifest(source.name, source.expected.digest)
    if manifest is None:
        raise DataError(f"{source.name} is not in the cache {cache_directory()}")
    return read_cache(source.name, manifest)


def _from_home(source: Source, tell: Report, progress: Progress) -> Fetched:
    with workspace() as folder:
        archive = folder / f"{source.name}.zip"
        download(str(source.home), archive, progress)
        return _take_in(source, source.layout, archive, str(source.home), tell)


def _from_wheel(source: Source, tell: Report) -> Fetched:
    with workspace() as folder:
        wheel = pip_download(str(source.wheel), folder)
        return _take_in(source, LAYOUTS["recbole"], wheel, f"the wheel {source.wheel}", tell)


def _take_in(source: Source, layout: Layout, path: Path, origin: str, tell: Report) -> Fetched:
    """Parse and verify what arrived, and keep it in the cache."""
    tables = read_layout(path, layout)
    found = measure(tables)
    if difference := source.expected.difference(found):
        raise DataError(f"{source.name} from {origin} is damaged: {difference}")
    fetched = Fetched(tables, origin, str(found.digest))
    try:
        write_cache(source.name, fetched, stamp(path, layout.members))
    except OSError as error:
        tell(f"the cache {cache_directory()} cannot be written ({error.strerror}); set SLATEWISE_CACHE elsewhere")
    return fetched
